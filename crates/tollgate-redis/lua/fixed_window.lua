
-- fixed-window: the end of the window last charged, and the units taken in it: as one number below a
-- limit of 2^26, else, and by the calendar, packed behind a byte that makes the value longer than any
-- number's. Within a window the lifetime stays the same.
local function fixed_window()
  local MARK = 119

  -- A value as a number, or 0 where it is none of ours.
  local function number_in(value)
    local total = string.find(value, '^%d+$') and tonumber(value) or 0
    local sound = total >= UNITS and total <= MOST_EXACT and total % UNITS < UNITS / 2
    return sound and total or 0
  end

  -- The end of the window to count in, the units taken, and whether it is the one stored.
  local function at(shape, value)
    local period = shape.period
    local number = floor(now / period)
    if value and #value == 17 then
      local mark, finish, used = unpacked('<BI8I8', value)
      local sound = mark == MARK and finish <= MOST_EXACT and used <= MOST_EXACT
      if sound and now < finish then return finish, used, true end
    elseif value and not shape.calendar then
      local total = number_in(value)
      local used = total % UNITS
      local ahead = ((total - used) / UNITS - (number % WINDOWS + 1)) % WINDOWS
      if total > 0 and ahead < AHEAD then return (number + ahead + 1) * period, used, true end
    end
    if shape.calendar then return shape.finish, 0, false end
    return (number + 1) * period, 0, false
  end

  -- When the window that ends at `finish` began. Of a calendar only the present one is known.
  local function start_of(shape, finish)
    if not shape.calendar then return finish - shape.period end
    return finish == shape.finish and shape.start or finish
  end

  local function stored(shape, finish, used, life)
    if shape.limit < 67108864 and used < 67108864 and not shape.calendar then
      local number = finish / shape.period - 1
      return string.format('%.0f', (number % WINDOWS + 1) * UNITS + used), life
    end
    return pack('<BI8I8', MARK, finish, used), life
  end

  local function evaluate(shape, value)
    local finish, used, known = at(shape, value)
    local room = shape.limit - used
    local units = shape.most
    if units > room then units = room end
    if units < shape.least then return false end
    if shape.op == PEEK then return true end
    return true, stored(shape, finish, used + units, lifetime(finish + shape.slack))
  end

  local function refund(shape, value)
    local finish, used, known = at(shape, value)
    if not known or shape.at >= finish or shape.at < start_of(shape, finish) then return end
    local back = math.min(used, shape.most)
    if back > 0 then return stored(shape, finish, used - back, lifetime(finish + shape.slack)) end
  end

  return evaluate, refund
end
