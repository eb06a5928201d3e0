-- The short way, for what nearly every call asks: charges that take some units or are refused, of
-- fixed windows that are one number, a set each and all of one shape; or of buckets of whole
-- microseconds, in sets of any size. It goes on as long as nothing unusual turns up, set by set, and
-- what is left, if anything, is decided the long way.
-- Charges and sets decided here.
local done, sets = 0, 0

if charges > 0 then
  local algorithm, op, enforcement, _, limit, period, capacity, slack, least, most, _, _,
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
    local ends = (number + 1) * period + slack
    if pcall(count, call, keys, charges, base, limit, most, lifetime, ends, UNITS, WINDOWS, AHEAD,
      MOST_EXACT) then
      done, held = charges, keys
    else
      while type(keys[done + 1]) == 'number' do done = done + 1 end
      held = { unpack(keys, 1, done) }
    end
    sets = done

  elseif usual and algorithm >= TOKEN_BUCKET and period % limit == 0 and limit < 4294967296 then
    local cost, full = most * (period / limit), capacity * (period / limit)
    -- What the plan says of each step: limit, cost, full and slack of its shape, and whether it ends a set.
    local steps, ends
    if plan then
      local shapes = { [0] = { limit, cost, full, slack } }
      for index = 2, shapes_sent do
        local algorithm, op, enforcement, _, limit, period, capacity, slack, least, most =
          unpacked(SHAPE, ARGV[index])
        usual = usual and op == TAKE and enforcement == ENFORCE and least == most
          and most <= capacity and algorithm >= TOKEN_BUCKET and period % limit == 0
          and limit < 4294967296
        shapes[index - 1] = { limit, most * (period / limit), capacity * (period / limit), slack }
      end
      steps, ends = {}, {}
      for step = 1, planned do
        local high = plan[2 * step - 1]
        steps[step], ends[step] = shapes[high % 128 * 256 + plan[2 * step]], high >= 128
      end
    end

    if usual and not places then
      -- Sets that are alike, of buckets that come once: decided step by step, so that all of one shape
      -- follow each other. A set of one charge is written at once; others when all are decided, in a
      -- second go, and none of them if anything unusual turns up. Of a value what is clear is nothing,
      -- whatever it is, so only a debt is looked at more closely.
      held = call('MGET', unpack(KEYS))
      -- The first charge that is not decided here. Go 1 looks and decides, go 2 writes; sets of one
      -- charge do both in go 2.
      local denied, odd
      for go = planned > 1 and 1 or 2, 2 do
        local looks, writes = go == 1 or planned == 1, go == 2
        for step = 1, planned do
          if plan then limit, cost, full, slack = unpack(steps[step]) end
          for index = step, charges, planned do
            local known, lasts = held[index], cost
            if looks then
              if not known then
                known = 0
              elseif #known == WHOLE_LENGTH then
                local lasted, under
                known, lasted, under = unpacked(WHOLE, known)
                if under ~= limit or not (known <= now) and (known % 1 + lasted % 1 ~= 0
                  or known > MOST_EXACT or lasted < 0 or lasted > known) then odd = index break end
              else
                odd = index break
              end
              held[index] = known
            end
            if known > now then lasts = known - now + cost end
            if lasts > full then
              denied = denied or {}
              denied[(index - step) / planned + 1] = true
            elseif writes and not (denied and denied[(index - step) / planned + 1]) then
              -- What is clear later than what was there, but before the next line of those that
              -- lifetimes end on (bucket.lua), lives as long.
              local clear = now + lasts
              local line = clear - clear % slack
              if known >= line and known > 0 then
                call('SETRANGE', keys[index], '0', pack('<dd', clear, lasts))
              else
                call('SET', keys[index], pack(WHOLE, clear, lasts, limit), 'PX',
                  lifetime(line + 2 * slack))
              end
            end
          end
        end
        -- Of sets of several charges none is, then.
        if odd and planned > 1 then odd = 1 break end
      end
      done = odd and odd - 1 or charges
      sets = done / planned
      for set = 1, denied and sets or 0 do
        if denied[set] then
          refusals = refusals or {}
          refusals[#refusals + 1] = set
        end
      end

    elseif usual then
      -- Any other sets: one after the other in memory, then each bucket is written once. By place,
      -- when what was stored is clear, 0 for nothing, once it was looked at; when it is with what was
      -- taken since; and the shape of the first charge, which has the limit of all.
      local stored, clears, kinds = call('MGET', unpack(KEYS)), {}, {}
      held = { unpack(places) }
      local first, looked, step, refused = 1, 0, 0, false
      for index = 1, charges do
        step = step % planned + 1
        local shape, place = steps[step], places[index]
        local known, lasts = clears[place], shape[2]
        if known then
          if kinds[place][1] ~= shape[1] then break end
        else
          known = stored[place]
          if not known then
            known = 0
          elseif #known == WHOLE_LENGTH then
            local lasted, under
            known, lasted, under = unpacked(WHOLE, known)
            if under ~= shape[1] or not (known <= now) and (known % 1 + lasted % 1 ~= 0
              or known > MOST_EXACT or lasted < 0 or lasted > known) then break end
          else
            break
          end
          stored[place], kinds[place] = known, shape
        end
        held[index] = known
        if known > now then lasts = known - now + lasts end
        if lasts > shape[3] then refused = true end
        clears[place] = now + lasts
        looked = index
        if ends[step] then
          sets = sets + 1
          if refused then
            refusals = refusals or {}
            refusals[#refusals + 1] = sets
            for charge = first, index do clears[places[charge]] = held[charge] end
            refused = false
          end
          done, first = index, index + 1
        end
      end
      -- A set that was not decided to its end has taken nothing.
      for charge = first, looked do clears[places[charge]] = held[charge] end
      for place = 1, #KEYS do
        local clear, known = clears[place], stored[place]
        if clear and clear ~= known then
          local shape = kinds[place]
          local line = clear - clear % shape[4]
          if known >= line and known > 0 then
            call('SETRANGE', KEYS[place], '0', pack('<dd', clear, clear - now))
          else
            call('SET', KEYS[place], pack(WHOLE, clear, clear - now, shape[1]), 'PX',
              lifetime(line + 2 * shape[4]))
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
