//! A policy that is one rule for everybody, as many are.
//!
//! All there is to find out about a request is one value and one cost, so nothing is numbered and
//! nothing looked up. What is needed lies together: a server that answers requests has little of a
//! policy left in the processor's nearest cache when the next one comes, and fetches every line anew.

use smallvec::SmallVec;

use super::{Compiled, LONGEST_PLAIN_VALUE, is_short};
use crate::charge::{Charge, Cost, Enforcement, Op};
use crate::key::{Key, PlainValue, Stem};
use crate::meter::Meter;
use crate::policy::Charges;
use crate::subject::{Costs, Subject};

/// A name, without another look elsewhere as long as it is short.
type Name = SmallVec<[u8; 16]>;

/// The only rule of a policy without lists: it asks the same of everybody, and goes by one axis or none.
#[derive(Clone, Debug)]
pub(crate) struct Plain {
    // `None` where it counts requests, as most do.
    unit: Option<Box<str>>,
    axis: Option<Name>,
    enforcement: Enforcement,
    // Up to the value, if there is an axis.
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
        let axis = rule.axes().next().map(|axis| Name::from_slice(axis.as_bytes()));
        let stem = compiled.stem.clone();
        is_plain.then(|| Self {
            unit: (unit != Costs::REQUESTS).then(|| unit.into()),
            stem: if axis.is_some() { stem.up_to_value() } else { stem },
            axis,
            enforcement: rule.enforcement(),
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
                Some(value) if is_short(value) => Some(PlainValue::Bytes(value.as_bytes())),
                _ => return false,
            },
            None => None,
        };
        let charge = charges.put_only(self.charge_to(self.stem.start(), op(cost)));
        // Finished where it lies: what was just written is slow to move.
        if let Some(value) = value {
            self.stem.add_only(&mut charge.key, value);
        }
        true
    }

    /// Spells the key of one request, whose value is found when it is asked for. False where the general
    /// way has to be asked.
    #[inline(always)]
    pub(crate) fn spell<'v>(
        &self,
        value_of: impl FnOnce(&[u8]) -> Option<PlainValue<'v>>,
        key: &mut Key<'static>,
    ) -> bool {
        if self.unit.is_some() {
            return false;
        }
        let value = match &self.axis {
            Some(axis) => match value_of(axis) {
                Some(value) if value.len() <= LONGEST_PLAIN_VALUE => Some(value),
                _ => return false,
            },
            None => None,
        };
        *key = self.stem.start();
        if let Some(value) = value {
            self.stem.add_only(key, value);
        }
        true
    }

    /// The charge to one key.
    #[inline(always)]
    pub(crate) fn charge_to<'k>(&self, key: Key<'k>, op: Op) -> Charge<'k> {
        Charge { key, meter: self.meter, op, enforcement: self.enforcement }
    }

    #[inline(always)]
    pub(crate) fn enforcement(&self) -> Enforcement {
        self.enforcement
    }

    #[inline(always)]
    pub(crate) fn meter(&self) -> &Meter {
        &self.meter
    }
}
