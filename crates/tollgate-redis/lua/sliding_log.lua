
-- sliding-log: runs of units taken at one instant, oldest first, in a ring of slots.
--
--   newest instant, 7 bytes · units in all, 3 · runs, 3 · slot of the oldest, 3 · slots, 3
--   per slot: the instant, 4 bytes (its low 32 bits) for periods up to an hour, else 7 · units, 2
--   of a long log, per block of 128 slots: the units they hold, 3
--
-- All runs lie within a period of the newest, so 32 bits of an instant tell it. More than 65,535
-- units at one instant are several runs. A short log has as many slots as runs and is read and
-- written whole; SET stores it without room to spare. A long one, which would take more than a
-- kilobyte, is written in place; when it is full it is written anew, with twice the slots as far as
-- the limit goes.
--
-- No visit looks at all of a long log's runs. Instants ascend, so the first that counts is found by
-- halving; and units are added up block by block. A block's sum is that of its slots as they stand,
-- whether their runs count or not, so that expiry changes none.
--
-- In the reply a log is what the answer depends on, as instants and units in turn: the newest instant
-- with all the units that count; before it, of a refusal, the instant whose expiry makes room with
-- all units up to it, and of a refund the units at the instant it is about.
local function sliding_log()
  local HEADER, FORMAT = 19, '<I7I3I3I3I3'
  -- Bytes read at first, and slots at a time from then on.
  local PIECE, SLOTS = 1024, 128
  local MOST_UNITS = 65535
  -- Slots whose units are added up. Their sum fits three bytes.
  local BLOCK = 128

  local function is_long(shape, slots)
    return HEADER + slots * shape.width > PIECE
  end

  -- Where the sums begin in a value, and where they end.
  local function sums_at(shape, slots)
    local start = HEADER + slots * shape.width
    if not is_long(shape, slots) then return start, start end
    return start, start + 3 * math.ceil(slots / BLOCK)
  end

  -- The log of a key, given its value if that is known: false for none.
  local function opened(shape, value, key)
    if value == nil then value = redis.pcall('GETRANGE', key, '0', PIECE - 1) end
    -- Of another type, it is an error.
    if type(value) ~= 'string' or #value < HEADER then return end
    local newest, total, runs, oldest, slots = unpacked(FORMAT, value)
    local _, length = sums_at(shape, slots)
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

  local function slot_of(log, run)
    return (log.oldest + run) % log.slots
  end

  local function position(log, run)
    return slot_of(log, run) * log.shape.width
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

  -- So many bytes of a long log's value.
  local function piece(log, first, length)
    return call('GETRANGE', log.key, first, first + length - 1)
  end

  -- The first run from `low` on that is not older than an instant. Mostly it is near, so the steps
  -- towards it begin small.
  local function not_before(log, low, instant)
    local high, step = low, 1
    while high < log.runs and entry(log, high) < instant do
      low, high, step = high + 1, high + step, 2 * step
    end
    high = math.min(high, log.runs)
    while low < high do
      local middle = floor((low + high) / 2)
      if entry(log, middle) < instant then low = middle + 1 else high = middle end
    end
    return low
  end

  -- The units that the block has which begins at a slot.
  local function sum_at(log, slot)
    if not log.sums then
      local start, finish = sums_at(log.shape, log.slots)
      log.sums = piece(log, start, finish - start)
    end
    return (unpacked('<I3', log.sums, 3 * (slot / BLOCK) + 1))
  end

  -- Adds up the units of runs from `run` to before `last`, but stops once they are `enough`. The run
  -- it has come to, and the units.
  local function added_up(log, run, last, enough)
    if log.total == log.runs then
      -- Each holds one.
      local units = math.min(last - run, enough)
      return run + units, units
    end
    local units = 0
    while run < last and units < enough do
      local slot = slot_of(log, run)
      local count, more = math.min(BLOCK, log.slots - slot), nil
      if not log.whole and slot % BLOCK == 0 and run + count <= last then
        more = sum_at(log, slot)
      end
      -- In the block that has enough, the run that has it is looked for.
      if not more or units + more >= enough then
        local _
        _, more = entry(log, run)
        count = 1
      end
      run, units = run + count, units + more
    end
    return run, units
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

  -- The units of each block of slots.
  local function sums_of(shape, text)
    local size = BLOCK * shape.width
    local format = '<' .. string.rep(string.rep('x', shape.width - 2) .. 'I2', BLOCK)
    text = text .. string.rep('\0', -#text % size)
    local sums = {}
    for start = 1, #text, size do
      local all, sum = { unpacked(format, text, start) }, 0
      for index = 1, BLOCK do sum = sum + all[index] end
      sums[#sums + 1] = pack('<I3', sum)
    end
    return table.concat(sums)
  end

  -- The value of a log made of these runs.
  local function composed(shape, newest, total, text)
    local runs = #text / shape.width
    local slots = runs
    if is_long(shape, runs) then
      slots = math.max(runs, math.min(2 * runs, shape.limit))
      text = text .. string.rep('\0', (slots - runs) * shape.width)
      text = text .. sums_of(shape, text)
    end
    return pack(FORMAT, newest, total, runs, 0, slots) .. text
  end

  -- The instant to count from, the runs that have expired by then, and the units that have not.
  local function in_view(log)
    local period = log.shape.period
    local at = math.max(log.newest, now)
    if log.newest + period <= at then return at, log.runs, 0 end
    local expired, gone = added_up(log, 0, not_before(log, 0, at - period + 1), math.huge)
    return at, expired, log.total - gone
  end

  -- The instant at which enough will have expired for the least units asked, and the units till then.
  local function making_room(log, expired, used)
    local lacking = used + log.shape.least - log.shape.limit
    local last, gone = added_up(log, expired, log.runs, lacking)
    local at = entry(log, last - 1)
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

  -- Writes the header of a long log, whose slots stay where they are.
  local function put_header(log, newest, total, runs, oldest)
    call('SETRANGE', log.key, '0', pack(FORMAT, newest, total, runs, oldest, log.slots))
  end

  -- Writes so many units of an instant to a slot of a long log.
  local function put(log, slot, at, units)
    local key, shape = log.key, log.shape
    local place = HEADER + slot * shape.width
    local _, before = unpacked(shape.run, piece(log, place, shape.width))
    call('SETRANGE', key, place, packed(shape, at, units))
    if units == before then return end
    local sums = sums_at(shape, log.slots) + 3 * floor(slot / BLOCK)
    local sum = unpacked('<I3', piece(log, sums, 3))
    call('SETRANGE', key, sums, pack('<I3', sum + units - before))
  end

  -- The same, written in place if there is room.
  local function append(log, at, expired, used, units, life)
    local shape, key, kept, merged = log.shape, log.key, log.runs - expired, units
    if kept > 0 and log.newest == at then
      local _, there = entry(log, log.runs - 1)
      kept, merged = kept - 1, there + units
    end
    local added = math.ceil(merged / MOST_UNITS)
    if kept + added > log.slots then
      local whole = opened(shape, call('GET', key), key)
      call('SET', key, appended(whole, at, expired, used, units), 'PX', life)
      return
    end
    for run = expired + kept, expired + kept + added - 1 do
      local part = math.min(merged, MOST_UNITS)
      put(log, slot_of(log, run), at, part)
      merged = merged - part
    end
    put_header(log, at, used + units, kept + added, slot_of(log, expired))
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
    low = not_before(log, low, at)
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

  -- Moves what a long log has in the slots behind those from `low` to `high` up by one. Behind the
  -- last is the first. Of what a block had it loses one slot's units, and gains another's.
  local function move_up(log, low, high)
    if low > high then return end
    local width = log.shape.width
    local row = piece(log, HEADER + low * width, (high - low + 1) * width)
    row = row .. piece(log, HEADER + (high + 1) % log.slots * width, width)
    local function units_at(slot)
      return (unpacked('<I2', row, (slot - low + 1) * width - 1))
    end
    local first, last = floor(low / BLOCK), floor(high / BLOCK)
    local place = sums_at(log.shape, log.slots) + 3 * first
    local before, after = piece(log, place, 3 * (last - first + 1)), {}
    for block = first, last do
      local sum = unpacked('<I3', before, 3 * (block - first) + 1)
      sum = sum - units_at(math.max(low, block * BLOCK))
        + units_at(math.min(high + 1, (block + 1) * BLOCK))
      after[#after + 1] = pack('<I3', sum)
    end
    call('SETRANGE', log.key, place, table.concat(after))
    call('SETRANGE', log.key, HEADER + low * width, string.sub(row, width + 1))
  end

  -- Takes a run out of a long log that has others.
  local function remove(log, run, units)
    local newest = log.newest
    if run == log.runs - 1 then newest = entry(log, run - 1) end
    local low, last = slot_of(log, run), slot_of(log, log.runs - 1)
    if last < low then
      move_up(log, low, log.slots - 1)
      low = 0
    end
    move_up(log, low, last - 1)
    put_header(log, newest, log.total - units, log.runs - 1, log.oldest)
    if newest ~= log.newest then
      call('PEXPIRE', log.key, lifetime(newest + log.shape.period + log.shape.slack))
    end
  end

  local function give_back(log, first, count, back, left)
    local shape, key = log.shape, log.key
    if count == 1 and left > 0 then
      put(log, slot_of(log, first), shape.at, left)
      put_header(log, log.newest, log.total - back, log.runs, log.oldest)
      return
    elseif count == 1 and log.runs > 1 then
      remove(log, first, back)
      return
    end
    -- More units than one run holds, so the others are not that many.
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
