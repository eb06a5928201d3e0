//! Why a request meets the rules it meets.

use std::fmt;

use super::compiled::{Compiled, Reach};
use super::facts::Facts;
use super::list::Listing;
use super::resolution::Charges;
use super::rule::Rule;
use crate::algorithm::Ask;
use crate::charge::{Charge, Op};
use crate::digest::Digester;

/// What a policy makes of a request, rule by rule.
#[derive(Clone, Debug)]
pub struct Explanation<'p> {
    /// The entry of the deny-list that refuses it before any rule is asked.
    pub denylisted: Option<&'p Listing>,
    /// The entry of the allowlist that lets it through before any rule is asked, unless it is on the
    /// deny-list too.
    pub allowlisted: Option<&'p Listing>,
    /// Every rule in order, as if no list held the request.
    pub rules: Vec<Explained<'p>>,
}

/// What one rule makes of a request.
#[derive(Clone, Debug)]
pub struct Explained<'p> {
    /// The rule.
    pub rule: &'p Rule,
    /// Whether it applies.
    pub because: Because<'p>,
}

/// Why a rule applies, or why it does not.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Because<'p> {
    /// It applies and makes these charges.
    Applies {
        /// The charges: key, quota and cost of each.
        charges: Vec<Charge<'static>>,
        /// Where the quotas come from.
        source: Source<'p>,
    },
    /// It does not: the request costs nothing in its unit.
    NoCost {
        /// The unit.
        unit: &'p str,
    },
    /// It does not: a condition does not hold.
    Condition {
        /// The condition's axis.
        axis: &'p str,
        /// The pattern that does not match.
        pattern: &'p str,
        /// The subject's value; `None` if it has none.
        found: Option<String>,
    },
    /// An axis is missing.
    MissingAxis {
        /// The axis.
        axis: &'p str,
        /// Whether the rule then refuses, or does not apply.
        refuses: bool,
    },
}

/// Where a rule's quotas come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source<'p> {
    /// Its own quota, or what its table has for those in no tier.
    Rule,
    /// This tier.
    Tier(&'p str),
    /// The override at this place, counted from zero over the whole policy.
    Override(usize),
}

impl Because<'_> {
    /// Whether the rule applies.
    pub fn applies(&self) -> bool {
        matches!(self, Self::Applies { .. })
    }
}

impl fmt::Display for Because<'_> {
    /// Fits after the rule's name and a colon.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Applies { charges, source } => {
                write!(f, "applies")?;
                for (index, charge) in charges.iter().enumerate() {
                    let before = if index == 0 { ": " } else { "; " };
                    write!(f, "{before}{} to {}", charge.meter, charge.key)?;
                }
                match source {
                    Source::Rule => Ok(()),
                    Source::Tier(tier) => write!(f, " (tier {tier:?})"),
                    Source::Override(index) => write!(f, " (override {})", index + 1),
                }
            }
            Self::NoCost { unit } => write!(f, "does not apply: the request costs no {unit}"),
            Self::Condition { axis, pattern, found } => match found {
                Some(value) => write!(f, "does not apply: {axis} is {value:?}, not {pattern:?}"),
                None => write!(f, "does not apply: there is no {axis}"),
            },
            Self::MissingAxis { axis, refuses } => match refuses {
                true => write!(f, "refuses: there is no {axis}"),
                false => write!(f, "does not apply: there is no {axis} to count by"),
            },
        }
    }
}

/// What `compiled` makes of a request.
pub(super) fn explain<'p>(
    compiled: &'p Compiled,
    facts: &Facts<'_>,
    digester: &Digester,
) -> Explained<'p> {
    let rule = &compiled.rule;
    let axis = |index: usize| rule.axes[index].as_str();
    let because = match compiled.reach(facts) {
        Reach::Applies(cost) => {
            let mut charges = Charges::default();
            let take = Op::Take(Ask::exactly(cost));
            let source = compiled.charge(facts, digester, take, (&mut charges, 0));
            Because::Applies { charges: charges.set().charges().to_vec(), source }
        }
        Reach::NoCost => Because::NoCost { unit: rule.counted_unit() },
        Reach::Condition(index) => Because::Condition {
            axis: &rule.conditions[index].axis,
            pattern: &rule.conditions[index].pattern,
            found: facts.value(compiled.conditions[index].axis).map(str::to_owned),
        },
        Reach::Skips(index) => Because::MissingAxis { axis: axis(index), refuses: false },
        Reach::Denies(index) => Because::MissingAxis { axis: axis(index), refuses: true },
    };
    Explained { rule, because }
}
