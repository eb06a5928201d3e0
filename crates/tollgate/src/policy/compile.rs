//! From a policy as written to one that can be asked, or to everything that is wrong with it.

use std::collections::{BTreeSet, HashMap};

use super::bound::most_charges;
use super::builder::PolicyBuilder;
use super::compiled::{Compiled, Exception, Plain, Test};
use super::error::{Place, PolicyError, PolicyErrors, Problem};
use super::facts::Names;
use super::index::Index;
use super::list::{Entry, Listing, Matcher};
use super::quotas::Quotas;
use super::rule::{Condition, Override, Rule, Tiers};
use super::table::{Meters, Table, TierTable, strictest};
use super::{MAX_MARGIN, MAX_NAME, Policy};
use crate::charge::{ChargeSet, Enforcement};
use crate::key::Stem;
use crate::meter::Meter;

/// The tier of those whose own is not in the table.
const DEFAULT_TIER: &str = "default";

/// Checks and numbers everything.
pub(super) fn compile(draft: PolicyBuilder) -> Result<Policy, PolicyErrors> {
    let axes = Names::new(axes_of(&draft));
    let units = Names::new(draft.rules.iter().map(Rule::counted_unit));
    let mut errors = Vec::new();
    let mut compiler = Compiler { axes: &axes, units: &units, errors: &mut errors };
    let rules = compiler.rules(&draft);
    let allow = compiler.list(&draft.allow, |index| Place::Allow { index });
    let deny = compiler.list(&draft.deny, |index| Place::Deny { index });
    // Of rules with errors nobody knows what they would have charged.
    if let Some(rules) = &rules {
        compiler.bound(rules);
    }
    PolicyErrors::check(errors)?;
    let mut rules = rules.unwrap_or_default();
    rules.iter_mut().for_each(Compiled::file_overrides);
    let has_lists = !allow.is_empty() || !deny.is_empty();
    Ok(Policy {
        version: draft.version,
        plain: Plain::new(&rules).filter(|_| !has_lists),
        all_critical: rules.iter().all(|compiled| compiled.rule.is_critical()),
        index: Index::new(rules.iter().map(|rule| &*rule.conditions)),
        rules,
        axes,
        units,
        allow,
        deny,
        digester: draft.digester,
    })
}

fn axes_of(draft: &PolicyBuilder) -> impl Iterator<Item = &str> {
    let of_rules = draft.rules.iter().flat_map(|rule| {
        let tier = rule.tiers.iter().map(|tiers| tiers.axis.as_str());
        let conditions = rule.conditions().map(|(axis, _)| axis);
        conditions.chain(rule.axes()).chain(tier)
    });
    let overrides = draft.overrides.iter().flat_map(|known| &known.conditions);
    let lists = draft.allow.iter().chain(&draft.deny).map(Entry::axis);
    of_rules.chain(overrides.map(|condition| condition.axis.as_str())).chain(lists)
}

/// Collects errors while it works.
struct Compiler<'a> {
    axes: &'a Names,
    units: &'a Names,
    errors: &'a mut Vec<PolicyError>,
}

/// Where in a policy the compiler is, and what it needs to know there of the rule.
struct Site<'a> {
    place: Place,
    rule: &'a Rule,
}

