//! Charging behind a request what it need not wait for.

use std::sync::Arc;

use super::admission::alone;
use super::{Admission, Gate, Question, no_answer, take};
use crate::policy::{Charges, Ground};
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

/// Says that the store has to be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MustWait;

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
        let (mut asked, ground) = self.begin(subject, costs, take);
        let (deferred, ground) = asked.put_off(ground);
        let admission = self.ask(asked, ground).await;
        let deferred = deferred.filter(|_| admission.is_allowed());
        (admission, deferred)
    }

    /// An admission to be decided by the policy in force. Until it is it says what the policy says of
    /// those whom no rule applies to.
    #[inline]
    pub fn open(&self) -> Box<Admission> {
        // The place first, so that it is written there and not moved.
        let place = Box::new_uninit();
        let admission = Admission {
            decision: alone(Ground::NoRule.verdict()),
            asked: Question { policy: self.policy(), charges: Charges::default() },
            ground: Some(Ground::NoRule),
            store_error: None,
        };
        Box::write(place, admission)
    }

    /// Decides an [open](Gate::open) admission as [`admit_deferring`](Gate::admit_deferring) would, by
    /// its policy and without a future, for a store that [answers at once](Store::decide_now).
    ///
    /// In its place, for an admission is large, and moved out of every function that returns it.
    ///
    /// # Errors
    ///
    /// Where the store has to be waited for; then nothing is charged and the admission says nothing.
    pub fn admit_deferring_now(
        &self,
        subject: &Subject<'_>,
        costs: &Costs<'_>,
        admission: &mut Admission,
    ) -> Result<Option<Deferred>, MustWait> {
        let Admission { decision, asked, ground, store_error } = admission;
        let mut found = asked.resolve(subject, costs, take);
        let mut deferred = None;
        if !asked.is_critical() {
            (deferred, found) = asked.put_off(found);
        }
        *store_error = None;
        if let Some(found) = found {
            (*ground, *decision) = (Some(found), alone(found.verdict()));
            return Ok(deferred.filter(|_| decision.is_allowed()));
        }
        *ground = None;
        match self.limiter.store().decide_now(asked.charges.set()) {
            Some(Ok(answer)) if asked.is_answered_by(&answer) => *decision = answer,
            Some(answer) => {
                let error = answer.err().unwrap_or_else(no_answer);
                *store_error = Some(Arc::new(error));
                *decision = self.fall_back(asked);
            }
            None => return Err(MustWait),
        }
        // Most often nothing was put off.
        if deferred.is_some() && !decision.is_allowed() {
            deferred = None;
        }
        Ok(deferred)
    }

    /// Makes charges that were put off. They never refuse; the outcomes tell which did not fit.
    pub async fn charge(&self, deferred: Deferred) -> Admission {
        self.ask(*deferred.question, None).await
    }
}

impl Question {
    /// Whether all of it has to be asked now.
    #[inline(always)]
    fn is_critical(&self) -> bool {
        self.charges.numbers().iter().all(|&rule| self.policy.is_critical(rule))
    }

    /// Takes out what need not be asked now. If that is everything, there is a ground to ask nothing.
    #[inline]
    fn put_off(&mut self, ground: Option<Ground>) -> (Option<Deferred>, Option<Ground>) {
        if self.is_critical() {
            return (None, ground);
        }
        let deferred = self.split();
        (Some(deferred), self.charges.set().is_empty().then_some(Ground::NoRule))
    }

    #[cold]
    fn split(&mut self) -> Deferred {
        let (mut now, mut later) = (self.without_charges(), self.without_charges());
        for (charge, rule) in self.charges.iter() {
            let part = match self.policy.is_critical(rule) {
                true => &mut now,
                false => &mut later,
            };
            part.charges.push(charge.clone(), rule);
        }
        *self = now;
        Deferred { question: Box::new(later) }
    }
}
