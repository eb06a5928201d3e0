//! The one conversion out: a decision as JSON and headers.

use std::borrow::Cow;

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use smallvec::SmallVec;
use tollgate::{Decision, Enforcement, Outcome, Reading, Retry};
use tollgate_tower::{Dialect, Policy, render};

use super::question::{Question, Verb};
use super::{JSON, wire};

/// The answer to `question`: 200 when it was allowed, 429 when it was refused.
pub(super) fn respond(question: &Question<'_>, decision: &Decision, dialect: Dialect) -> Response {
    let mut body = Vec::with_capacity(192 * (1 + decision.outcomes().len()));
    serde_json::to_writer(&mut body, &mirror(question, decision))
        .expect("strings and numbers always serialize into memory");
    let mut response = Response::new(Body::from(body));
    if !decision.is_allowed() {
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    }
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    let names = header_names(question);
    let policies: SmallVec<[Policy<'_>; 1]> = (names.iter().zip(question.set.charges()))
        .map(|(name, charge)| Policy { name, meter: charge.meter })
        .collect();
    headers.extend(render(decision, &policies, dialect));
    response
}

/// What headers call each charge: headers tell policies apart by name alone, so where one key has
/// several quotas the quota is part of the name.
fn header_names<'a>(question: &Question<'a>) -> SmallVec<[Cow<'a, str>; 1]> {
    let names = &question.names;
    let name = |(index, name): (usize, &&'a str)| {
        let twice = (names.iter().enumerate()).any(|(other, same)| other != index && same == name);
        match twice {
            false => Cow::Borrowed(*name),
            true => format!("{name} {}", question.set.charges()[index].meter).into(),
        }
    };
    names.iter().enumerate().map(name).collect()
}

fn mirror<'a>(question: &Question<'a>, decision: &Decision) -> wire::Decision<'a> {
    let charges = question.names.iter().zip(question.set.charges());
    let outcomes = charges.zip(decision.outcomes());
    wire::Decision {
        verdict: decision.verdict().name(),
        provenance: decision.provenance().name(),
        at_us: decision.at().as_micros(),
        binding: decision.binding().map(|index| question.names[index]),
        outcomes: outcomes
            .map(|((name, charge), outcome)| {
                mirror_outcome(name, charge.meter.capacity(), outcome, question.verb)
            })
            .collect(),
    }
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
