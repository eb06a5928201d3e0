//! Numbers as Redis spells them.

/// A number in digits.
pub(crate) struct Decimal {
    digits: [u8; 20],
    first: usize,
}

impl Decimal {
    pub(crate) fn of(mut number: u64) -> Self {
        let mut decimal = Self { digits: [b'0'; 20], first: 20 };
        loop {
            decimal.first -= 1;
            decimal.digits[decimal.first] += (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return decimal;
            }
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.digits[self.first..]
    }
}

#[cfg(test)]
mod tests {
    use super::Decimal;

    #[test]
    fn numbers_are_spelled_as_usual() {
        for number in [0, 7, 10, 99, 100, 128, 1_763_290_000_000_000, u64::MAX] {
            assert_eq!(Decimal::of(number).as_bytes(), number.to_string().as_bytes());
        }
    }
}
