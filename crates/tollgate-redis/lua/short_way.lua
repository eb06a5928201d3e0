-- The short way, for what nearly every call asks: charges that take some units or are refused, of
-- fixed windows that are one number, a set each and all of one shape; or of buckets of whole
-- microseconds, in sets of any size. It goes on as long as nothing unusual turns up, set by set, and
-- what is left, if anything, is decided the long way.
-- Charges and sets decided here.
local done, sets = 0, 0

if charges > 0 then
  local algorithm, op, enforcement, _, limit, period, capacity, least, most, _, _,
    finish = unpacked(SHAPE, ARGV[1])
  local usual = op == TAKE and enforcement == ENFORCE and least == most and most <= capacity

  if usual and algorithm == FIXED_WINDOW and limit < 67108864 and finish == 0
    and (not plan or shapes_sent == 1 and planned == 1) then
    -- INCRBY reads and writes at once, and INCR does with a word less; what was too much is given
    -- back. What there would be takes the place of the key, for a table that grows costs more than
    -- anything else here.
    local number = floor(now / period)
    local base = (number % WINDOWS + 1) * UNITS
    if places then
      keys = { unpack(places) }
      for index = 1, charges do keys[index] = KEYS[places[index]] end
    end
    -- Raises an error at a key that is no number, as a window of a higher limit is: nothing was done to
    -- it, and those before are done with. Asking of each reply whether it is an error costs more. What
    -- it needs is handed to it, for each variable it caught would cost the script an allocation.
    local function count(call, keys, charges, base, limit, most, lifetime, finish, units, windows,
      most_ahead, most_exact)
      local cost = most > 1 and string.format('%.0f', most)
      -- What there is in a window that has room.
      local least, greatest = base + most, base + limit
      local fresh, life
      for index = 1, charges do
        local key = keys[index]
        local after = cost and call('INCRBY', key, cost) or call('INCR', key)
        if after < least or after > greatest then
          local before = after - most
          local used = before % units
          local ahead = ((before - used - base) / units) % windows
          if before >= units and before <= most_exact and used < units / 2 and ahead < most_ahead then
            used = used + most
          else
            -- Nothing, a window that is over, or none of ours.
            fresh = fresh or string.format('%.0f', base + most)
            life = life or lifetime(finish)
            call('SET', key, fresh, 'PX', life)
            used, after = most, most
          end
          if used > limit then
            call('DECRBY', key, cost or '1')
            refusals = refusals or {}
            refusals[#refusals + 1] = index
          end
        end
        keys[index] = after
      end
    end
    local ends = (number + 1) * period + slack_of(period)
    local sound, trouble = pcall(count, call, keys, charges, base, limit, most, lifetime, ends, UNITS,
      WINDOWS, AHEAD, MOST_EXACT)
    if sound then
      done, held = charges, keys
    else
      -- Of another error, as that a command is not permitted, the caller has to hear.
      local text = type(trouble) == 'table' and trouble.err or tostring(trouble)
      if not (string.find(text, 'WRONGTYPE', 1, true) or string.find(text, 'not an integer', 1, true)
        or string.find(text, 'would overflow', 1, true)) then
        return { err = string.find(text, '^%u+ ') and text or 'ERR ' .. text }
      end
      while type(keys[done + 1]) == 'number' do done = done + 1 end
      held = { unpack(keys, 1, done) }
    end
    sets = done

  elseif usual and algorithm >= TOKEN_BUCKET and period % limit == 0 and limit < 4294967296 then
    local cost, full, slack = most * (period / limit), capacity * (period / limit), slack_of(period)
    -- Of each step of a set: limit, cost, full, period and slack of its shape, and whether it is the last.
    local steps, ends = { { limit, cost, full, period, slack } }, { true }
    if plan then
      local shapes = { [0] = steps[1] }
      for index = 2, shapes_sent do
        local algorithm, op, enforcement, _, limit, period, capacity, least, most =
          unpacked(SHAPE, ARGV[index])
        usual = usual and op == TAKE and enforcement == ENFORCE and least == most
          and most <= capacity and algorithm >= TOKEN_BUCKET and period % limit == 0
          and limit < 4294967296
        shapes[index - 1] = {
          limit, most * (period / limit), capacity * (period / limit), period, slack_of(period),
        }
      end
      for step = 1, planned do
        local high = plan[2 * step - 1]
        steps[step], ends[step] = shapes[high % 128 * 256 + plan[2 * step]], high >= 128
      end
    end

    -- The same three times: a charge alone costs a fifth less on a way of its own than as any other set,
    -- and three of one key two fifths. Of a value what is clear is nothing, whatever it is, so only a debt
    -- is looked at more closely. What is clear later than what was there, but before the next line of those
    -- that lifetimes end on (bucket.lua), lives as long.
    local stored = usual and call('MGET', unpack(KEYS))
    if usual and planned == 1 and not places then
      -- Sets of one charge, and each key comes once: decided and written one after the other.
      held = stored
      for index = 1, charges do
        local known, lasts = held[index], cost
        if not known then
          known = 0
        elseif #known == RECORD_LENGTH then
          local whose, lasted, under
          whose, known, lasted, under = unpacked(RECORD, known)
          if whose ~= period or under ~= limit or not (known <= now) and (known % 1 + lasted % 1 ~= 0
            or known > MOST_EXACT or lasted < 0 or lasted > known) then break end
        else
          break
        end
        held[index] = known
        if known > now then lasts = known - now + cost end
        if lasts > full then
          refusals = refusals or {}
          refusals[#refusals + 1] = index
        else
          local clear = now + lasts
          local line = clear - clear % slack
          if known >= line and known > 0 then
            call('SETRANGE', KEYS[index], '8', pack('<dd', clear, lasts))
          else
            call('SET', KEYS[index], pack(RECORD, period, clear, lasts, limit), 'PX',
              lifetime(line + 2 * slack))
          end
        end
        done = index
      end
      sets = done

    elseif usual and together then
      -- Several of one key: the same, where the value has just these in the order of the charges.
      local fields, format = {}, '<' .. string.rep('dddI4', planned)
      for set = 1, #KEYS do
        local value = stored[set]
        local sound = not value or #value == planned * RECORD_LENGTH
        -- Whether a lifetime is to be set, and until when.
        local refused, moves, last = false, false, 0
        for step = 1, sound and planned or 0 do
          local shape, known = steps[step], 0
          local lasts, slack = shape[2], shape[5]
          if value then
            local whose, lasted, under
            whose, known, lasted, under = unpacked(RECORD, value, (step - 1) * RECORD_LENGTH + 1)
            if whose ~= shape[4] or under ~= shape[1] or not (known <= now)
              and (known % 1 + lasted % 1 ~= 0 or known > MOST_EXACT or lasted < 0 or lasted > known)
            then sound = false break end
          end
          held[done + step] = known
          if known > now then lasts = known - now + lasts end
          if lasts > shape[3] then refused = true end
          local clear = now + lasts
          local line = clear - clear % slack
          if known < line or known <= 0 then moves = true end
          if line + 2 * slack > last then last = line + 2 * slack end
          local field = 4 * step
          fields[field - 3], fields[field - 2], fields[field - 1], fields[field] =
            shape[4], clear, lasts, shape[1]
        end
        if not sound then break end
        if refused then
          refusals = refusals or {}
          refusals[#refusals + 1] = set
        elseif moves then
          call('SET', KEYS[set], pack(format, unpack(fields)), 'PX', lifetime(last))
        else
          call('SETRANGE', KEYS[set], '0', pack(format, unpack(fields)))
        end
        done, sets = done + planned, set
      end
    end

    if usual and done < charges then
      -- Any other sets: one after the other in memory, then each key is written once. Of the key at a
      -- place the first bucket has the number of the place, and each further one #KEYS more. By number,
      -- when what was stored is clear, 0 for nothing; when it is with what was taken since; how long
      -- what was stored lasts; and limit, period and slack as in a shape. By charge, the number of its
      -- bucket.
      local count, befores, clears, spans, kinds, several = #KEYS, stored, {}, {}, {}, false
      local numbers = places and {} or { unpack(KEYS) }
      held = done == 0 and { unpack(places or KEYS) } or { unpack(held, 1, done) }
      local first, looked, step, refused = done + 1, done, 0, false
      for index = first, charges do
        step = step % planned + 1
        local shape, number = steps[step], places and places[index] or index
        if together then number = (index - step) / planned + 1 end
        local kind, lasts = kinds[number], shape[2]
        if kind ~= shape then
          local value, sound = stored[number], true
          if not kind and value then
            sound = #value % RECORD_LENGTH == 0 and #value <= MOST_RECORDS * RECORD_LENGTH
            for start = 1, sound and #value or 0, RECORD_LENGTH do
              local whose, known, lasted, under = unpacked(RECORD, value, start)
              if not (whose >= 1) or not (known <= now) and (known % 1 + lasted % 1 ~= 0
                or known > MOST_EXACT or lasted < 0 or lasted > known) then sound = false break end
              local at = number
              if #value > RECORD_LENGTH then
                at = number + (start - 1) / RECORD_LENGTH * count
                spans[at], several = lasted, true
              end
              befores[at], clears[at], kinds[at] = known, known, shape
              if whose ~= shape[4] or under ~= shape[1] then
                kinds[at] = { under, 0, 0, whose, slack_of(whose) }
              end
            end
            kind = kinds[number]
          end
          while kind and kind[4] ~= shape[4] do
            number = number + count
            kind = kinds[number]
          end
          if not kind then
            -- How long one lasts that was alone until now is not known any more.
            local last = number - count
            if last > 0 then
              sound = sound and (befores[last] == 0 or spans[last]) and number <= MOST_RECORDS * count
              several = true
            end
            befores[number], clears[number], kinds[number] = 0, 0, shape
          end
          if not sound or kind and kind[1] ~= shape[1] then break end
        end
        if number > count or not places then numbers[index] = number end
        local known = clears[number]
        held[index] = known
        if known > now then lasts = known - now + lasts end
        if lasts > shape[3] then refused = true end
        clears[number] = now + lasts
        looked = index
        if ends[step] then
          sets = sets + 1
          if refused then
            refusals = refusals or {}
            refusals[#refusals + 1] = sets
            for charge = first, index do clears[numbers[charge] or places[charge]] = held[charge] end
            refused = false
          end
          done, first = index, index + 1
        end
      end
      -- A set that was not decided to its end has taken nothing.
      for charge = first, looked do clears[numbers[charge] or places[charge]] = held[charge] end
      local fields = {}
      for place = 1, count do
        local kind, clear, before = kinds[place], clears[place], befores[place]
        if several and kinds[place + count] then
          -- Several: what is long stale goes when the rest is written.
          local number, size, changed, moves, last = place, 0, false, false, 0
          while kind do
            clear, before = clears[number], befores[number]
            local slack = kind[5]
            local line = clear - clear % slack
            if clear ~= before then
              changed = true
              if before < line or before <= 0 then moves = true end
            end
            if line + 2 * slack > now then
              fields[size + 1], fields[size + 2], fields[size + 3], fields[size + 4] =
                kind[4], clear, clear == before and spans[number] or clear - now, kind[1]
              size = size + 4
              if line + 2 * slack > last then last = line + 2 * slack end
            else
              moves = true
            end
            number = number + count
            kind = kinds[number]
          end
          local value = changed and pack('<' .. string.rep('dddI4', size / 4), unpack(fields, 1, size))
          if changed and moves then
            call('SET', KEYS[place], value, 'PX', lifetime(last))
          elseif changed then
            call('SETRANGE', KEYS[place], '0', value)
          end
        elseif kind and clear ~= before then
          local slack = kind[5]
          local line = clear - clear % slack
          if before >= line and before > 0 then
            call('SETRANGE', KEYS[place], '8', pack('<dd', clear, clear - now))
          else
            call('SET', KEYS[place], pack(RECORD, kind[4], clear, clear - now, kind[1]), 'PX',
              lifetime(line + 2 * slack))
          end
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
