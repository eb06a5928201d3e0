//! What an answer will tell, kept until there is one.

use std::mem;

use http::{HeaderMap, HeaderValue};
use tollgate::{Admission, Enforcement};

use super::merge::{append, mend};
use super::{Dialect, Fields, RATELIMIT, RATELIMIT_POLICY, noted, render_admission};

/// Fields for an answer that is not there yet.
#[derive(Debug, Default)]
pub(crate) enum Told {
    #[default]
    Nothing,
    /// One limit in the eleventh draft, by far the most common. Without numbers there is no standing
    /// under it.
    One { limit: Option<HeaderValue>, standing: Option<HeaderValue> },
    Any(Fields),
}

impl Told {
    /// What tells an admission.
    #[inline(always)]
    pub(crate) fn of(admission: &Admission, dialect: Dialect) -> Self {
        match one(admission, dialect) {
            Some(one) => one,
            None => Self::Any(render_admission(admission, dialect)),
        }
    }

    /// Puts it into the headers of an answer, joined with what an inner layer may have told there.
    /// Nothing is left of it; and it is not moved for that, for it is not small.
    #[inline]
    pub(crate) fn put(&mut self, headers: &mut HeaderMap) {
        match self {
            Self::Nothing => {}
            Self::One { limit, standing } => {
                // Most often there is no inner layer. So fields are put in their places, and only
                // where something was already is one made of both.
                if limit.take().is_some_and(|limit| headers.append(RATELIMIT_POLICY, limit)) {
                    mend(headers, RATELIMIT_POLICY);
                }
                if standing.take().is_some_and(|standing| headers.append(RATELIMIT, standing)) {
                    mend(headers, RATELIMIT);
                }
            }
            Self::Any(fields) => append(headers, mem::take(fields)),
        }
    }
}

/// The fields of an admission by one enforced charge, if they are spelled already but for numbers.
#[inline(always)]
fn one(admission: &Admission, dialect: Dialect) -> Option<Told> {
    // A refusal tells more.
    if dialect != Dialect::Draft11 || !admission.is_allowed() {
        return None;
    }
    let mut charges = admission.charges();
    let (rule, charge, outcome) = charges.next()?;
    if charges.next().is_some() || outcome.enforcement == Enforcement::Shadow {
        return None;
    }
    let (limit, standing) = noted::fields((rule, &charge.meter, outcome))?;
    Some(Told::One { limit: Some(limit), standing })
}
