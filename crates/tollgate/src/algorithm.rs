//! The five algorithms: pure, total, integer.
//!
//! Each algorithm is a file with its definition, what its state means and why its arithmetic is
//! exact. All share one shape, so that a set of charges can be evaluated whole before anything is
//! touched:
//!
//! ```text
//! evaluate(&State, &Meter, Ask, now) → Evaluation      would it fit, and if not, when
//! apply(&mut State, Delta)                             make it so
//! standing(&State, &Meter, now) → Standing             what is left, and when it is as fresh
//! refund(&mut State, &Meter, …) → units given back
//! ```
//!
//! [`decide`] does so for a whole set.
//!
//! The Rust here is the specification. Every number that decides is an integer below 2^53, so that
//! a Lua script can do the same with doubles; wider integers appear only where a limit was changed
//! under a bucket or where the product is compared at once.
//!
//! **Clocks that step back.** A state may lie in the future of `now`. Windows and logs then count
//! from their own newest instant, buckets see a debt longer by the step: units are never granted by
//! it, and nothing is denied for longer than the step.

use std::error::Error;
use std::fmt;
use std::str::FromStr;

use crate::charge::Cost;
use crate::decision::{Retry, Verdict};
use crate::meter::Meter;
use crate::time::{Micros, Timestamp};

pub mod bucket;
pub mod fixed_window;
mod set;
pub mod sliding_log;
pub mod sliding_window;

pub use set::decide;
pub(crate) use set::{Member, carry_out, outcome, reading};

use bucket::Debt;
use fixed_window::Window;
use sliding_log::Log;
use sliding_window::Windows;

/// How a quota is metered. A closed set, for every store must know each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Units taken in the current window, windows aligned to the epoch. Twice the limit can pass
    /// around a window's edge. The cheapest, and the only one for limits beyond 95 million.
    FixedWindow,
    /// One entry per request, exact: no span of one period ever holds more than the limit.
    SlidingLog,
    /// The current window plus the share of the previous one still in view. Two counters come close
    /// to the log where requests come evenly; whoever spends all at the end of a window gets just
    /// under twice the limit within a period, though never at once.
    SlidingWindow,
    /// A bucket that holds `burst` tokens and refills steadily; starts full.
    TokenBucket,
    /// A queue that drains steadily: an admitted request carries the delay after which it may go.
    LeakyBucket,
}

impl Algorithm {
    /// Every algorithm, in the order the documentation names them.
    pub const ALL: [Self; 5] = [
        Self::FixedWindow,
        Self::SlidingLog,
        Self::SlidingWindow,
        Self::TokenBucket,
        Self::LeakyBucket,
    ];

    /// The name in configuration, wires and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FixedWindow => "fixed-window",
            Self::SlidingLog => "sliding-log",
            Self::SlidingWindow => "sliding-window",
            Self::TokenBucket => "token-bucket",
            Self::LeakyBucket => "leaky-bucket",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|algorithm| algorithm.name() == name);
        found.ok_or_else(|| UnknownAlgorithm { name: name.chars().take(80).collect() })
    }
}

/// A name that is no algorithm's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownAlgorithm {
    name: String,
}

impl fmt::Display for UnknownAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown algorithm {:?}; write one of", self.name)?;
        for (index, algorithm) in Algorithm::ALL.into_iter().enumerate() {
            write!(f, "{} {algorithm}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl Error for UnknownAlgorithm {}

/// How many units are asked for: all of `max`, or at least `min` of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The fewest units worth having.
    pub min: Cost,
    /// The most units wanted; never below `min`.
    pub max: Cost,
}

impl Ask {
    /// Exactly `cost`, or nothing.
    pub const fn exactly(cost: Cost) -> Self {
        Self { min: cost, max: cost }
    }

    /// The units to grant when `room` are left: as many as wanted, or `None` if not even `min` fit.
    #[inline(always)]
    pub(crate) fn within(self, room: u64) -> Option<u64> {
        let grant = self.max.get().min(room);
        (grant >= self.min.get()).then_some(grant)
    }
}

/// Whether an ask fits a state, and what taking it would change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evaluation<D> {
    /// It fits.
    Fits {
        /// The units that would be taken.
        units: u64,
        /// How long the request should be held before it goes on; only a leaky bucket says so.
        delay: Micros,
        /// What taking them changes.
        delta: D,
        /// What the state shows once they are taken.
        after: Standing,
    },
    /// It does not fit.
    Exceeds {
        /// When `min` units would fit, if nobody else comes.
        retry: Retry,
        /// What the state shows.
        present: Standing,
    },
}

impl<D> Evaluation<D> {
    /// What it says of the charge by itself: whether it fits, when it would, how long to hold it.
    #[inline(always)]
    pub(crate) fn verdict(&self) -> (Verdict, Retry, Micros) {
        match self {
            Self::Fits { delay, .. } => (Verdict::Allow, Retry::Now, *delay),
            Self::Exceeds { retry, .. } => (Verdict::Deny, *retry, Micros::ZERO),
        }
    }

    /// What taking it would change, if it fits.
    #[inline(always)]
    pub(crate) fn delta(self) -> Option<D> {
        match self {
            Self::Fits { delta, .. } => Some(delta),
            Self::Exceeds { .. } => None,
        }
    }

