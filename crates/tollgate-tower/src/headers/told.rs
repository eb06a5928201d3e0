//! What an answer will tell, kept until there is one.

use http::{HeaderMap, HeaderValue};
use tollgate::{Admission, Enforcement};

use super::merge::{append, mend};
use super::noted;
use super::{
    Dialect, Fields, RATELIMIT, RATELIMIT_POLICY, Standing, Text, push_standing, render_admission,
};

/// Fields for an answer that is not there yet.
#[derive(Debug, Default)]
pub(crate) enum Told {
    #[default]
    Nothing,
    /// One limit in the eleventh draft, by far the most common. Without numbers there is no standing
    /// under it; otherwise it is spelled when it is put, by the name at the limit's start.
    One {
        limit: HeaderValue,
        name: usize,
        standing: Option<Standing>,
    },
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
    #[inline]
    pub(crate) fn put(self, headers: &mut HeaderMap) {
        match self {
            Self::Nothing => {}
            Self::One { limit, name, standing } => {
                let standing = standing.map(|standing| spell(&limit.as_bytes()[..name], standing));
                // Most often there is no inner layer. So fields are put in their places, and only
                // where something was already is one made of both.
                if headers.append(RATELIMIT_POLICY, limit) {
                    mend(headers, RATELIMIT_POLICY);
                }
                if let Some(standing) = standing
                    && headers.append(RATELIMIT, standing)
                {
                    mend(headers, RATELIMIT);
                }
            }
            Self::Any(fields) => append(headers, fields),
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
    let noted = noted::find(rule, &charge.meter)?;
    let standing = outcome.reading.as_ref().map(Standing::of);
    Some(Told::One { limit: noted.limit.clone(), name: noted.name, standing })
}

/// The `RateLimit` of this standing under the limit of this name, in quotes.
#[inline]
fn spell(name: &[u8], standing: Standing) -> HeaderValue {
    let mut text = Text::new();
    text.push_ascii(name);
    push_standing(&mut text, standing);
    text.to_value()
}
