-- Decides a batch of charge sets, each all or nothing, at one instant of this server's clock.
--
-- KEYS   where the bucket of each charge lies, set after set, charge after charge; or each key once, where
--        there are places, and each set's, where sets lie together.
-- ARGV   the shapes: what charges ask apart from the key, packed (see SHAPE); behind them, unless each
--        set is one charge with a key of its own, all are of one shape, and TIME is to be read:
--        ·   the places, where sets are not all alike, or some key comes again and they do not lie
--            together: the number of each charge's key, from 1, in two bytes. The caller finds out more
--            cheaply than it could be here
--        ·   the plan, two bytes per charge, high first: bit 15 marks the last charge of a set, the
--            lower ones number its shape from 0. One that is shorter than the charges is repeated: it
--            says of one set what is true of all. Bit 14 of the first says that there are places, bit 13
--            that sets lie together: the charges of each have one key, which no other set has
--        ·   the instant in µs, for tests; '' to read TIME
-- reply  for each charge, what its bucket held before the set was decided: the value as stored (of a
--        record, see RECORD, what is behind the period), nil for nothing, or of a log the few runs the
--        answer depends on (see sliding_log.lua); then the instant in µs; then the numbers, from 1, of the
--        sets that were refused. One array, for each costs Redis as much as a decision's arithmetic.
--        Nothing but the instant where a calendar's window does not hold it: then nothing was decided,
--        and the caller asks again. Of a charge that went the short way it is the number that matters: a
--        fixed window's once the units asked for were added, just those units where there was nothing; or
--        when a debt under the limit of the charge is clear, 0 for nothing. Where all did, the reply is
--        all those numbers as doubles in one string, for an array costs as much again
--
-- The caller has the same algorithms and works every number of its answer out of that. The script
-- only finds out whether charges fit, and what is to be remembered.
--
-- Order. All values are read, then all sets decided in memory in their order, then what changed is
-- written, each key once. A refused set leaves values and lifetimes as they were. Some are written
-- when their turn comes instead: on the short way (short_way.lua) fixed windows, which are read and
-- written at once, and buckets whose set has one key to itself; and long logs, piece by piece. What the
-- short way leaves over is read when all it decided is written.
--
-- Atomic, because the server runs nothing else meanwhile; and so does TIME belong to the decision:
-- it is read here, once, so clocks of other machines do not matter.
--
-- Exact. Lua's numbers are doubles, which hold every integer up to 2^53. Quotas are checked so that
-- all products below stay within that; where one may not, it says so, and is done in wide.lua. The
-- quotient of two such integers is rounded, but for x < 2^53 its floor is right: x/d differs from an
-- integer above it by at least 1/d, which is more than half a unit in the last place. So x % d,
-- which is x − ⌊x/d⌋·d, is exact, and (x − x % d)/d is the integer quotient.
--
-- Lifetimes. Every key that is written has one: until all in it is stale, and then at least the slack of
-- the period, so that a clock set back by as much still finds it. Where a write does not move that
-- instant, SETRANGE leaves the lifetime as it is, at less than half the cost of SET with one.
--
-- Values are packed, little-endian: unsigned integers, instants and counts of 7 bytes unless stated
-- otherwise, or doubles. Only fixed windows are usually a number. What no algorithm would have written, a
-- value of another type, another length or with numbers beyond any bound, is taken for nothing, and
-- replaced by the first charge: one foreign key is no reason to leave a batch undecided.
--
-- Cost. A call of redis.call costs about as much as making ten tables, unpacking an integer of seven
-- bytes as much as two doubles, floor as much as nine times x - x % d. What few calls need is made
-- only when they do.

local call, byte, floor = redis.call, string.byte, math.floor
local pack, unpacked, unpack, type = struct.pack, struct.unpack, unpack, type

-- Algorithm, op, enforcement, group; limit, period, capacity, the least and the most units, and the
-- instant they were taken at, of a refund; of a calendar, where the present window begins and ends.
-- Integers all, as doubles.
local SHAPE = '<BBBBdddddddd'
local TAKE, PEEK, REFUND, RESET = 1, 2, 3, 4
local MOST_EXACT = 9007199254740991
local ENFORCE, SHADOW, ANY_OF = 1, 2, 3
local FIXED_WINDOW, SLIDING_LOG, SLIDING_WINDOW, TOKEN_BUCKET, LEAKY_BUCKET = 1, 2, 3, 4, 5

-- The plan, and how many charges it is of; none where each set is one charge of the first shape.
local plan, planned = nil, 1
-- Of each charge its key; where there are places, or sets lie together, only once somebody needs that.
local keys, places, together, charges = KEYS, nil, false, #KEYS
local shapes_sent, given = #ARGV, ''
if shapes_sent > 1 then
  plan, given = { byte(ARGV[shapes_sent - 1], 1, -1) }, ARGV[shapes_sent]
  planned, shapes_sent = #plan / 2, shapes_sent - 2
  if plan[1] and plan[1] % 64 >= 32 then
    plan[1] = plan[1] - 32
    together, charges = true, #KEYS * planned
  end
  if plan[1] and plan[1] % 128 >= 64 then
    plan[1] = plan[1] - 64
    charges = #ARGV[shapes_sent] / 2
    places = { unpacked('>' .. string.rep('H', charges), ARGV[shapes_sent]) }
    shapes_sent = shapes_sent - 1
  end
end

local now = given ~= '' and tonumber(given)
if not now then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

-- The milliseconds a key lives that is to be there until an instant, as PX takes them. A given
-- instant says nothing of this server's clock, so then it is an hour.
local function lifetime(instant)
  if given ~= '' then return '3600000' end
  return string.format('%d', floor((instant - now) / 1000) + 1)
end

-- How long a key outlives its state at least: a period, within bounds. It is also how seldom the
-- lifetime of a busy bucket is written anew.
local function slack_of(period)
  if period < 10000000 then return 10000000 end
  if period > 60000000 then return 60000000 end
  return period
end

-- What each bucket held, by the number of the charge, and with the rest of the reply behind it.
local held = {}
-- The numbers of the sets that were refused, in their order; absent while there is none.
local refusals

-- A fixed window of a limit below 2^26 is one number: which window, times 2^27, and the units taken
-- in it. Windows are counted modulo 2^26 − 1, from 1. One that is up to 2^25 ahead is so because the
-- clock stepped back; anything else is long over, and gone from here but for a lifetime's slack.
local UNITS, WINDOWS, AHEAD = 134217728, 67108863, 33554432

-- A bucket's debt of whole microseconds under a limit below 2^32: when it is clear, how long before
-- that it was written, and the limit. Doubles are read and written in half the time of integers.
local WHOLE, WHOLE_LENGTH = '<ddI4', 20

-- Buckets of one key and algorithm lie together in one value, for what costs most is finding a key and
-- writing to it: record behind record, each the period and then the bucket. This is one whose debt is
-- whole; of others the period is negative (see bucket.lua).
local RECORD, RECORD_LENGTH = '<dddI4', 28
-- So many of one key, with live debts, are more than anybody has use for. Of more the one that is clear
-- first gives way, lest somebody who makes up periods makes a value that takes long to go through.
local MOST_RECORDS = 64

