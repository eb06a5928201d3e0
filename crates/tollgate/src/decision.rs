//! What a store answers.

use std::fmt;
use std::ops::Deref;
use std::slice;

use crate::charge::Enforcement;
use crate::time::{Micros, Timestamp};

/// Whether something may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It may.
    Allow,
    /// It may not.
    Deny,
}

impl Verdict {
    /// Whether this is [`Verdict::Allow`].
    pub const fn is_allow(self) -> bool {
        matches!(self, Self::Allow)
    }

    /// The name on wires and in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// When trying again succeeds, if nobody else comes: exactly then, and not a microsecond before.
///
/// The order is that of waiting: `Now`, then by duration, then `Never`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Retry {
    /// There is nothing to wait for.
    Now,
    /// After so long, counted from the decision's [`at`](Decision::at).
    After(Micros),
    /// Never: the cost is beyond the capacity.
    Never,
}

/// Who decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Provenance {
    /// The store, at one instant, atomically.
    Store,
    /// This process, out of a slice of the quota it had taken from the store before.
    Lease,
    /// This process, which remembers that the store refused.
    DenyCache,
    /// The rules' fallbacks, because the store could not be asked.
    Fallback,
    /// The policy alone: an allowlisted subject, one that meets no rule, or a missing axis.
    Policy,
}

impl Provenance {
    /// The name on wires and in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Lease => "lease",
            Self::DenyCache => "deny-cache",
            Self::Fallback => "fallback",
            Self::Policy => "policy",
        }
    }
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What a bucket shows after a decision: with the charge in it if it was taken, as it stands if not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The most it holds: a bucket's burst, a window's limit.
    pub capacity: u64,
    /// Whole units that would still fit.
    pub remaining: u64,
    /// Until it is as good as fresh.
    pub reset: Micros,
    /// When the charge would fit, if it did not.
    pub retry: Retry,
    /// How long an admitted request should be held (a leaky bucket's queue).
    pub delay: Micros,
    /// Units taken by this decision, or given back by a refund.
    pub units: u64,
}

/// What happened to one charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Whether the charge by itself fits. A set may still be refused by another.
    pub verdict: Verdict,
    /// Whether it could refuse the set.
    pub enforcement: Enforcement,
    /// The numbers; absent when a fallback decided without a limiter.
    pub reading: Option<Reading>,
}

impl Outcome {
    /// When this charge would fit: its reading's retry, or `Now` where there is none.
    pub fn retry(&self) -> Retry {
        self.reading.map_or(Retry::Now, |reading| reading.retry)
    }
}

/// The outcomes of one set, in the order of its charges.
///
/// Reads as a slice. One outcome, by far the most common, is held in place.
#[derive(Clone, Debug)]
pub struct Outcomes {
    // Apart from the one, so that a decision nobody looks at costs nothing to drop.
    many: Option<Box<[Outcome]>>,
    // The only one, where there are not many.
    one: Outcome,
}

/// What stands where there is no outcome.
const NONE: Outcome =
    Outcome { verdict: Verdict::Allow, enforcement: Enforcement::Enforce, reading: None };

impl From<Outcome> for Outcomes {
    #[inline(always)]
    fn from(one: Outcome) -> Self {
        Self { many: None, one }
    }
}

impl From<Vec<Outcome>> for Outcomes {
    fn from(outcomes: Vec<Outcome>) -> Self {
        Self { many: Some(outcomes.into()), one: NONE }
    }
}

impl FromIterator<Outcome> for Outcomes {
    fn from_iter<I: IntoIterator<Item = Outcome>>(outcomes: I) -> Self {
        let mut outcomes = outcomes.into_iter();
        match (outcomes.next(), outcomes.next()) {
            (Some(outcome), None) => outcome.into(),
            (one, two) => {
                one.into_iter().chain(two).chain(outcomes).collect::<Vec<Outcome>>().into()
            }
        }
    }
}

impl PartialEq for Outcomes {
    /// Whether they are the same outcomes, however they are held.
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Outcomes {}

impl Deref for Outcomes {
    type Target = [Outcome];

    #[inline]
    fn deref(&self) -> &[Outcome] {
        match &self.many {
            None => slice::from_ref(&self.one),
            Some(many) => many,
        }
    }
}

/// The answer to one set of charges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    verdict: Verdict,
    provenance: Provenance,
    at: Timestamp,
    outcomes: Outcomes,
}

