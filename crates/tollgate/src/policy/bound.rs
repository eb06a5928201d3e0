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

use std::collections::{BTreeSet, HashMap};

use super::compiled::Compiled;
use crate::charge::ChargeSet;

/// Rules looked at before giving up and counting all that are left: a bound on the time a policy takes
/// to build. Ten thousand rules for as many prefixes stay within it.
const MAX_LOOKS: usize = 200_000_000;

/// No subject is ever charged more than this by these rules; exact enough to tell whether it is
/// more than [`ChargeSet::MAX`].
pub(super) fn most_charges(rules: &[Compiled], axes: usize) -> usize {
    let all: Vec<&Compiled> = rules.iter().collect();
    let open: Vec<usize> = (0..axes).collect();
    let mut looks = 0;
    most(&all, &open, &mut looks)
}

fn most(rules: &[&Compiled], open: &[usize], looks: &mut usize) -> usize {
    let all = width(rules);
    *looks += rules.len() * open.len().max(1);
    if all <= ChargeSet::MAX || *looks > MAX_LOOKS {
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
    let sorted = Sorted::new(rules, axis);
    let free = width(&sorted.free);
    let mut worst = 0;
    for branch in branches {
        let asked = sorted.admitted(branch, looks);
        if *looks > MAX_LOOKS {
            return all;
        }
        // Rules that ask nothing of the axis are in every branch; few of them need no other look.
        let width = free + width(&asked);
        worst = worst.max(match width <= ChargeSet::MAX {
            true => width,
            false => most(&[&*sorted.free, &*asked].concat(), &open, looks),
        });
    }
    worst
}

fn width(rules: &[&Compiled]) -> usize {
    rules.iter().map(|rule| rule.width()).sum()
}

/// Rules by what they ask of one axis.
struct Sorted<'p> {
    axis: usize,
    /// Nothing.
    free: Vec<&'p Compiled>,
    /// A certain value.
    literals: HashMap<&'p str, Vec<&'p Compiled>>,
    /// A pattern.
    patterns: Vec<&'p Compiled>,
}

impl<'p> Sorted<'p> {
    fn new(rules: &[&'p Compiled], axis: usize) -> Self {
        let mut sorted =
            Self { axis, free: Vec::new(), literals: HashMap::new(), patterns: Vec::new() };
        for &rule in rules {
            let mut tests = rule.conditions.iter().filter(|test| test.axis == axis).peekable();
            let asks = tests.peek().is_some();
            match (asks, tests.find_map(|test| test.glob.literal())) {
                (false, _) => sorted.free.push(rule),
                (true, Some(text)) => sorted.literals.entry(text).or_default().push(rule),
                (true, None) => sorted.patterns.push(rule),
            }
        }
        sorted
    }

    /// The rules that ask something of the axis and could hold for such a value.
    fn admitted(&self, case: Case<'_>, looks: &mut usize) -> Vec<&'p Compiled> {
        let exact: &[&Compiled] = match case {
            Case::Literal(text) => self.literals.get(text).map_or(&[], Vec::as_slice),
            Case::Head(_) => &[],
        };
        *looks += exact.len() + self.patterns.len() + 1;
        let all = exact.iter().chain(&self.patterns).copied();
        all.filter(|rule| case.admits(rule, self.axis)).collect()
    }
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
