//! What a policy makes of a request.

use smallvec::SmallVec;

use crate::charge::{Charge, ChargeSet};
use crate::decision::Verdict;

/// What a policy makes of a request. Numbers are places in [`Policy::rules`], [`Policy::allowlist`]
/// and [`Policy::denylist`].
///
/// [`Policy::rules`]: super::Policy::rules
/// [`Policy::allowlist`]: super::Policy::allowlist
/// [`Policy::denylist`]: super::Policy::denylist
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Resolution {
    /// Let through, charged nothing: on the allowlist.
    Allowlisted {
        /// The first entry that matched.
        entry: usize,
    },
    /// Refused: on the deny-list.
    Denylisted {
        /// The first entry that matched.
        entry: usize,
    },
    /// Refused: a rule with [`Missing::Deny`](super::Missing::Deny) lacks an axis.
    MissingAxis {
        /// The rule.
        rule: usize,
        /// The place of the axis among the rule's own.
        axis: usize,
    },
    /// To be charged; with no charges at all where no rule applies.
    Charges(Charges),
}

impl Resolution {
    /// The charges, if it comes to that.
    pub fn charges(&self) -> Option<&Charges> {
        match self {
            Self::Charges(charges) => Some(charges),
            _ => None,
        }
    }
}

/// Why a policy decides alone: a [`Resolution`] without its charges, small enough to be kept with
/// every decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ground {
    NoRule,
    Allowlisted { entry: usize },
    Denylisted { entry: usize },
    MissingAxis { rule: usize, axis: usize },
}

impl Ground {
    pub(crate) fn verdict(self) -> Verdict {
        match self {
            Self::NoRule | Self::Allowlisted { .. } => Verdict::Allow,
            Self::Denylisted { .. } | Self::MissingAxis { .. } => Verdict::Deny,
        }
    }
}

/// The charges of all rules that apply, and whose each is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Charges {
    set: ChargeSet<'static>,
    // A rule's number for every charge of the set.
    rules: SmallVec<[u32; 4]>,
}

impl Charges {
    /// The set to ask a store about.
    pub fn set(&self) -> &ChargeSet<'static> {
        &self.set
    }

    /// For every charge of the set, the place of its rule in [`Policy::rules`].
    ///
    /// [`Policy::rules`]: super::Policy::rules
    pub fn rules(&self) -> impl ExactSizeIterator<Item = usize> + '_ {
        self.rules.iter().map(|&rule| rule as usize)
    }

    /// Whose each charge is, by number.
    pub(crate) fn numbers(&self) -> &[u32] {
        &self.rules
    }

    /// Every charge with the number of its rule.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Charge<'static>, u32)> {
        self.set.charges().iter().zip(self.rules.iter().copied())
    }

    /// Puts the only charge, of the first rule, where there is none. Its key may still be finished.
    #[inline(always)]
    pub(crate) fn put_only(&mut self, charge: Charge<'static>) -> &mut Charge<'static> {
        self.rules.push(0);
        self.set.put_only(charge)
    }

    /// Adds a charge of the rule of this number, about a bucket that no other is about: rules differ in
    /// name, and the quotas of one in their period. Its key may still be finished.
    #[inline]
    pub(crate) fn push(
        &mut self,
        charge: Charge<'static>,
        rule: u32,
    ) -> Option<&mut Charge<'static>> {
        let pushed = self.set.push_distinct(charge);
        // A policy whose rules could make more charges than fit is not built. Should one be, a request
        // without one of its charges beats a panic.
        debug_assert!(pushed.is_some(), "the policy was compiled wrong");
        if pushed.is_some() {
            self.rules.push(rule);
        }
        pushed
    }
}
