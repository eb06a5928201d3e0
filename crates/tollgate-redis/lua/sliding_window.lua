
-- sliding-window: the start of the current window, and in 4 bytes each the units taken in it and in
-- the one before. Within a window the lifetime stays the same.
local function sliding_window()
  -- Its square is within 2^53.
  local MOST_UNITS = 94906265

  -- The windows as they stand now, and whether they are those stored.
  local function at(shape, value)
    local period = shape.period
    if value and #value == 15 then
      local start, this, last = unpacked('<I7I4I4', value)
      local sound = start <= MOST_EXACT and this <= MOST_UNITS and last <= MOST_UNITS
      if sound and now < start + period then return start, this, last, true end
      if sound and now < start + 2 * period then return start + period, 0, this, false end
    end
    return now - now % period, 0, 0, false
  end

  -- The share of the last window in view, rounded up: the least number of units that last · in_view
  -- does not exceed, in periods. The product may be wide. Its quotient as doubles have it is at most
  -- one too small, which is found out by asking, with period = quotient · last + rest, whether
  -- in_view ≤ ⌊units · period / last⌋. Counts are at most MOST_UNITS.
  local function share(period, last, in_view)
    if last == 0 then return 0 end
    local rest = period % last
    local quotient = (period - rest) / last
    local units = floor(last * in_view / period)
    while true do
      local fractions = units * rest
      if in_view <= units * quotient + (fractions - fractions % last) / last then return units end
      units = units + 1
    end
  end

  local function stored(shape, start, this, last, known)
    return pack('<I7I4I4', start, this, last),
      not known and lifetime(start + 2 * shape.period + shape.slack) or nil
  end

  local function evaluate(shape, value)
    local start, this, last, known = at(shape, value)
    -- A window that lies ahead, because the clock stepped back, counts as just begun.
    local in_view = shape.period
    if now > start then in_view = in_view - (now - start) end
    local room = shape.limit - this - share(shape.period, last, in_view)
    local units = shape.most
    if units > room then units = room end
    if units < shape.least then return false end
    if shape.op == PEEK then return true end
    return true, stored(shape, start, this + units, last, known)
  end

  local function refund(shape, value)
    local start, this, last, known = at(shape, value)
    local taken, back = shape.at, 0
    if taken >= start and taken < start + shape.period then
      back = math.min(this, shape.most)
      this = this - back
    elseif taken < start and taken >= start - shape.period then
      back = math.min(last, shape.most)
      last = last - back
    end
    if back > 0 then return stored(shape, start, this, last, known) end
  end

  return evaluate, refund
end
