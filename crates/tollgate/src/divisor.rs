//! Division by a number that is known long before.
//!
//! A processor takes up to ten times as long to divide as to multiply, and decisions divide by what never
//! changes: how long a unit lasts, or a period. So that is inverted once, and a quotient is a product.
//!
//! **Exactness.** Of a number *d* the inverse is *v = ⌊(2^64 − 1)/d⌋*, so *0 < 2^64/d − v ≤ 1*. For any
//! *n < 2^64* the product *n · v/2^64* is thus short of *n/d* by no more than *n/2^64 < 1*, and its floor is
//! the quotient or one below it. What is left over says which.

use std::num::NonZeroU64;

/// A number to divide by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Divisor {
    number: NonZeroU64,
    inverse: u64,
}

impl Divisor {
    pub(crate) const fn new(number: NonZeroU64) -> Self {
        Self { number, inverse: u64::MAX / number.get() }
    }

    /// Quotient and remainder of `dividend`.
    #[inline(always)]
    pub(crate) const fn divide(self, dividend: u64) -> (u64, u64) {
        let number = self.number.get();
        let (quotient, rest) = self.nearly(dividend);
        let is_low = rest >= number;
        (quotient + is_low as u64, rest - if is_low { number } else { 0 })
    }

    /// A quotient that may be one too low, never too high, and what it leaves.
    #[inline(always)]
    const fn nearly(self, dividend: u64) -> (u64, u64) {
        let quotient = ((dividend as u128 * self.inverse as u128) >> 64) as u64;
        (quotient, dividend - quotient * self.number.get())
    }

    /// The quotient of `dividend`, rounded up.
    #[inline(always)]
    pub(crate) const fn divide_up(self, dividend: u64) -> u64 {
        let (quotient, rest) = self.nearly(dividend);
        quotient + (rest > 0) as u64 + (rest > self.number.get()) as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Numbers of every size, small ones and powers of two as likely as large ones.
    fn numbers() -> impl Strategy<Value = u64> {
        let sized = (any::<u64>(), 0..64_u32).prop_map(|(number, shift)| number >> shift);
        let around =
            (0..64_u32, -1..=1_i64).prop_map(|(bit, by)| (1_u64 << bit).wrapping_add_signed(by));
        prop_oneof![sized, around]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100_000))]

        #[test]
        fn quotients_are_exact(dividend in numbers(), number in numbers(), times in numbers(), by in -1..=1_i64) {
            let number = NonZeroU64::new(number).unwrap_or(NonZeroU64::MIN);
            // Around multiples, where a quotient turns.
            let multiple = times.wrapping_mul(number.get()).wrapping_add_signed(by);
            let divisor = Divisor::new(number);
            for dividend in [dividend, multiple, u64::MAX - (dividend & 7)] {
                prop_assert_eq!(divisor.divide(dividend), (dividend / number, dividend % number));
                prop_assert_eq!(divisor.divide_up(dividend), dividend.div_ceil(number.get()));
            }
        }
    }
}
