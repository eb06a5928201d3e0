//! Forgetting what was counted.

use super::{Admission, Gate, Question};
use crate::charge::{ChargeSet, Cost, Op};
use crate::policy::{Resolution, RuleNumbers};
use crate::store::{Store, StoreError};
use crate::subject::{Costs, Subject};

impl<S: Store> Gate<S> {
    /// Forgets what was counted for `subject`, in the buckets of the rule named `rule` or of all
    /// that apply; here and, for the time the store cannot be asked, locally.
    ///
    /// Every unit counts as given, whatever a request of this subject would cost. The outcomes name
    /// the buckets that were forgotten; there are none where no rule of that name applies.
    pub async fn reset(
        &self,
        rule: Option<&str>,
        subject: &Subject<'_>,
    ) -> Result<Admission, StoreError> {
        let policy = self.policy();
        let units = policy.units().map(|unit| (unit, Cost::ONE));
        let costs = units.fold(Costs::default(), |costs, (unit, cost)| costs.with(unit, cost));
        let resolution = policy.resolve_to(subject, &costs, |_| Op::Reset);
        let mut question =
            Question { policy: policy.clone(), set: ChargeSet::new(), rules: RuleNumbers::new() };
        if let Resolution::Charges(charges) = resolution {
            let (set, rules) = charges.into_parts();
            for (charge, number) in set.charges().iter().zip(rules) {
                let name = policy.rule(number as usize).map(|rule| rule.name());
                let wanted = rule.is_none() || rule == name;
                if wanted && question.set.push(charge.clone()).is_ok() {
                    question.rules.push(number);
                }
            }
        }
        self.local.store.take_set(&question.set);
        self.carry_out(question).await
    }
}
