//! `sliding-window`: two counters, the older one fading.
//!
//! **Definition.** With *cur* units taken in the current window, *prev* in the one before and *e*
//! microseconds elapsed of a period *P*, a request of cost *c* is admitted when
//! *cur + prev · (P − e)/P + c ≤ limit*. Windows are aligned to multiples of the period.
//!
//! **State.** The start of the current window and the two counts.
//!
//! **Exactness.** The fraction is never formed. With *k = limit − cur − c* the condition is
//! *prev · (P − e) ≤ k · P*, integers on both sides. The instant from which it holds is
//! *e ≥ P · (prev − k)/prev*, rounded up; writing *P = q · prev + r* keeps every product below
//! *prev²*, which is why limits end at 94,906,265. If *k < 0* the present window has no room at any
//! time, and the same question is asked of the next one, where *cur* has become *prev*.
//!
//! **What it does not promise.** The previous window's units are taken to be spread evenly. A client
//! that spends the limit at the very end of a window has it back as evenly as the window fades, and
//! so fits just under twice the limit into one period; around the edge itself it gets the limit.

use super::{Ask, Evaluation, Present, Standing};
use crate::charge::Cost;
use crate::decision::Retry;
use crate::meter::Meter;
use crate::quota::Period;
use crate::time::{Micros, Timestamp};

/// Two adjacent windows. The default is fresh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Windows {
    // Of the current window, in µs.
    start: u64,
    current: u64,
    previous: u64,
}

impl Windows {
    /// The window that starts at `start` (in µs) with its count, and the count of the one before.
    pub const fn new(start: u64, current: u64, previous: u64) -> Self {
        Self { start, current, previous }
    }

    /// Units taken in the current window and in the one before.
    pub const fn counts(self) -> (u64, u64) {
        (self.current, self.previous)
    }

    /// See [`State::evaluate`](super::State::evaluate).
    #[inline(always)]
    pub fn evaluate(&self, meter: &Meter, ask: Ask, now: Timestamp) -> Evaluation<Self> {
        self.present(meter, now).evaluate(meter, ask, now)
    }

    /// See [`State::standing`](super::State::standing).
    #[inline(always)]
    pub fn standing(&self, meter: &Meter, now: Timestamp) -> Standing {
        self.present(meter, now).standing(meter, now)
    }

    /// The windows as they stand at `now`, with what is left in them.
    #[inline(always)]
    pub(crate) fn present(self, meter: &Meter, now: Timestamp) -> PresentWindows {
        let windows = self.at(meter.period(), now);
        PresentWindows { windows, remaining: windows.room(meter, now) }
    }

    /// Gives units back to the window they were taken from, while it counts.
    pub fn refund(&mut self, meter: &Meter, units: Cost, at: Timestamp, now: Timestamp) -> u64 {
        let mut windows = self.at(meter.period(), now);
        let (period, at) = (meter.period().as_micros(), at.as_micros());
        let start = windows.start;
        let count = match () {
            () if at >= start && at < start + period => &mut windows.current,
            () if at < start && at >= start.saturating_sub(period) => &mut windows.previous,
            () => return 0,
        };
        let back = units.get().min(*count);
        *count -= back;
        // Giving nothing back changes nothing: rolling on would forget windows that count again if
        // the clock steps back.
        if back > 0 {
            *self = windows;
        }
        back
    }

    /// See [`State::stale_at`](super::State::stale_at).
    pub const fn stale_at(self, period: Period) -> u64 {
        self.start + 2 * period.as_micros()
    }

    /// The windows as they stand at `now`: rolled forward where time has gone on.
    #[inline(always)]
    fn at(self, period: Period, now: Timestamp) -> Self {
        let (period, now) = (period.as_micros(), now.as_micros());
        match () {
            () if now < self.start + period => self,
            () if now < self.start + 2 * period => {
                Self { start: self.start + period, current: 0, previous: self.current }
            }
            () => Self { start: now / period * period, current: 0, previous: 0 },
        }
    }

    /// Whole units that fit: the limit less the current count and the previous one's share in view,
    /// that share rounded up.
    #[inline(always)]
    fn room(self, meter: &Meter, now: Timestamp) -> u64 {
        let period = meter.period().as_micros();
        // A window that lies ahead (the clock stepped back) is counted as just begun.
        let in_view = period - now.as_micros().saturating_sub(self.start);
        let share = share_of(self.previous, in_view, meter);
        meter.limit().saturating_sub(self.current).saturating_sub(share)
    }

    /// The instant, in µs, from which `cost` fits; it does not fit now, and is within the limit.
    fn fits_at(self, meter: &Meter, cost: u64) -> u64 {
        let period = meter.period().as_micros();
        match meter.limit().checked_sub(self.current + cost) {
            Some(room) => self.start + fade(period, self.previous, room),
            None => self.start + period + fade(period, self.current, meter.limit() - cost),
        }
    }

    /// The instant, in µs, at which neither window is in view.
    fn fresh_at(self, period: Period) -> u64 {
        match self {
            Self { current: 0, previous: 0, .. } => 0,
            Self { current: 0, start, .. } => start + period.as_micros(),
            Self { start, .. } => start + 2 * period.as_micros(),
        }
    }
}

/// Windows as they stand at an instant, and the whole units that fit: a division, made once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PresentWindows {
    windows: Windows,
    remaining: u64,
}

impl Present for PresentWindows {
    type State = Windows;

    #[inline(always)]
    fn evaluate(self, meter: &Meter, ask: Ask, now: Timestamp) -> Evaluation<Windows> {
        let Self { windows, remaining } = self;
        if let Some(units) = ask.within(remaining) {
            let delta = Windows { current: windows.current + units, ..windows };
            let after = Self { windows: delta, remaining: remaining - units }.standing(meter, now);
            return Evaluation::Fits { units, delay: Micros::ZERO, delta, after };
        }
        let retry = match ask.min.get() > meter.limit() {
            true => Retry::Never,
            false => {
                let fits_at = windows.fits_at(meter, ask.min.get());
                Retry::After(Micros::new(fits_at.saturating_sub(now.as_micros())))
            }
        };
        Evaluation::Exceeds { retry, present: self.standing(meter, now) }
    }

    #[inline(always)]
    fn standing(self, meter: &Meter, now: Timestamp) -> Standing {
        let reset = self.windows.fresh_at(meter.period()).saturating_sub(now.as_micros());
        Standing { remaining: self.remaining, reset: Micros::new(reset) }
    }
}

/// How far into a window the `count` units of the one before have faded to `room`.
fn fade(period: u64, count: u64, room: u64) -> u64 {
    if room >= count {
        return 0;
    }
    let excess = count - room;
    period / count * excess + (period % count * excess).div_ceil(count)
}

/// ⌈units · in_view / period⌉, in the narrowest integers that hold the product.
#[inline(always)]
fn share_of(units: u64, in_view: u64, meter: &Meter) -> u64 {
    match units.checked_mul(in_view) {
        Some(product) => meter.divisor().divide_up(product),
        None => share_of_many(units, in_view, meter.period().as_micros()),
    }
}

/// The same where the product is wider.
#[cold]
fn share_of_many(units: u64, in_view: u64, period: u64) -> u64 {
    // At most `units`, since no more than the period is in view.
    (u128::from(units) * u128::from(in_view)).div_ceil(u128::from(period)) as u64
}
