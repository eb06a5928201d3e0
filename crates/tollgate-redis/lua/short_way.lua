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
    if pcall(count, call, keys, charges, base, limit, most, lifetime, ends, UNITS, WINDOWS, AHEAD,
      MOST_EXACT) then
      done, held = charges, keys
    else
      while type(keys[done + 1]) == 'number' do done = done + 1 end
      held = { unpack(keys, 1, done) }
    end
    sets = done

  elseif usual and algorithm >= TOKEN_BUCKET and period % limit == 0 and limit < 4294967296 then
    local cost, full, slack = most * (period / limit), capacity * (period / limit), slack_of(period)
    -- What the plan says of each step: limit, cost, full, period and slack of its shape, and whether it
    -- ends a set.
    local steps, ends
    if plan then
      local shapes = { [0] = { limit, cost, full, period, slack } }
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
      steps, ends = {}, {}
      for step = 1, planned do
        local high = plan[2 * step - 1]
        steps[step], ends[step] = shapes[high % 128 * 256 + plan[2 * step]], high >= 128
      end
    end

    if usual and (together or planned == 1 and not places) then
      -- Sets that are alike, each of one key that comes once: decided and written one after the other.
      -- Of a value what is clear is nothing, whatever it is, so only a debt is looked at more closely.
      local stored = call('MGET', unpack(KEYS))
      held = stored
      local fields, format = nil, RECORD
      if planned > 1 then
        held, fields, format = {}, {}, '<' .. string.rep('dddI4', planned)
      end
      for set = 1, #KEYS do
        local value = stored[set]
        local sound = not value or #value == planned * RECORD_LENGTH
        -- Whether a lifetime is to be set, and until when; and of the last charge, what is to be stored.
        local refused, moves, last, clear, lasts = false, false, 0, 0, 0
        for step = 1, sound and planned or 0 do
          if fields then limit, cost, full, period, slack = unpack(steps[step]) end
          local known = 0
          if value then
            local whose, lasted, under
            whose, known, lasted, under = unpacked(RECORD, value, (step - 1) * RECORD_LENGTH + 1)
            if whose ~= period or under ~= limit or not (known <= now) and (known % 1 + lasted % 1 ~= 0
              or known > MOST_EXACT or lasted < 0 or lasted > known) then sound = false break end
          end
          held[done + step] = known
          lasts = cost
          if known > now then lasts = known - now + cost end
          if lasts > full then refused = true end
          -- What is clear later than what was there, but before the next line of those that lifetimes
          -- end on (bucket.lua), lives as long.
          clear = now + lasts
          local line = clear - clear % slack
          if known < line or known <= 0 then moves = true end
          if line + 2 * slack > last then last = line + 2 * slack end
          if fields then
            local field = 4 * step
            fields[field - 3], fields[field - 2], fields[field - 1], fields[field] =
              period, clear, lasts, limit
          end
        end
        if not sound then break end
        if refused then
          refusals = refusals or {}
          refusals[#refusals + 1] = set
        elseif moves then
          call('SET', KEYS[set], fields and pack(format, unpack(fields))
            or pack(RECORD, period, clear, lasts, limit), 'PX', lifetime(last))
        elseif fields then
          call('SETRANGE', KEYS[set], '0', pack(format, unpack(fields)))
        else
          call('SETRANGE', KEYS[set], '8', pack('<dd', clear, lasts))
        end
        done, sets = done + planned, set
      end

    elseif usual then
      -- Any other sets: one after the other in memory, then each key is written once. Of the key at a
      -- place the first bucket has the number of the place, and each further one #KEYS more. By number,
      -- the bucket's period and limit; when what was stored is clear, 0 for nothing, and how long before
      -- that it was written; and when it is clear with what was taken since. By charge, the number of
      -- its bucket.
      local stored, count = call('MGET', unpack(KEYS)), #KEYS
      local periods, limits, befores, spans, clears = {}, {}, {}, {}, {}
      local numbers = { unpack(places or KEYS) }
      held = { unpack(numbers) }
      local first, looked, step, refused = 1, 0, 0, false
      for index = 1, charges do
        step = step % planned + 1
        local limit, cost, full, period = unpack(steps[step], 1, 4)
        local number = places and places[index] or index
        local value, sound = stored[number], true
        if value then
          sound = #value % RECORD_LENGTH == 0
          for record = 1, sound and #value or 0, RECORD_LENGTH do
            local at = number + (record - 1) / RECORD_LENGTH * count
            local whose, known, lasted, under = unpacked(RECORD, value, record)
            sound = sound and whose >= 1 and (known <= now or known % 1 + lasted % 1 == 0
              and known <= MOST_EXACT and lasted >= 0 and lasted <= known)
            periods[at], limits[at], befores[at], spans[at], clears[at] =
              whose, under, known, lasted, known
          end
          stored[number] = false
        end
        while periods[number] and periods[number] ~= period do number = number + count end
        if not periods[number] then
          periods[number], limits[number], befores[number], clears[number] = period, limit, 0, 0
        end
        if not sound or limits[number] ~= limit then break end
        local known, lasts = clears[number], cost
        numbers[index], held[index] = number, known
        if known > now then lasts = known - now + cost end
        if lasts > full then refused = true end
        clears[number] = now + lasts
        looked = index
        if ends[step] then
          sets = sets + 1
          if refused then
            refusals = refusals or {}
            refusals[#refusals + 1] = sets
            for charge = first, index do clears[numbers[charge]] = held[charge] end
            refused = false
          end
          done, first = index, index + 1
        end
      end
      -- A set that was not decided to its end has taken nothing.
      for charge = first, looked do clears[numbers[charge]] = held[charge] end
      local fields, formats = {}, { RECORD }
      for place = 1, count do
        local number, size, changed, moves, last = place, 0, false, false, 0
        while periods[number] do
          local period, before, clear = periods[number], befores[number], clears[number]
          local slack = slack_of(period)
          local line = clear - clear % slack
          local lasts = spans[number]
          if clear ~= before then
            changed, lasts = true, clear - now
            if before < line or before <= 0 then moves = true end
          end
          if line + 2 * slack > now then
            local field = 4 * size
            size = size + 1
            fields[field + 1], fields[field + 2], fields[field + 3], fields[field + 4] =
              period, clear, lasts, limits[number]
            if line + 2 * slack > last then last = line + 2 * slack end
          else
            moves = true
          end
          number = number + count
        end
        if changed then
          local format = formats[size] or '<' .. string.rep('dddI4', size)
          formats[size] = format
          local value = pack(format, unpack(fields, 1, 4 * size))
          if moves then
            call('SET', KEYS[place], value, 'PX', lifetime(last))
          else
            call('SETRANGE', KEYS[place], '0', value)
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
