//! The API's JSON, exactly as it travels. Nothing here decides; [`question`](super::question) and
//! [`answer`](super::answer) convert.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Error, IgnoredAny, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_path_to_error::Segment;
use tollgate::MAX_EXACT;

use super::object::Object;
use super::problem::Problem;

/// The body of take, peek and refund.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Body<'a> {
    #[serde(borrow)]
    pub(super) charges: Option<Vec<Object<Charge<'a>>>>,
    pub(super) subject: Option<IgnoredAny>,
    pub(super) cost: Option<IgnoredAny>,
    pub(super) at_us: Option<Whole>,
}

/// One charge made by hand.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Charge<'a> {
    #[serde(borrow)]
    pub(super) key: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) quota: Cow<'a, str>,
    // Not an option: `null` is not a way to leave it out.
    #[serde(borrow, default = "default_algorithm")]
    pub(super) algorithm: Cow<'a, str>,
    #[serde(default)]
    pub(super) cost: Whole,
}

fn default_algorithm() -> Cow<'static, str> {
    Cow::Borrowed("sliding-window")
}

impl<'a> Body<'a> {
    /// Reads a body, or says where it goes wrong.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, Problem> {
        match serde_json::from_slice::<Object<Self>>(bytes) {
            Ok(Object(body)) => Ok(body),
            Err(error) => Err(Self::explain(bytes, &error)),
        }
    }

    /// Reads once more, this time keeping track of where, which only those who err should pay for.
    #[cold]
    fn explain(bytes: &[u8], error: &serde_json::Error) -> Problem {
        const SHAPE: &str = r#"accepted: {"charges":[{"key":"user:42","quota":"100/min","algorithm":"token-bucket","cost":1}]}"#;
        let mut json = serde_json::Deserializer::from_slice(bytes);
        let field = match serde_path_to_error::deserialize::<_, Object<Body<'_>>>(&mut json) {
            // Where the text itself breaks off there is no field to speak of.
            Err(error) if error.path().iter().any(|part| !matches!(part, Segment::Unknown)) => {
                error.path().to_string()
            }
            _ => "body".to_owned(),
        };
        let kind = if error.is_data() { "" } else { "not JSON: " };
        Problem::field(field, format!("{kind}{error}; {SHAPE}"))
    }
}

/// A whole number from 1 to 2^53 − 1: larger ones lose digits on their way through JSON.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whole(u64);

impl Whole {
    pub(super) fn get(self) -> u64 {
        self.0
    }
}

impl Default for Whole {
    fn default() -> Self {
        Self(1)
    }
}

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_u64(WholeVisitor)
    }
}

struct WholeVisitor;

impl Visitor<'_> for WholeVisitor {
    type Value = Whole;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from 1 to {MAX_EXACT}")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Whole, E> {
        match number {
            1..=MAX_EXACT => Ok(Whole(number)),
            _ => Err(E::invalid_value(Unexpected::Unsigned(number), &self)),
        }
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Whole, E> {
        Err(E::invalid_value(Unexpected::Signed(number), &self))
    }
}

/// The answer to take, peek and refund.
#[derive(Debug, Serialize)]
pub(super) struct Decision<'a> {
    pub(super) verdict: &'static str,
    pub(super) provenance: &'static str,
    pub(super) at_us: u64,
    pub(super) binding: Option<&'a str>,
    pub(super) outcomes: Vec<Outcome<'a>>,
}

/// What happened to one charge. Numbers are `null` when whoever decided had none.
#[derive(Debug, Serialize)]
pub(super) struct Outcome<'a> {
    pub(super) rule: &'a str,
    pub(super) limit: u64,
    pub(super) remaining: Option<u64>,
    pub(super) reset_ms: Option<u64>,
    pub(super) retry_ms: Option<Retry>,
    pub(super) delay_ms: Option<u64>,
    pub(super) enforcement: &'static str,
    pub(super) verdict: &'static str,
    // Only a refund gives something back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) returned: Option<u64>,
}

/// When to try again.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Retry {
    After(u64),
    Never(Never),
}

/// The word for "waiting does not help".
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Never {
    Never,
}
