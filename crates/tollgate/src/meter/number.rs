//! Numbers for limits: buckets remember which limit they were written under, and there are far fewer
//! limits than buckets.
//!
//! The first few hundred of a process get a number each, for good: a meter is made long before it is
//! used, and a decision then need not look its limit up.

use std::sync::atomic::{AtomicU64, Ordering};

/// How many numbers there are.
pub(crate) const NUMBERS: usize = 1 << 9;

/// What stands where a number would, if there is none.
pub(crate) const NO_NUMBER: u16 = u16::MAX;

const _: () = assert!(NUMBERS <= NO_NUMBER as usize);

/// Places looked at for a limit: more of them would make those dear that have no number.
const PROBES: usize = 16;

/// Where a limit is looked for first follows from it, and then come the places behind; 0: free.
static KNOWN: [AtomicU64; NUMBERS] = [const { AtomicU64::new(0) }; NUMBERS];

/// Odd, and without a pattern: people's limits are round.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The number of `limit`, or `None` if there is none left for it.
///
/// Always the same: a place that was taken is never given back.
pub(crate) fn number_of(limit: u64) -> Option<u16> {
    let first = (limit.wrapping_mul(SPREAD) >> 32) as usize % NUMBERS;
    let place = (first..first + PROBES).map(|place| place % NUMBERS).find(|&place| {
        let known = &KNOWN[place];
        match known.load(Ordering::Relaxed) {
            // Looked at before it is written, for most are known, and many look.
            0 => match known.compare_exchange(0, limit, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => true,
                Err(other) => other == limit,
            },
            other => other == limit,
        }
    })?;
    Some(place as u16)
}

/// The limit with this number; zero if there is none.
pub(crate) fn limit_of(number: u16) -> u64 {
    KNOWN[usize::from(number) % NUMBERS].load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_has_one_number_and_a_number_one_limit() {
        let limits = [1, 7, 512, 1_024, 1 << 40, u64::MAX];
        let numbers = limits.map(|limit| number_of(limit).expect("there are some left"));
        for (limit, number) in limits.into_iter().zip(numbers) {
            assert_eq!((number_of(limit), limit_of(number)), (Some(number), limit));
        }
    }
}
