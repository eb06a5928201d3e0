//! Charging behind a request what it need not wait for.

use super::{Admission, Gate, Question, Step, take};
use crate::charge::ChargeSet;
use crate::decision::{Decision, Provenance, Verdict};
use crate::policy::{Resolution, RuleNumbers};
use crate::store::Store;
use crate::subject::{Costs, Subject};
use crate::time::Timestamp;

/// The charges of [non-critical](crate::Rule::non_critical) rules, still to be made.
///
/// Dropping it leaves them unmade, and nobody is worse off: such rules never refuse.
#[derive(Debug)]
#[must_use = "nothing is charged before it is handed to `Gate::charge`"]
pub struct Deferred {
    question: Question,
}

impl<S: Store> Gate<S> {
    /// [Admits](Gate::admit) by the rules a request has to wait for, and hands over what is to be
    /// charged behind it. A refused request is charged nothing.
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
    /// use tollgate::{Costs, Gate, MemoryStore, Policy, Rule, Subject};
    ///
    /// let policy = Policy::builder()
    ///     .rule(Rule::new("per-ip").by("ip").quota("120/min"))
    ///     .rule(Rule::new("interest").by("route").quota("1000/day").non_critical())
    ///     .build()?;
    /// let gate = Gate::new(policy, MemoryStore::new());
    /// let subject = Subject::new().with("ip", "192.0.2.7").with("route", "/search");
    ///
    /// let (admission, deferred) = gate.admit_deferring(&subject, &Costs::default()).await;
    /// assert_eq!(admission.outcomes().count(), 1);
    /// // The request goes on; later, or elsewhere:
    /// let behind = gate.charge(deferred.unwrap()).await;
    /// assert_eq!(behind.rule().unwrap().name(), "interest");
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    pub async fn admit_deferring(
        &self,
        subject: &Subject<'_>,
        costs: &Costs<'_>,
    ) -> (Admission, Option<Deferred>) {
        match self.step(subject, costs, take) {
            Step::Ask(question) if question.can_be_split() => {
                let (step, deferred) = question.split();
                let admission = self.ask(step).await;
                let deferred = admission.is_allowed().then_some(deferred);
                (admission, deferred)
            }
            step => (self.ask(step).await, None),
        }
    }

    /// Makes charges that were put off. They never refuse; the outcomes tell which did not fit.
    pub async fn charge(&self, deferred: Deferred) -> Admission {
        self.ask(Step::Ask(deferred.question)).await
    }
}

impl Question {
    /// Whether anything need not be asked now.
    fn can_be_split(&self) -> bool {
        !self.rules.iter().all(|&rule| self.policy.is_critical(rule))
    }

    /// What has to be asked now, and what need not be.
    fn split(self) -> (Step, Deferred) {
        let (mut now, mut later) = (self.without_charges(), self.without_charges());
        for (charge, &rule) in self.set.charges().iter().zip(&self.rules) {
            let part = match self.policy.is_critical(rule) {
                true => &mut now,
                false => &mut later,
            };
            // It came out of a set in which nothing conflicted, and there is room for as many.
            if part.set.push(charge.clone()).is_ok() {
                part.rules.push(rule);
            }
        }
        let step = match now.set.is_empty() {
            true => Step::Settled(now.without_asking()),
            false => Step::Ask(now),
        };
        (step, Deferred { question: later })
    }

    fn without_charges(&self) -> Self {
        let policy = self.policy.clone();
        Self { policy, set: ChargeSet::new(), rules: RuleNumbers::new() }
    }

    /// The admission of a request that has to wait for no rule.
    fn without_asking(self) -> Admission {
        Admission {
            decision: Decision::without_charges(
                Verdict::Allow,
                Timestamp::EPOCH,
                Provenance::Policy,
            ),
            policy: self.policy,
            rules: self.rules,
            set: self.set,
            ground: Some(Resolution::Charges(Default::default())),
            store_error: None,
        }
    }
}
