//! One charge that takes or looks, and what comes of it.

use crate::algorithm::bucket::{Debt, WholeDebt};
use crate::algorithm::fixed_window::PresentWindow;
use crate::algorithm::sliding_window::PresentWindows;
use crate::algorithm::{Algorithm, Ask, Evaluation, Present, outcome, reading};
use crate::charge::{Charge, Cost, Enforcement, Op};
use crate::decision::{Decision, Provenance, Reading, Retry, Verdict};
use crate::key::KeyRef;
use crate::meter::Meter;
use crate::time::{Micros, Timestamp};

/// What is asked of one bucket, whichever it is.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) meter: &'a Meter,
    pub(super) ask: Ask,
    // Or only looks.
    pub(super) takes: bool,
    pub(super) enforcement: Enforcement,
}

/// One charge that takes or looks, borrowed, and the instant it is decided at.
#[derive(Clone, Copy)]
pub(super) struct Question<'a> {
    pub(super) key: KeyRef<'a>,
    pub(super) asked: Asked<'a>,
    pub(super) now: Timestamp,
}

/// The kinds of state that fit a slot.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    WholeDebt,
    Debt,
    Window,
    Windows,
}

impl Kind {
    /// The kind that answers what is asked; `None` for logs, which do not fit.
    #[inline(always)]
    pub(super) fn of(Asked { meter, ask, .. }: Asked<'_>) -> Option<Self> {
        // First, for most are.
        if WholeDebt::suits(meter, ask) {
            return Some(Self::WholeDebt);
        }
        match meter.algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => Some(Self::Debt),
            Algorithm::FixedWindow => Some(Self::Window),
            Algorithm::SlidingWindow => Some(Self::Windows),
            Algorithm::SlidingLog => None,
        }
    }
}

impl<'a> Asked<'a> {
    /// All of `cost`, enforced.
    #[inline(always)]
    pub(super) fn exactly<const TAKES: bool>(meter: &'a Meter, cost: Cost) -> Self {
        let ask = Ask::exactly(cost);
        Self { meter, ask, takes: TAKES, enforcement: Enforcement::Enforce }
    }
}

impl<'a> Question<'a> {
    /// The question of a charge; `None` if it neither takes nor looks.
    #[inline(always)]
    pub(super) fn of(charge: &'a Charge<'a>, now: Timestamp) -> Option<Self> {
        let Charge { key, meter, op, enforcement } = charge;
        let (ask, takes) = match *op {
            Op::Take(ask) => (ask, true),
            Op::Peek(cost) => (Ask::exactly(cost), false),
            Op::Refund { .. } | Op::Reset => return None,
        };
        let asked = Asked { meter, ask, takes, enforcement: *enforcement };
        Some(Self { key: key.as_ref(), asked, now })
    }

    pub(super) fn to_charge(self) -> Charge<'a> {
        let Asked { meter, ask, takes, enforcement } = self.asked;
        let op = if takes { Op::Take(ask) } else { Op::Peek(ask.max) };
        Charge::new(self.key, *meter, op).enforced(enforcement)
    }
}

/// A decision on one charge in short: all that it says follows from it, and need not be worked out
/// where nobody asks.
#[derive(Clone, Copy)]
pub(super) struct Brief<P> {
    pub(super) verdict: Verdict,
    pub(super) at: Timestamp,
    /// What was there before the charge.
    pub(super) present: P,
}

impl<P: Present> Brief<P> {
    /// The decision, with what the bucket shows.
    #[inline(always)]
    pub(super) fn decision(self, asked: Asked<'_>) -> Decision {
        decided(asked, self.verdict, self.at, self.reading(asked))
    }

    /// The same of any kind.
    #[inline(always)]
    pub(super) fn shown(self) -> Brief<Shown>
    where
        P: Into<Shown>,
    {
        Brief { verdict: self.verdict, at: self.at, present: self.present.into() }
    }

    /// What the bucket shows, with the charge in it if that was taken.
    #[inline(always)]
    fn reading(self, Asked { meter, ask, takes, .. }: Asked<'_>) -> Reading {
        let Self { present, at: now, .. } = self;
        match present.evaluate(meter, ask, now) {
            Evaluation::Fits { units, delay, after, .. } if takes => {
                reading(meter, after, Retry::Now, delay, units)
            }
            Evaluation::Fits { delay, .. } => {
                reading(meter, present.standing(meter, now), Retry::Now, delay, 0)
            }
            Evaluation::Exceeds { retry, present } => {
                reading(meter, present, retry, Micros::ZERO, 0)
            }
        }
    }
}

/// The decision on one charge, with what its bucket shows.
#[inline(always)]
fn decided(asked: Asked<'_>, verdict: Verdict, at: Timestamp, reading: Reading) -> Decision {
    Decision::of_one(outcome(asked.enforcement, verdict, reading), at, Provenance::Store)
}

/// What was there before a charge, of any kind but a whole debt.
#[derive(Clone, Copy)]
pub(super) enum Shown {
    Debt(Debt),
    Window(PresentWindow),
    Windows(PresentWindows),
}

impl Brief<Shown> {
    /// The decision, with what the bucket shows.
    #[inline(always)]
    pub(super) fn decision(self, asked: Asked<'_>) -> Decision {
        let Self { verdict, at, present } = self;
        let reading = match present {
            Shown::Debt(present) => Brief { verdict, at, present }.reading(asked),
            Shown::Window(present) => Brief { verdict, at, present }.reading(asked),
            Shown::Windows(present) => Brief { verdict, at, present }.reading(asked),
        };
        decided(asked, verdict, at, reading)
    }
}

impl From<Debt> for Shown {
    #[inline(always)]
    fn from(debt: Debt) -> Self {
        Self::Debt(debt)
    }
}

impl From<PresentWindow> for Shown {
    #[inline(always)]
    fn from(window: PresentWindow) -> Self {
        Self::Window(window)
    }
}

impl From<PresentWindows> for Shown {
    #[inline(always)]
    fn from(windows: PresentWindows) -> Self {
        Self::Windows(windows)
    }
}
