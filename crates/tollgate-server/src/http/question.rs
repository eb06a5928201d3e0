//! The one conversion in: a body as it was written, made into charges as they are meant.

use std::fmt::Display;

use smallvec::SmallVec;
use tollgate::{Algorithm, Ask, Charge, ChargeSet, ChargeSetError, Cost, Key, Meter, Op, Quota};
use tollgate::{Timestamp, quota};

use super::object::Object;
use super::problem::Problem;
use super::wire;

/// The longest key. Keys are hashed, so this bounds answers and headers, not memory.
const MAX_KEY: usize = 1024;

/// The longest quota text: sixteen of the longest quotas anybody would write.
const MAX_QUOTA: usize = 1024;

/// What to do with the charges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Take,
    Peek,
    Refund,
}

/// Charges to be decided, and what each is called in the answer.
#[derive(Debug)]
pub(super) struct Question<'a> {
    pub(super) verb: Verb,
    pub(super) set: ChargeSet<'a>,
    // In the order of the set, as the outcomes will be.
    pub(super) names: SmallVec<[&'a str; 1]>,
}

impl<'a> Question<'a> {
    /// What `body` asks for, or what is wrong with it.
    pub(super) fn new(body: &'a wire::Body<'_>, verb: Verb) -> Result<Self, Problem> {
        let charges = charges(body)?;
        let action = Action::new(body, verb)?;
        let mut question = Self { verb, set: ChargeSet::new(), names: SmallVec::new() };
        for (index, Object(charge)) in charges.iter().enumerate() {
            question.add(Place(index), charge, action)?;
        }
        Ok(question)
    }

    /// Adds a charge, or several when its quota is a list.
    fn add(
        &mut self,
        place: Place,
        charge: &'a wire::Charge<'_>,
        action: Action,
    ) -> Result<(), Problem> {
        let key = place.key(&charge.key)?;
        let name = charge.algorithm.parse::<Algorithm>();
        let algorithm = name.map_err(|error| place.field("algorithm", error))?;
        let cost = Cost::new(charge.cost.get()).expect("a cost was read as 1 or more");
        for quota in place.quotas(&charge.quota)? {
            let meter = Meter::new(quota, algorithm);
            let meter = meter.map_err(|error| place.field("quota", error))?;
            let charge = Charge::new(Key::new(key), meter, action.op(cost));
            let index = self.set.push(charge).map_err(|error| place.set(&error))?;
            // Charges on one bucket were added up and share a name.
            if index == self.names.len() {
                self.names.push(key);
            }
        }
        Ok(())
    }
}

/// The charges of a body that has some and nothing that does not go with them.
fn charges<'b, 'a>(body: &'b wire::Body<'a>) -> Result<&'b [Object<wire::Charge<'a>>], Problem> {
    if body.subject.is_some() {
        let detail =
            "no policy is loaded, so there are no rules to apply; send \"charges\" instead";
        return Err(Problem::field("subject", detail));
    }
    if body.cost.is_some() {
        let detail = "goes with \"subject\"; give each charge its own, as in charges[0].cost";
        return Err(Problem::field("cost", detail));
    }
    let most = ChargeSet::MAX;
    match body.charges.as_deref() {
        Some(charges @ [_, ..]) if charges.len() <= most => Ok(charges),
        Some(charges) => Err(Problem::field(
            "charges",
            format!("send from 1 to {most} charges, not {}", charges.len()),
        )),
        None => Err(Problem::field(
            "charges",
            r#"missing; send a list such as [{"key":"user:42","quota":"100/min"}]"#,
        )),
    }
}

/// A verb with what it needs besides the charges.
#[derive(Clone, Copy)]
enum Action {
    Take,
    Peek,
    Refund(Timestamp),
}

impl Action {
    fn new(body: &wire::Body<'_>, verb: Verb) -> Result<Self, Problem> {
        match (verb, body.at_us) {
            (Verb::Take, None) => Ok(Self::Take),
            (Verb::Peek, None) => Ok(Self::Peek),
            (Verb::Refund, Some(at)) => Ok(Self::Refund(Timestamp::from_micros(at.get()))),
            (Verb::Refund, None) => Err(Problem::field(
                "at_us",
                "missing; send the \"at_us\" of the decision whose charges are given back",
            )),
            (Verb::Take | Verb::Peek, Some(_)) => Err(Problem::field(
                "at_us",
                "only /v1/refund takes it; leave it out, the store knows the time",
            )),
        }
    }

    fn op(self, cost: Cost) -> Op {
        match self {
            Self::Take => Op::Take(Ask::exactly(cost)),
            Self::Peek => Op::Peek(cost),
            Self::Refund(at) => Op::Refund { cost, at },
        }
    }
}

/// Where in the list of charges something is wrong.
#[derive(Clone, Copy)]
struct Place(usize);

impl Place {
    fn key(self, key: &str) -> Result<&str, Problem> {
        match key.len() {
            1..=MAX_KEY => Ok(key),
            0 => Err(self.field("key", "empty; send a name such as \"user:42\"")),
            length => Err(self.field(
                "key",
                format!("at most {MAX_KEY} bytes, not {length}; send a hash of what is longer"),
            )),
        }
    }

    fn quotas(self, text: &str) -> Result<SmallVec<[Quota; 1]>, Problem> {
        if text.len() > MAX_QUOTA {
            let length = text.len();
            return Err(self.field("quota", format!("at most {MAX_QUOTA} bytes, not {length}")));
        }
        let quotas = match text.contains(';') {
            true => quota::parse_list(text).map(SmallVec::from_vec),
            false => text.parse().map(|quota| smallvec::smallvec![quota]),
        };
        quotas.map_err(|error| self.field("quota", error))
    }

    fn set(self, error: &ChargeSetError) -> Problem {
        match error {
            ChargeSetError::Full => {
                Problem::field("charges", format!("{error}; each quota of a list is one"))
            }
            _ => Problem::field(format!("charges[{}]", self.0), error),
        }
    }

    fn field(self, name: &str, detail: impl Display) -> Problem {
        Problem::field(format!("charges[{}].{name}", self.0), detail)
    }
}
