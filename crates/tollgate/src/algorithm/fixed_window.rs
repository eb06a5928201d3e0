//! `fixed-window`: one counter per window.
//!
//! **Definition.** A request of cost *c* at time *t* is admitted when the units taken in the window
//! that holds *t*, plus *c*, are within the limit. Windows are aligned to multiples of the period
//! since the epoch, or are those of a [`Calendar`](crate::quota::Calendar).
//!
//! **State.** The end of the window last charged and the units taken in it. The end alone tells
//! whether the counter still counts, so no division is needed until a new window opens.
//!
//! **Exactness.** Only sums and differences of integers up to 2^53.
//!
//! **What it does not promise.** A client that spends its limit just before an edge and again just
//! after gets twice the limit within a moment. The other algorithms do not allow that.

use super::{Ask, Evaluation, Present, Standing};
use crate::charge::Cost;
use crate::decision::Retry;
use crate::meter::Meter;
use crate::time::{Micros, Timestamp};

/// The window last charged. The default has long ended: it is fresh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    // Exclusive, in µs. Past it the counter means nothing.
    end: u64,
    used: u64,
}

impl Window {
    /// The window that ends at `end` (exclusive, in µs), with `used` units taken.
    pub const fn new(end: u64, used: u64) -> Self {
        Self { end, used }
    }

    /// Units taken in the window.
    pub const fn used(self) -> u64 {
        self.used
    }

    /// See [`State::evaluate`](super::State::evaluate).
    #[inline(always)]
    pub fn evaluate(&self, meter: &Meter, ask: Ask, now: Timestamp) -> Evaluation<Self> {
        self.present(meter, now).evaluate(meter, ask, now)
    }

    /// See [`State::standing`](super::State::standing).
    #[inline(always)]
    pub fn standing(&self, meter: &Meter, now: Timestamp) -> Standing {
        match self.ended(now) {
            true => Standing { remaining: meter.limit(), reset: Micros::ZERO },
            false => PresentWindow(*self).standing(meter, now),
        }
    }

    /// Gives units back to the window they were taken from, while it lasts.
    pub fn refund(&mut self, meter: &Meter, units: Cost, at: Timestamp, now: Timestamp) -> u64 {
        let start = meter.period().window_start(self.end);
        if self.ended(now) || at.as_micros() < start || at.as_micros() >= self.end {
            return 0;
        }
        let back = self.used.min(units.get());
        self.used -= back;
        back
    }

    /// See [`State::stale_at`](super::State::stale_at).
    #[inline(always)]
    pub const fn stale_at(self) -> u64 {
        self.end
    }

    #[inline(always)]
    fn ended(self, now: Timestamp) -> bool {
        now.as_micros() >= self.end
    }

    /// The window to count in at `now`: this one while it lasts (or lies ahead, if the clock
    /// stepped back), else a new one.
    #[inline(always)]
    pub(crate) fn present(self, meter: &Meter, now: Timestamp) -> PresentWindow {
        PresentWindow(match self.ended(now) {
            false => self,
            true => Self { end: meter.period().window_end(now), used: 0 },
        })
    }
}

/// The window to count in at an instant: a calendar asked once, if at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PresentWindow(Window);

impl Present for PresentWindow {
    type State = Window;

    #[inline(always)]
    fn evaluate(self, meter: &Meter, ask: Ask, now: Timestamp) -> Evaluation<Window> {
        let Self(window) = self;
        let remaining = meter.limit().saturating_sub(window.used);
        let reset = Micros::new(window.end - now.as_micros());
        if let Some(units) = ask.within(remaining) {
            let delta = Window { used: window.used + units, ..window };
            let after = Standing { remaining: remaining - units, reset };
            return Evaluation::Fits { units, delay: Micros::ZERO, delta, after };
        }
        let retry = match ask.min.get() > meter.limit() {
            true => Retry::Never,
            false => Retry::After(reset),
        };
        Evaluation::Exceeds { retry, present: self.standing(meter, now) }
    }

    #[inline(always)]
    fn standing(self, meter: &Meter, now: Timestamp) -> Standing {
        let Self(Window { end, used }) = self;
        let reset = if used == 0 { 0 } else { end - now.as_micros() };
        Standing { remaining: meter.limit().saturating_sub(used), reset: Micros::new(reset) }
    }
}
