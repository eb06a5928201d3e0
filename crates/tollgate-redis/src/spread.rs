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
//! **Leaky buckets give nothing back**, so parts that have one are asked last, and where several have,
//! the later ones look before the first takes. Charged in vain they are only if somebody else takes
//! between that look and the later one's turn, if of a divided group none fits, if the store fails in
//! between, or if the caller leaves.
//!
//! A group of which one has to fit may lie in several parts. Its members are then taken where they
//! fit, as shadow charges are, and whether one did is seen at the end.
//!
//! All this is done in a task of its own, which goes on if the caller leaves: only who knows what was
//! taken can give it back. The whole has one permit, so that nothing is refused for want of room that
//! was begun, least of all giving back.

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout_at;
use tollgate::clock::monotonic;
use tollgate::{
    Algorithm, Charge, ChargeSet, Cost, Decision, Enforcement, Op, Outcome, Provenance, Reading,
    Retry, StoreError, StoreErrorKind, Timestamp,
};

use crate::failure::Failure;
use crate::question::Question;
use crate::shared::Permit;
use crate::store::{Inner, Manner, Span, Terms};

/// A set on its way through several slots.
pub(crate) struct Spread {
    inner: Arc<Inner>,
    // How each charge of the whole set is enforced.
    enforcements: Vec<Enforcement>,
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

type Answer = Result<Decision, StoreError>;

/// What the caller is told.
struct Told {
    answer: Answer,
    // Ends when what was taken is given back.
    given_back: Option<JoinHandle<()>>,
}

/// What came of taking.
enum Taking {
    Admitted(Decision),
    /// With the parts that were not asked yet.
    Refused(Vec<usize>),
}

impl Spread {
    pub(crate) fn new(
        inner: &Arc<Inner>,
        set: &ChargeSet<'_>,
        question: &Question,
        span: Span,
    ) -> Self {
        let slots: Vec<u16> = question.slots().collect();
        let mut ascending = slots.clone();
        ascending.sort_unstable();
        ascending.dedup();
        let parts = ascending.into_iter().map(|slot| Part::new(set, &slots, slot)).collect();
        let enforcements = set.charges().iter().map(|charge| charge.enforcement).collect();
        Self { inner: Arc::clone(inner), enforcements, parts, span }
    }

    /// Decides within the span; what is then left to do is done without the caller.
    pub(crate) async fn decide(self) -> Answer {
        let (shared, end) = (&self.inner.shared, self.span.end());
        let permit = Arc::new(shared.permit().ok_or_else(Failure::overloaded)?);
        let taken = Taken { inner: Arc::clone(&self.inner), permit, refunds: Vec::new() };
        let (caller, told) = oneshot::channel();
        shared.runtime.clone().spawn(self.run(taken, caller));
        match timeout_at(end.into(), told).await {
            Ok(Ok(Told { answer, given_back })) => {
                if let Some(given_back) = given_back {
                    // It goes on if there is no time left, and cannot fail but by panicking.
                    let _ = timeout_at(end.into(), given_back).await;
                }
                answer
            }
            // Dropped without an answer: the runtime is shutting down.
            Ok(Err(_)) => Err(Failure::unavailable("the store is shutting down").into()),
            Err(_) => Err(Failure::timeout().into()),
        }
    }

    async fn run(mut self, mut taken: Taken, caller: oneshot::Sender<Told>) {
        // A caller in a hurry may leave before, but what was taken has to be known.
        self.span.deadline = self.inner.shared.deadline;
        let told = match self.take(&mut taken, &caller).await {
            Ok(Taking::Admitted(decision)) => {
                // If nobody is there to use it, what was taken is given back.
                if caller.send(Told { answer: Ok(decision), given_back: None }).is_ok() {
                    taken.keep();
                }
                return;
            }
            Ok(Taking::Refused(rest)) => {
                let permit = Arc::clone(&taken.permit);
                let given_back = taken.give_back();
                let looked = self.look(&rest, &permit).await;
                let answer = looked.and_then(|()| self.refusal());
                Told { answer, given_back }
            }
            // What was taken is given back when dropped.
            Err(error) => Told { answer: Err(error), given_back: None },
        };
        // A caller that has left needs no answer.
        drop(caller.send(told));
    }

