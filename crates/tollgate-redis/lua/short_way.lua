
-- The short way, for what nearly every call asks: sets of one charge, all of one shape, that take
-- some units or are refused. It goes on as long as nothing unusual turns up, and what is left, if
-- anything, is decided the long way.
local done, charges, keys = 0, #KEYS, KEYS

-- Takes units of fixed windows by INCRBY, which reads and writes at once, and gives them back where
-- they were too many.
local function move_windows(limit, period, slack, most)
  local number = floor(now / period)
  local base = (number % WINDOWS + 1) * UNITS
  local cost = string.format('%.0f', most)
  local fresh, life
  for index = 1, charges do
    local key = keys[index]
    local after = redis.pcall('INCRBY', key, cost)
    -- A window of a higher limit is no number.
    if type(after) ~= 'number' then return end
    local used = after - base
    if used < most or used >= UNITS then
      -- Not this window: none, an old one or one ahead.
      local before = after - most
      local ahead = ((before - before % UNITS - base) / UNITS) % WINDOWS
      if before > 0 and ahead < AHEAD then
        used = before % UNITS + most
      else
        fresh = fresh or string.format('%.0f', base + most)
        life = life or lifetime((number + 1) * period + slack)
        call('SET', key, fresh, 'PX', life)
        used = most
      end
    end
    held[index] = after > most and after - most
    if used > limit then
      call('DECRBY', key, cost)
      refusals[#refusals + 1] = index
    end
    done = index
  end
end

-- Charges buckets whose debts are whole microseconds, written under the limit in force.
local function charge_buckets(limit, period, capacity, slack, most)
  local unit = period / limit
  local cost, full = most * unit, capacity * unit
  held = call('MGET', unpack(keys))
  for index = 1, charges do
    local key = keys[index]
    local value = current[key]
    local known = value ~= nil
    if known then held[index] = value else value = held[index] end
    local owed, expires = 0, 0
    if value then
      if #value ~= 35 then return end
      local under, charged, clear, fraction
      expires, under, charged, clear, fraction = unpacked('<I7I7I7I7I7', value)
      if under ~= limit or fraction ~= 0 then return end
      if clear > now then owed = clear - now end
    end
    local lasts = owed + cost
    if lasts > full then
      refusals[#refusals + 1] = index
    else
      local clear = now + lasts
      -- As much of the slack as is left before a lifetime is set anew.
      if clear + 1000000 >= expires then
        expires = clear + 1 + slack
        lives[key] = lifetime(expires)
      end
      if not known then changed[#changed + 1] = key end
      current[key] = pack('<I7I7I7I7I7', expires, limit, now, clear, 0)
    end
    done = index
  end
end

if ARGV[2] == '' and charges > 0 then
  local algorithm, op, enforcement, _, limit, period, capacity, slack, least, most, _, _,
    finish = unpacked(SHAPE, ARGV[3])
  if op == TAKE and enforcement == ENFORCE and least == most and most <= capacity then
    if algorithm == FIXED_WINDOW and limit < 67108864 and finish == 0 then
      move_windows(limit, period, slack, most)
    elseif algorithm >= TOKEN_BUCKET and period % limit == 0 then
      charge_buckets(limit, period, capacity, slack, most)
    end
    if done == charges then
      write_all()
      return { now, refusals, held }
    end
  end
end
