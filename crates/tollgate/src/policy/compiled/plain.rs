//! A policy that is one rule for everybody, as many are.
//!
//! All there is to find out about a request is one value and one cost, so nothing is numbered and
//! nothing looked up. What is needed lies together: a server that answers requests has little of a
//! policy left in the processor's nearest cache when the next one comes, and fetches every line anew.

use smallvec::SmallVec;

use super::{Compiled, is_short};
use crate::charge::{Charge, Cost, Enforcement, Op};
use crate::key::{KeyPart, Stem};
use crate::meter::Meter;
use crate::policy::Charges;
use crate::subject::{Costs, Subject};

/// A name, without another look elsewhere as long as it is short.
type Name = SmallVec<[u8; 16]>;

/// The only rule of a policy without lists: it asks the same of everybody, and goes by one axis or none.
#[derive(Clone, Debug)]
pub(in crate::policy) struct Plain {
    // `None` where it counts requests, as most do.
    unit: Option<Box<str>>,
    axis: Option<Name>,
    enforcement: Enforcement,
    stem: Stem,
    meter: Meter,
}

impl Plain {
    /// The rules of a policy as one for everybody, if that is what they are.
    pub(in crate::policy) fn new(rules: &[Compiled]) -> Option<Self> {
        let [compiled] = rules else {
            return None;
        };
        let Compiled { rule, conditions, overrides, table, .. } = compiled;
        let is_plain = conditions.is_empty()
            && overrides.is_empty()
            && table.tiers.is_none()
            && rule.axes().len() <= 1
            && !rule.is_hashed();
        let [meter] = &*table.others else {
            return None;
        };
        let unit = rule.counted_unit();
        is_plain.then(|| Self {
            unit: (unit != Costs::REQUESTS).then(|| unit.into()),
            axis: rule.axes().next().map(|axis| Name::from_slice(axis.as_bytes())),
            enforcement: rule.enforcement(),
            stem: compiled.stem.clone(),
            meter: *meter,
        })
    }

    /// Puts its charge for a subject into `charges`, which are empty. False, and they stay so, where the
    /// general way has to be asked: there is no cost, no value, or one too long to stand in a key.
    #[inline(always)]
    pub(in crate::policy) fn charge(
        &self,
        subject: &Subject<'_>,
        costs: &Costs<'_>,
        op: impl Fn(Cost) -> Op,
        charges: &mut Charges,
    ) -> bool {
        let Some(cost) = costs.of(self.unit.as_deref().unwrap_or(Costs::REQUESTS)) else {
            return false;
        };
        let value = match &self.axis {
            Some(axis) => match subject.value_of(axis) {
                Some(value) if is_short(value) => Some(value),
                _ => return false,
            },
            None => None,
        };
        let Self { enforcement, ref stem, meter, .. } = *self;
        let charge =
            charges.put_only(Charge { key: stem.start(), meter, op: op(cost), enforcement });
        if let Some(value) = value {
            stem.add(&mut charge.key, 0, KeyPart::Plain(value));
        }
        true
    }
}
