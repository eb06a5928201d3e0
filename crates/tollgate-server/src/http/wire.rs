//! The API's JSON, exactly as it travels. Nothing here decides; [`question`](super::question) and
//! [`answer`](super::answer) convert.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::net::IpAddr;

use serde::de::{Error, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_path_to_error::Segment;
use tollgate::MAX_EXACT;

use super::object::Object;
use super::problem::Problem;

/// The axis that holds the address of whoever asks.
const ADDRESS_AXIS: &str = "ip";

/// The most axes of a subject and units of a cost: far more than any policy names.
const MAX_PAIRS: usize = 64;

/// The body of take, peek, refund and reset.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Body<'a> {
    #[serde(borrow)]
    pub(super) charges: Option<Vec<Object<Charge<'a>>>>,
    #[serde(borrow)]
    pub(super) rule: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) subject: Option<Pairs<'a, Cow<'a, str>>>,
    #[serde(borrow)]
    pub(super) cost: Option<Costs<'a>>,
    pub(super) at_us: Option<Whole>,
}

/// An object with names nobody knows beforehand, each at most once.
#[derive(Debug)]
pub(super) struct Pairs<'a, V>(pub(super) Vec<(Cow<'a, str>, V)>);

/// What a request costs.
#[derive(Debug)]
pub(super) enum Costs<'a> {
    /// So many requests.
    Requests(Whole),
    /// So much of each unit.
    Units(Pairs<'a, Whole>),
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
            Ok(Object(body)) => Ok(body.with_plain_addresses()),
            Err(error) => Err(Self::explain(bytes, &error)),
        }
    }

    /// One spelling for every address: nobody gets a second bucket by writing theirs otherwise.
    fn with_plain_addresses(mut self) -> Self {
        for (axis, value) in self.subject.iter_mut().flat_map(|subject| &mut subject.0) {
            if axis == ADDRESS_AXIS
                && let Ok(address) = value.parse::<IpAddr>()
            {
                *value = address.to_canonical().to_string().into();
            }
        }
        self
    }

    /// Reads once more, this time keeping track of where, which only those who err should pay for.
    #[cold]
    fn explain(bytes: &[u8], error: &serde_json::Error) -> Problem {
        const SHAPE: &str = r#"accepted: {"charges":[{"key":"user:42","quota":"100/min","algorithm":"token-bucket","cost":1}]} or {"subject":{"user":"42"},"cost":1}"#;
        let mut json = serde_json::Deserializer::from_slice(bytes);
        let field = match serde_path_to_error::deserialize::<_, Object<Body<'_>>>(&mut json) {
            // Where the text itself breaks off there is no field to speak of.
            Err(error) if error.path().iter().any(|part| !matches!(part, Segment::Unknown)) => {
                // Names nobody knows beforehand are not kept track of.
                error.path().to_string().trim_end_matches(".?").to_owned()
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

impl<'de: 'a, 'a, V: Deserialize<'de>> Deserialize<'de> for Pairs<'a, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(PairsVisitor("an object of names and values", PhantomData))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Costs<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CostsVisitor)
    }
}

struct PairsVisitor<V>(&'static str, PhantomData<V>);

impl<'de, V: Deserialize<'de>> Visitor<'de> for PairsVisitor<V> {
    type Value = Pairs<'de, V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut pairs = Vec::new();
        while let Some((Name(name), value)) = map.next_entry::<Name<'de>, V>()? {
            if pairs.iter().any(|(known, _)| *known == name) {
                return Err(A::Error::custom(format_args!("{name:?} is given twice")));
            }
            // A body has 64 KiB; this keeps looking for doubles cheap all the same.
            if pairs.len() == MAX_PAIRS {
                return Err(A::Error::custom(format_args!("more than {MAX_PAIRS} names")));
            }
            pairs.push((name, value));
        }
        Ok(Pairs(pairs))
    }
}

/// A name, borrowed where it has nothing escaped.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

struct CostsVisitor;

impl<'de> Visitor<'de> for CostsVisitor {
    type Value = Costs<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from 1 to {MAX_EXACT}, or an object of units and such numbers")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        WholeVisitor.visit_u64(number).map(Costs::Requests)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        WholeVisitor.visit_i64(number).map(Costs::Requests)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        PairsVisitor("an object", PhantomData).visit_map(map).map(Costs::Units)
    }
}

/// The answer to take, peek, refund and reset.
#[derive(Debug, Serialize)]
pub(super) struct Decision<'a> {
    pub(super) verdict: &'static str,
    pub(super) provenance: &'static str,
    pub(super) at_us: u64,
    pub(super) binding: Option<&'a str>,
    // Only where the policy decided without asking anybody.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<&'static str>,
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
