//! The one conversion out: a decision as JSON and headers.

use std::borrow::Cow;

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use smallvec::SmallVec;
use tollgate::gate::Reason;
use tollgate::{
    Admission, ChargeSet, Decision, Enforcement, Meter, Outcome, Provenance, Reading, Retry,
};
use tollgate_tower::{Dialect, NamedMeter, render};

use super::question::{ByHand, Verb};
use super::{JSON, wire};

/// A decision, and what its outcomes are about.
pub(super) struct Answer<'a> {
    verb: Verb,
    decision: &'a Decision,
    // One of each for each outcome.
    meters: SmallVec<[Meter; 2]>,
    names: SmallVec<[&'a str; 2]>,
    binding: Option<&'a str>,
    reason: Option<&'static str>,
}

impl<'a> Answer<'a> {
    /// The answer about charges made by hand, called by their keys.
    pub(super) fn by_hand<'q: 'a>(
        verb: Verb,
        question: &ByHand<'q>,
        decision: &'a Decision,
    ) -> Self {
        Self {
            verb,
            decision,
            meters: question.set.charges().iter().map(|charge| charge.meter).collect(),
            names: question.names.iter().copied().collect(),
            binding: decision.binding().map(|index| question.names[index]),
            reason: None,
        }
    }

    /// The answer about rules, called by their names.
    pub(super) fn by_rules(verb: Verb, admission: &'a Admission) -> Self {
        Self {
            verb,
            decision: admission.decision(),
            meters: admission.charges().map(|(_, charge, _)| charge.meter).collect(),
            names: admission.outcomes().map(|(rule, _)| rule.name()).collect(),
            binding: admission.rule().map(|rule| rule.name()),
            reason: admission.reason().map(|reason| match reason {
                Reason::NoRule => "no-rule",
                Reason::Allowlisted(_) => "allowlisted",
                Reason::Denylisted(_) => "denylisted",
                Reason::MissingAxis { .. } => "missing-axis",
                _ => "policy",
            }),
        }
    }

    /// As JSON.
    fn json(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(192 * (1 + self.names.len()));
        serde_json::to_writer(&mut body, &self.mirror())
            .expect("strings and numbers always serialize into memory");
        body
    }

    /// As HTTP has it, with the limits in the headers of a `dialect`.
    pub(super) fn respond(&self, dialect: Dialect) -> Response {
        let mut response = Response::new(Body::from(self.json()));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
        let names = self.header_names();
        let policies: SmallVec<[NamedMeter<'_>; 2]> = (names.iter().zip(&self.meters))
            .map(|(name, meter)| NamedMeter { name, meter: *meter })
            .collect();
        headers.extend(render(self.decision, &policies, dialect));
        response
    }

    /// 200 when it was allowed, 429 when it was refused, 503 when it was refused only because the
    /// store could not be asked.
    fn status(&self) -> StatusCode {
        let unasked = |outcome: &Outcome| {
            !outcome.verdict.is_allow()
                && outcome.reading.is_none()
                && outcome.enforcement != Enforcement::Shadow
        };
        match self.decision.is_allowed() {
            true => StatusCode::OK,
            false if self.decision.provenance() != Provenance::Fallback => {
                StatusCode::TOO_MANY_REQUESTS
            }
            false => match self.decision.outcomes().iter().any(unasked) {
                true => StatusCode::SERVICE_UNAVAILABLE,
                false => StatusCode::TOO_MANY_REQUESTS,
            },
        }
    }

    /// What headers call each charge: headers tell policies apart by name alone, so where one name
    /// has several quotas the quota is part of it.
    fn header_names(&self) -> SmallVec<[Cow<'a, str>; 2]> {
        let names = &self.names;
        let name = |(index, name): (usize, &&'a str)| {
            let twice =
                (names.iter().enumerate()).any(|(other, same)| other != index && same == name);
            match twice {
                false => Cow::Borrowed(*name),
                true => format!("{name} {}", self.meters[index]).into(),
            }
        };
        names.iter().enumerate().map(name).collect()
    }

    fn mirror(&self) -> wire::Decision<'a> {
        let charges = self.names.iter().zip(&self.meters);
        let outcomes = charges.zip(self.decision.outcomes());
        wire::Decision {
            verdict: self.decision.verdict().name(),
            provenance: self.decision.provenance().name(),
            at_us: self.decision.at().as_micros(),
            binding: self.binding,
            reason: self.reason,
            outcomes: outcomes
                .map(|((name, meter), outcome)| {
                    mirror_outcome(name, meter.capacity(), outcome, self.verb)
                })
                .collect(),
        }
    }
}

/// A decision about `set`, whose charges are called by `names` one by one, in the JSON of the API.
pub fn decision_json(names: &[&str], set: &ChargeSet<'_>, decision: &Decision) -> String {
    let answer = Answer {
        verb: Verb::Take,
        decision,
        meters: set.charges().iter().map(|charge| charge.meter).collect(),
        names: names.iter().copied().collect(),
        binding: decision.binding().and_then(|index| names.get(index).copied()),
        reason: None,
    };
    String::from_utf8(answer.json()).expect("JSON is text")
}

fn mirror_outcome<'a>(
    rule: &'a str,
    limit: u64,
    outcome: &Outcome,
    verb: Verb,
) -> wire::Outcome<'a> {
    let read = |number: fn(Reading) -> u64| outcome.reading.map(number);
    wire::Outcome {
        rule,
        limit,
        remaining: read(|reading| reading.remaining),
        reset_ms: read(|reading| reading.reset.as_millis_ceil()),
        retry_ms: retry_ms(outcome.retry()),
        delay_ms: read(|reading| reading.delay.as_millis_ceil()),
        enforcement: match outcome.enforcement {
            Enforcement::Enforce => "enforce",
            Enforcement::Shadow => "shadow",
            Enforcement::AnyOf(_) => "any-of",
        },
        verdict: outcome.verdict.name(),
        returned: read(|reading| reading.units).filter(|_| verb == Verb::Refund),
    }
}

fn retry_ms(retry: Retry) -> Option<wire::Retry> {
    match retry {
        Retry::Now => None,
        Retry::After(wait) => Some(wire::Retry::After(wait.as_millis_ceil())),
        Retry::Never => Some(wire::Retry::Never(wire::Never::Never)),
    }
}
