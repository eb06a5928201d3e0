-- Decides a batch of charge sets, each all or nothing, at one instant of this server's clock.
--
-- KEYS   the bucket of each charge, set after set, charge after charge. A bucket may come again in
--        another set of the batch, never in the same.
-- ARGV   1   the instant in µs for tests; '' to read TIME
--        2   two bytes per charge, high first: bit 15 marks the last charge of a set, the others
--            number its shape from 0. '' where each set is one charge, all of one shape
--        3…  the shapes: what charges ask apart from the key, packed (see SHAPE)
-- reply  for each charge, what its bucket held before the set was decided: the value as stored, nil
--        for nothing, or of a log the few runs the answer depends on (see sliding_log.lua); then the
--        instant in µs; then the numbers, from 1, of the sets that were refused. One array, for each
--        costs Redis as much as a decision's arithmetic. Nothing but the instant where a calendar's
--        window does not hold it: then nothing was decided, and the caller asks again
--
-- The caller has the same algorithms and works every number of its answer out of that. The script
-- only finds out whether charges fit, and what is to be remembered.
--
-- Order. All values are read, then all sets decided in memory in their order, then what changed is
-- written, each bucket once. A refused set leaves values and lifetimes as they were. Two things are
-- done in place instead, when their turn comes: fixed windows are moved by INCRBY where nothing else
-- is asked of a batch (short_way.lua), long logs are read and written piece by piece.
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
-- Lifetimes. Every key that is written has one: until its state is stale, and then the slack of its
-- shape, so that a clock set back by as much still finds it. Where a write does not move that
-- instant, SETRANGE leaves the lifetime as it is, at less than half the cost of SET with one.
--
-- Values are packed unsigned integers, little-endian: instants and counts of 7 bytes unless stated
-- otherwise. Only fixed windows are usually a number. What no algorithm would have written, a value of
-- another type, another length or with numbers beyond any bound, is taken for nothing, and replaced by
-- the first charge: one foreign key is no reason to leave a batch undecided.

local call, byte, floor = redis.call, string.byte, math.floor
local pack, unpacked = struct.pack, struct.unpack

-- Algorithm, op, enforcement, group; limit, period, capacity, slack of the lifetime, the least and the
-- most units, and the instant they were taken at, of a refund; of a calendar, where the present
-- window begins and ends.
local SHAPE = '<BBBBI7I7I7I7I7I7I7I7I7'
local TAKE, PEEK, REFUND, RESET = 1, 2, 3, 4
local MOST_EXACT = 9007199254740991
local ENFORCE, SHADOW, ANY_OF = 1, 2, 3
local FIXED_WINDOW, SLIDING_LOG, SLIDING_WINDOW, TOKEN_BUCKET, LEAKY_BUCKET = 1, 2, 3, 4, 5

local now
local given = ARGV[1] ~= ''
if given then
  now = tonumber(ARGV[1])
else
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

-- The milliseconds a key lives that is to be there until an instant, as PX takes them. A given
-- instant says nothing of this server's clock, so then it is an hour.
local function lifetime(instant)
  if given then return '3600000' end
  return string.format('%d', floor((instant - now) / 1000) + 1)
end

-- What each bucket held, by the number of the charge; and by key what it holds now, if that is
-- something else: false for a bucket that is forgotten.
local held, current = {}, {}
-- The keys of `current` in the order they came to it, and the lifetimes to be set.
local changed, lives = {}, {}
local refusals = {}

-- Writes what has changed, and makes the reply.
local function finished(charges)
  for index = 1, #changed do
    local key = changed[index]
    local value, life = current[key], lives[key]
    if not value then
      call('DEL', key)
    elseif life then
      call('SET', key, value, 'PX', life)
    else
      call('SETRANGE', key, '0', value)
    end
  end
  held[charges + 1] = now
  for index = 1, #refusals do held[charges + 1 + index] = refusals[index] end
  return held
end

-- A fixed window of a limit below 2^26 is one number: which window, times 2^27, and the units taken
-- in it. Windows are counted modulo 2^26 − 1, from 1. One that is up to 2^25 ahead is so because the
-- clock stepped back; anything else is long over, and gone from here but for a lifetime's slack.
local UNITS, WINDOWS, AHEAD = 134217728, 67108863, 33554432

-- A bucket's lifetime is set anew when no more of its slack, in µs, would be left.
local LEAST_SLACK = 1000000