    /// Takes part by part, until one refuses or the caller has left.
    async fn take(
        &mut self,
        taken: &mut Taken,
        caller: &oneshot::Sender<Told>,
    ) -> Result<Taking, StoreError> {
        let (mut next, mut later) = self.order();
        let mut looked_ahead = false;
        while !next.is_empty() {
            // Those that leak come last, so all later ones do.
            if self.leaks(&next) && !later.is_empty() && !looked_ahead {
                looked_ahead = true;
                if !self.would_fit(&later, &taken.permit).await? {
                    return Ok(Taking::Refused([next, later].concat()));
                }
            }
            let asked = self.ask(&next, &taken.permit).await;
            // Also if one failed: what the others took has to be given back.
            next.iter().for_each(|&part| taken.add(&self.parts[part]));
            asked?;
            if next.iter().any(|&part| self.parts[part].refused()) || caller.is_closed() {
                return Ok(Taking::Refused(later));
            }
            next = later.drain(..later.len().min(1)).collect();
        }
        let decision = self.decision()?;
        Ok(match decision.is_allowed() {
            true => Taking::Admitted(decision),
            false => Taking::Refused(Vec::new()),
        })
    }

    /// Which parts are asked first, together, and which then, one after the other.
    fn order(&self) -> (Vec<usize>, Vec<usize>) {
        let (mut takes, mut first): (Vec<usize>, Vec<usize>) =
            (0..self.parts.len()).partition(|&part| self.parts[part].takes());
        // Stable, so that those alike stay in ascending order.
        takes.sort_by_key(|&part| self.parts[part].leaks());
        // The first that takes goes along with those that do not.
        first.extend(takes.drain(..takes.len().min(1)));
        (first, takes)
    }

    fn leaks(&self, parts: &[usize]) -> bool {
        parts.iter().any(|&part| self.parts[part].leaks())
    }

    /// Whether all of these parts would fit at present.
    async fn would_fit(&self, parts: &[usize], permit: &Arc<Permit>) -> Result<bool, StoreError> {
        let answers = join_all(parts.iter().map(async |&part| {
            let set = self.parts[part].glance();
            self.put(self.parts[part].slot, &set, permit).await
        }));
        let answers: Result<Vec<Decision>, StoreError> = answers.await.into_iter().collect();
        Ok(answers?.iter().all(Decision::is_allowed))
    }

    /// Has parts that were not asked yet only look, but still give back and reset.
    async fn look(&mut self, parts: &[usize], permit: &Arc<Permit>) -> Result<(), StoreError> {
        for &part in parts {
            self.parts[part].only_look();
        }
        self.ask(parts, permit).await
    }

