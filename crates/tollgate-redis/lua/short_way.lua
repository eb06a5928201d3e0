
-- The short way, for what nearly every call asks: sets of one charge, all of one shape, that take
-- some units or are refused. It goes on as long as nothing unusual turns up, and what is left, if
-- anything, is decided the long way. It is one piece, without functions, for making those would cost
-- a single decision more than making it.
local done, charges, keys = 0, #KEYS, KEYS

if ARGV[2] == '' and charges > 0 then
  local algorithm, op, enforcement, _, limit, period, capacity, slack, least, most, _, _,
    finish = unpacked(SHAPE, ARGV[3])
  local usual = op == TAKE and enforcement == ENFORCE and least == most and most <= capacity

  if usual and algorithm == FIXED_WINDOW and limit < 67108864 and finish == 0 then
    -- INCRBY reads and writes at once; what was too much is given back.
    local number = floor(now / period)
    local base = (number % WINDOWS + 1) * UNITS
    local cost = string.format('%.0f', most)
    local fresh, life
    for index = 1, charges do
      local key = keys[index]
      local after = redis.pcall('INCRBY', key, cost)
      -- A window of a higher limit is no number.
      if type(after) ~= 'number' then break end
      local used = after - base
      if used < most or used >= UNITS then
        -- Not this window: none, an old one or one ahead.
        local before = after - most
        local ahead = ((before - before % UNITS - base) / UNITS) % WINDOWS
        if before > 0 and before <= MOST_EXACT and ahead < AHEAD then
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

  elseif usual and algorithm >= TOKEN_BUCKET and period % limit == 0 then
    -- Debts in whole microseconds, written under the limit in force.
    local cost, full = most * (period / limit), capacity * (period / limit)
    held = call('MGET', unpack(keys))
    for index = 1, charges do
      local key = keys[index]
      local value = current[key]
      local known = value ~= nil
      if known then held[index] = value else value = held[index] end
      local owed, expires = 0, 0
      if value then
        if #value ~= 35 then break end
        local under, charged, clear, fraction
        expires, under, charged, clear, fraction = unpacked('<I7I7I7I7I7', value)
        if under ~= limit or fraction ~= 0 or charged > clear or clear > MOST_EXACT then break end
        if clear > now then owed = clear - now end
      end
      local lasts = owed + cost
      if lasts > full then
        refusals[#refusals + 1] = index
      else
        local clear = now + lasts
        if clear + LEAST_SLACK >= expires then
          expires = clear + 1 + slack
          lives[key] = lifetime(expires)
        end
        if not known then changed[#changed + 1] = key end
        current[key] = pack('<I7I7I7I7I7', expires, limit, now, clear, 0)
      end
      done = index
    end
  end

  if done == charges then return finished(charges) end
end
