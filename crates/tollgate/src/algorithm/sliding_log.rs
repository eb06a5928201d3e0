//! `sliding-log`: one entry per request, exact.
//!
//! **Definition.** A request of cost *c* at time *t* is admitted when the units taken in
//! *(t − P, t]*, plus *c*, are within the limit. An entry counts until exactly one period after it.
//!
//! **State.** Runs of units taken at the same microsecond, oldest first: two requests in the same
//! microsecond are one run of two units. A run is only added once those that no longer count are
//! gone, and each holds at least a unit, so a log never has more runs than its limit.
//!
//! **Exactness.** Nothing but sums and comparisons.

use std::collections::VecDeque;

use super::{Ask, Evaluation, Standing};
use crate::charge::Cost;
use crate::decision::Retry;
use crate::meter::Meter;
use crate::quota::Period;
use crate::time::{Micros, Timestamp};

/// Units taken at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    // In µs.
    at: u64,
    // A log's limit is 100,000, and no run holds more.
    units: u32,
}

/// The requests that count, and perhaps some that no longer do. The default is fresh.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    // Ascending and distinct in `at`.
    runs: VecDeque<Run>,
    // Sum over `runs`, so that counting only has to look at what has expired.
    total: u64,
}

impl FromIterator<(Timestamp, u32)> for Log {
    /// A log of these instants, oldest first, and the units taken at each.
    ///
    /// A store that keeps logs elsewhere need not fetch a whole one to read a decision off it. What
    /// matters is the sum of the units that count, the newest instant, and for a refusal the instant
    /// whose expiry makes room, with all the units up to it.
    fn from_iter<I: IntoIterator<Item = (Timestamp, u32)>>(runs: I) -> Self {
        let mut log = Self::default();
        for (at, units) in runs {
            log.apply(Append { expired: 0, run: Run { at: at.as_micros(), units } });
        }
        log
    }
}

/// The entry a charge adds, and the runs that have expired by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Append {
    expired: usize,
    run: Run,
}

/// The part of a log that counts at an instant.
struct InView {
    // The instant itself: now, or the newest entry's where the clock stepped back.
    at: u64,
    expired: usize,
    used: u64,
}

impl Log {
    /// How many runs are remembered.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// See [`State::evaluate`](super::State::evaluate).
    pub fn evaluate(&self, meter: &Meter, ask: Ask, now: Timestamp) -> Evaluation<Append> {
        let view = self.in_view(meter.period(), now);
        let remaining = meter.limit().saturating_sub(view.used);
        if let Some(units) = ask.within(remaining) {
            // At most the limit of a log, which fits 32 bits.
            let run = Run { at: view.at, units: units as u32 };
            let delta = Append { expired: view.expired, run };
            let stale_at = view.at + meter.period().as_micros();
            let reset = Micros::new(stale_at - now.as_micros());
            let after = Standing { remaining: remaining - units, reset };
            return Evaluation::Fits { units, delay: Micros::ZERO, delta, after };
        }
        let retry = match ask.min.get() > meter.limit() {
            true => Retry::Never,
            false => {
                let fits_at = self.fits_at(meter, ask.min.get(), &view);
                Retry::After(Micros::new(fits_at - now.as_micros()))
            }
        };
        Evaluation::Exceeds { retry, present: self.standing(meter, now) }
    }

    /// Drops what has expired and appends the entry.
    pub fn apply(&mut self, Append { expired, run }: Append) {
        for gone in self.runs.drain(..expired) {
            self.total -= u64::from(gone.units);
        }
        self.total += u64::from(run.units);
        match self.runs.back_mut() {
            Some(newest) if newest.at == run.at => newest.units += run.units,
            _ => self.runs.push_back(run),
        }
    }

    /// See [`State::standing`](super::State::standing).
    pub fn standing(&self, meter: &Meter, now: Timestamp) -> Standing {
        let view = self.in_view(meter.period(), now);
        let reset = match view.used {
            0 => 0,
            _ => self.stale_at(meter.period()) - now.as_micros(),
        };
        Standing { remaining: meter.limit().saturating_sub(view.used), reset: Micros::new(reset) }
    }

    /// Gives back units taken at exactly `at`, while they count.
    pub fn refund(&mut self, meter: &Meter, units: Cost, at: Timestamp, now: Timestamp) -> u64 {
        let view = self.in_view(meter.period(), now);
        let found = self.runs.binary_search_by_key(&at.as_micros(), |run| run.at);
        let Some(index) = found.ok().filter(|&index| index >= view.expired) else {
            return 0;
        };
        let run = &mut self.runs[index];
        let back = units.get().min(u64::from(run.units));
        run.units -= back as u32;
        self.total -= back;
        if run.units == 0 {
            self.runs.remove(index);
        }
        back
    }

    /// See [`State::stale_at`](super::State::stale_at).
    pub fn stale_at(&self, period: Period) -> u64 {
        self.runs.back().map_or(0, |newest| newest.at + period.as_micros())
    }

    fn in_view(&self, period: Period, now: Timestamp) -> InView {
        let at = self.runs.back().map_or(0, |newest| newest.at).max(now.as_micros());
        let mut view = InView { at, expired: 0, used: self.total };
        for run in &self.runs {
            if run.at + period.as_micros() > at {
                break;
            }
            view.expired += 1;
            view.used -= u64::from(run.units);
        }
        view
    }

    /// The instant, in µs, at which enough has expired for `cost`; it does not fit now, and is
    /// within the limit.
    fn fits_at(&self, meter: &Meter, cost: u64, view: &InView) -> u64 {
        let mut used = view.used;
        let mut fits_at = view.at;
        for run in self.runs.range(view.expired..) {
            if used + cost <= meter.limit() {
                break;
            }
            used -= u64::from(run.units);
            fits_at = run.at + meter.period().as_micros();
        }
        fits_at
    }
}
