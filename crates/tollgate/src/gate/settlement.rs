//! Correcting a charge once it is known what a request really cost.

use super::{Admission, Gate};
use crate::algorithm::Ask;
use crate::charge::{Charge, ChargeSet, Cost, Enforcement, Op};
use crate::decision::{Decision, Outcome, Provenance, Reading};
use crate::policy::{Fallback, Rule};
use crate::store::{Store, StoreError};
use crate::subject::Costs;
use crate::time::Timestamp;

impl<S: Store> Gate<S> {
    /// Settles an admission that was charged by an estimate: gives back what it took beyond
    /// `actual`, and takes what it took too little, as far as that is there.
    ///
    /// A unit that is not among `actual` cost nothing. Only rules that were charged are settled, so
    /// the estimate has to name every unit, by one at least. What is taken on top never refuses
    /// anybody: the request has run. The answer is the admission as it stands now.
    ///
    /// ```
    /// # fn block_on<F: Future>(f: F) -> F::Output {
    /// #     let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    /// #     match std::pin::pin!(f).poll(&mut cx) {
    /// #         std::task::Poll::Ready(output) => output,
    /// #         std::task::Poll::Pending => unreachable!(),
    /// #     }
    /// # }
    /// # block_on(async {
    /// use tollgate::{Cost, Costs, Gate, MemoryStore, Policy, Rule, Subject};
    ///
    /// let policy = Policy::builder()
    ///     .rule(Rule::new("spend").by("tenant").unit("tokens").quota("1000/day"))
    ///     .build()?;
    /// let gate = Gate::new(policy, MemoryStore::new());
    /// let tenant = Subject::new().with("tenant", "acme");
    /// let tokens = |count| Costs::default().with("tokens", Cost::new(count).unwrap());
    /// let left = |admission: &tollgate::Admission| {
    ///     admission.binding().unwrap().1.reading.unwrap().remaining
    /// };
    ///
    /// let admission = gate.admit(&tenant, &tokens(400)).await;
    /// assert_eq!(left(&admission), 600);
    /// let settled = gate.settle(&admission, &tokens(150)).await?;
    /// assert_eq!(left(&settled), 850);
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// When the store cannot be asked nothing is settled, and the estimate stands.
    pub async fn settle(
        &self,
        admission: &Admission,
        actual: &Costs<'_>,
    ) -> Result<Admission, StoreError> {
        let corrections = Corrections::of(admission, actual);
        let decision = match (corrections.set.is_empty(), admission.provenance()) {
            (true, _) => None,
            (false, Provenance::Fallback) => Some(self.local.store.take_set(&corrections.set)),
            (false, _) => Some(self.limiter.take_set(&corrections.set).await?),
        };
        Ok(corrections.applied(admission, decision.as_ref()))
    }
}

/// What is to be given back or taken on top, and which outcomes that concerns.
struct Corrections {
    set: ChargeSet<'static>,
    // For every charge of the set, the place of its outcome in the admission.
    places: Vec<usize>,
}

impl Corrections {
    fn of(admission: &Admission, actual: &Costs<'_>) -> Self {
        let mut corrections = Self { set: ChargeSet::new(), places: Vec::new() };
        let by_fallback = admission.provenance() == Provenance::Fallback;
        for (place, (rule, charge, outcome)) in admission.charges().enumerate() {
            if by_fallback && rule.fallback() != Fallback::Local {
                continue;
            }
            let Some(op) = correction(rule, outcome, actual, admission.decision.at()) else {
                continue;
            };
            // It came out of a set in which nothing conflicted, and there is room for as many.
            let charge = Charge { op, ..charge.clone() }.enforced(Enforcement::Shadow);
            if corrections.set.push(charge).is_ok() {
                corrections.places.push(place);
            }
        }
        corrections
    }

    /// The admission with what its buckets show now.
    fn applied(&self, admission: &Admission, decision: Option<&Decision>) -> Admission {
        let mut outcomes = admission.decision.outcomes().to_vec();
        let corrected = decision.map_or(&[][..], Decision::outcomes);
        for ((&place, correction), charge) in
            self.places.iter().zip(corrected).zip(self.set.charges())
        {
            outcomes[place].reading = amended(&outcomes[place], correction, charge.op);
        }
        let before = &admission.decision;
        Admission {
            decision: Decision::new(outcomes.into(), before.at(), before.provenance()),
            asked: admission.asked.clone(),
            ground: admission.ground,
            store_error: None,
        }
    }
}

/// The op that turns what a charge took into what the request cost; `None` if that is the same, or
/// nothing was taken at all.
fn correction(rule: &Rule, outcome: &Outcome, actual: &Costs<'_>, at: Timestamp) -> Option<Op> {
    let taken = outcome.reading.filter(|reading| reading.units > 0)?.units;
    let actual = actual.of(rule.counted_unit()).map_or(0, Cost::get);
    match (Cost::new(taken.saturating_sub(actual)), Cost::new(actual.saturating_sub(taken))) {
        (Some(cost), _) => Some(Op::Refund { cost, at }),
        (_, Some(more)) => Some(Op::Take(Ask { min: Cost::ONE, max: more })),
        (None, None) => None,
    }
}

/// What a bucket shows after a correction, with what the request has taken from it in all.
fn amended(before: &Outcome, correction: &Outcome, op: Op) -> Option<Reading> {
    let (before, after) = (before.reading?, correction.reading?);
    let units = match op {
        Op::Refund { .. } => before.units.saturating_sub(after.units),
        _ => before.units.saturating_add(after.units),
    };
    Some(Reading { units, retry: before.retry, delay: before.delay, ..after })
}
