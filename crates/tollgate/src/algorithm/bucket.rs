//! `token-bucket` and `leaky-bucket`: a debt that is paid off steadily.
//!
//! **Definition.** A bucket of `burst` units drains at *L* units per period *P*. A request of cost
//! *c* is admitted when what is in it, plus *c*, is within the burst. Read as tokens (burst minus
//! debt) this is the token bucket, which starts full of them; read as a queue it is the leaky
//! bucket, where an admitted request waits for what was in the queue before it.
//!
//! **State.** The debt is kept as the time it takes to pay off: *c* units last *c · P/L*
//! microseconds, so a charge moves the instant at which the bucket is clear, and time passing needs
//! no writing down. With it go the limit the debt was written under and the instant of the charge.
//!
//! **Exactness.** *P/L* is seldom whole. With *P = q · L + r*, *c* units last
//! *c · q + ⌊(c · r + f)/L⌋* µs and leave the fraction *f′ = (c · r + f) mod L*, counted in *L*ths of
//! a microsecond and carried in the state. *c ≤ burst* and *r, f < L*, so with *burst · L ≤ 2^53*
//! every product is exact.
//!
//! **A changed limit.** The debt, in units, is what it was right after the last charge, and from
//! that instant on it drains at the limit in force now: raising the limit acts at once, for the time
//! already passed too, and lowering it grants nothing. Converting (*d* µs, *f*) from *L₀* to *L* is
//! exact: *(d · L₀ + f)/L*. From the instant at which the debt would have been clear under the limit
//! that wrote it, it is clear whatever the limit is now, so a lowered limit locks nobody out for
//! longer than they were promised. Between two charges the bucket thus drains at most as fast as the
//! faster of the two limits, and no sequence of changes grants more than the most generous quota.

use super::{Ask, Evaluation, Present, Standing};
use crate::algorithm::Algorithm;
use crate::charge::Cost;
use crate::decision::Retry;
use crate::meter::Meter;
use crate::quota::Quota;
use crate::time::{MAX_EXACT, Micros, Timestamp};

/// A span of `micros` + `fraction`/*L* microseconds, where *L* is the limit it is measured under.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Stretch {
    // First, so that the derived order is the order of lengths.
    pub(crate) micros: u64,
    // Below the limit.
    pub(crate) fraction: u64,
}

impl Stretch {
    const NONE: Self = Self { micros: 0, fraction: 0 };

    /// How long one unit of `quota` lasts.
    pub(crate) const fn of_unit(quota: Quota) -> Self {
        let (period, limit) = (quota.period().as_micros(), quota.limit());
        Self { micros: period / limit, fraction: period % limit }
    }

    /// `units` times this stretch of one unit, plus `fraction`; all under `limit`.
    #[inline(always)]
    pub(crate) const fn times(self, units: u64, limit: u64, fraction: u64) -> Self {
        let fractions = units * self.fraction + fraction;
        // Most quotas divide their period, and then there is nothing to carry.
        if fractions < limit {
            return Self { micros: units * self.micros, fraction: fractions };
        }
        Self { micros: units * self.micros + fractions / limit, fraction: fractions % limit }
    }

    /// Whole microseconds, rounded up.
    #[inline(always)]
    pub(crate) const fn ceil(self) -> u64 {
        self.micros + (self.fraction > 0) as u64
    }
}

/// What is owed. The default owes nothing: it is fresh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Debt {
    // Units per period in force at the last charge; zero only in the default, which is stale.
    limit: u64,
    // When the last charge was made, in µs: a changed limit counts from here.
    charged: u64,
    // When the debt is paid off under `limit`: `clear` + `fraction`/`limit` µs.
    clear: u64,
    fraction: u64,
}

impl Debt {
    /// A debt charged at `charged` under `limit`, clear at `clear` + `fraction`/`limit`, all in µs.
    pub const fn new(limit: u64, charged: u64, clear: u64, fraction: u64) -> Self {
        Self { limit, charged, clear, fraction }
    }

    /// The limit it was written under, when it was charged, when it is clear, and the fraction.
    pub const fn parts(self) -> (u64, u64, u64, u64) {
        (self.limit, self.charged, self.clear, self.fraction)
    }

    /// See [`State::evaluate`](super::State::evaluate).
    #[inline(always)]
    pub fn evaluate(&self, meter: &Meter, ask: Ask, now: Timestamp) -> Evaluation<Self> {
        let owed = self.owed(meter, now);
        let units = ask.max.get();
        // A cost beyond the capacity is turned away before any product is formed with it.
        if units <= meter.capacity() {
            let after = owed.plus(units, meter);
            if after <= meter.full() {
                return Self::fits(owed, units, after, meter, now);
            }
        }
        // A lease is content with what is left; everybody else asked for all or nothing.
        let units = remaining(owed, meter);
        if ask.min < ask.max && units >= ask.min.get() {
            return Self::fits(owed, units, owed.plus(units, meter), meter, now);
        }
        let retry = self.retry(owed, meter, ask.min.get(), now);
        let reset = Micros::new(owed.ceil().min(self.stale_in(now)));
        Evaluation::Exceeds { retry, present: Standing { remaining: units, reset } }
    }

