//! A debt in units times microseconds, so that a rate of *limit per period* needs no division: a
//! unit is worth one period, and every microsecond pays off the limit.

use tollgate::Quota;

use super::{Definition, Instants};

#[derive(Clone, Debug)]
pub(super) struct Bucket {
    // Right after the last charge, in units × µs.
    debt: u128,
    // When that was.
    charged: u64,
    // The limit in force then: at its pace the debt is forgotten, whatever the limit is now.
    limit: u64,
}

impl Default for Bucket {
    fn default() -> Self {
        let (debt, charged, limit) = (0, 0, 1);
        Self { debt, charged, limit }
    }
}

impl Bucket {
    /// What is owed at `now` if the quota's limit was in force since the last charge.
    fn owed(&self, quota: Quota, now: u64) -> u128 {
        if now >= self.forgotten_at() {
            return 0;
        }
        let limit = u128::from(quota.limit());
        match now.checked_sub(self.charged) {
            Some(since) => self.debt.saturating_sub(u128::from(since) * limit),
            // The clock stepped back: the bucket has yet to drain until the charge.
            None => self.debt + u128::from(self.charged - now) * limit,
        }
    }

    /// The first whole microsecond at which the limit that wrote the debt has paid it off.
    fn forgotten_at(&self) -> u64 {
        let lasts = self.debt.div_ceil(u128::from(self.limit));
        self.charged + u64::try_from(lasts).expect("a debt is paid off within the age of the world")
    }

    /// Whole microseconds, rounded up, until what is owed at `now` is paid off.
    pub(super) fn drains_in(&self, quota: Quota, now: u64) -> u64 {
        let lasts = self.owed(quota, now).div_ceil(u128::from(quota.limit()));
        // Longer only after a drastic lowering, when nothing is admitted and nobody asks.
        u64::try_from(lasts).unwrap_or(u64::MAX)
    }
}

impl Definition for Bucket {
    fn fits(&self, quota: Quota, cost: u64, now: u64) -> bool {
        let period = u128::from(quota.period().as_micros());
        let after = self.owed(quota, now) + u128::from(cost) * period;
        after <= u128::from(quota.burst()) * period
    }

    fn is_clear(&self, quota: Quota, now: u64) -> bool {
        self.owed(quota, now) == 0
    }

    fn stale_at(&self, _: Quota) -> u64 {
        self.forgotten_at()
    }

    fn take(&mut self, quota: Quota, units: u64, now: u64) {
        let cost = u128::from(units) * u128::from(quota.period().as_micros());
        self.debt = self.owed(quota, now) + cost;
        self.charged = now;
        self.limit = quota.limit();
    }

    fn refund(&mut self, quota: Quota, units: u64, instants: Instants) -> u64 {
        let now = instants.now;
        let period = u128::from(quota.period().as_micros());
        let owed = self.owed(quota, now).div_ceil(period);
        let back = u128::from(units).min(owed);
        // Off the debt as it was written, so that what was promised under its limit holds.
        self.debt = self.debt.saturating_sub(back * period);
        u64::try_from(back).expect("no more than was asked for")
    }
}
