//! Forgetting what was counted.

use super::{Admission, Gate, Question};
use crate::charge::{Cost, Op};
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
        let (all, _) = Question::new(policy.clone(), subject, &costs, |_| Op::Reset);
        let mut question = all.without_charges();
        for (charge, number) in all.charges.iter() {
            let name = all.policy.rule(number as usize).map(|rule| rule.name());
            if rule.is_none() || rule == name {
                question.charges.push(charge.clone(), number);
            }
        }
        self.local.store.take_set(question.charges.set());
        self.carry_out(question).await
    }
}
