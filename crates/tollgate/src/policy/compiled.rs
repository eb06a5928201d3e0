//! A rule in the policy's numbering, ready to be asked.

use super::explain::Source;
use super::facts::Facts;
use super::glob::Glob;
use super::index::{Found, Index};
use super::resolution::Charges;
use super::rule::{Missing, Rule};
use super::table::{Meters, Table};
use crate::charge::{Charge, Cost, Enforcement, Op};
use crate::digest::Digester;
use crate::key::{Key, KeyPart, Stem};

mod plain;

pub(crate) use plain::Plain;

/// Values longer than this stand in keys as digests, so that nobody can send long keys to a store.
const LONGEST_PLAIN_VALUE: usize = 128;

fn is_short(value: &str) -> bool {
    value.len() <= LONGEST_PLAIN_VALUE
}

/// A rule that was checked.
#[derive(Clone, Debug)]
pub(super) struct Compiled {
    /// As the operator wrote it.
    pub(super) rule: Rule,
    pub(super) conditions: Vec<Test>,
    /// By the numbers the policy gave them.
    pub(super) axes: Vec<usize>,
    /// What all its keys have in common.
    pub(super) stem: Stem,
    pub(super) unit: usize,
    pub(super) table: Table,
    /// In the order they were written; the first that matches counts.
    pub(super) overrides: Vec<Exception>,
    /// Which of the overrides to look at, for there may be one per customer.
    pub(super) filed: Index,
}

/// A condition.
#[derive(Clone, Debug)]
pub(super) struct Test {
    pub(super) axis: usize,
    pub(super) glob: Glob,
}

/// An override.
#[derive(Clone, Debug)]
pub(super) struct Exception {
    /// Its place among all overrides of the policy.
    pub(super) index: usize,
    pub(super) conditions: Vec<Test>,
    pub(super) meters: Meters,
}

/// Whether a rule applies to a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// It does, at this cost.
    Applies(Cost),
    /// The request costs nothing in its unit.
    NoCost,
    /// This one of its conditions does not hold.
    Condition(usize),
    /// This one of its axes is missing, and it is one to skip then.
    Skips(usize),
    /// This one of its axes is missing, and it is one to refuse then.
    Denies(usize),
}

impl Test {
    #[inline]
    fn holds(&self, facts: &Facts<'_>) -> bool {
        let value = facts.value(self.axis);
        value.is_some_and(|value| self.glob.matches(value))
    }
}

impl Compiled {
    /// Whether it applies, and if not, the first reason why.
    #[inline]
    pub(super) fn reach(&self, facts: &Facts<'_>) -> Reach {
        let Some(cost) = facts.cost(self.unit) else {
            return Reach::NoCost;
        };
        if let Some(index) = self.conditions.iter().position(|test| !test.holds(facts)) {
            return Reach::Condition(index);
        }
        let missing = |axis: &usize| facts.value(*axis).is_none();
        match (self.axes.iter().position(missing), self.rule.when_missing()) {
            (None, _) | (Some(_), Missing::Share) => Reach::Applies(cost),
            (Some(axis), Missing::Deny) if self.rule.enforcement() != Enforcement::Shadow => {
                Reach::Denies(axis)
            }
            (Some(axis), Missing::Skip | Missing::Deny) => Reach::Skips(axis),
        }
    }

    /// Adds the charges it makes for a subject, as the rule of this number, and says where their quotas
    /// come from.
    #[inline]
    pub(super) fn charge(
        &self,
        facts: &Facts<'_>,
        digester: &Digester,
        op: Op,
        (charges, number): (&mut Charges, u32),
    ) -> Source<'_> {
        let (meters, source) = self.meters(facts);
        let enforcement = self.rule.enforcement();
        for meter in meters {
            let key = self.stem.start();
            let charge = Charge { key, meter: *meter, op, enforcement };
            // Spelled where it lies: what was just written is slow to move.
            if let Some(charge) = charges.push(charge, number) {
                self.finish(&mut charge.key, facts, digester);
            }
        }
        source
    }

    /// The meters it has for a subject.
    #[inline]
    fn meters(&self, facts: &Facts<'_>) -> (&Meters, Source<'_>) {
        if !self.overrides.is_empty()
            && let Some(exception) = self.exception(facts)
        {
            return (&exception.meters, Source::Override(exception.index));
        }
        match self.table.pick(facts) {
            (meters, Some(tier)) => (meters, Source::Tier(tier)),
            (meters, None) => (meters, Source::Rule),
        }
    }

    /// The override that a subject meets.
    fn exception(&self, facts: &Facts<'_>) -> Option<&Exception> {
        let holds = |exception: &&Exception| exception.conditions.iter().all(|t| t.holds(facts));
        let mut found = Found::new();
        let candidates = self.filed.candidates(facts, &mut found);
        let mut overrides = candidates.map(|place| &self.overrides[place]);
        overrides.find(holds)
    }

    /// Adds the values of a subject to the start of its bucket's key.
    #[inline]
    fn finish(&self, key: &mut Key<'static>, facts: &Facts<'_>, digester: &Digester) {
        for (place, axis) in self.axes.iter().enumerate() {
            match facts.value(*axis) {
                None => self.stem.add(key, place, KeyPart::Missing),
                Some(value) if self.rule.is_hashed() || !is_short(value) => {
                    self.stem.add(key, place, KeyPart::Hashed(digester.digest(value)));
                }
                Some(value) => self.stem.add(key, place, KeyPart::Plain(value)),
            }
        }
    }

    /// Files the overrides, once all are there.
    pub(super) fn file_overrides(&mut self) {
        self.filed = Index::new(self.overrides.iter().map(|exception| &*exception.conditions));
    }

    /// The most charges it makes for one subject.
    pub(super) fn width(&self) -> usize {
        let overrides = self.overrides.iter().map(|exception| exception.meters.len());
        overrides.max().unwrap_or(0).max(self.table.width())
    }
}
