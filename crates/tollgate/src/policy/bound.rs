//! How many charges one subject could be made to pay at once.
//!
//! A set has room for [`ChargeSet::MAX`] charges, and finding out at request time that there are
//! more would leave nothing sensible to do. So the worst subject is looked for when a policy is
//! built. What separates rules is conditions on the same axis that no value meets together. On one
//! axis, a value is either
//!
//! - one of the literals some rule names: then exactly the patterns that match it hold; or
//! - something else: no literal holds, and of the patterns with wildcards only those whose text
//!   before the first wildcard starts the value. These texts are prefixes of one another, so it is
//!   enough to look at each as the longest.
//!
//! Looking at every such case of one axis, and within each at the next axis, never misses a subject;
//! it may see some that cannot be (`*a` and `*b` are taken to go together), which is the safe side.

use std::collections::BTreeSet;

use super::compiled::Compiled;
use crate::charge::ChargeSet;

/// Cases looked at before giving up and counting all rules that are left: a bound on the time a
/// policy takes to build.
const MAX_CASES: usize = 20_000;

/// No subject is ever charged more than this by these rules; exact enough to tell whether it is
/// more than [`ChargeSet::MAX`].
pub(super) fn most_charges(rules: &[Compiled], axes: usize) -> usize {
    let all: Vec<&Compiled> = rules.iter().collect();
    let open: Vec<usize> = (0..axes).collect();
    let mut cases = 0;
    most(&all, &open, &mut cases)
}

fn most(rules: &[&Compiled], open: &[usize], cases: &mut usize) -> usize {
    let all = rules.iter().map(|rule| rule.width()).sum();
    *cases += 1;
    if all <= ChargeSet::MAX || *cases > MAX_CASES {
        return all;
    }
    // The axis that tells the most apart; one that tells nothing apart is no help.
    let split = open.iter().map(|axis| (split(rules, *axis), *axis));
    let Some((branches, axis)) = split.max_by_key(|(branches, _)| branches.len()) else {
        return all;
    };
    if branches.len() < 2 {
        return all;
    }
    let open: Vec<usize> = open.iter().copied().filter(|&other| other != axis).collect();
    let branches = branches.into_iter();
    let worst = branches.map(|branch| {
        let left: Vec<&Compiled> =
            rules.iter().copied().filter(|r| branch.admits(r, axis)).collect();
        most(&left, &open, cases)
    });
    worst.max().unwrap_or(all)
}

/// One kind of value an axis can have.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Case<'p> {
    /// Exactly this one.
    Literal(&'p str),
    /// None of the literals, starting with this and with no longer head.
    Head(&'p str),
}

/// The kinds of values that rules tell apart on an axis.
fn split<'p>(rules: &[&'p Compiled], axis: usize) -> BTreeSet<Case<'p>> {
    let tests = rules.iter().flat_map(|rule| &rule.conditions);
    let globs = tests.filter(|test| test.axis == axis).map(|test| &test.glob);
    let mut cases: BTreeSet<Case<'p>> = globs
        .map(|glob| match glob.literal() {
            Some(text) => Case::Literal(text),
            None => Case::Head(glob.head()),
        })
        .collect();
    // A value no pattern speaks of, or none at all.
    cases.insert(Case::Head(""));
    cases
}

impl Case<'_> {
    /// Whether a rule could hold for such a value.
    fn admits(self, rule: &Compiled, axis: usize) -> bool {
        let mut tests = rule.conditions.iter().filter(|test| test.axis == axis);
        tests.all(|test| match (self, test.glob.literal()) {
            (Self::Literal(value), _) => test.glob.matches(value),
            (Self::Head(_), Some(_)) => false,
            (Self::Head(head), None) => head.starts_with(test.glob.head()),
        })
    }
}
