
local makers = {
  [FIXED_WINDOW] = fixed_window,
  [SLIDING_LOG] = sliding_log,
  [SLIDING_WINDOW] = sliding_window,
  [TOKEN_BUCKET] = bucket,
  [LEAKY_BUCKET] = bucket,
}
local made = {}

-- What charges of one shape ask. For a refund `most` is the units and `at` the instant they were
-- taken.
local function shape_of(text)
  local algorithm, op, enforcement, group, limit, period, capacity, slack, least, most, at =
    unpacked('<BBBBI7I7I7I7I7I7I7', text)
  local make = made[algorithm]
  if not make then
    make = { makers[algorithm]() }
    made[algorithm] = make
  end
  local shape = {
    op = op, enforcement = enforcement, group = group, is_log = algorithm == SLIDING_LOG,
    -- A leaky bucket gives nothing back: the places behind it were promised.
    refundable = algorithm ~= LEAKY_BUCKET,
    limit = limit, period = period, capacity = capacity, slack = slack,
    least = least, most = most, at = at,
    evaluate = make[1], refund = make[2],
  }
  if make[3] then make[3](shape) end
  return shape
end

local shapes, logs = {}, false
for index = 3, #ARGV do
  local shape = shape_of(ARGV[index])
  shapes[index - 3] = shape
  logs = logs or shape.is_log
end

local plan, charges = ARGV[2], #KEYS

-- Values as they were read, by the number of the charge; and by key as they are now, if that is
-- another: false for a bucket that is forgotten.
local read, current = {}, {}
-- The keys of `current` in the order they came to it, and the lifetimes to be set.
local changed, lives = {}, {}

local function remember(key, value, life)
  if type(value) == 'function' then return value() end
  if current[key] == nil then changed[#changed + 1] = key end
  current[key] = value
  if life then lives[key] = life end
end

local function read_all()
  if charges == 0 then return end
  if not logs then
    read = call('MGET', unpack(KEYS))
    return
  end
  -- Logs are read when their turn comes, and seldom whole.
  local names, places = {}, {}
  for index = 1, charges do
    local high, low = byte(plan, 2 * index - 1, 2 * index)
    if not shapes[high % 128 * 256 + low].is_log then
      names[#names + 1], places[#places + 1] = KEYS[index], index
    end
  end
  if #names == 0 then return end
  for place, value in ipairs(call('MGET', unpack(names))) do read[places[place]] = value end
end

local function write_all()
  for index = 1, #changed do
    local key = changed[index]
    local value = current[key]
    if not value then
      call('DEL', key)
    elseif lives[key] then
      call('SET', key, value, 'PX', lives[key])
    else
      call('SETRANGE', key, '0', value)
    end
  end
end

read_all()

local reply, refusals = { now, false }, {}
-- Of the set at hand: its number, its first charge, what its takes would write, whether it is
-- refused, and for each group whether any member fits.
local set, first = 1, 1
local values, lifetimes, refused, groups = {}, {}, false, nil

for index = 1, charges do
  local high, low = byte(plan, 2 * index - 1, 2 * index)
  local shape, key = shapes[high % 128 * 256 + low], KEYS[index]
  local value = current[key]
  if value == nil then value = read[index] end
  local op, seen, fits = shape.op, value, true
  if op <= PEEK then
    local after, life, log
    fits, after, life, log = shape.evaluate(shape, value, key)
    values[index], lifetimes[index] = after, life
    if shape.is_log then seen = log end
  elseif op == RESET then
    seen = false
    remember(key, false)
  elseif shape.refundable then
    local after, life, log = shape.refund(shape, value, key)
    if shape.is_log then seen = log end
    if after ~= nil then remember(key, after, life) end
  end
  if shape.enforcement == ANY_OF then
    groups = groups or {}
    groups[shape.group] = groups[shape.group] or fits
  elseif not fits and shape.enforcement == ENFORCE then
    refused = true
  end
  reply[index + 2] = seen or false

  if high >= 128 then
    if groups then
      for _, fits in pairs(groups) do refused = refused or not fits end
    end
    if refused then
      refusals[#refusals + 1] = set
    else
      for taken = first, index do
        if values[taken] ~= nil then remember(KEYS[taken], values[taken], lifetimes[taken]) end
      end
    end
    set, first, refused, groups = set + 1, index + 1, false, nil
  end
end

write_all()
reply[2] = refusals
return reply
