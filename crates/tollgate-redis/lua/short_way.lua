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
        refusals = refusals or {}
        refusals[#refusals + 1] = index
      end
      done = index
    end
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

    -- What the charges of a set would write, where it has several.
    local first, values, lives = 1, plan and {}, plan and {}
    while usual and first <= charges do
      local index, refused = first, false
      repeat
        local high = 128
        if plan then
          local step = 2 * ((index - 1) % planned)
          high = plan[step + 1]
          if several then
            local shape = several[high % 128 * 256 + plan[step + 2]]
            limit, cost, full, slack = shape[1], shape[2], shape[3], shape[4]
          end
        end
        local value = redis.pcall('GET', keys[index])
        held[index] = value
        local owed, until_then = 0, false
        if value then
          -- Neither is an error, where it is no string.
          if #value ~= WHOLE_LENGTH then usual = false break end
          local clear, lasted, under = unpacked(WHOLE, value)
          if under ~= limit or clear % 1 ~= 0 or clear > MOST_EXACT
            or lasted % 1 ~= 0 or lasted < 0 or lasted > clear then usual = false break end
          if clear > now then owed = clear - now end
          until_then = clear - clear % slack
        end
        local lasts = owed + cost
        if lasts > full then
          refused = true
        else
          local clear = now + lasts
          local until_now = clear - clear % slack
          local after = pack(WHOLE, clear, lasts, limit)
          local life = until_now ~= until_then and lifetime(until_now + 2 * slack)
          if plan then
            values[index], lives[index] = after, life
          elseif life then
            call('SET', keys[index], after, 'PX', life)
          else
            call('SETRANGE', keys[index], '0', after)
          end
        end
        index = index + 1
      until high >= 128
      if not usual then break end
      sets = sets + 1
      if refused then
        refusals = refusals or {}
        refusals[#refusals + 1] = sets
      elseif plan then
        for taken = first, index - 1 do
          if lives[taken] then
            call('SET', keys[taken], values[taken], 'PX', lives[taken])
          else
            call('SETRANGE', keys[taken], '0', values[taken])
          end
        end
      end
      done, first = index - 1, index
    end
  end

  if done == 1 and charges == 1 and given == '' then
    local value = held[1]
    if type(value) == 'number' then value = pack('<d', value) end
    return pack('<dB', now, refusals and 1 or 0) .. (value or '')
  end
  if done == charges then
    held[charges + 1] = now
    if refusals then
      for index = 1, #refusals do held[charges + 1 + index] = refusals[index] end
    end
    return held
  end
end

