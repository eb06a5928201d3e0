//! What an answer will tell, kept until there is one.

use std::sync::OnceLock;

use http::{HeaderMap, HeaderValue};
use tollgate::gate::Brief;
use tollgate::{Admission, Enforcement, Gate, Outcome, Store};

use super::merge::{append, mend};
use super::noted::{self, Noted};
use super::{
    Dialect, Fields, RATELIMIT, RATELIMIT_POLICY, Standing, Text, push_standing, render_admission,
};

/// Fields for an answer that is not there yet.
#[derive(Debug, Default)]
pub(crate) enum Told {
    #[default]
    Nothing,
    One(OneLimit),
    Any(Fields),
}

/// One limit in the eleventh draft, by far the most common.
#[derive(Debug)]
pub(crate) struct OneLimit {
    // Until it is put.
    limit: Option<HeaderValue>,
    // How much of the limit's start is its name.
    name: usize,
    // Spelled when it is put. Without numbers there is none.
    standing: Option<Standing>,
}

impl Told {
    /// What tells an admission.
    pub(crate) fn of(admission: &Admission, dialect: Dialect) -> Self {
        match one(admission, dialect) {
            Some(one) => Self::One(one),
            None => Self::Any(render_admission(admission, dialect)),
        }
    }

    /// Puts it into the headers of an answer, joined with what an inner layer may have told there.
    pub(crate) fn put(self, headers: &mut HeaderMap) {
        match self {
            Self::Nothing => {}
            Self::One(mut one) => one.put(headers),
            Self::Any(fields) => append(headers, fields),
        }
    }
}

impl OneLimit {
    /// What tells an admission in short, if it is spelled already but for numbers. What is noted down of
    /// the first policy's only rule is in `first`, which is nearer than where rules are.
    #[inline(always)]
    pub(crate) fn of<S: Store>(
        gate: &Gate<S>,
        brief: &Brief,
        first: &OnceLock<Noted>,
    ) -> Option<Self> {
        let [outcome] = brief.decision().outcomes() else {
            return None;
        };
        let noted = match first.get() {
            Some(noted) if brief.is_by_first_policy() => noted,
            _ => find(gate, brief, first)?,
        };
        Self::of_one(noted, outcome)
    }

    /// What tells one charge that was admitted, if it is enforced.
    #[inline(always)]
    fn of_one(noted: &Noted, outcome: &Outcome) -> Option<Self> {
        if outcome.enforcement == Enforcement::Shadow {
            return None;
        }
        let standing = outcome.reading.as_ref().map(Standing::of);
        Some(Self { limit: Some(noted.limit.clone()), name: noted.name, standing })
    }

    /// Puts it into the headers of an answer, once, joined with what an inner layer may have told there.
    pub(crate) fn put(&mut self, headers: &mut HeaderMap) {
        let Some(limit) = self.limit.take() else {
            return;
        };
        let name = &limit.as_bytes()[..self.name];
        let standing = self.standing.map(|standing| spell(name, standing));
        // Most often there is no inner layer. So fields are put in their places, and only where
        // something was already is one made of both.
        if headers.append(RATELIMIT_POLICY, limit) {
            mend(headers, RATELIMIT_POLICY);
        }
        if let Some(standing) = standing
            && headers.append(RATELIMIT, standing)
        {
            mend(headers, RATELIMIT);
        }
    }
}

/// The fields of an admission by one enforced charge, if they are spelled already but for numbers.
fn one(admission: &Admission, dialect: Dialect) -> Option<OneLimit> {
    // A refusal tells more.
    if dialect != Dialect::Draft11 || !admission.is_allowed() {
        return None;
    }
    let mut charges = admission.charges();
    match (charges.next(), charges.next()) {
        (Some((rule, charge, outcome)), None) => {
            OneLimit::of_one(noted::find(rule, &charge.meter)?, outcome)
        }
        _ => None,
    }
}

/// What is noted down of the rule of an admission in short.
#[inline(never)]
fn find<'a, S: Store>(
    gate: &'a Gate<S>,
    brief: &'a Brief,
    first: &'a OnceLock<Noted>,
) -> Option<&'a Noted> {
    let (rule, meter) = gate.rule_of(brief)?;
    match brief.is_by_first_policy() {
        true => Some(first.get_or_init(|| Noted::new(rule.name(), meter))),
        false => noted::find(rule, meter),
    }
}

/// The `RateLimit` of this standing under the limit of this name, in quotes.
#[inline]
fn spell(name: &[u8], standing: Standing) -> HeaderValue {
    let mut text = Text::new();
    text.push_ascii(name);
    push_standing(&mut text, standing);
    text.to_value()
}
