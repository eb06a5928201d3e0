//! Everything ever taken, counted window by window.

use tollgate::Quota;

use super::{Definition, Instants, Taken, give_back, sum};

#[derive(Clone, Debug, Default)]
pub(super) struct FixedWindow {
    entries: Vec<Taken>,
    // The latest window anything was taken in, by its number since the epoch.
    latest: u64,
}

impl FixedWindow {
    /// The window that counts at `now`: the latest one where the clock has stepped back.
    fn window(&self, quota: Quota, now: u64) -> u64 {
        self.latest.max(now / quota.period().as_micros())
    }

    fn used(&self, quota: Quota, now: u64) -> u128 {
        let window = self.window(quota, now);
        sum(&self.entries, |at| at / quota.period().as_micros() == window)
    }
}

impl Definition for FixedWindow {
    fn fits(&self, quota: Quota, cost: u64, now: u64) -> bool {
        self.used(quota, now) + u128::from(cost) <= u128::from(quota.limit())
    }

    fn is_clear(&self, quota: Quota, now: u64) -> bool {
        self.used(quota, now) == 0
    }

    fn stale_at(&self, quota: Quota) -> u64 {
        (self.latest + 1) * quota.period().as_micros()
    }

    fn take(&mut self, quota: Quota, units: u64, now: u64) {
        self.latest = self.window(quota, now);
        let at = now.max(self.latest * quota.period().as_micros());
        self.entries.push(Taken { at, units });
    }

    fn refund(&mut self, quota: Quota, units: u64, instants: Instants) -> u64 {
        let Instants { taken: at, now } = instants;
        let (period, window) = (quota.period().as_micros(), self.window(quota, now));
        if at / period != window {
            return 0;
        }
        give_back(&mut self.entries, units, |taken| taken / period == window)
    }
}
