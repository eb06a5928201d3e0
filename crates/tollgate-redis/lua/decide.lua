-- The long way, for everything else.
if (places or together) and keys == KEYS then
  keys = {}
  for index = 1, charges do
    keys[index] = KEYS[places and places[index] or (index - 1 - (index - 1) % planned) / planned + 1]
  end
end

-- By key what a window or log holds now, if that is something else than it held: false for one that is
-- forgotten. The keys in the order they came to it, and the lifetimes to be set.
local current, changed, lives = {}, {}, {}
-- By key the shelf of buckets that lie together there (bucket.lua).
local shelves = {}
refusals = refusals or {}

local makers = {
  [FIXED_WINDOW] = fixed_window,
  [SLIDING_LOG] = sliding_log,
  [SLIDING_WINDOW] = sliding_window,
  [TOKEN_BUCKET] = bucket,
  [LEAKY_BUCKET] = bucket,
}
local made = {}

local function shape_of(text)
  local algorithm, op, enforcement, group, limit, period, capacity, least, most, at, start, finish =
    unpacked(SHAPE, text)
  local make = made[algorithm]
  if not make then
    make = { makers[algorithm]() }
    made[algorithm] = make
  end
  local shape = {
    op = op, enforcement = enforcement, group = group, is_log = algorithm == SLIDING_LOG,
    -- A leaky bucket gives nothing back: the places behind it were promised.
    refundable = algorithm ~= LEAKY_BUCKET,
    limit = limit, period = period, capacity = capacity, slack = slack_of(period),
    least = least, most = most, at = at,
    calendar = finish > 0, start = start, finish = finish,
    evaluate = make[1], refund = make[2], open = make[4],
  }
  if make[3] then make[3](shape) end
  return shape
end

local shapes, logs = {}, false
for index = 1, shapes_sent do
  local shape = shape_of(ARGV[index])
  -- The caller knows calendars, and has sent the window it took to be the present one. If it is
  -- not, nothing is decided, and it is told what time it is.
  if shape.calendar and (now < shape.start or now >= shape.finish) then return { now } end
  shapes[index - 1] = shape
  logs = logs or shape.is_log
end

-- What a bucket is to hold; `life` is the lifetime its key is to have, of one on a shelf whether it is
-- to have another.
local function remember(shape, key, value, life)
  if shape.open then return shelves[key].put(shape.period, value, life) end
  if current[key] == nil then changed[#changed + 1] = key end
  current[key] = value
  if value and life then lives[key] = life end
end

-- Reads what is not decided yet. Logs are read when their turn comes, and seldom whole.
if not logs and done == 0 then
  if charges > 0 then held = call('MGET', unpack(keys)) end
else
  local names, numbers = {}, {}
  for index = done + 1, charges do
    local high, low = 128, 0
    if plan then
      local step = 2 * ((index - 1) % planned)
      high, low = plan[step + 1], plan[step + 2]
    end
    if not shapes[high % 128 * 256 + low].is_log then
      names[#names + 1], numbers[#numbers + 1] = keys[index], index
    end
  end
  local values = #names > 0 and call('MGET', unpack(names)) or names
  for place, value in ipairs(values) do held[numbers[place]] = value end
end

-- Of the set at hand: its number, its first charge, what its takes would write and where, whether it is
-- refused, and for each group whether any member fits.
local set, first = sets + 1, done + 1
local values, lifetimes, asked, refused, groups = {}, {}, {}, false, nil

for index = done + 1, charges do
  local high, low = 128, 0
  if plan then
    local step = 2 * ((index - 1) % planned)
    high, low = plan[step + 1], plan[step + 2]
  end
  local shape, key = shapes[high % 128 * 256 + low], keys[index]
  local value = current[key]
  if value == nil then value = held[index] end
  if shape.open then
    shelves[key] = shelves[key] or shape.open(value)
    value = shelves[key][shape.period] or false
  end
  local op, seen, fits = shape.op, value, true
  if op <= PEEK then
    local after, life, log
    fits, after, life, log = shape.evaluate(shape, value, key)
    -- Assigning nil would make room for it.
    if after then values[index], asked[index] = after, shape end
    if life then lifetimes[index] = life end
    if shape.is_log then seen = log end
  elseif op == RESET then
    seen = false
    remember(shape, key, false, true)
  elseif shape.refundable then
    local after, life, log = shape.refund(shape, value, key)
    if shape.is_log then seen = log end
    if type(after) == 'function' then
      after()
    elseif after ~= nil then
      remember(shape, key, after, life)
    end
  end
  -- Never nil, which would cut the reply short.
  held[index] = seen or false
  if shape.enforcement == ANY_OF then
    groups = groups or {}
    groups[shape.group] = groups[shape.group] or fits
  elseif not fits and shape.enforcement == ENFORCE then
    refused = true
  end

  if high >= 128 then
    if groups then
      for _, fits in pairs(groups) do refused = refused or not fits end
    end
    if refused then
      refusals[#refusals + 1] = set
    else
      for taken = first, index do
        local value = values[taken]
        if logs and type(value) == 'function' then
          value()
        elseif value then
          remember(asked[taken], keys[taken], value, lifetimes[taken])
        end
      end
    end
    set, first, refused, groups = set + 1, index + 1, false, nil
  end
end

for index = 1, #changed do
  local key = changed[index]
  local value, life = current[key], lives[key]
  if not value then
    call('DEL', key)
  elseif life then
    call('SET', key, value, 'PX', life)
  else
    call('SETRANGE', key, '0', value)
  end
end
for key, shelf in pairs(shelves) do shelf.close(key) end
held[charges + 1] = now
for index = 1, #refusals do held[charges + 1 + index] = refusals[index] end
return held