impl Compiler<'_> {
    fn report(&mut self, place: &Place, field: &'static str, problem: Problem) {
        self.errors.push(PolicyError { place: place.clone(), field, problem });
    }

    /// The rules with their overrides; `None` if any has an error.
    fn rules(&mut self, draft: &PolicyBuilder) -> Option<Vec<Compiled>> {
        let mut numbers = HashMap::new();
        let mut rules = Vec::with_capacity(draft.rules.len());
        for (index, rule) in draft.rules.iter().enumerate() {
            let name = rule.name().to_owned();
            let place = Place::Rule { index, name };
            let first = *numbers.entry(rule.name()).or_insert(index);
            if first != index {
                self.report(&place, "name", Problem::DuplicateRule { first });
            }
            rules.push(self.rule(&Site { place, rule }));
        }
        for (index, exception) in draft.overrides.iter().enumerate() {
            let rule = exception.rule.clone();
            let place = Place::Override { index, rule };
            let Some(&number) = numbers.get(exception.rule.as_str()) else {
                let known = draft.rules.iter().map(|rule| rule.name().to_owned());
                let known = known.collect();
                self.report(&place, "rule", Problem::UnknownRule { known });
                continue;
            };
            let rule = &draft.rules[number];
            let compiled = self.exception(&Site { place, rule }, index, exception);
            if let (Some(rule), Some(compiled)) = (&mut rules[number], compiled) {
                rule.overrides.push(compiled);
            }
        }
        rules.into_iter().collect()
    }

    /// An override of a rule; `None` if its quotas are wrong.
    fn exception(
        &mut self,
        site: &Site<'_>,
        index: usize,
        exception: &Override,
    ) -> Option<Exception> {
        if exception.conditions.is_empty() {
            self.report(&site.place, "when", Problem::Unconditional);
        }
        Some(Exception {
            index,
            conditions: self.conditions(&site.place, &exception.conditions),
            meters: self.meters(site, &exception.quota)?,
        })
    }

    /// A rule without its overrides; `None` if its quotas are wrong.
    fn rule(&mut self, site: &Site<'_>) -> Option<Compiled> {
        let Site { place, rule } = site;
        self.name(place, "name", rule.name());
        self.name(place, "unit", rule.counted_unit());
        if rule.safety_margin() > MAX_MARGIN {
            let found = rule.safety_margin();
            self.report(place, "margin", Problem::Margin { found });
        }
        let mut seen = BTreeSet::new();
        for axis in rule.axes() {
            self.name(place, "by", axis);
            if !seen.insert(axis) {
                let axis = axis.to_owned();
                self.report(place, "by", Problem::DuplicateAxis { axis });
            }
        }
        if let Some(axis) = rule.colocated_by()
            && !seen.contains(axis)
        {
            let axis = axis.to_owned();
            self.report(place, "colocate", Problem::ForeignColocation { axis });
        }
        let conditions = self.conditions(place, &rule.conditions);
        let table = self.table(site)?;
        Some(Compiled {
            conditions,
            axes: rule.axes().filter_map(|axis| self.axes.find(axis)).collect(),
            stem: Stem::new(rule.name(), rule.axes(), rule.colocated_by()),
            unit: self.units.find(rule.counted_unit())?,
            table,
            overrides: Vec::new(),
            filed: Index::default(),
            rule: (*rule).clone(),
        })
    }

    fn name(&mut self, place: &Place, field: &'static str, name: &str) {
        let what = match field {
            "name" | "unit" => field,
            "by" => "axis in \"by\"",
            "when" => "axis in \"when\"",
            "tier" => "axis of the tiers",
            _ => "axis",
        };
        let problem = match name {
            "" => Problem::EmptyName { what },
            name if name.len() > MAX_NAME => Problem::LongName { what },
            name if name.chars().any(char::is_control) => Problem::ControlInName { what },
            _ => return,
        };
        self.report(place, field, problem);
    }

    fn conditions(&mut self, place: &Place, conditions: &[Condition]) -> Vec<Test> {
        let mut tests = Vec::with_capacity(conditions.len());
        for Condition { axis, pattern } in conditions {
            self.name(place, "when", axis);
            match (pattern.parse(), self.axes.find(axis)) {
                (Ok(glob), Some(axis)) => tests.push(Test { axis, glob }),
                (Err(error), _) => {
                    let axis = axis.clone();
                    self.report(place, "when", Problem::Glob { axis, error });
                }
                (Ok(_), None) => unreachable!("every axis of a condition was numbered"),
            }
        }
        tests
    }

    fn table(&mut self, site: &Site<'_>) -> Option<Table> {
        let quota = site.rule.quota.as_ref();
        let own = quota.map(|quota| self.meters(site, quota));
        let Some(tiers) = &site.rule.tiers else {
            if own.is_none() {
                self.report(&site.place, "quota", Problem::NoQuota);
            }
            let others = own??;
            return Some(Table { others, tiers: None });
        };
        let named = self.tiers(site, tiers)?;
        let default = named.iter().find(|(name, _)| **name == *DEFAULT_TIER);
        let others = match (own, default) {
            (Some(_), Some(_)) => {
                self.report(&site.place, "quota", Problem::DefaultTwice);
                return None;
            }
            (Some(own), None) => own?,
            (None, Some((_, meters))) => meters.clone(),
            (None, None) => strictest(named.iter().map(|(_, meters)| meters))?.clone(),
        };
        let axis = self.axes.find(&tiers.axis)?;
        Some(Table { others, tiers: Some(TierTable::new(axis, named)) })
    }

    /// The tiers in the order they were written; `None` if any is wrong or there are none.
    fn tiers(&mut self, site: &Site<'_>, tiers: &Tiers) -> Option<Vec<(Box<str>, Meters)>> {
        self.name(&site.place, "tier", &tiers.axis);
        if tiers.named.is_empty() {
            self.report(&site.place, "quota", Problem::NoTiers);
            return None;
        }
        let mut seen = BTreeSet::new();
        for (name, _) in &tiers.named {
            if !seen.insert(name) {
                let tier = name.clone();
                self.report(&site.place, "quota", Problem::DuplicateTier { tier });
            }
        }
        // All of them before giving up, so that all errors are seen.
        let named = tiers.named.iter();
        let named: Vec<_> =
            named.map(|(name, quota)| (name.as_str().into(), self.meters(site, quota))).collect();
        let complete = |(name, meters): (_, Option<_>)| Some((name, meters?));
        named.into_iter().map(complete).collect()
    }

    /// Quotas lowered by the rule's margin and metered by its algorithm; `None` if any is wrong.
    fn meters(&mut self, site: &Site<'_>, quotas: &Quotas) -> Option<Meters> {
        let problem = match self.metered(site.rule, quotas) {
            Ok(meters) => return Some(meters),
            Err(problem) => problem,
        };
        self.report(&site.place, "quota", problem);
        None
    }

    fn metered(&self, rule: &Rule, quotas: &Quotas) -> Result<Meters, Problem> {
        let quotas = quotas.parsed().map_err(|e| Problem::Quota(e.clone()))?;
        if quotas.is_empty() {
            return Err(Problem::NoQuota);
        }
        if quotas.len() > 1 && matches!(rule.enforcement(), Enforcement::AnyOf(_)) {
            return Err(Problem::GroupWithSeveralQuotas);
        }
        let mut meters = Meters::new();
        for quota in quotas {
            let period = quota.period();
            if meters.iter().any(|meter| meter.period() == period) {
                return Err(Problem::SamePeriod { period });
            }
            // The quota as written must fit, so that an error speaks of what was written.
            Meter::new(*quota, rule.metered_by()).map_err(Problem::Meter)?;
            let lowered = quota.lowered_by(rule.safety_margin());
            meters.push(Meter::new(lowered, rule.metered_by()).map_err(Problem::Meter)?);
        }
        Ok(meters)
    }

    fn list(&mut self, entries: &[Entry], place: impl Fn(usize) -> Place) -> Vec<Listing> {
        let mut list = Vec::with_capacity(entries.len());
        for (index, entry) in entries.iter().enumerate() {
            let place = place(index);
            self.name(&place, "axis", entry.axis());
            let name = entry.axis().to_owned();
            let matcher = match entry {
                Entry::Value { pattern, .. } => match pattern.parse() {
                    Ok(glob) => Ok(Matcher::Value(glob)),
                    Err(error) => Err(Problem::Glob { axis: name, error }),
                },
                Entry::Network { network, .. } => match network.parse() {
                    Ok(network) => Ok(Matcher::Network(network)),
                    Err(error) => Err(Problem::Network { axis: name, error }),
                },
            };
            match (matcher, self.axes.find(entry.axis())) {
                (Ok(matcher), Some(axis)) => {
                    list.push(Listing { axis, name: entry.axis().into(), matcher });
                }
                (Err(problem), _) => self.report(&place, "value", problem),
                (Ok(_), None) => unreachable!("every axis of a list was numbered"),
            }
        }
        list
    }

    /// No subject may meet more quotas than one set holds.
    fn bound(&mut self, rules: &[Compiled]) {
        let most = most_charges(rules, self.axes.iter().len());
        if most > ChargeSet::MAX {
            self.report(&Place::Policy, "rule", Problem::TooManyCharges { most });
        }
    }
}
