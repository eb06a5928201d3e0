//! The one conversion in: a body as it was written, made into what is meant.

use std::borrow::Cow;
use std::fmt::Display;

use smallvec::SmallVec;
use tollgate::{
    Algorithm, Ask, Charge, ChargeSet, ChargeSetError, Cost, Costs, Key, Meter, Op, Policy, Quota,
    Subject, Timestamp, quota,
};

use super::object::Object;
use super::problem::Problem;
use super::wire;

/// The longest key. Keys are hashed, so this bounds answers and headers, not memory.
const MAX_KEY: usize = 1024;

/// The longest quota text: sixteen of the longest quotas anybody would write.
const MAX_QUOTA: usize = 1024;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Take,
    Peek,
    Refund,
    Reset,
}

/// A verb with what it needs besides the charges.
#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    Take,
    Peek,
    Refund(Timestamp),
    Reset,
}

/// A request as it is meant.
#[derive(Debug)]
pub(super) enum Question<'a> {
    /// Charges are spelled out.
    ByHand(ByHand<'a>),
    /// The policy's rules say what to charge.
    ByRules(ByRules<'a>),
}

/// Charges to be decided, and what each is called in the answer.
#[derive(Debug)]
pub(super) struct ByHand<'a> {
    pub(super) action: Action,
    pub(super) set: ChargeSet<'a>,
    // In the order of the set, as the outcomes will be.
    pub(super) names: SmallVec<[&'a str; 1]>,
}

/// Who asks, and what it costs.
#[derive(Debug)]
pub(super) struct ByRules<'a> {
    pub(super) action: Action,
    // The only rule whose buckets are forgotten, if not all.
    pub(super) rule: Option<&'a str>,
    pub(super) subject: Subject<'a>,
    pub(super) costs: Costs<'a>,
}

impl<'a> Question<'a> {
    /// What `body` asks for, or what is wrong with it.
    pub(super) fn new(
        body: &'a wire::Body<'_>,
        verb: Verb,
        policy: &Policy,
    ) -> Result<Self, Problem> {
        let action = Action::new(body, verb)?;
        match (&body.subject, &body.charges) {
            (Some(_), Some(_)) => {
                let detail = "goes with no \"charges\"; send either of them";
                Err(Problem::field("subject", detail))
            }
            (Some(subject), None) => {
                let question = ByRules::new(body, &subject.0, action, policy)?;
                Ok(Self::ByRules(question))
            }
            (None, _) => Ok(Self::ByHand(ByHand::new(body, action)?)),
        }
    }
}

impl<'a> ByRules<'a> {
    fn new(
        body: &'a wire::Body<'_>,
        subject: &'a [(Cow<'_, str>, Cow<'_, str>)],
        action: Action,
        policy: &Policy,
    ) -> Result<Self, Problem> {
        let lists = policy.allowlist().len() + policy.denylist().len();
        if policy.rules().len() + lists == 0 {
            let detail =
                "no policy is loaded, so there are no rules to apply; send \"charges\" instead";
            return Err(Problem::field("subject", detail));
        }
        let rule = body.rule.as_deref();
        match (rule, action) {
            (Some(name), Action::Reset) if policy.rules().all(|rule| rule.name() != name) => {
                let known: Vec<&str> = policy.rules().map(|rule| rule.name()).take(20).collect();
                let detail = format!("no rule has this name; there are {}", known.join(", "));
                return Err(Problem::field("rule", detail));
            }
            (Some(_), Action::Take | Action::Peek | Action::Refund(_)) => {
                let detail = "only /v1/reset takes it; elsewhere all rules that apply decide";
                return Err(Problem::field("rule", detail));
            }
            _ => {}
        }
        Ok(Self {
            action,
            rule,
            subject: subject.iter().map(|(axis, value)| (axis.as_ref(), value.as_ref())).collect(),
            costs: costs(body.cost.as_ref()),
        })
    }
}

/// A cost as it is meant: a number is so many requests, and so is nothing at all one; where units
/// are named without requests it still is one request.
fn costs<'a>(costs: Option<&'a wire::Costs<'_>>) -> Costs<'a> {
    let cost = |whole: wire::Whole| Cost::new(whole.get()).expect("a cost was read as 1 or more");
    match costs {
        None => Costs::default(),
        Some(wire::Costs::Requests(requests)) => Costs::requests(cost(*requests)),
        Some(wire::Costs::Units(units)) => units
            .0
            .iter()
            .fold(Costs::default(), |costs, (unit, whole)| costs.with(unit, cost(*whole))),
    }
}

impl<'a> ByHand<'a> {
    fn new(body: &'a wire::Body<'_>, action: Action) -> Result<Self, Problem> {
        let mut question = Self { action, set: ChargeSet::new(), names: SmallVec::new() };
        for (index, Object(charge)) in charges(body)?.iter().enumerate() {
            question.add(Place(index), charge)?;
        }
        Ok(question)
    }

    /// Adds a charge, or several when its quota is a list.
    fn add(&mut self, place: Place, charge: &'a wire::Charge<'_>) -> Result<(), Problem> {
        let key = place.key(&charge.key)?;
        let name = charge.algorithm.parse::<Algorithm>();
        let algorithm = name.map_err(|error| place.field("algorithm", error))?;
        let cost = Cost::new(charge.cost.get()).expect("a cost was read as 1 or more");
        for quota in place.quotas(&charge.quota)? {
            let meter = Meter::new(quota, algorithm);
            let meter = meter.map_err(|error| place.field("quota", error))?;
            let charge = Charge::new(Key::new(key), meter, self.action.op(cost));
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
    if body.rule.is_some() {
        return Err(Problem::field("rule", "goes with \"subject\"; charges name no rule"));
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

impl Action {
    fn new(body: &wire::Body<'_>, verb: Verb) -> Result<Self, Problem> {
        match (verb, body.at_us) {
            (Verb::Take, None) => Ok(Self::Take),
            (Verb::Peek, None) => Ok(Self::Peek),
            (Verb::Reset, None) => Ok(Self::Reset),
            (Verb::Refund, Some(at)) => Ok(Self::Refund(Timestamp::from_micros(at.get()))),
            (Verb::Refund, None) => Err(Problem::field(
                "at_us",
                "missing; send the \"at_us\" of the decision whose charges are given back",
            )),
            (Verb::Take | Verb::Peek | Verb::Reset, Some(_)) => Err(Problem::field(
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
            Self::Reset => Op::Reset,
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
