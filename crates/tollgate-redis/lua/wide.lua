
-- Products beyond 2^53, as limbs of 24 bits, least first. Only a changed limit needs them.
local function wide()
  local LIMB = 16777216

  local function carried(limbs)
    local carry = 0
    for index = 1, #limbs do
      local sum = limbs[index] + carry
      limbs[index] = sum % LIMB
      carry = (sum - limbs[index]) / LIMB
    end
    return limbs
  end

  local function limbs_of(number)
    local low = number % LIMB
    local rest = (number - low) / LIMB
    local middle = rest % LIMB
    return low, middle, (rest - middle) / LIMB
  end

  local function product(one, two)
    local a0, a1, a2 = limbs_of(one)
    local b0, b1, b2 = limbs_of(two)
    return carried({
      a0 * b0, a0 * b1 + a1 * b0, a0 * b2 + a1 * b1 + a2 * b0, a1 * b2 + a2 * b1, a2 * b2, 0,
    })
  end

  local function plus(limbs, number)
    local low, middle, high = limbs_of(number)
    return carried({ limbs[1] + low, limbs[2] + middle, limbs[3] + high, limbs[4], limbs[5], limbs[6] })
  end

  -- The difference, or nil if it is negative.
  local function minus(one, two)
    local difference, borrow = {}, 0
    for index = 1, 6 do
      local limb = one[index] - two[index] - borrow
      borrow = limb < 0 and 1 or 0
      difference[index] = limb + borrow * LIMB
    end
    if borrow == 0 then return difference end
  end

  -- Quotient and remainder, bit by bit. The quotient is exact up to 2^53, beyond that only large.
  local function divided(limbs, divisor)
    local quotient, rest = 0, 0
    for index = 6, 1, -1 do
      local limb, half = limbs[index], LIMB / 2
      for _ = 1, 24 do
        local bit = limb >= half and 1 or 0
        limb = (limb - bit * half) * 2
        quotient = quotient * 2
        -- Twice the rest may exceed 2^53, what is lacking to the divisor does not.
        if rest >= divisor - rest - bit then
          rest = rest - (divisor - rest) + bit
          quotient = quotient + 1
        else
          rest = rest * 2 + bit
        end
      end
    end
    return quotient, rest
  end

  return { product = product, plus = plus, minus = minus, divided = divided }
end
