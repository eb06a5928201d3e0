//! What a gate answers.

use std::sync::Arc;

use super::Question;
use crate::charge::Charge;
use crate::decision::{Decision, Outcome, Provenance, Retry, Verdict, refuses};
use crate::policy::{Ground, Listing, Policy, Rule};
use crate::store::StoreError;
use crate::time::{Micros, Timestamp};

/// A decision with the rules it is about.
#[derive(Clone, Debug)]
pub struct Admission {
    pub(super) decision: Decision,
    // The charges the outcomes are of.
    pub(super) asked: Question,
    // Present when the policy decided alone; then without charges.
    pub(super) ground: Option<Ground>,
    // Shared, for errors are not copied and admissions are.
    pub(super) store_error: Option<Arc<StoreError>>,
}

/// The decision of a policy alone, which knows no time.
pub(super) fn alone(verdict: Verdict) -> Decision {
    Decision::without_charges(verdict, Timestamp::EPOCH, Provenance::Policy)
}

/// Why a policy decided without asking a store.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Reason<'a> {
    /// Let through: no rule applies.
    NoRule,
    /// Let through: on the allowlist.
    Allowlisted(&'a Listing),
    /// Refused: on the deny-list.
    Denylisted(&'a Listing),
    /// Refused: the rule counts by an axis the subject lacks.
    MissingAxis {
        /// The rule.
        rule: &'a Rule,
        /// The axis.
        axis: &'a str,
    },
}

impl Admission {
    /// Whether the request may go on.
    pub fn verdict(&self) -> Verdict {
        self.decision.verdict()
    }

    /// Whether the request may go on.
    pub fn is_allowed(&self) -> bool {
        self.decision.is_allowed()
    }

    /// The decision itself. Its [`at`](Decision::at) is by the clock of whoever decided; where the
    /// policy did, which knows no time, it is the epoch.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Who decided.
    pub fn provenance(&self) -> Provenance {
        self.decision.provenance()
    }

    /// When trying again succeeds, if nobody else comes. A refusal without any number to go by (a
    /// fallback's, or the policy's) says `Now`: waiting would change nothing that is known.
    pub fn retry(&self) -> Retry {
        self.decision.retry()
    }

    /// How long an admitted request should be held.
    pub fn delay(&self) -> Micros {
        self.decision.delay()
    }

    /// How long to hold a refused request that was held for `waited` already, before asking again:
    /// until it fits, if every rule that refuses it would have it [wait](Rule::wait) so long. `None`
    /// where it is to be refused, or is not.
    ///
    /// ```
    /// use tollgate::{
    ///     Algorithm, Costs, Gate, ManualClock, MemoryStore, Micros, Policy, Rule, Subject,
    /// };
    ///
    /// let rule = Rule::new("calls")
    ///     .quota("1/s")
    ///     .algorithm(Algorithm::SlidingLog)
    ///     .wait(Micros::from_millis(1_500));
    /// let policy = Policy::builder().rule(rule).build()?;
    /// let gate = Gate::new(policy, MemoryStore::with_clock(ManualClock::at_secs(1_000)));
    /// let ask = || gate.admit_now(&Subject::new(), &Costs::default());
    ///
    /// assert_eq!(ask().hold(Micros::ZERO), None);
    /// let refused = ask();
    /// assert_eq!(refused.hold(Micros::ZERO), Some(Micros::from_secs(1)));
    /// assert_eq!(refused.hold(Micros::from_millis(501)), None);
    /// # Ok::<(), tollgate::policy::PolicyErrors>(())
    /// ```
    pub fn hold(&self, waited: Micros) -> Option<Micros> {
        let Retry::After(wait) = self.retry() else {
            return None;
        };
        let outcomes = self.decision.outcomes();
        let would_wait = |index: usize| match outcomes[index].retry() {
            Retry::After(wait) => {
                let longest = self.rule_of(index).map_or(Micros::ZERO, Rule::longest_wait);
                longest.get() >= waited.get().saturating_add(wait.get())
            }
            Retry::Now | Retry::Never => false,
        };
        let mut refusing = (0..outcomes.len()).filter(|&index| refuses(outcomes, index));
        refusing.all(would_wait).then_some(wait)
    }

    /// The rule that decided and its outcome: of a refusal the one to wait for longest, else the one
    /// with the least share left. `None` where no charge was made.
    pub fn binding(&self) -> Option<(&Rule, &Outcome)> {
        let index = self.decision.binding()?;
        Some((self.rule_of(index)?, &self.decision.outcomes()[index]))
    }

    /// The rule that decided: the [binding](Admission::binding) one, or the one that lacked an axis.
    pub fn rule(&self) -> Option<&Rule> {
        match self.reason() {
            Some(Reason::MissingAxis { rule, .. }) => Some(rule),
            _ => self.binding().map(|(rule, _)| rule),
        }
    }

    /// What happened to each charge, with its rule; in the order of the policy.
    pub fn outcomes(&self) -> impl Iterator<Item = (&Rule, &Outcome)> {
        let outcomes = self.decision.outcomes().iter().enumerate();
        outcomes.filter_map(|(index, outcome)| Some((self.rule_of(index)?, outcome)))
    }

    /// What was asked of the store, with the rule that made each charge and what happened to it; in
    /// the order of the policy.
    pub fn charges(&self) -> impl Iterator<Item = (&Rule, &Charge<'static>, &Outcome)> {
        let pairs = self.outcomes().zip(self.asked.charges.set().charges());
        pairs.map(|((rule, outcome), charge)| (rule, charge, outcome))
    }

    /// Why the policy decided alone; `None` where charges were made.
    pub fn reason(&self) -> Option<Reason<'_>> {
        let policy = &self.asked.policy;
        Some(match self.ground? {
            Ground::NoRule => Reason::NoRule,
            Ground::Allowlisted { entry } => Reason::Allowlisted(policy.allowlist().get(entry)?),
            Ground::Denylisted { entry } => Reason::Denylisted(policy.denylist().get(entry)?),
            Ground::MissingAxis { rule, axis } => {
                let rule = policy.rule(rule)?;
                let axis = rule.axes().nth(axis)?;
                Reason::MissingAxis { rule, axis }
            }
        })
    }

    /// What kept the store from answering, where [fallbacks](crate::Fallback) decided.
    pub fn store_error(&self) -> Option<&StoreError> {
        self.store_error.as_deref()
    }

    /// The policy that decided.
    pub fn policy(&self) -> &Arc<Policy> {
        &self.asked.policy
    }

    fn rule_of(&self, outcome: usize) -> Option<&Rule> {
        self.asked.policy.rule(*self.asked.charges.numbers().get(outcome)? as usize)
    }
}
