//! Envoy's rate limit request as JSON, the way the reference server takes it: `POST /json`.

use std::borrow::Cow;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Deserializer, Serialize};
use tollgate::{Cost, Decision, Micros, Outcome, Store};
use tollgate_config::envoy::{Charges, Descriptor, Domains, Effect, Hits, Match, Rate, Unit};

use super::problem::Problem;
use super::{App, body, json};

/// A `RateLimitRequest` in the JSON of protocol buffers, which has two spellings of every name.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Asked<'a> {
    #[serde(borrow, default)]
    domain: Cow<'a, str>,
    #[serde(borrow, default)]
    descriptors: Vec<AskedDescriptor<'a>>,
    #[serde(default, alias = "hits_addend", deserialize_with = "number")]
    hits_addend: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AskedDescriptor<'a> {
    #[serde(borrow, default)]
    entries: Vec<Entry<'a>>,
    limit: Option<AskedLimit<'a>>,
    // Zero only looks.
    #[serde(default, alias = "hits_addend", deserialize_with = "number")]
    hits_addend: Option<u64>,
    #[serde(default, alias = "is_negative_hits")]
    is_negative_hits: bool,
}

#[derive(Debug, Deserialize)]
struct Entry<'a> {
    #[serde(borrow, default)]
    key: Cow<'a, str>,
    #[serde(borrow, default)]
    value: Cow<'a, str>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AskedLimit<'a> {
    #[serde(default, alias = "requests_per_unit")]
    requests_per_unit: u32,
    #[serde(borrow)]
    unit: Cow<'a, str>,
}

/// A number, or a number as text: so 64 bits of it travel in this JSON.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Number<'a> {
        Number(u64),
        Text(#[serde(borrow)] Cow<'a, str>),
    }
    match Option::deserialize(deserializer)? {
        None => Ok(None),
        Some(Number::Number(number)) => Ok(Some(number)),
        Some(Number::Text(text)) => text.parse().map(Some).map_err(serde::de::Error::custom),
    }
}

/// A `RateLimitResponse` in the same JSON. What is zero or absent is left out, as there.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Told<'a> {
    overall_code: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    statuses: Vec<Status<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    current_limit: Option<ToldLimit<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit_remaining: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_until_reset: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ToldLimit<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    requests_per_unit: u32,
    unit: String,
}

const OK: &str = "OK";
const OVER_LIMIT: &str = "OVER_LIMIT";

impl<S: Store> App<S> {
    /// The answer to a request of Envoy's.
    pub(super) async fn answer_envoy(&self, request: Request) -> Response {
        self.try_envoy(request).await.unwrap_or_else(IntoResponse::into_response)
    }

    async fn try_envoy(&self, request: Request) -> Result<Response, Problem> {
        let Some(descriptors) = &self.descriptors else {
            let detail = "no limits for descriptors are loaded; start with --envoy-config FILE";
            return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
        };
        let bytes = body::read(request, self.body_limit).await?;
        let asked: Asked<'_> = serde_json::from_slice(&bytes).map_err(|error| {
            let shape = r#"{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"v"}]}]}"#;
            Problem::field("body", format!("{error}; accepted: {shape}"))
        })?;
        let domains = descriptors.domains();
        let charges = asked.resolve(&domains)?;
        let decision = match charges.is_refused() || charges.set.is_empty() {
            true => None,
            false => Some(self.decide_descriptors(&charges).await),
        };
        let allowed = match &decision {
            Some(decision) => decision.is_allowed(),
            None => !charges.is_refused(),
        };
        let told = Told {
            overall_code: if allowed { OK } else { OVER_LIMIT },
            statuses: charges.matches.iter().map(|one| status(one, decision.as_ref())).collect(),
        };
        let text = serde_json::to_vec(&told).expect("strings and numbers always serialize");
        let mut response = json(text);
        if !allowed {
            *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        }
        Ok(response)
    }
}

impl Asked<'_> {
    /// The charges that the descriptors come to.
    fn resolve(&self, domains: &Domains) -> Result<Charges, Problem> {
        if self.domain.is_empty() {
            return Err(Problem::field("domain", "missing; send the domain of a loaded file"));
        }
        if self.descriptors.is_empty() {
            let detail = r#"missing; send a list such as [{"entries":[{"key":"k","value":"v"}]}]"#;
            return Err(Problem::field("descriptors", detail));
        }
        let entries: Vec<Vec<(&str, &str)>> = (self.descriptors.iter())
            .map(|one| one.entries.iter().map(|entry| (&*entry.key, &*entry.value)).collect())
            .collect();
        let mut descriptors = Vec::with_capacity(entries.len());
        for (index, (asked, entries)) in self.descriptors.iter().zip(&entries).enumerate() {
            descriptors.push(Descriptor {
                entries,
                limit: asked.limit(index)?,
                hits: self.hits(asked, index)?,
            });
        }
        let resolved = domains.resolve(&self.domain, &descriptors);
        resolved.map_err(|error| Problem::field("descriptors", error))
    }

    fn hits(&self, asked: &AskedDescriptor<'_>, index: usize) -> Result<Hits, Problem> {
        if asked.is_negative_hits {
            let detail = "hits are given back by POST /v1/refund, which knows when they were taken";
            return Err(Problem::field(format!("descriptors[{index}].isNegativeHits"), detail));
        }
        let own =
            asked.hits_addend.map(|hits| Cost::new(hits).map_or(Hits::Peek(Cost::ONE), Hits::Take));
        let all = self.hits_addend.and_then(Cost::new).unwrap_or(Cost::ONE);
        Ok(own.unwrap_or(Hits::Take(all)))
    }
}

impl AskedDescriptor<'_> {
    fn limit(&self, index: usize) -> Result<Option<Rate>, Problem> {
        let Some(limit) = &self.limit else {
            return Ok(None);
        };
        let unit = Unit::of_name(&limit.unit.to_ascii_lowercase()).ok_or_else(|| {
            let detail = "one of SECOND, MINUTE, HOUR, DAY, WEEK, MONTH, YEAR";
            Problem::field(format!("descriptors[{index}].limit.unit"), detail)
        })?;
        Ok(Some(Rate { requests_per_unit: limit.requests_per_unit, unit }))
    }
}

fn status<'a>(found: &'a Match, decision: Option<&Decision>) -> Status<'a> {
    let limit = found.limit.as_deref();
    let outcome = match (found.effect, decision) {
        (Effect::Charge(index), Some(decision)) => decision.outcomes().get(index),
        _ => None,
    };
    let shadow = limit.is_some_and(|limit| limit.shadow_mode);
    let refused = outcome.is_some_and(|outcome| !outcome.verdict.is_allow());
    let over = found.effect == Effect::Refuse || (refused && !shadow);
    let reading = outcome.and_then(|outcome: &Outcome| outcome.reading);
    Status {
        code: if over { OVER_LIMIT } else { OK },
        current_limit: limit.and_then(|limit| {
            let rate = limit.rate?;
            let unit = rate.unit.name().to_ascii_uppercase();
            Some(ToldLimit { name: &limit.name, requests_per_unit: rate.requests_per_unit, unit })
        }),
        limit_remaining: reading
            .map(|reading| u32::try_from(reading.remaining).unwrap_or(u32::MAX)),
        duration_until_reset: reading.map(|reading| seconds(reading.reset)),
    }
}

/// A duration as this JSON has it, rounded up.
fn seconds(span: Micros) -> String {
    format!("{}s", span.as_secs_ceil())
}
