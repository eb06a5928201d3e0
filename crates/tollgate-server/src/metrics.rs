//! What a server counts, as Prometheus reads it.
//!
//! Labels are the operator's words (rules) or ours (verdicts, kinds), never a client's: a client could
//! invent as many as it likes.

use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use tollgate::{Decision, Fallback, StoreError};

use crate::reloads::Reloads;

/// The rule of charges that were made by hand.
pub(crate) const BY_HAND: &str = "ad-hoc";

/// The rule of charges that descriptors of Envoy's made.
pub(crate) const DESCRIPTORS: &str = "envoy";

/// The counters of one server.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    decisions: Family<Decided, Counter>,
    fallbacks: Family<FellBack, Counter>,
    store_errors: Family<Failed, Counter>,
    store_seconds: Histogram,
}

/// A rule's name, in which quotes and the like are escaped as Prometheus wants them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct RuleName(String);

impl RuleName {
    fn new(rule: &str) -> Self {
        match rule.contains(['\\', '"', '\n']) {
            false => Self(rule.to_owned()),
            true => Self(rule.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")),
        }
    }
}

impl EncodeLabelValue for RuleName {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        self.0.encode(encoder)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Decided {
    rule: RuleName,
    verdict: &'static str,
    provenance: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FellBack {
    rule: RuleName,
    fallback: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Failed {
    kind: &'static str,
}

impl Metrics {
    pub(crate) fn new(reloads: &Reloads) -> Self {
        let mut registry = Registry::with_prefix("tollgate");
        reloads.register(&mut registry);
        let decisions = Family::default();
        registry.register("decisions", "Charges decided, by rule", decisions.clone());
        let fallbacks = Family::default();
        registry.register("fallback", "Charges decided without the store", fallbacks.clone());
        let store_errors = Family::default();
        registry.register("store_errors", "Questions without an answer", store_errors.clone());
        // From 50 µs, a round trip on one machine, to 1.6 s, beyond any deadline.
        let store_seconds = Histogram::new(exponential_buckets(50e-6, 2.0, 16));
        let help = "How long the store took to decide";
        registry.register_with_unit("store", help, Unit::Seconds, store_seconds.clone());
        Self { registry, decisions, fallbacks, store_errors, store_seconds }
    }

    /// Counts a decision about `rules`, one for each outcome.
    pub(crate) fn count<'r>(&self, decision: &Decision, rules: impl Iterator<Item = &'r str>) {
        let provenance = decision.provenance().name();
        for (rule, outcome) in rules.zip(decision.outcomes()) {
            let verdict = outcome.verdict.name();
            let decided = Decided { rule: RuleName::new(rule), verdict, provenance };
            self.decisions.get_or_create(&decided).inc();
        }
    }

    /// Counts that the store gave no answer.
    pub(crate) fn count_error(&self, error: &StoreError) {
        self.store_errors.get_or_create(&Failed { kind: error.kind().name() }).inc();
    }

    /// Counts a charge that was decided without the store.
    pub(crate) fn count_fallback(&self, rule: &str, fallback: Fallback) {
        let fallback = match fallback {
            Fallback::Allow => "allow",
            Fallback::Deny => "deny",
            Fallback::Local => "local",
        };
        self.fallbacks.get_or_create(&FellBack { rule: RuleName::new(rule), fallback }).inc();
    }

    /// Counts how long the store took.
    pub(crate) fn time(&self, took: Duration) {
        self.store_seconds.observe(took.as_secs_f64());
    }

    /// All of it, as text.
    pub(crate) fn render(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("a string takes all that is written");
        text
    }
}
