//! Sets whose charges lie in several slots of a cluster, which no script can decide at once.
//!
//! ```text
//! slot 17 ── take ──▶ fits ── slot 4021 ── take ──▶ fits ──▶ admitted
//!                                             └───▶ refused: slot 17 gives back, the rest only looks
//! ```
//!
//! Parts that take are asked one after the other, by ascending slot, so that two sets never each hold
//! what the other needs next; each part is atomic by itself. Parts that only look, give back or reset
//! are asked all at once with the first. When a part refuses, what was taken is given back.
//!
//! So such a set is never admitted unless all its charges were taken, and never admits too much. It
//! may refuse others while it holds what it then gives back; if the store fails in between, what was
//! taken may stay taken until it wears off. Rules that share a `colocate` axis are not concerned.
//!
//! A group of which one has to fit may lie in several parts. Its members are then taken where they
//! fit, as shadow charges are, and whether one did is seen at the end.

use std::sync::Arc;
use std::time::Instant;

use futures_util::future::join_all;
use tollgate::{
    Charge, ChargeSet, Cost, Decision, Enforcement, Op, Outcome, Provenance, Reading, Retry,
    StoreError, StoreErrorKind, Timestamp,
};

use crate::question::Question;
use crate::store::{Inner, Manner, Span, Terms};

/// A set on its way through several slots.
pub(crate) struct Spread<'s, 'k> {
    inner: &'s Arc<Inner>,
    set: &'s ChargeSet<'k>,
    parts: Vec<Part>,
    span: Span,
}

/// The charges of one slot.
struct Part {
    slot: u16,
    // Their places in the whole set.
    places: Vec<usize>,
    set: ChargeSet<'static>,
    answer: Option<Decision>,
}

impl<'s, 'k> Spread<'s, 'k> {
    pub(crate) fn new(
        inner: &'s Arc<Inner>,
        set: &'s ChargeSet<'k>,
        question: &Question,
        span: Span,
    ) -> Self {
        let slots: Vec<u16> = question.slots().collect();
        let mut ascending = slots.clone();
        ascending.sort_unstable();
        ascending.dedup();
        let parts = ascending.into_iter().map(|slot| Part::new(set, &slots, slot));
        Self { inner, set, parts: parts.collect(), span }
    }

    pub(crate) async fn decide(mut self) -> Result<Decision, StoreError> {
        let mut taken = Taken { inner: Arc::clone(self.inner), refunds: Vec::new() };
        let (takes, looks): (Vec<usize>, Vec<usize>) =
            (0..self.parts.len()).partition(|&part| self.parts[part].takes());
        // The first that takes goes along with those that do not.
        let mut takes = takes.into_iter();
        let mut next: Vec<usize> = looks.into_iter().chain(takes.next()).collect();
        let mut refused = false;
        while !next.is_empty() && !refused {
            self.ask(&next).await?;
            for &part in &next {
                taken.add(&self.parts[part]);
            }
            refused = next.iter().any(|&part| self.parts[part].refused());
            next = takes.next().into_iter().collect();
        }
        if !refused {
            let decision = self.decision()?;
            if decision.is_allowed() {
                taken.keep();
                return Ok(decision);
            }
        }
        // Those not asked yet only look now, but still give back and reset.
        let rest: Vec<usize> = next.into_iter().chain(takes).collect();
        for &part in &rest {
            self.parts[part].only_look();
        }
        let (asked, ()) = tokio::join!(self.ask(&rest), taken.give_back());
        asked?;
        self.parts.iter_mut().for_each(Part::untake);
        self.decision()
    }

    /// Asks these parts, all at once.
    async fn ask(&mut self, parts: &[usize]) -> Result<(), StoreError> {
        let Self { inner, parts: all, span, .. } = self;
        let asked = parts.iter().map(|&part| {
            let Part { slot, set, .. } = &all[part];
            let terms =
                Terms { slot: Some(*slot), span: *span, manner: Manner::Alone, whole: None };
            inner.put(set, inner.question(set), terms)
        });
        let answers = join_all(asked).await;
        let mut failed = None;
        for (&part, answer) in parts.iter().zip(answers) {
            match answer {
                Ok(decision) => all[part].answer = Some(decision),
                Err(error) => failed = Some(error),
            }
        }
        // What the others took has to be known before it can be given back.
        failed.map_or(Ok(()), Err)
    }

    /// The decision that the answers of all parts make.
    fn decision(&self) -> Result<Decision, StoreError> {
        let mut outcomes: Vec<Option<Outcome>> = vec![None; self.set.len()];
        let mut at = Timestamp::EPOCH;
        for part in &self.parts {
            let Some(answer) = &part.answer else { continue };
            // A refund needs an instant not before any of the parts'.
            at = at.max(answer.at());
            for (&place, outcome) in part.places.iter().zip(answer.outcomes()) {
                let enforcement = self.set.charges()[place].enforcement;
                outcomes[place] = Some(Outcome { enforcement, ..*outcome });
            }
        }
        let outcomes: Option<Vec<Outcome>> = outcomes.into_iter().collect();
        let outcomes = outcomes.ok_or_else(|| StoreError::new(StoreErrorKind::Protocol))?;
        Ok(Decision::new(outcomes.into(), at, Provenance::Store))
    }
}

