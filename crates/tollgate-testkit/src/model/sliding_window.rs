//! Everything ever taken, counted window by window, the previous window fading.

use tollgate::Quota;

use super::{Definition, Instants, Taken, give_back, sum};

#[derive(Clone, Debug, Default)]
pub(super) struct SlidingWindow {
    entries: Vec<Taken>,
    // The latest window in which anything was taken or given back, by its number since the epoch.
    latest: u64,
}

/// What is seen of two windows from an instant.
struct View {
    current: u128,
    previous: u128,
    // How much of the previous window is still in view, in µs.
    share: u128,
}

impl SlidingWindow {
    /// The window that counts at `now`: the latest one where the clock has stepped back.
    fn window(&self, quota: Quota, now: u64) -> u64 {
        self.latest.max(now / quota.period().as_micros())
    }

    fn view(&self, quota: Quota, now: u64) -> View {
        let (period, window) = (quota.period().as_micros(), self.window(quota, now));
        // A window that lies ahead has just begun.
        let elapsed = now.saturating_sub(window * period);
        View {
            current: sum(&self.entries, |at| at / period == window),
            previous: sum(&self.entries, |at| at / period + 1 == window),
            share: u128::from(period - elapsed),
        }
    }
}

impl Definition for SlidingWindow {
    fn fits(&self, quota: Quota, cost: u64, now: u64) -> bool {
        let View { current, previous, share } = self.view(quota, now);
        let period = u128::from(quota.period().as_micros());
        let whole = (current + u128::from(cost)) * period;
        whole + previous * share <= u128::from(quota.limit()) * period
    }

    fn is_clear(&self, quota: Quota, now: u64) -> bool {
        let view = self.view(quota, now);
        view.current + view.previous == 0
    }

    fn stale_at(&self, quota: Quota) -> u64 {
        (self.latest + 2) * quota.period().as_micros()
    }

    fn take(&mut self, quota: Quota, units: u64, now: u64) {
        self.latest = self.window(quota, now);
        let at = now.max(self.latest * quota.period().as_micros());
        self.entries.push(Taken { at, units });
    }

    fn refund(&mut self, quota: Quota, units: u64, instants: Instants) -> u64 {
        let Instants { taken: at, now } = instants;
        let (period, window) = (quota.period().as_micros(), self.window(quota, now));
        let from = at / period;
        if from != window && from + 1 != window {
            return 0;
        }
        let back = give_back(&mut self.entries, units, |taken| taken / period == from);
        if back > 0 {
            self.latest = window;
        }
        back
    }
}
