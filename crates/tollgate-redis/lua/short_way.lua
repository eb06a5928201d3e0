-- The short way, for what nearly every call asks: charges that take some units or are refused, of
-- fixed windows that are one number, a set each and all of one shape; or of buckets of whole
-- microseconds, in sets of any size. It goes on as long as nothing unusual turns up, set by set, and
-- what is left, if anything, is decided the long way. It is one piece, without functions, for making
-- those would cost a single decision more than making it.
local charges, keys = #KEYS, KEYS
-- Charges and sets decided here.
local done, sets = 0, 0

if charges > 0 then
  local algorithm, op, enforcement, _, limit, period, capacity, slack, least, most, _, _,
    finish = unpacked(SHAPE, ARGV[1])
  local usual = op == TAKE and enforcement == ENFORCE and least == most and most <= capacity

  if usual and algorithm == FIXED_WINDOW and limit < 67108864 and finish == 0
    and (not plan or shapes_sent == 1 and planned == 1) then
    -- INCRBY reads and writes at once; what was too much is given back. What was there takes the place
    -- of the key, for a table that grows costs more than anything else here.
    local number = floor(now / period)
    local base = (number % WINDOWS + 1) * UNITS
    local cost = string.format('%.0f', most)
    local fresh, life
    for index = 1, charges do
      local key = keys[index]
      local after = attempt('INCRBY', key, cost)
      -- A window of a higher limit is no number.
      if type(after) ~= 'number' then break end
      local used, before = after - base, after - most
      if used < most or used >= UNITS then
        -- Not this window: none, an old one or one ahead.
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
      if used > limit then
        call('DECRBY', key, cost)
        refusals = refusals or {}
        refusals[#refusals + 1] = index
      end
      keys[index] = before > 0 and before or 0
      done = index
    end
    held = done == charges and keys or { unpack(keys, 1, done) }
    sets = done

  elseif usual and algorithm >= TOKEN_BUCKET and period % limit == 0 and limit < 4294967296 then
    local cost, full = most * (period / limit), capacity * (period / limit)
    -- The same of every shape, where there are several, by its number.
    local several
    for index = 2, shapes_sent do
      several = several or { [0] = { limit, cost, full, slack } }
      local algorithm, op, enforcement, _, limit, period, capacity, slack, least, most =
        unpacked(SHAPE, ARGV[index])
      usual = usual and op == TAKE and enforcement == ENFORCE and least == most
        and most <= capacity and algorithm >= TOKEN_BUCKET and period % limit == 0
        and limit < 4294967296
      several[index - 1] = { limit, most * (period / limit), capacity * (period / limit), slack }
    end

    -- What charges write, by their number, and the lifetimes to be set; where buckets come again, by
    -- key which charge was the last to.
    local values, lives, latest = {}, {}, again and {}
    local first, refused = 1, false
    if usual then held = call('MGET', unpack(keys)) end
    for index = 1, usual and charges or 0 do
      local high = 128
      if plan then
        local step = 2 * ((index - 1) % planned)
        high = plan[step + 1]
        if several then
          local shape = several[high % 128 * 256 + plan[step + 2]]
          limit, cost, full, slack = shape[1], shape[2], shape[3], shape[4]
        end
      end
      local value = held[index]
      local earlier = latest and latest[keys[index]]
      if earlier then value = values[earlier] end
      local known, owed, line = 0, 0, false
      if value then
        if #value ~= WHOLE_LENGTH then break end
        local lasted, under
        known, lasted, under = unpacked(WHOLE, value)
        if under ~= limit or known % 1 ~= 0 or known > MOST_EXACT
          or lasted % 1 ~= 0 or lasted < 0 or lasted > known then break end
        if known > now then owed = known - now end
        line = known - known % slack
      end
      held[index] = known
      local lasts = owed + cost
      if lasts > full then
        refused = true
      else
        local clear = now + lasts
        local line_now = clear - clear % slack
        values[index] = pack(WHOLE, clear, lasts, limit)
        if line_now ~= line then
          lives[index] = lifetime(line_now + 2 * slack)
        elseif earlier and lives[earlier] then
          lives[index] = lives[earlier]
        end
      end
      if high >= 128 then
        sets = sets + 1
        if refused then
          refusals = refusals or {}
          refusals[#refusals + 1] = sets
          for charge = first, index do values[charge] = false end
          refused = false
        elseif latest then
          for charge = first, index do latest[keys[charge]] = charge end
        end
        done, first = index, index + 1
      end
    end

    for index = 1, done do
      local value, key = values[index], keys[index]
      if value and (not latest or latest[key] == index) then
        local life = lives[index]
        if life then
          call('SET', key, value, 'PX', life)
        else
          call('SETRANGE', key, '0', value)
        end
      end
    end
  end

  if done == charges then
    if done == 1 and not refusals then return pack('<dd', held[1], now) end
    held[charges + 1] = now
    if refusals then
      for index = 1, #refusals do held[charges + 1 + index] = refusals[index] end
    end
    return pack('<' .. string.rep('d', #held), unpack(held))
  end
end