impl Part {
    fn new(whole: &ChargeSet<'_>, slots: &[u16], slot: u16) -> Self {
        let places: Vec<usize> = (0..slots.len()).filter(|&place| slots[place] == slot).collect();
        let mut set = ChargeSet::new();
        for &place in &places {
            let charge = &whole.charges()[place];
            let group = charge.enforcement;
            let divided = matches!(group, Enforcement::AnyOf(_))
                && (whole.charges().iter().zip(slots))
                    .any(|(other, &at)| other.enforcement == group && at != slot);
            let enforcement = if divided { Enforcement::Shadow } else { group };
            push(&mut set, owned(charge, charge.op).enforced(enforcement));
        }
        Self { slot, places, set, answer: None }
    }

    fn takes(&self) -> bool {
        self.set.charges().iter().any(|charge| matches!(charge.op, Op::Take(_)))
    }

    fn refused(&self) -> bool {
        self.answer.as_ref().is_some_and(|answer| !answer.is_allowed())
    }

    /// Looks where it would have taken.
    fn only_look(&mut self) {
        let mut set = ChargeSet::new();
        for charge in self.set.charges() {
            let op = match charge.op {
                Op::Take(ask) => Op::Peek(ask.min),
                other => other,
            };
            push(&mut set, Charge { op, ..charge.clone() });
        }
        self.set = set;
    }

    /// What gives back what the part took.
    fn refund(&self) -> Option<ChargeSet<'static>> {
        let answer = self.answer.as_ref()?;
        let mut refund = ChargeSet::new();
        for (charge, outcome) in self.set.charges().iter().zip(answer.outcomes()) {
            let units = outcome.reading.map_or(0, |reading| reading.units);
            if let (Op::Take(_), Some(cost)) = (charge.op, Cost::new(units)) {
                push(&mut refund, owned(charge, Op::Refund { cost, at: answer.at() }));
            }
        }
        (!refund.is_empty()).then_some(refund)
    }

    /// Tells of what was taken and given back as of what was never taken.
    fn untake(&mut self) {
        let Some(answer) = &self.answer else { return };
        let outcomes = self.set.charges().iter().zip(answer.outcomes());
        let outcomes: Vec<Outcome> = outcomes
            .map(|(charge, outcome)| match (charge.op, outcome.reading) {
                (Op::Take(_), Some(reading)) if reading.units > 0 => {
                    Outcome { reading: Some(untaken(reading)), ..*outcome }
                }
                _ => *outcome,
            })
            .collect();
        self.answer = Some(Decision::new(outcomes.into(), answer.at(), answer.provenance()));
    }
}

fn untaken(reading: Reading) -> Reading {
    let remaining = (reading.remaining + reading.units).min(reading.capacity);
    Reading { remaining, units: 0, retry: Retry::Now, ..reading }
}

/// What parts took, and have to give back unless the whole set is admitted: also when the store
/// fails or the caller leaves.
struct Taken {
    inner: Arc<Inner>,
    refunds: Vec<(u16, ChargeSet<'static>)>,
}

impl Taken {
    fn add(&mut self, part: &Part) {
        self.refunds.extend(part.refund().map(|refund| (part.slot, refund)));
    }

    /// The set is admitted.
    fn keep(mut self) {
        self.refunds.clear();
    }

    /// Gives everything back, and waits until it is.
    async fn give_back(mut self) {
        // In a task of its own, for the caller may leave meanwhile; it cannot fail but by panicking.
        if let Some(given_back) = self.spawn() {
            let _ = given_back.await;
        }
    }

    fn spawn(&mut self) -> Option<tokio::task::JoinHandle<()>> {
        let refunds = std::mem::take(&mut self.refunds);
        if refunds.is_empty() {
            return None;
        }
        let inner = Arc::clone(&self.inner);
        Some(self.inner.shared.runtime.spawn(async move {
            let span = Span { sent: Instant::now(), deadline: inner.shared.deadline };
            let give_back = async |(slot, refund): &(u16, ChargeSet<'static>)| {
                let _clearing = inner.clearing(refund);
                let question = inner.question(refund);
                // If it fails, what was taken wears off by itself.
                let terms = Terms { slot: Some(*slot), span, manner: Manner::Alone, whole: None };
                let _ = inner.put(refund, question, terms).await;
            };
            join_all(refunds.iter().map(give_back)).await;
        }))
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.spawn();
    }
}

fn owned(charge: &Charge<'_>, op: Op) -> Charge<'static> {
    Charge {
        key: charge.key.clone().into_owned(),
        meter: charge.meter,
        op,
        enforcement: charge.enforcement,
    }
}

/// Adds a charge out of a set in which nothing conflicted, and there is room for as many.
fn push(set: &mut ChargeSet<'static>, charge: Charge<'static>) {
    let pushed = set.push(charge);
    debug_assert!(pushed.is_ok(), "{pushed:?}");
}
