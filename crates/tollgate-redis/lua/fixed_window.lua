
-- fixed-window: the end of the window last charged, and the units taken in it. Within a window the
-- lifetime stays the same.
local function fixed_window()
  local function at(shape, value)
    if value and #value == 14 then
      local finish, used = unpacked('<I7I7', value)
      if now < finish then return finish, used, true end
    end
    return now - now % shape.period + shape.period, 0, false
  end

  local function evaluate(shape, value)
    local finish, used, known = at(shape, value)
    local room = shape.limit - used
    local units = shape.most
    if units > room then units = room end
    if units < shape.least then return false end
    if shape.op == PEEK then return true end
    return true, pack('<I7I7', finish, used + units),
      not known and lifetime(finish + shape.slack) or nil
  end

  local function refund(shape, value)
    local finish, used, known = at(shape, value)
    if not known or shape.at >= finish or shape.at < finish - shape.period then return end
    local back = math.min(used, shape.most)
    if back > 0 then return pack('<I7I7', finish, used - back) end
  end

  return evaluate, refund
end