impl Decision {
    /// The decision that follows from `outcomes`, made at `at`.
    ///
    /// A set is refused when an enforced charge does not fit, or when none of a group does.
    #[inline]
    pub fn new(outcomes: Outcomes, at: Timestamp, provenance: Provenance) -> Self {
        let verdict = match (0..outcomes.len()).any(|index| refuses(&outcomes, index)) {
            true => Verdict::Deny,
            false => Verdict::Allow,
        };
        Self { verdict, provenance, at, outcomes }
    }

    /// The decision on a set of one charge: what [`new`](Decision::new) would make of its outcome.
    #[inline(always)]
    pub fn of_one(outcome: Outcome, at: Timestamp, provenance: Provenance) -> Self {
        let verdict = match outcome.enforcement {
            Enforcement::Shadow => Verdict::Allow,
            Enforcement::Enforce | Enforcement::AnyOf(_) => outcome.verdict,
        };
        Self { verdict, provenance, at, outcomes: outcome.into() }
    }

    /// A decision made without any charge.
    pub fn without_charges(verdict: Verdict, at: Timestamp, provenance: Provenance) -> Self {
        Self { verdict, provenance, at, outcomes: Vec::new().into() }
    }

    /// The verdict on the whole set.
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// Whether the set was admitted.
    pub fn is_allowed(&self) -> bool {
        self.verdict.is_allow()
    }

    /// Who decided.
    pub fn provenance(&self) -> Provenance {
        self.provenance
    }

    /// When, by the store's clock. A refund needs it.
    pub fn at(&self) -> Timestamp {
        self.at
    }

    /// What happened to each charge, in the order of the set.
    pub fn outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }

    /// The outcome that decided: of a refusal the one with the longest retry, else the one with the
    /// least share remaining; the first of equals. `None` for a set without charges.
    pub fn binding(&self) -> Option<usize> {
        match self.verdict {
            Verdict::Deny => self.first_by(
                |one, two| one.retry() > two.retry(),
                |index| refuses(&self.outcomes, index),
            ),
            Verdict::Allow => {
                let enforced =
                    |index: usize| self.outcomes[index].enforcement != Enforcement::Shadow;
                self.first_by(has_less_left, enforced)
                    .or_else(|| self.first_by(has_less_left, |_| true))
            }
        }
    }

    /// When the whole set would fit, if nobody else comes.
    ///
    /// A refusal that says `Now` came from a fallback: nobody knows when the store will be back.
    pub fn retry(&self) -> Retry {
        match (self.verdict, self.binding()) {
            (Verdict::Deny, Some(index)) => self.outcomes[index].retry(),
            _ => Retry::Now,
        }
    }

    /// How long an admitted request should be held: the longest delay among its outcomes.
    pub fn delay(&self) -> Micros {
        let delays =
            self.outcomes.iter().filter(|outcome| outcome.enforcement != Enforcement::Shadow);
        let delays = delays.filter_map(|outcome| outcome.reading).map(|reading| reading.delay);
        delays.max().unwrap_or(Micros::ZERO)
    }

    /// The same outcomes, decided by somebody else.
    pub(crate) fn with_provenance(self, provenance: Provenance) -> Self {
        Self { provenance, ..self }
    }

    /// The first candidate that no later one is `before`.
    fn first_by(
        &self,
        before: impl Fn(&Outcome, &Outcome) -> bool,
        candidate: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let candidates = (0..self.outcomes.len()).filter(|&index| candidate(index));
        candidates.reduce(|best, next| match before(&self.outcomes[next], &self.outcomes[best]) {
            true => next,
            false => best,
        })
    }
}

/// Whether the outcome at `index` refuses its set.
///
/// Of a refused group only the member that is free soonest counts, for the set fits again as soon
/// as one of them does.
#[inline]
pub(crate) fn refuses(outcomes: &[Outcome], index: usize) -> bool {
    let outcome = &outcomes[index];
    if outcome.verdict.is_allow() {
        return false;
    }
    match outcome.enforcement {
        Enforcement::Enforce => true,
        Enforcement::Shadow => false,
        group @ Enforcement::AnyOf(_) => outcomes.iter().enumerate().all(|(other, member)| {
            let sooner = (member.retry(), other) < (outcome.retry(), index);
            member.enforcement != group || (!member.verdict.is_allow() && !sooner)
        }),
    }
}

/// Whether `one` has a smaller share of its capacity left than `two`.
fn has_less_left(one: &Outcome, two: &Outcome) -> bool {
    match (one.reading, two.reading) {
        (Some(one), Some(two)) => {
            u128::from(one.remaining) * u128::from(two.capacity)
                < u128::from(two.remaining) * u128::from(one.capacity)
        }
        // Numbers say more than none.
        (one, two) => one.is_some() && two.is_none(),
    }
}
