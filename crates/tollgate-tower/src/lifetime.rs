//! Lifetimes that do not all end at once.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// A lifetime somewhere in the last `per_cent` of `longest`, never beyond it.
///
/// What was cached together and expires together is asked for together. With lifetimes spread out,
/// so are the questions.
///
/// ```
/// use std::time::Duration;
/// use tollgate_tower::jittered;
///
/// let lifetime = jittered(Duration::from_secs(300), 20);
/// assert!((Duration::from_secs(240)..=Duration::from_secs(300)).contains(&lifetime));
/// ```
pub fn jittered(longest: Duration, per_cent: u8) -> Duration {
    // Each state has keys of its own, and so a hash of nothing is as good as random.
    let random = RandomState::new().hash_one(()) >> 32;
    let spread = longest.mul_f64(f64::from(per_cent.min(100)) / 100.0);
    longest - spread.mul_f64(random as f64 / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_differ_and_stay_within_bounds() {
        let longest = Duration::from_secs(1_000);
        let lifetimes: Vec<Duration> = (0..1_000).map(|_| jittered(longest, 10)).collect();
        let within = Duration::from_secs(900)..=longest;
        assert!(lifetimes.iter().all(|lifetime| within.contains(lifetime)));
        let early = lifetimes.iter().filter(|lifetime| lifetime.as_secs() < 950).count();
        assert!((300..700).contains(&early), "{early} of 1000 in the first half");
    }

    #[test]
    fn nothing_is_spread_by_nothing_and_everything_by_all() {
        let longest = Duration::from_secs(60);
        assert_eq!(jittered(longest, 0), longest);
        assert!(jittered(longest, 255) <= longest);
        assert_eq!(jittered(Duration::ZERO, 50), Duration::ZERO);
    }
}
