//! Admissions in short, where one rule for everybody makes one charge.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Admission, Gate, Question, no_answer, take};
use crate::charge::{Cost, Enforcement};
use crate::decision::{Decision, Outcome, Provenance, Verdict};
use crate::key::{Key, PlainValue};
use crate::meter::Meter;
use crate::policy::{Charges, Policy, Rule};
use crate::store::{Store, StoreError};
use crate::time::Timestamp;

/// An [`Admission`] in short, from which [the whole](Gate::whole) follows if anybody asks for it: a
/// front end keeps one with every request, and few handlers look.
#[derive(Clone, Debug)]
pub struct Brief {
    decision: Decision,
    key: Key<'static>,
    // `None` for the policy its gate was made with, which the gate keeps: most requests then share in
    // no count of who holds it.
    policy: Option<Arc<Policy>>,
    store_error: Option<Arc<StoreError>>,
}

impl Default for Brief {
    /// One that is not decided.
    #[inline(always)]
    fn default() -> Self {
        let undecided = Decision::of_one(NOTHING, Timestamp::EPOCH, Provenance::Policy);
        Self { decision: undecided, key: Key::EMPTY, policy: None, store_error: None }
    }
}

/// What is yet to happen to the charge.
const NOTHING: Outcome =
    Outcome { verdict: Verdict::Allow, enforcement: Enforcement::Enforce, reading: None };

impl Brief {
    /// Whether it is by the policy its gate was made with.
    #[inline(always)]
    pub fn is_by_first_policy(&self) -> bool {
        self.policy.is_none()
    }

    /// What was decided about its only charge.
    #[inline(always)]
    pub fn decision(&self) -> &Decision {
        &self.decision
    }
}

impl<S: Store> Gate<S> {
    /// Admits one request by a policy that is one rule for everybody, if requests have to wait for it,
    /// and a store that [answers at once](Store::decide_now). Of all values of the subject only the one
    /// that rule goes by is asked for, by the name of its axis; both as bytes, which is all a key needs.
    /// False, with nothing decided, where [`admit_deferring_now`](Gate::admit_deferring_now) has to be
    /// asked instead.
    ///
    /// In its place, for it is moved out of every function that returns it.
    #[doc(hidden)]
    #[inline(always)]
    pub fn admit_briefly_now<'v, V: Into<PlainValue<'v>>>(
        &self,
        value_of: impl FnOnce(&[u8]) -> Option<V>,
        brief: &mut Brief,
    ) -> bool {
        if self.is_replaced.load(Ordering::SeqCst) {
            brief.policy = Some(self.replaced());
        }
        let Brief { decision, key, policy, .. } = brief;
        let Some(plain) = policy.as_ref().unwrap_or(&self.first).plain() else {
            return false;
        };
        if !plain.spell(|axis| value_of(axis).map(V::into), key) {
            return false;
        }
        match self.limiter.store().take_now(key, plain.meter(), plain.enforcement()) {
            Some(Ok(answer)) if answer.outcomes().len() == 1 => *decision = answer,
            Some(answer) => self.decide_otherwise(answer, brief),
            None => return false,
        }
        true
    }

    /// Has the rule's fallback decide.
    #[cold]
    #[inline(never)]
    fn decide_otherwise(&self, answer: Result<Decision, StoreError>, brief: &mut Brief) {
        let whole = self.whole(brief);
        brief.decision = self.fall_back(&whole.asked);
        brief.store_error = Some(Arc::new(answer.err().unwrap_or_else(no_answer)));
    }

    /// The rule that made the charge of an admission in short, and its meter.
    #[doc(hidden)]
    #[inline(always)]
    pub fn rule_of<'a>(&'a self, brief: &'a Brief) -> Option<(&'a Rule, &'a Meter)> {
        let policy = brief.policy.as_ref().unwrap_or(&self.first);
        Some((policy.rule(0)?, policy.plain()?.meter()))
    }

    /// The whole of an admission in short, which this gate has made.
    #[doc(hidden)]
    pub fn whole(&self, brief: &Brief) -> Admission {
        let Brief { decision, key, policy, store_error } = brief.clone();
        let policy = policy.unwrap_or_else(|| Arc::clone(&self.first));
        let mut charges = Charges::default();
        if let Some(plain) = policy.plain() {
            charges.put_only(plain.charge_to(key, take(Cost::ONE)));
        }
        Admission { decision, asked: Question { policy, charges }, ground: None, store_error }
    }
}