    /// The same evaluation with the delta made into another type's.
    pub(crate) fn map<T>(self, f: impl FnOnce(D) -> T) -> Evaluation<T> {
        match self {
            Self::Fits { units, delay, delta, after } => {
                Evaluation::Fits { units, delay, delta: f(delta), after }
            }
            Self::Exceeds { retry, present } => Evaluation::Exceeds { retry, present },
        }
    }
}

/// What a state shows at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Whole units that would still fit.
    pub remaining: u64,
    /// Until the state is as good as fresh.
    pub reset: Micros,
}

/// A state as it stands at an instant: all that a decision says follows from it.
///
/// Where numbers may not matter to anybody it is evaluated twice: once for what to write, and again
/// for whoever asks what it shows. Neither time is worked out what is not wanted, and little has to be
/// kept in between.
pub(crate) trait Present: Copy {
    type State;

    /// See [`State::evaluate`], at the same instant.
    fn evaluate(self, meter: &Meter, ask: Ask, now: Timestamp) -> Evaluation<Self::State>;

    /// See [`State::standing`], at the same instant.
    fn standing(self, meter: &Meter, now: Timestamp) -> Standing;
}

/// What one bucket remembers. A default state is fresh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Of a `fixed-window`.
    FixedWindow(Window),
    /// Of a `sliding-log`.
    SlidingLog(Log),
    /// Of a `sliding-window`.
    SlidingWindow(Windows),
    /// Of a `token-bucket` or a `leaky-bucket`.
    Bucket(Debt),
}

/// What applying an evaluated charge changes in a [`State`] of the same kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delta {
    /// The window to remember from now on.
    FixedWindow(Window),
    /// The entry to append.
    SlidingLog(sliding_log::Append),
    /// The windows to remember from now on.
    SlidingWindow(Windows),
    /// The debt to remember from now on.
    Bucket(Debt),
}

impl State {
    /// A fresh state of the kind `algorithm` keeps.
    pub fn fresh(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::FixedWindow => Self::FixedWindow(Window::default()),
            Algorithm::SlidingLog => Self::SlidingLog(Log::default()),
            Algorithm::SlidingWindow => Self::SlidingWindow(Windows::default()),
            Algorithm::TokenBucket | Algorithm::LeakyBucket => Self::Bucket(Debt::default()),
        }
    }

    /// Whether `ask` fits at `now`, and what taking it would change.
    pub fn evaluate(&self, meter: &Meter, ask: Ask, now: Timestamp) -> Evaluation<Delta> {
        match self {
            Self::FixedWindow(window) => window.evaluate(meter, ask, now).map(Delta::FixedWindow),
            Self::SlidingLog(log) => log.evaluate(meter, ask, now).map(Delta::SlidingLog),
            Self::SlidingWindow(windows) => {
                windows.evaluate(meter, ask, now).map(Delta::SlidingWindow)
            }
            Self::Bucket(debt) => debt.evaluate(meter, ask, now).map(Delta::Bucket),
        }
    }

    /// Makes an evaluated change. A delta of another kind replaces the state.
    pub fn apply(&mut self, delta: Delta) {
        match (self, delta) {
            (Self::SlidingLog(log), Delta::SlidingLog(append)) => log.apply(append),
            (state, Delta::FixedWindow(window)) => *state = Self::FixedWindow(window),
            (state, Delta::SlidingWindow(windows)) => *state = Self::SlidingWindow(windows),
            (state, Delta::Bucket(debt)) => *state = Self::Bucket(debt),
            (state, Delta::SlidingLog(append)) => {
                let mut log = Log::default();
                log.apply(append);
                *state = Self::SlidingLog(log);
            }
        }
    }

    /// What is left at `now`, and when the state will be as good as fresh.
    pub fn standing(&self, meter: &Meter, now: Timestamp) -> Standing {
        match self {
            Self::FixedWindow(window) => window.standing(meter, now),
            Self::SlidingLog(log) => log.standing(meter, now),
            Self::SlidingWindow(windows) => windows.standing(meter, now),
            Self::Bucket(debt) => debt.standing(meter, now),
        }
    }

    /// Gives back up to `units` taken at `at`; says how many were.
    pub fn refund(&mut self, meter: &Meter, units: Cost, at: Timestamp, now: Timestamp) -> u64 {
        match self {
            Self::FixedWindow(window) => window.refund(meter, units, at, now),
            Self::SlidingLog(log) => log.refund(meter, units, at, now),
            Self::SlidingWindow(windows) => windows.refund(meter, units, at, now),
            Self::Bucket(debt) => debt.refund(meter, units, now),
        }
    }

    /// The instant, in microseconds, from which the state is indistinguishable from a fresh one
    /// under the quota that last charged it. It may then be dropped.
    pub fn stale_at(&self, meter: &Meter) -> u64 {
        match self {
            Self::FixedWindow(window) => window.stale_at(),
            Self::SlidingLog(log) => log.stale_at(meter.period()),
            Self::SlidingWindow(windows) => windows.stale_at(meter.period()),
            Self::Bucket(debt) => debt.stale_at(),
        }
    }
}