    /// See [`State::standing`](super::State::standing).
    #[inline(always)]
    pub fn standing(&self, meter: &Meter, now: Timestamp) -> Standing {
        let owed = self.owed(meter, now);
        let reset = owed.ceil().min(self.stale_in(now));
        Standing { remaining: remaining(owed, meter), reset: Micros::new(reset) }
    }

    /// Gives units back: the debt less `units`, not below zero. A leaky bucket gives none, for the
    /// slots behind it were promised.
    pub fn refund(&mut self, meter: &Meter, units: Cost, now: Timestamp) -> u64 {
        if meter.algorithm() == Algorithm::LeakyBucket {
            return 0;
        }
        if self.stale_in(now) == 0 {
            return 0;
        }
        // In the state's own denomination, so that what it promised under its limit still holds.
        let period = u128::from(meter.period().as_micros());
        let limit = u128::from(self.limit);
        let owed = u128::from(self.clear - self.charged) * limit + u128::from(self.fraction);
        let drained = |micros: u64| u128::from(micros) * u128::from(meter.limit());
        // Not the instant it is clear, which under a much lower limit no integer here could hold.
        let present = match now.as_micros().checked_sub(self.charged) {
            Some(since) => owed.saturating_sub(drained(since)),
            None => owed + drained(self.charged - now.as_micros()),
        };
        let present = u64::try_from(present.div_ceil(period)).unwrap_or(u64::MAX);
        let back = units.get().min(present);
        let left = owed.saturating_sub(u128::from(back) * period);
        // Both no larger than what was there.
        self.clear = self.charged + (left / limit) as u64;
        self.fraction = (left % limit) as u64;
        back
    }

    /// See [`State::stale_at`](super::State::stale_at).
    #[inline(always)]
    pub const fn stale_at(self) -> u64 {
        self.clear + (self.fraction > 0) as u64
    }

    #[inline(always)]
    fn stale_in(self, now: Timestamp) -> u64 {
        self.stale_at().saturating_sub(now.as_micros())
    }

    /// What is still owed at `now`, measured under the meter's limit.
    #[inline(always)]
    fn owed(self, meter: &Meter, now: Timestamp) -> Stretch {
        if self.stale_in(now) == 0 {
            return Stretch::NONE;
        }
        let (clear, fraction) = match self.limit == meter.limit() {
            true => (self.clear, self.fraction),
            false => {
                let lasts = self.clear - self.charged;
                redenominate(self.charged, lasts, self.fraction, self.limit, meter.limit())
            }
        };
        match clear.checked_sub(now.as_micros()) {
            Some(micros) => Stretch { micros, fraction },
            // Less than a microsecond remained, and more than that has passed.
            None => Stretch::NONE,
        }
    }

    /// Takes `units` on top of `owed`, which makes `after`.
    #[inline(always)]
    fn fits(
        owed: Stretch,
        units: u64,
        after: Stretch,
        meter: &Meter,
        now: Timestamp,
    ) -> Evaluation<Self> {
        let delay = match meter.algorithm() {
            Algorithm::LeakyBucket => Micros::new(owed.ceil()),
            _ => Micros::ZERO,
        };
        let (limit, charged) = (meter.limit(), now.as_micros());
        let delta =
            Self { limit, charged, clear: charged + after.micros, fraction: after.fraction };
        let reset = Micros::new(after.ceil());
        let after = Standing { remaining: remaining(after, meter), reset };
        Evaluation::Fits { units, delay, delta, after }
    }

    /// When `cost`, which does not fit on top of `owed`, will.
    #[inline(always)]
    fn retry(self, owed: Stretch, meter: &Meter, cost: u64, now: Timestamp) -> Retry {
        if cost > meter.capacity() {
            return Retry::Never;
        }
        let (after, full) = (owed.plus(cost, meter), meter.full());
        let wait = after.micros - full.micros + u64::from(after.fraction > full.fraction);
        Retry::After(Micros::new(wait.min(self.stale_in(now))))
    }
}

/// A debt in whole microseconds, written under the limit it is read by. The default is fresh.
///
/// What nearly every bucket is: most limits divide their period, and few change. It says what
/// [`Debt`] says, with one addition and one comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WholeDebt {
    /// When the debt is paid off, in µs.
    pub(crate) clear: u64,
    /// How long it lasted when it was charged, in µs.
    pub(crate) lasts: u64,
}

