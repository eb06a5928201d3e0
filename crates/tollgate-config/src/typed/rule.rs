//! Rules and overrides as typed.

use std::time::Duration;

use schemars::JsonSchema;
use tollgate::{Algorithm, Fallback, Missing};

use crate::fields::{self, Fields};
use crate::report::Problems;
use crate::schema;
use crate::settings::Consistency;
use crate::source::{Span, Spanned};
use crate::tree::{Node, Value};

/// One limit.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Rule {
    /// Its name. It is part of every key: renaming a rule starts it fresh.
    #[schemars(with = "String", length(min = 1, max = 128))]
    pub(crate) name: Option<Spanned<String>>,
    /// Conditions, all of which must hold: an axis and a pattern with * and ?.
    #[schemars(schema_with = "schema::conditions")]
    pub(crate) when: Vec<Condition>,
    /// The axes it tells subjects apart by: a bucket per combination of their values. Without any
    /// there is one bucket for all.
    #[schemars(schema_with = "schema::texts")]
    pub(crate) by: Vec<Spanned<String>>,
    /// How much each bucket allows: LIMIT/PERIOD [burst N], several joined by ";". With a tier: a
    /// table of quotas by the tier's name.
    #[schemars(with = "Quota")]
    pub(crate) quota: Option<Quota>,
    /// The axis whose value names the tier.
    pub(crate) tier: Option<Spanned<String>>,
    /// How quotas are metered: sliding-window unless told otherwise.
    #[schemars(schema_with = "schema::algorithm")]
    pub(crate) algorithm: Option<Spanned<Algorithm>>,
    /// What it counts: requests unless told otherwise, or tokens, cents, … as callers say.
    pub(crate) unit: Option<Spanned<String>>,
    /// Where the clocks of calendar windows hang, such as Europe/Berlin: UTC unless told otherwise.
    pub(crate) timezone: Option<Spanned<String>>,
    /// The day of the month that calendar months begin on: 1 unless told otherwise, and the last day
    /// of months that have no such day.
    #[schemars(range(min = 1, max = 31))]
    pub(crate) starts_on: Option<Spanned<u64>>,
    /// Only watch: evaluated and counted like any other, but never refusing.
    pub(crate) shadow: Option<Spanned<bool>>,
    /// Rules with the same number refuse only together: one that has room is enough.
    #[schemars(range(max = 255))]
    pub(crate) any_of: Option<Spanned<u64>>,
    /// What it does with a subject that lacks one of its axes: skip unless told otherwise.
    #[schemars(schema_with = "schema::missing")]
    pub(crate) missing: Option<Spanned<Missing>>,
    /// What it does when the store cannot be asked: local unless told otherwise.
    #[schemars(schema_with = "schema::fallback")]
    pub(crate) on_store_failure: Option<Spanned<Fallback>>,
    /// Per cent it stays below every one of its quotas: 0 unless told otherwise.
    #[schemars(range(max = 99))]
    pub(crate) margin: Option<Spanned<u64>>,
    /// Keep values out of keys: they hold digests instead.
    pub(crate) hash: Option<Spanned<bool>>,
    /// Whether every decision asks the store (strict), or slices of the quota are spent in process
    /// (leased): strict unless told otherwise.
    #[schemars(schema_with = "schema::consistency")]
    pub(crate) consistency: Option<Spanned<Consistency>>,
    /// Of a leased rule: per cent of the limit that may be granted beyond it at worst. 10 unless told
    /// otherwise.
    #[schemars(range(min = 1, max = 100))]
    pub(crate) overshoot: Option<Spanned<u64>>,
    /// The axis by whose value buckets are kept on one node of a Redis Cluster, so that rules that
    /// share it are decided in one step.
    pub(crate) colocate: Option<Spanned<String>>,
    /// Hold a request up to this long instead of refusing it.
    #[schemars(schema_with = "schema::duration")]
    pub(crate) wait: Option<Spanned<Duration>>,
    /// Whether a request waits for this rule's decision: true unless told otherwise. A rule that is
    /// not critical counts, and refuses nobody.
    pub(crate) critical: Option<Spanned<bool>>,
    /// Where the rule starts.
    #[schemars(skip)]
    pub(crate) span: Span,
}

/// An axis and a pattern.
#[derive(Debug)]
pub(crate) struct Condition {
    pub(crate) axis: Spanned<String>,
    pub(crate) pattern: Spanned<String>,
}

