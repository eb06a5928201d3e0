//! Giving back what a request took and did not use.

use super::admission::alone;
use super::{Admission, Gate, Question};
use crate::charge::{Charge, Cost, Op};
use crate::decision::{Provenance, Verdict};
use crate::policy::{Charges, Fallback};
use crate::store::{Store, StoreError};
use crate::subject::{Costs, Subject};
use crate::time::Timestamp;

impl<S: Store> Gate<S> {
    /// Gives back `costs` of what an admission took from `subject`'s buckets: all of it for a
    /// request that never ran, a part where an estimate was too high.
    ///
    /// Goes by the policy that admitted, to the store that decided, and never gives back more than
    /// was taken: nothing for a refusal, for a shadow rule that did not fit, or where the policy
    /// decided alone. Whether units still count is the [store's](crate::Op::Refund) to say; the
    /// outcomes tell how many came back.
    ///
    /// Nothing is given back when the store cannot be asked; what was taken then wears off by
    /// itself.
    pub async fn refund(
        &self,
        subject: &Subject<'_>,
        costs: &Costs<'_>,
        admission: &Admission,
    ) -> Result<Admission, StoreError> {
        let at = admission.decision.at();
        let refund = |cost| Op::Refund { cost, at };
        let mut charges = Charges::default();
        // Where the policy decides alone there is nothing to give back.
        let _ = admission.asked.policy.charge(subject, costs, refund, &mut charges);
        let question = taken(&charges, admission);
        if admission.provenance() == Provenance::Fallback {
            let decision = self.local.store.take_set(question.charges.set());
            return Ok(question.answered(decision.with_provenance(Provenance::Fallback)));
        }
        self.carry_out(question).await
    }

    /// The same for an admission that is not at hand, known only by the instant of its decision.
    ///
    /// Goes by the policy in force and to the store, so it is only for decisions the store made
    /// ([`Provenance::Store`]), and the caller vouches for what was taken.
    pub async fn refund_at(
        &self,
        subject: &Subject<'_>,
        costs: &Costs<'_>,
        at: Timestamp,
    ) -> Result<Admission, StoreError> {
        let (question, _) = self.begin(subject, costs, |cost| Op::Refund { cost, at });
        self.carry_out(question).await
    }

    /// Has the store do what is never refused.
    pub(super) async fn carry_out(&self, question: Question) -> Result<Admission, StoreError> {
        if question.charges.set().is_empty() {
            return Ok(question.answered(alone(Verdict::Allow)));
        }
        let decision = self.limiter.take_set(question.charges.set()).await?;
        Ok(question.answered(decision))
    }
}

/// The refunds among `charges`, as far as `admission` took anything.
fn taken(charges: &Charges, admission: &Admission) -> Question {
    let mut question = admission.asked.without_charges();
    for (place, (charge, rule)) in charges.iter().enumerate() {
        // The charges of one rule come in the same order every time.
        let nth = charges.numbers()[..place].iter().filter(|&&other| other == rule).count();
        if let Some(charge) = taken_of(charge, rule, nth, admission) {
            question.charges.push(charge, rule);
        }
    }
    question
}

/// A refund, lowered to what the `nth` charge of its rule took; `None` if it took nothing.
fn taken_of(
    charge: &Charge<'static>,
    rule: u32,
    nth: usize,
    admission: &Admission,
) -> Option<Charge<'static>> {
    let outcomes = admission.asked.charges.numbers().iter().zip(admission.decision.outcomes());
    let mut own = outcomes.filter(|(other, _)| **other == rule);
    let (_, outcome) = own.nth(nth)?;
    let by_fallback = admission.provenance() == Provenance::Fallback;
    if by_fallback && admission.asked.policy.fallback_of(rule) != Fallback::Local {
        return None;
    }
    let Op::Refund { cost, at } = charge.op else {
        return None;
    };
    let units = outcome.reading.map_or(0, |reading| reading.units);
    let cost = Cost::new(cost.get().min(units))?;
    Some(Charge { op: Op::Refund { cost, at }, ..charge.clone() })
}
