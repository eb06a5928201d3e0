
local function sliding_log()
  return function() return true end
end
