
-- token-bucket and leaky-bucket: of the debt the limit it was written under, the instant of the charge,
-- and when it is clear: µs and a fraction in limits. Most have no fraction and are stored shorter, see
-- WHOLE.
--
-- A span of time is two numbers here as well, whole microseconds and a fraction.
--
-- Buckets of one key lie together in one value, a record for each period: the period as a double, negative
-- where what follows is not WHOLE, and then the bucket.
--
-- Lifetimes end on a grid as wide as the slack, at the second line after the debt is clear, and a key's at
-- the last of those of its buckets. So what it is follows from the value, and most charges leave it where
-- it is.
local function bucket()
  local FORMAT, LENGTH = '<I7I7I7I7', 28

  -- Limit, charge, when clear, and the fraction; nothing where no bucket would have been stored so.
  local function debt(value)
    if #value == WHOLE_LENGTH then
      local clear, lasts, limit = unpacked(WHOLE, value)
      if clear % 1 == 0 and clear <= MOST_EXACT and lasts % 1 == 0 and lasts >= 0
        and lasts <= clear and limit > 0 then
        return limit, clear - lasts, clear, 0
      end
    elseif #value == LENGTH then
      local limit, charged, clear, fraction = unpacked(FORMAT, value)
      if charged <= clear and clear <= MOST_EXACT and fraction < limit then
        return limit, charged, clear, fraction
      end
    end
  end

  local function stored(limit, charged, clear, fraction)
    if fraction == 0 and limit < 4294967296 then
      return pack(WHOLE, clear, clear - charged, limit)
    end
    return pack(FORMAT, limit, charged, clear, fraction)
  end

  -- Whether the lifetime of `after` ends on another line than that of what is in its place, `value`, or
  -- it cannot be written over it.
  local function moves(shape, value, known, after, clear)
    local slack = shape.slack
    return not known or #value ~= #after or clear - clear % slack ~= known - known % slack
  end

  -- When a debt of `lasts` and `fraction` under limit `from` is clear if it drains at limit `to`.
  -- The product may be wide.
  local function redenominated(charged, lasts, fraction, from, to)
    local whole, rest
    local owed = lasts * from + fraction
    if owed < 9007199254740992 then
      rest = owed % to
      whole = (owed - rest) / to
    else
      local exact = wide()
      whole, rest = exact.divided(exact.plus(exact.product(lasts, from), fraction), to)
    end
    -- Beyond any instant plus any refill nothing fits, whatever the number.
    if charged + whole > MOST_EXACT then return MOST_EXACT, 0 end
    return charged + whole, rest
  end

  -- A span with `units` more on it; at most the capacity of them.
  local function plus(shape, micros, fraction, units)
    micros = micros + units * shape.unit
    local fractions = units * shape.unit_fraction
    if fractions == 0 then return micros, fraction end
    -- Units times a fraction stay within 2^53, with another fraction they may not.
    local limit = shape.limit
    local rest = fractions % limit
    micros = micros + (fractions - rest) / limit
    if rest >= limit - fraction then return micros + 1, rest - (limit - fraction) end
    return micros, rest + fraction
  end

  -- The fewest units that last as long as a span, given how long one lasts. The quotient of doubles
  -- is off by a few at most, and then put right.
  local function units_of(shape, micros, fraction)
    local function lasts_as_long(units)
      local reach, rest = plus(shape, 0, 0, units)
      return reach > micros or (reach == micros and rest >= fraction)
    end
    local units = floor((micros * shape.limit + fraction) / shape.period)
    while not lasts_as_long(units) do units = units + 1 end
    while units > 0 and lasts_as_long(units - 1) do units = units - 1 end
    return units
  end

  local function exceeds(shape, micros, fraction)
    return micros > shape.full or (micros == shape.full and fraction > shape.full_fraction)
  end

  -- The units a lease gets of what is left, and the span with them on it.
  local function lease(shape, micros, fraction)
    if exceeds(shape, micros, fraction) then return 0 end
    local units = shape.capacity - units_of(shape, micros, fraction)
    return units, plus(shape, micros, fraction, units)
  end

  local function evaluate(shape, value)
    local limit = shape.limit
    -- What is owed now under this limit, and when what is stored is clear.
    local micros, fraction, known = 0, 0, nil
    if value then
      local under, charged, clear, rest = debt(value)
      known = clear
      if under and (clear > now or (clear == now and rest > 0)) then
        if under ~= limit then
          clear, rest = redenominated(charged, clear - charged, rest, under, limit)
        end
        if clear >= now then micros, fraction = clear - now, rest end
      end
    end
    -- The same with the cost on it. Two fractions may exceed 2^53, what lacks to the limit does not.
    local after, rest = micros + shape.cost, shape.cost_fraction
    if rest >= limit - fraction then
      after, rest = after + 1, rest - (limit - fraction)
    else
      rest = rest + fraction
    end
    local full = shape.full
    if after > full or (after == full and rest > shape.full_fraction) then
      if shape.least == shape.most then return false end
      local units
      units, after, rest = lease(shape, micros, fraction)
      if units < shape.least then return false end
    end
    if shape.op == PEEK then return true end
    local clear = now + after
    local charged = stored(limit, now, clear, rest)
    return true, charged, moves(shape, value, known, charged, clear)
  end

  -- How long one unit lasts, a full bucket, and what is asked for.
  local function prepare(shape)
    local limit, period = shape.limit, shape.period
    shape.unit_fraction = period % limit
    shape.unit = (period - shape.unit_fraction) / limit
    shape.full, shape.full_fraction = plus(shape, 0, 0, shape.capacity)
    -- No product is formed with more than the capacity; it does not fit, however long it would last.
    shape.cost, shape.cost_fraction = math.huge, 0
    if shape.most <= shape.capacity then
      shape.cost, shape.cost_fraction = plus(shape, 0, 0, shape.most)
    end
  end

  -- Units still owed of a debt that was written under another limit. The products may be wide.
  local function present_units(shape, lasts, fraction, limit, since)
    local exact = wide()
    local owed_then = exact.plus(exact.product(lasts, limit), fraction)
    local left = exact.minus(owed_then, exact.product(since, shape.limit))
    if not left then return 0 end
    local units, rest = exact.divided(left, shape.period)
    return rest > 0 and units + 1 or units
  end

  -- In the debt's own denomination, so that what it promised under its limit still holds.
  local function refund(shape, value)
    if not value then return end
    local limit, charged, clear, fraction = debt(value)
    if not limit then return end
    if clear < now or (clear == now and fraction == 0) then return end
    local own = shape
    if limit ~= shape.limit then
      own = { limit = limit, period = shape.period, capacity = 0, most = 0 }
      prepare(own)
    end
    local lasts, back = clear - charged, shape.most
    -- More than was owed at the charge cannot be owed, but for a clock that stepped back; and what
    -- it adds cannot be given back.
    local all = units_of(own, lasts, fraction)
    local owing = all
    if now > charged then
      if own == shape then
        owing = units_of(own, clear - now, fraction)
      else
        owing = present_units(shape, lasts, fraction, limit, now - charged)
      end
    end
    if back > owing then back = owing end
    if back == 0 then return end
    if back >= all then
      lasts, fraction = 0, 0
    else
      local given, rest = plus(own, 0, 0, back)
      lasts, fraction = lasts - given, fraction - rest
      if fraction < 0 then lasts, fraction = lasts - 1, fraction + limit end
    end
    local known = clear
    clear = charged + lasts
    if clear < now or (clear == now and fraction == 0) then return false end
    local left = stored(limit, charged, clear, fraction)
    return left, moves(shape, value, known, left, clear)
  end

  -- What lies together in a value: by period the bucket, false for one that is forgotten. Of two of one
  -- period the first counts. Nothing behind what is no record is one.
  local function open(value)
    local shelf, periods, changed, moved = {}, {}, false, false
    local start, length = 1, value and #value or 0
    while start + RECORD_LENGTH - 1 <= length do
      local period, finish = unpacked('<d', value, start), start + RECORD_LENGTH - 1
      if period < 0 then period, finish = -period, start + 8 + LENGTH - 1 end
      if finish > length or not (period >= 1) then break end
      if not shelf[period] then
        periods[#periods + 1] = period
        shelf[period] = string.sub(value, start + 8, finish)
      end
      start = finish + 1
    end

    -- Replaces a bucket; `moves` as above.
    function shelf.put(period, bucket, moves)
      if shelf[period] == nil then periods[#periods + 1] = period end
      shelf[period], changed, moved = bucket, true, moved or moves
    end

    -- Writes what changed, without what is long stale.
    function shelf.close(key)
      if not changed then return end
      local records, last = {}, 0
      for _, period in ipairs(periods) do
        local bucket, slack = shelf[period], slack_of(period)
        local limit, _, clear = debt(bucket or '')
        local ends = limit and clear - clear % slack + 2 * slack or 0
        if ends > now then
          local text = pack('<d', #bucket == WHOLE_LENGTH and period or -period) .. bucket
          records[#records + 1] = { clear = clear, text = text }
          if ends > last then last = ends end
        end
      end
      if #records > MOST_RECORDS then
        table.sort(records, function(one, other) return one.clear > other.clear end)
        moved = true
      end
      local after = ''
      for index = 1, math.min(#records, MOST_RECORDS) do after = after .. records[index].text end
      if after == '' then
        call('DEL', key)
      elseif moved or #after ~= length then
        call('SET', key, after, 'PX', lifetime(last))
      else
        call('SETRANGE', key, '0', after)
      end
    end

    return shelf
  end

  return evaluate, refund, prepare, open
end
