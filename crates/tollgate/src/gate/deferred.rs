//! Charging behind a request what it need not wait for.

use std::sync::Arc;

use super::admission::alone;
use super::{Admission, Gate, Question, take};
use crate::decision::Verdict;
use crate::policy::Ground;
use crate::store::Store;
use crate::subject::{Costs, Subject};

/// The charges of [non-critical](crate::Rule::non_critical) rules, still to be made.
///
/// Dropping it leaves them unmade, and nobody is worse off: such rules never refuse.
#[derive(Debug)]
#[must_use = "nothing is charged before it is handed to `Gate::charge`"]
pub struct Deferred {
    // Boxed, for it is seldom there and always handed about.
    question: Box<Question>,
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
        let mut admission = self.begin(subject, costs, take);
        let deferred = admission.put_off();
        let admission = self.ask(admission).await;
        let deferred = deferred.filter(|_| admission.is_allowed());
        (admission, deferred)
    }

    /// The same without a future, for a store that [answers at once](Store::decide_now). `None`, with
    /// nothing charged, where it does not. On the heap from the start, for front ends that share it.
    pub fn admit_deferring_now(
        &self,
        subject: &Subject<'_>,
        costs: &Costs<'_>,
    ) -> Option<(Arc<Admission>, Option<Deferred>)> {
        let mut admission = self.begin(subject, costs, take);
        let deferred = admission.put_off();
        if admission.ground.is_none() {
            let answer = self.limiter.store().decide_now(admission.asked.charges.set())?;
            self.conclude(&mut admission, answer);
        }
        let deferred = deferred.filter(|_| admission.is_allowed());
        Some((Arc::new(admission), deferred))
    }

    /// Makes charges that were put off. They never refuse; the outcomes tell which did not fit.
    pub async fn charge(&self, deferred: Deferred) -> Admission {
        // The decision is still to come.
        self.ask(deferred.question.answered(alone(Verdict::Deny))).await
    }
}

impl Admission {
    /// Takes out what need not be asked now.
    #[inline]
    fn put_off(&mut self) -> Option<Deferred> {
        let Question { policy, charges } = &self.asked;
        match charges.numbers().iter().all(|&rule| policy.is_critical(rule)) {
            true => None,
            false => Some(self.split()),
        }
    }

    #[cold]
    fn split(&mut self) -> Deferred {
        let all = &self.asked;
        let (mut now, mut later) = (all.without_charges(), all.without_charges());
        for (charge, rule) in all.charges.iter() {
            let part = match all.policy.is_critical(rule) {
                true => &mut now,
                false => &mut later,
            };
            part.charges.push(charge.clone(), rule);
        }
        if now.charges.set().is_empty() {
            self.ground = Some(Ground::NoRule);
            self.decision = alone(Verdict::Allow);
        }
        self.asked = now;
        Deferred { question: Box::new(later) }
    }
}