impl WholeDebt {
    /// The longest refill, in µs: some twelve days.
    pub(crate) const LONGEST: u64 = (1 << 40) - 1;

    /// Whether `ask` of `meter` can be evaluated here.
    #[inline(always)]
    pub(crate) fn suits(meter: &Meter, ask: Ask) -> bool {
        meter.has_whole_debts() && ask.min == ask.max && ask.max.get() <= meter.capacity()
    }

    /// What is owed at `now`.
    #[inline(always)]
    pub(crate) fn owed(self, now: Timestamp) -> Owed {
        Owed { until: self.clear.max(now.as_micros()) }
    }
}

/// What is left of a [`WholeDebt`] at an instant, as the instant in µs at which it is paid off: the same
/// one if nothing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owed {
    until: u64,
}

impl Owed {
    #[inline(always)]
    fn lasts(self, now: Timestamp) -> u64 {
        self.until - now.as_micros()
    }
}

/// Only for asks that [suit](WholeDebt::suits).
impl Present for Owed {
    type State = WholeDebt;

    #[inline(always)]
    fn evaluate(self, meter: &Meter, ask: Ask, now: Timestamp) -> Evaluation<WholeDebt> {
        let (units, full) = (ask.max.get(), meter.full().micros);
        let with = Self { until: self.until + units * meter.unit().micros };
        let lasts = with.lasts(now);
        if lasts > full {
            let retry = Retry::After(Micros::new(lasts - full));
            return Evaluation::Exceeds { retry, present: self.standing(meter, now) };
        }
        let delta = WholeDebt { clear: with.until, lasts };
        let delay = match meter.algorithm() {
            Algorithm::LeakyBucket => Micros::new(self.lasts(now)),
            _ => Micros::ZERO,
        };
        Evaluation::Fits { units, delay, delta, after: with.standing(meter, now) }
    }

    #[inline(always)]
    fn standing(self, meter: &Meter, now: Timestamp) -> Standing {
        let lasts = self.lasts(now);
        let room = meter.full().micros.saturating_sub(lasts);
        let (remaining, _) = meter.divisor().divide(room);
        Standing { remaining, reset: Micros::new(lasts) }
    }
}

impl Present for Debt {
    type State = Self;

    #[inline(always)]
    fn evaluate(self, meter: &Meter, ask: Ask, now: Timestamp) -> Evaluation<Self> {
        Self::evaluate(&self, meter, ask, now)
    }

    #[inline(always)]
    fn standing(self, meter: &Meter, now: Timestamp) -> Standing {
        Self::standing(&self, meter, now)
    }
}

impl Stretch {
    /// This debt with `units` more on it.
    #[inline(always)]
    fn plus(self, units: u64, meter: &Meter) -> Self {
        let more = meter.unit().times(units, meter.limit(), self.fraction);
        Self { micros: self.micros + more.micros, fraction: more.fraction }
    }
}

/// When a debt that lasted `lasts` µs and `fraction` under one limit is clear if it drains at another
/// from the charge on.
// The arguments are scalars so that they stay in registers where this is not called.
#[cold]
#[inline(never)]
fn redenominate(charged: u64, lasts: u64, fraction: u64, from: u64, to: u64) -> (u64, u64) {
    let owed = u128::from(lasts) * u128::from(from) + u128::from(fraction);
    let clear = u128::from(charged) + owed / u128::from(to);
    match u64::try_from(clear) {
        Ok(clear) if clear <= MAX_EXACT => (clear, (owed % u128::from(to)) as u64),
        // Beyond any instant plus any refill, so nothing fits before it goes stale.
        _ => (MAX_EXACT, 0),
    }
}

/// Whole units that still fit on top of `owed`.
#[inline(always)]
fn remaining(owed: Stretch, meter: &Meter) -> u64 {
    meter.capacity().saturating_sub(owed_units(owed, meter))
}

/// The units `owed` amounts to, rounded up: ⌈(d · L + f)/P⌉, in the narrowest integers that hold it.
#[inline(always)]
fn owed_units(owed: Stretch, meter: &Meter) -> u64 {
    let (limit, period) = (meter.limit(), meter.period().as_micros());
    let narrow = owed.micros.checked_mul(limit).and_then(|units| units.checked_add(owed.fraction));
    match narrow {
        Some(units) if !meter.has_whole_debts() => meter.divisor().divide_up(units),
        Some(units) => units.div_ceil(period),
        None => {
            let units = u128::from(owed.micros) * u128::from(limit) + u128::from(owed.fraction);
            u64::try_from(units.div_ceil(u128::from(period))).unwrap_or(u64::MAX)
        }
    }
}