    /// Asks these parts, all at once. If one fails, the answers of the others are kept.
    async fn ask(&mut self, parts: &[usize], permit: &Arc<Permit>) -> Result<(), StoreError> {
        let asked = parts.iter().map(|&part| {
            let Part { slot, set, .. } = &self.parts[part];
            self.put(*slot, set, permit)
        });
        let answers = join_all(asked).await;
        let mut failed = None;
        for (&part, answer) in parts.iter().zip(answers) {
            match answer {
                Ok(decision) => self.parts[part].answer = Some(decision),
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    async fn put(&self, slot: u16, set: &ChargeSet<'static>, permit: &Arc<Permit>) -> Answer {
        put(&self.inner, slot, set, self.span, permit).await
    }

    /// The decision when what was taken is given back.
    fn refusal(&mut self) -> Answer {
        self.parts.iter_mut().for_each(Part::untake);
        self.decision()
    }

    /// The decision that the answers of all parts make.
    fn decision(&self) -> Result<Decision, StoreError> {
        let mut outcomes: Vec<Option<Outcome>> = vec![None; self.enforcements.len()];
        let mut at = Timestamp::EPOCH;
        for part in &self.parts {
            let Some(answer) = &part.answer else { continue };
            // A refund needs an instant not before any of the parts'.
            at = at.max(answer.at());
            for (&place, outcome) in part.places.iter().zip(answer.outcomes()) {
                let enforcement = self.enforcements[place];
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

    /// Whether it takes what cannot be given back.
    fn leaks(&self) -> bool {
        self.set.charges().iter().any(|charge| matches!(charge.op, Op::Take(_)) && leaks(charge))
    }

    fn refused(&self) -> bool {
        self.answer.as_ref().is_some_and(|answer| !answer.is_allowed())
    }

    /// Looks where it would have taken.
    fn only_look(&mut self) {
        let mut set = ChargeSet::new();
        for charge in self.set.charges() {
            push(&mut set, Charge { op: looking(charge.op), ..charge.clone() });
        }
        self.set = set;
    }

    /// What looks where it will take, and does nothing else.
    fn glance(&self) -> ChargeSet<'static> {
        let mut set = ChargeSet::new();
        for charge in self.set.charges().iter().filter(|charge| matches!(charge.op, Op::Take(_))) {
            push(&mut set, Charge { op: looking(charge.op), ..charge.clone() });
        }
        set
    }

    /// What gives back what the part took.
    fn refund(&self) -> Option<ChargeSet<'static>> {
        let answer = self.answer.as_ref()?;
        let mut refund = ChargeSet::new();
        for (charge, outcome) in self.set.charges().iter().zip(answer.outcomes()) {
            let units = outcome.reading.map_or(0, |reading| reading.units);
            if let (Op::Take(_), Some(cost), false) = (charge.op, Cost::new(units), leaks(charge)) {
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
                (Op::Take(_), Some(reading)) if reading.units > 0 && !leaks(charge) => {
                    Outcome { reading: Some(untaken(reading)), ..*outcome }
                }
                _ => *outcome,
            })
            .collect();
        self.answer = Some(Decision::new(outcomes.into(), answer.at(), answer.provenance()));
    }
}

/// Whether what a charge takes cannot be given back.
fn leaks(charge: &Charge<'_>) -> bool {
    charge.meter.algorithm() == Algorithm::LeakyBucket
}

fn looking(op: Op) -> Op {
    match op {
        Op::Take(ask) => Op::Peek(ask.min),
        other => other,
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
    permit: Arc<Permit>,
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

    /// Gives everything back, in a task of its own.
    fn give_back(mut self) -> Option<JoinHandle<()>> {
        self.spawn()
    }

    fn spawn(&mut self) -> Option<JoinHandle<()>> {
        let refunds = std::mem::take(&mut self.refunds);
        if refunds.is_empty() {
            return None;
        }
        let (inner, permit) = (Arc::clone(&self.inner), Arc::clone(&self.permit));
        Some(self.inner.shared.runtime.spawn(async move {
            let span = Span::from(monotonic(), inner.shared.deadline);
            let give_back = async |(slot, refund): &(u16, ChargeSet<'static>)| {
                let _clearing = inner.clearing(refund);
                // If it fails, what was taken wears off by itself.
                let _ = put(&inner, *slot, refund, span, &permit).await;
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

/// Puts a part as one of a whole that has a permit.
async fn put(
    inner: &Inner,
    slot: u16,
    set: &ChargeSet<'static>,
    span: Span,
    permit: &Arc<Permit>,
) -> Answer {
    let whole = Some(Arc::clone(permit));
    let terms = Terms { slot: Some(slot), span, manner: Manner::Alone, whole };
    inner.put(set, inner.question(set), terms).await
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
