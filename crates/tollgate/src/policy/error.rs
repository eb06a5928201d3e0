//! What is wrong with a policy, all of it at once.

use std::error::Error;
use std::fmt;

use super::glob::GlobError;
use super::network::NetworkError;
use super::{MAX_MARGIN, MAX_NAME};
use crate::charge::ChargeSet;
use crate::meter::MeterError;
use crate::quota::{ParseQuotaError, Period};

/// Everything that is wrong with a policy; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyErrors {
    errors: Vec<PolicyError>,
}

impl PolicyErrors {
    /// `Err` if there are any.
    pub(super) fn check(errors: Vec<PolicyError>) -> Result<(), Self> {
        match errors.is_empty() {
            true => Ok(()),
            false => Err(Self { errors }),
        }
    }

    /// The errors, in the order of what they are about.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &PolicyError> {
        self.errors.iter()
    }
}

impl fmt::Display for PolicyErrors {
    /// One line each.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.errors.iter().enumerate() {
            write!(f, "{}{error}", if index == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

impl Error for PolicyErrors {}

/// One thing that is wrong with a policy, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyError {
    pub(super) place: Place,
    pub(super) field: &'static str,
    pub(super) problem: Problem,
}

impl PolicyError {
    /// Where it is.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// The part that is wrong there, by the name it has in configuration: `quota`, `when`, `by`, …
    pub fn field(&self) -> &'static str {
        self.field
    }

    /// What is wrong there and what to write instead, for those who show the place themselves.
    pub fn problem(&self) -> impl fmt::Display + '_ {
        &self.problem
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.problem)
    }
}

impl Error for PolicyError {}

/// The part of a policy an error is about. Indices count from zero, in the order of the builder.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// A rule.
    Rule {
        /// Which.
        index: usize,
        /// Its name.
        name: String,
    },
    /// An override.
    Override {
        /// Which.
        index: usize,
        /// The rule it names.
        rule: String,
    },
    /// An entry of the allowlist.
    Allow {
        /// Which.
        index: usize,
    },
    /// An entry of the deny-list.
    Deny {
        /// Which.
        index: usize,
    },
    /// The policy as a whole.
    Policy,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule { index, name } if name.is_empty() => write!(f, "rule {}", index + 1),
            Self::Rule { name, .. } => write!(f, "rule {name:?}"),
            Self::Override { index, rule } => write!(f, "override {} of rule {rule:?}", index + 1),
            Self::Allow { index } => write!(f, "allowlist entry {}", index + 1),
            Self::Deny { index } => write!(f, "deny-list entry {}", index + 1),
            Self::Policy => f.write_str("policy"),
        }
    }
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    EmptyName {
        what: &'static str,
    },
    LongName {
        what: &'static str,
    },
    ControlInName {
        what: &'static str,
    },
    DuplicateRule {
        first: usize,
    },
    DuplicateAxis {
        axis: String,
    },
    /// `colocate` names an axis that is not among those of `by`.
    ForeignColocation {
        axis: String,
    },
    DuplicateTier {
        tier: String,
    },
    DefaultTwice,
    NoQuota,
    NoTiers,
    SamePeriod {
        period: Period,
    },
    Quota(ParseQuotaError),
    Meter(MeterError),
    Glob {
        axis: String,
        error: GlobError,
    },
    Network {
        axis: String,
        error: NetworkError,
    },
    Margin {
        found: u8,
    },
    GroupWithSeveralQuotas,
    UnknownRule {
        known: Vec<String>,
    },
    Unconditional,
    TooManyCharges {
        most: usize,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyName { what } => write!(f, "the {what} is empty; give it a name"),
            Self::LongName { what } => {
                write!(f, "the {what} is longer than {MAX_NAME} bytes; shorten it")
            }
            Self::ControlInName { what } => {
                write!(f, "the {what} has a control character in it; remove it")
            }
            Self::DuplicateRule { first } => write!(
                f,
                "rule {} has this name already; names must differ, for they tell buckets apart",
                first + 1
            ),
            Self::ForeignColocation { axis } => {
                write!(
                    f,
                    "axis {axis:?} is not one of \"by\"; add it there, or colocate by one that is"
                )
            }
            Self::DuplicateAxis { axis } => write!(f, "axis {axis:?} is named twice; name it once"),
            Self::DuplicateTier { tier } => write!(f, "tier {tier:?} is named twice; name it once"),
            Self::DefaultTwice => f.write_str(
                "both a quota and a tier \"default\" say what others get; keep one of them",
            ),
            Self::NoQuota => f.write_str("there is no quota; write one such as \"100/min\""),
            Self::NoTiers => f.write_str(
                "the table of tiers is empty; write one such as free = \"100/day\", or a quota",
            ),
            Self::SamePeriod { period } => write!(
                f,
                "two quotas have the same period ({period}); keep the lower, or change a period"
            ),
            Self::Quota(error) => error.fmt(f),
            Self::Meter(error) => error.fmt(f),
            Self::Glob { axis, error } => write!(f, "axis {axis:?}: {error}"),
            Self::Network { axis, error } => write!(f, "axis {axis:?}: {error}"),
            Self::Margin { found } => {
                write!(f, "a margin of {found} per cent leaves nothing; write 0 to {MAX_MARGIN}")
            }
            Self::GroupWithSeveralQuotas => f.write_str(
                "a rule of a group has one quota, for one that fits would excuse the other; \
                 keep one quota, or take the rule out of the group",
            ),
            Self::UnknownRule { known } => {
                f.write_str("there is no rule of this name; ")?;
                match known.is_empty() {
                    true => f.write_str("write the rule first"),
                    false => write!(f, "write one of {}", known.join(", ")),
                }
            }
            Self::Unconditional => f.write_str(
                "without a condition it would apply to everybody; add one, or change the rule's \
                 own quota",
            ),
            Self::TooManyCharges { most } => write!(
                f,
                "one subject could meet {most} quotas at once, and at most {} are decided \
                 together; give rules conditions that exclude each other, or merge some",
                ChargeSet::MAX
            ),
        }
    }
}
