
-- sliding-log: runs of units taken at one instant, oldest first, in a ring of slots.
--
--   newest instant, 7 bytes · units in all, 3 · runs, 3 · slot of the oldest, 3 · slots, 3
--   per slot: the instant, 4 bytes (its low 32 bits) for periods up to an hour, else 7 · units, 2
--
-- All runs lie within a period of the newest, so 32 bits of an instant tell it. More than 65,535
-- units at one instant are several runs. A short log has as many slots as runs and is read and
-- written whole; SET stores it without room to spare. A long one is read a piece at a time, as far
-- as runs have expired or must expire, and written in place; it grows by half of itself at least.
--
-- In the reply a log is what the answer depends on, as instants and units in turn: the newest instant
-- with all the units that count; before it, of a refusal, the instant whose expiry makes room with
-- all units up to it, and of a refund the units at the instant it is about.
local function sliding_log()
  local HEADER, FORMAT = 19, '<I7I3I3I3I3'
  -- Bytes read at first, and slots at a time from then on.
  local PIECE, SLOTS = 1024, 128
  local MOST_UNITS = 65535

  -- The log of a key, given its value if that is known: false for none.
  local function opened(shape, value, key)
    if value == nil then value = redis.pcall('GETRANGE', key, '0', PIECE - 1) end
    -- Of another type, it is an error.
    if type(value) ~= 'string' or #value < HEADER then return end
    local newest, total, runs, oldest, slots = unpacked(FORMAT, value)
    local length = HEADER + slots * shape.width
    local whole = #value == length
    if not whole and (#value ~= PIECE or call('STRLEN', key) ~= length) then return end
    if newest > MOST_EXACT or runs == 0 or runs > slots or oldest >= slots then return end
    return {
      key = key, shape = shape, newest = newest, total = total, runs = runs, oldest = oldest,
      slots = slots, whole = whole,
      -- A piece of the value, and where its first byte lies in the ring.
      text = value, from = -HEADER,
    }
  end

  local function position(log, run)
    return (log.oldest + run) % log.slots * log.shape.width
  end

  -- The instant and units of a run, counted from 0, the oldest.
  local function entry(log, run)
    local width = log.shape.width
    local start = position(log, run)
    if start < log.from or start + width > log.from + #log.text then
      local first = HEADER + start
      log.text = call('GETRANGE', log.key, first, first + SLOTS * width - 1)
      log.from = start
    end
    local at, units = unpacked(log.shape.run, log.text, start - log.from + 1)
    if width == 6 then at = log.newest - (log.newest - at) % 4294967296 end
    return at, units
  end

  local function packed(shape, at, units)
    if shape.width == 6 then at = at % 4294967296 end
    return pack(shape.run, at, units)
  end

  -- Runs that hold so many units of one instant.
  local function packed_all(shape, at, units)
    local runs = {}
    while units > 0 do
      local part = math.min(units, MOST_UNITS)
      runs[#runs + 1] = packed(shape, at, part)
      units = units - part
    end
    return runs
  end

  -- So many runs of a whole log from the given one on, as bytes.
  local function bytes(log, run, count)
    if count <= 0 then return '' end
    local start, length = position(log, run) - log.from, count * log.shape.width
    local finish = log.slots * log.shape.width - log.from
    if start + length <= finish then return string.sub(log.text, start + 1, start + length) end
    return string.sub(log.text, start + 1, finish)
      .. string.sub(log.text, 1 - log.from, length - finish + start - log.from)
  end

  -- The value of a log made of these runs.
  local function composed(shape, newest, total, text)
    local runs = #text / shape.width
    local slots = runs
    if HEADER + #text > PIECE then
      slots = math.max(runs, math.min(2 * runs, shape.limit))
      text = text .. string.rep('\0', (slots - runs) * shape.width)
    end
    return pack(FORMAT, newest, total, runs, 0, slots) .. text
  end

  -- The instant to count from, the runs that have expired by then, and the units that have not.
  local function in_view(log)
    local period = log.shape.period
    local at = math.max(log.newest, now)
    if log.newest + period <= at then return at, log.runs, 0 end
    local expired, used = 0, log.total
    while true do
      local taken, units = entry(log, expired)
      -- The newest counts, so this ends.
      if taken + period > at then return at, expired, used end
      expired, used = expired + 1, used - units
    end
  end

  -- The instant at which enough will have expired for the least units asked, and the units till then.
  local function making_room(log, expired, used)
    local shape, gone, at = log.shape, 0, nil
    while used - gone + shape.least > shape.limit do
      local taken, units = entry(log, expired)
      at, gone, expired = taken, gone + units, expired + 1
    end
    return at, gone
  end

  -- A whole log with so many units taken at an instant, and what has expired dropped.
  local function appended(log, at, expired, used, units)
    local shape, kept, merged = log.shape, log.runs - expired, units
    if kept > 0 and log.newest == at then
      local _, there = entry(log, log.runs - 1)
      kept, merged = kept - 1, there + units
    end
    local text = bytes(log, expired, kept) .. table.concat(packed_all(shape, at, merged))
    return composed(shape, at, used + units, text)
  end

  -- The same, written in place if there is room.
  local function append(log, at, expired, used, units, life)
    local shape, key, kept, merged = log.shape, log.key, log.runs - expired, units
    if kept > 0 and log.newest == at then
      local _, there = entry(log, log.runs - 1)
      kept, merged = kept - 1, there + units
    end
    local added = packed_all(shape, at, merged)
    if kept + #added > log.slots then
      local whole = opened(shape, call('GET', key), key)
      call('SET', key, appended(whole, at, expired, used, units), 'PX', life)
      return
    end
    for index, run in ipairs(added) do
      call('SETRANGE', key, HEADER + position(log, expired + kept + index - 1), run)
    end
    local oldest = (log.oldest + expired) % log.slots
    call('SETRANGE', key, '0', pack(FORMAT, at, used + units, kept + #added, oldest, log.slots))
    call('PEXPIRE', key, life)
  end

  local function evaluate(shape, value, key)
    local log = opened(shape, value, key)
    local at, expired, used = now, 0, 0
    if log then at, expired, used = in_view(log) end
    local seen = used > 0 and { log.newest, used }
    local units = math.min(shape.most, shape.limit - used)
    if units < shape.least then
      if shape.least <= shape.limit then
        local makes_room, gone = making_room(log, expired, used)
        if makes_room ~= log.newest then
          seen = { makes_room, gone, log.newest, used - gone }
        end
      end
      return false, nil, nil, seen
    end
    if shape.op == PEEK then return true, nil, nil, seen end
    local life = lifetime(at + shape.period + shape.slack)
    if not log then
      local text = table.concat(packed_all(shape, at, units))
      return true, composed(shape, at, units, text), life, seen
    elseif log.whole then
      return true, appended(log, at, expired, used, units), life, seen
    end
    return true, function() append(log, at, expired, used, units, life) end, nil, seen
  end

  -- The first run from `low` on that is not older than an instant, and how many units the runs of
  -- that very instant hold, in how many.
  local function found(log, low, at)
    local high = log.runs
    while low < high do
      local middle = floor((low + high) / 2)
      if entry(log, middle) < at then low = middle + 1 else high = middle end
    end
    local held, count = 0, 0
    while low + count < log.runs do
      local taken, units = entry(log, low + count)
      if taken ~= at then break end
      held, count = held + units, count + 1
    end
    return low, held, count
  end

  -- A whole log with `left` units in the `count` runs from `first` on; false if it is stale.
  local function without(log, first, count, back, left)
    local shape, newest = log.shape, log.newest
    if left == 0 and first + count == log.runs then
      if first == 0 then return false end
      newest = entry(log, first - 1)
    end
    if newest + shape.period <= now then return false end
    local text = bytes(log, 0, first) .. table.concat(packed_all(shape, shape.at, left))
      .. bytes(log, first + count, log.runs - first - count)
    return composed(shape, newest, log.total - back, text),
      lifetime(newest + shape.period + shape.slack)
  end

  local function give_back(log, first, count, back, left)
    local shape, key = log.shape, log.key
    if count == 1 and left > 0 then
      call('SETRANGE', key, HEADER + position(log, first), packed(shape, shape.at, left))
      local total = log.total - back
      call('SETRANGE', key, '0', pack(FORMAT, log.newest, total, log.runs, log.oldest, log.slots))
      return
    end
    local whole = opened(shape, call('GET', key), key)
    local value, life = without(whole, first, count, back, left)
    if value then call('SET', key, value, 'PX', life) else call('DEL', key) end
  end

  local function refund(shape, value, key)
    local log = opened(shape, value, key)
    if not log then return end
    local _, expired, used = in_view(log)
    local first, held, count = found(log, expired, shape.at)
    if held == 0 then return nil, nil, used > 0 and { log.newest, used } end
    local seen = { shape.at, held, log.newest, used - held }
    if held == used then
      seen = { shape.at, held }
    elseif shape.at == log.newest then
      local before = entry(log, first - 1)
      seen = { before, used - held, shape.at, held }
    end
    local back = math.min(held, shape.most)
    if not log.whole then
      return function() give_back(log, first, count, back, held - back) end, nil, seen
    end
    local after, life = without(log, first, count, back, held - back)
    return after, life, seen
  end

  local function prepare(shape)
    local low = shape.period <= 3600000000
    shape.width, shape.run = low and 6 or 9, low and '<I4I2' or '<I7I2'
  end

  return evaluate, refund, prepare
end
