//! Everything ever taken, counted over the last period.

use tollgate::Quota;

use super::{Definition, Instants, Taken, give_back, sum};

#[derive(Clone, Debug, Default)]
pub(super) struct SlidingLog {
    // None without units: what was given back was never there.
    entries: Vec<Taken>,
}

impl SlidingLog {
    /// The instant to count from: the newest entry's where the clock has stepped back.
    fn instant(&self, now: u64) -> u64 {
        let newest = self.entries.iter().map(|entry| entry.at).max();
        newest.unwrap_or(0).max(now)
    }

    fn used(&self, quota: Quota, now: u64) -> u128 {
        let instant = self.instant(now);
        sum(&self.entries, |at| at + quota.period().as_micros() > instant)
    }
}

impl Definition for SlidingLog {
    fn fits(&self, quota: Quota, cost: u64, now: u64) -> bool {
        self.used(quota, now) + u128::from(cost) <= u128::from(quota.limit())
    }

    fn is_clear(&self, quota: Quota, now: u64) -> bool {
        self.used(quota, now) == 0
    }

    fn stale_at(&self, quota: Quota) -> u64 {
        self.instant(0) + quota.period().as_micros()
    }

    fn take(&mut self, quota: Quota, units: u64, now: u64) {
        let at = self.instant(now);
        // What no longer counts when a later unit is taken never counts again, even if that unit is
        // given back and the clock steps back.
        let period = quota.period().as_micros();
        self.entries.retain(|entry| entry.at + period > at);
        self.entries.push(Taken { at, units });
    }

    fn refund(&mut self, quota: Quota, units: u64, instants: Instants) -> u64 {
        let Instants { taken: at, now } = instants;
        if at + quota.period().as_micros() <= self.instant(now) {
            return 0;
        }
        let back = give_back(&mut self.entries, units, |taken| taken == at);
        self.entries.retain(|entry| entry.units > 0);
        back
    }
}