/// Quotas: one text, or a text per tier.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(crate) enum Quota {
    /// For everybody.
    Same(#[schemars(schema_with = "schema::quota")] Spanned<String>),
    /// By tier.
    ByTier(#[schemars(schema_with = "schema::tiers")] Tiers),
}

/// A table of quotas.
#[derive(Debug)]
pub(crate) struct Tiers {
    pub(crate) named: Vec<(Spanned<String>, Spanned<String>)>,
    pub(crate) span: Span,
}

/// Another quota for some subjects of a rule.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Override {
    /// The rule's name.
    #[schemars(with = "String")]
    pub(crate) rule: Option<Spanned<String>>,
    /// Whom it is for: an axis and a pattern with * and ?.
    #[schemars(schema_with = "schema::conditions")]
    pub(crate) when: Vec<Condition>,
    /// What they get instead.
    #[schemars(schema_with = "schema::quota")]
    pub(crate) quota: Option<Spanned<String>>,
    /// Where the override starts.
    #[schemars(skip)]
    pub(crate) span: Span,
}

impl Rule {
    pub(super) fn read(node: &Node, problems: &mut Problems) -> Self {
        let mut fields = Fields::of(node, "a rule", problems);
        let rule = Self {
            span: node.span,
            name: fields.read("name", problems, fields::text),
            when: fields.read("when", problems, conditions).unwrap_or_default(),
            by: fields.read("by", problems, fields::texts).unwrap_or_default(),
            quota: fields.read("quota", problems, Quota::read),
            tier: fields.read("tier", problems, fields::text),
            algorithm: fields.read("algorithm", problems, fields::choice(&schema::ALGORITHMS)),
            unit: fields.read("unit", problems, fields::text),
            timezone: fields.read("timezone", problems, fields::text),
            starts_on: fields.read("starts_on", problems, fields::whole(1..=31)),
            shadow: fields.read("shadow", problems, fields::flag),
            any_of: fields.read("any_of", problems, fields::whole(0..=255)),
            missing: fields.read("missing", problems, fields::choice(&schema::MISSING)),
            on_store_failure: fields.read(
                "on_store_failure",
                problems,
                fields::choice(&schema::FALLBACKS),
            ),
            margin: fields.read("margin", problems, fields::whole(0..=99)),
            hash: fields.read("hash", problems, fields::flag),
            consistency: fields.read("consistency", problems, fields::choice(&Consistency::NAMED)),
            overshoot: fields.read("overshoot", problems, fields::whole(1..=100)),
            colocate: fields.read("colocate", problems, fields::text),
            wait: fields.read("wait", problems, fields::duration),
            critical: fields.read("critical", problems, fields::flag),
        };
        if fields.lacks("name") {
            let help = "write name = \"per-ip\" or the like; keys and headers show it";
            problems.error(node.span, "a rule has no name", help);
        }
        if fields.lacks("quota") {
            let help = "write quota = \"100/min\" or the like";
            problems.error(span_of(&rule), "a rule has no quota", help);
        }
        fields.finish(problems);
        rule
    }
}

/// Where to point for what a rule lacks.
fn span_of(rule: &Rule) -> Span {
    fields::span_of(rule.name.as_ref(), rule.span)
}

fn conditions(node: &Node, name: &str, problems: &mut Problems) -> Option<Vec<Condition>> {
    let pairs = fields::pairs(node, name, problems)?;
    Some(pairs.into_iter().map(|(axis, pattern)| Condition { axis, pattern }).collect())
}

impl Quota {
    fn read(node: &Node, name: &str, problems: &mut Problems) -> Option<Self> {
        match &node.value {
            Value::Table(entries) => {
                for entry in entries.iter().filter(|entry| is_blank(&entry.node)) {
                    let message = format!("tier {:?} has no quota", fields::shortened(&entry.key));
                    let help = format!("write {} = \"100/day\" or the like", entry.key);
                    problems.error(entry.key_span, message, help);
                }
                let pairs = fields::pairs(node, name, problems)?.into_iter();
                let named = pairs.filter(|(_, quota)| !quota.value.trim().is_empty()).collect();
                Some(Self::ByTier(Tiers { named, span: node.span }))
            }
            _ => fields::text(node, name, problems).map(Self::Same),
        }
    }
}

/// Whether there is nothing to read.
fn is_blank(node: &Node) -> bool {
    match &node.value {
        Value::Text(text) | Value::Plain(text) => text.trim().is_empty(),
        value => *value == Value::Nothing,
    }
}

impl Override {
    pub(super) fn read(node: &Node, problems: &mut Problems) -> Self {
        let mut fields = Fields::of(node, "an override", problems);
        let exception = Self {
            span: node.span,
            rule: fields.read("rule", problems, fields::text),
            when: fields.read("when", problems, conditions).unwrap_or_default(),
            quota: fields.read("quota", problems, fields::text),
        };
        for (name, help) in [
            ("rule", "write rule = and the name of the rule it is about"),
            ("when", "write whom it is for: when = { tenant = \"acme\" }"),
            ("quota", "write what they get instead: quota = \"500/min\""),
        ] {
            if fields.lacks(name) {
                problems.error(node.span, format!("an override has no {name:?}"), help);
            }
        }
        fields.finish(problems);
        exception
    }
}
