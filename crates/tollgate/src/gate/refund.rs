//! Giving back what a request took and did not use.

use std::sync::Arc;

use super::{Admission, Gate, Question};
use crate::charge::{Charge, ChargeSet, Cost, Op};
use crate::decision::{Decision, Provenance, Verdict};
use crate::policy::{Fallback, Policy, Resolution, RuleNumbers};
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
        let policy = Arc::clone(&admission.policy);
        let refund = |cost| Op::Refund { cost, at };
        let resolution = policy.resolve_to(subject, costs, refund);
        let question = taken(policy, resolution, admission);
        if admission.provenance() == Provenance::Fallback {
            let decision = self.local.store.take_set(&question.set);
            let decision = decision.with_provenance(Provenance::Fallback);
            return Ok(carried_out(question, decision));
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
        let policy = self.policy();
        let refund = |cost| Op::Refund { cost, at };
        let question = match policy.resolve_to(subject, costs, refund) {
            Resolution::Charges(charges) => {
                let (set, rules) = charges.into_parts();
                Question { policy, set, rules }
            }
            _ => nothing(policy),
        };
        self.carry_out(question).await
    }

    /// Has the store do what is never refused.
    pub(super) async fn carry_out(&self, question: Question) -> Result<Admission, StoreError> {
        if question.set.is_empty() {
            let decision =
                Decision::without_charges(Verdict::Allow, Timestamp::EPOCH, Provenance::Policy);
            return Ok(carried_out(question, decision));
        }
        let decision = self.limiter.take_set(&question.set).await?;
        Ok(carried_out(question, decision))
    }
}

fn nothing(policy: Arc<Policy>) -> Question {
    Question { policy, set: ChargeSet::new(), rules: RuleNumbers::new() }
}

fn carried_out(question: Question, decision: Decision) -> Admission {
    Admission {
        decision,
        policy: question.policy,
        rules: question.rules,
        set: question.set,
        ground: None,
        store_error: None,
    }
}

/// The refunds of a resolution, as far as `admission` took anything.
fn taken(policy: Arc<Policy>, resolution: Resolution, admission: &Admission) -> Question {
    let mut question = nothing(policy);
    let Resolution::Charges(charges) = resolution else {
        return question;
    };
    let (set, rules) = charges.into_parts();
    for (place, (charge, &rule)) in set.charges().iter().zip(&rules).enumerate() {
        // The charges of one rule come in the same order every time.
        let nth = rules[..place].iter().filter(|&&other| other == rule).count();
        let Some(charge) = taken_of(charge, rule, nth, admission) else {
            continue;
        };
        if question.set.push(charge).is_ok() {
            question.rules.push(rule);
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
    let outcomes = admission.rules.iter().zip(admission.decision.outcomes());
    let mut own = outcomes.filter(|(other, _)| **other == rule);
    let (_, outcome) = own.nth(nth)?;
    let by_fallback = admission.provenance() == Provenance::Fallback;
    if by_fallback && admission.policy.fallback_of(rule) != Fallback::Local {
        return None;
    }
    let Op::Refund { cost, at } = charge.op else {
        return None;
    };
    let units = outcome.reading.map_or(0, |reading| reading.units);
    let cost = Cost::new(cost.get().min(units))?;
    Some(Charge { op: Op::Refund { cost, at }, ..charge.clone() })
}
