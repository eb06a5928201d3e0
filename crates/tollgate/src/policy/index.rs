//! Which rules could apply to a subject, without looking at all of them; and which overrides of a rule.
//!
//! A rule with conditions is filed under one of them, the one that tells most: a value it asks for,
//! or what every value that it asks for starts with. A subject is looked up by its values, and
//! whatever is found is then asked properly. So a thousand rules for a thousand routes cost a look or
//! two, and only rules without such a condition are asked every time.
//!
//! ```text
//! route = "/login"     ──▶ literals of route: "/login" → rules 3, 17
//! route = "/api/v1/*"  ──▶ heads of route:    "/api/v1/" → rule 4, within "/api/" → rules 5, 6
//! method = "*T"        ──▶ always
//! ```
//!
//! **Heads.** Sorted, everything between a head and a value that starts with it starts with it too.
//! So the last head at or before a value starts with every head the value starts with, and going from
//! it to the longest head it starts with, and on, meets them all.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

use smallvec::SmallVec;

use super::compiled::Test;
use super::facts::Facts;

/// Up to so many rules are asked one by one: that is faster than looking them up.
const FEW: usize = 8;

/// Numbers of rules that were found; more than a subject usually meets.
pub(super) type Found = SmallVec<[u32; 24]>;

/// Rules by what they ask for.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    /// Those to be asked every time, in order.
    always: Vec<u32>,
    axes: Vec<AxisIndex>,
}

/// Rules by what they ask of one axis.
#[derive(Clone, Debug, Default)]
struct AxisIndex {
    axis: usize,
    literals: HashMap<Box<str>, Vec<u32>, BuildHasherDefault<Folded>>,
    heads: Vec<Head>,
}

/// The rules whose patterns start alike.
#[derive(Clone, Debug)]
struct Head {
    text: Box<str>,
    rules: Vec<u32>,
    /// The longest other head this one starts with.
    within: Option<usize>,
}

impl Index {
    /// Files what has these conditions, in this order.
    pub(super) fn new<'c>(all: impl Iterator<Item = &'c [Test]>) -> Self {
        let all: Vec<&[Test]> = all.collect();
        let mut index = Self::default();
        if all.len() <= FEW {
            index.always = (0..all.len() as u32).collect();
            return index;
        }
        let crowds = crowds(&all);
        let mut axes: BTreeMap<usize, AxisIndex> = BTreeMap::new();
        let mut heads: BTreeMap<(usize, &str), Vec<u32>> = BTreeMap::new();
        for (number, conditions) in all.into_iter().enumerate() {
            let number = number as u32;
            let Some(test) = telling(conditions, &crowds) else {
                index.always.push(number);
                continue;
            };
            let axis = axes.entry(test.axis).or_default();
            match test.glob.literal() {
                Some(text) => axis.literals.entry(text.into()).or_default().push(number),
                None => heads.entry((test.axis, test.glob.head())).or_default().push(number),
            }
        }
        for ((axis, text), rules) in heads {
            axes.entry(axis).or_default().push_head(text, rules);
        }
        index.axes = axes.into_iter().map(|(axis, found)| AxisIndex { axis, ..found }).collect();
        index
    }

    /// The rules that could apply, in order. Those that are looked up are noted down in `found`, which
    /// is empty, and the caller's so that it is not moved.
    #[inline]
    pub(super) fn candidates<'i>(
        &'i self,
        facts: &Facts<'_>,
        found: &'i mut Found,
    ) -> Candidates<'i> {
        if !self.axes.is_empty() {
            self.find(facts, found);
        }
        Candidates { found, always: &self.always }
    }

    fn find(&self, facts: &Facts<'_>, found: &mut Found) {
        for axis in &self.axes {
            if let Some(value) = facts.value(axis.axis) {
                axis.find(value, found);
            }
        }
        // Each rule is filed once, so none is found twice.
        found.sort_unstable();
    }
}

/// Two lists of numbers in one order.
pub(super) struct Candidates<'i> {
    found: &'i [u32],
    always: &'i [u32],
}

impl Iterator for Candidates<'_> {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let list = match (self.found.first(), self.always.first()) {
            (Some(found), Some(always)) if found < always => &mut self.found,
            (Some(_), None) => &mut self.found,
            (_, _) => &mut self.always,
        };
        list.split_off_first().map(|&next| next as usize)
    }
}

impl AxisIndex {
    /// Adds a head that sorts after all there are.
    fn push_head(&mut self, text: &str, rules: Vec<u32>) {
        let mut within = self.heads.len().checked_sub(1);
        while let Some(place) = within
            && !text.starts_with(&*self.heads[place].text)
        {
            within = self.heads[place].within;
        }
        self.heads.push(Head { text: text.into(), rules, within });
    }

    #[inline]
    fn find(&self, value: &str, found: &mut Found) {
        if let Some(rules) = self.literals.get(value) {
            found.extend_from_slice(rules);
        }
        let after = self.heads.partition_point(|head| *head.text <= *value);
        let mut place = after.checked_sub(1);
        while let Some(head) = place.map(|place| &self.heads[place]) {
            if value.starts_with(&*head.text) {
                found.extend_from_slice(&head.rules);
            }
            place = head.within;
        }
    }
}

/// How many conditions ask for each value, and for each head, of each axis.
fn crowds<'c>(all: &[&'c [Test]]) -> HashMap<(usize, bool, &'c str), usize> {
    let mut crowds = HashMap::new();
    for place in all.iter().copied().flatten().map(place) {
        *crowds.entry(place).or_insert(0) += 1;
    }
    crowds
}

/// What a condition is filed under: its axis, whether it is a pattern, and its value or head.
fn place(test: &Test) -> (usize, bool, &str) {
    (test.axis, test.glob.literal().is_none(), test.glob.head())
}

/// The condition of several that tells most: what the fewest ask for, of equals a value, of patterns
/// that with the longest head. One without a head tells nothing.
fn telling<'c>(
    conditions: &'c [Test],
    crowds: &HashMap<(usize, bool, &str), usize>,
) -> Option<&'c Test> {
    let telling = conditions.iter().filter(|test| {
        let (_, is_pattern, text) = place(test);
        !is_pattern || !text.is_empty()
    });
    telling.min_by_key(|test| {
        let (_, is_pattern, text) = place(test);
        (crowds[&place(test)], is_pattern, usize::MAX - text.len())
    })
}

/// A fast hash of short texts. What is hashed into the table is the operator's; clients can only look,
/// and looking up a value made to collide costs one comparison more.
#[derive(Clone, Copy, Debug, Default)]
struct Folded(u64);

impl Hasher for Folded {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        /// An odd number without a pattern: 2^64 divided by the golden ratio.
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            let mixed = (self.0.rotate_left(5) ^ u64::from_le_bytes(word)).wrapping_mul(SPREAD);
            self.0 = mixed ^ (mixed >> 32);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Policy, Resolution};
    use crate::{Costs, Rule, Subject};

    /// What rules ask for, in every shape.
    const ASKED: [(&str, &str); 22] = [
        ("route", "/a"),
        ("route", "/a*"),
        ("route", "/a/b*"),
        ("route", "/a/b/c"),
        ("route", "/a/*/c"),
        ("method", "GET"),
        ("route", "*/c"),
        ("route", "*"),
        ("route", "/b*"),
        ("route", "/b?"),
        ("route", "?a*"),
        ("method", "P*"),
        ("route", "/"),
        ("route", "/*"),
        ("route", "/a/b/c*"),
        ("route", "/aa*"),
        ("route", "/a/b"),
        ("method", "*T"),
        ("route", "/c/*"),
        ("route", "é*"),
        ("route", "éa"),
        ("route", "/a/bb*"),
    ];

    const ROUTES: [&str; 17] = [
        "/a", "/ab", "/a/b", "/a/b/c", "/a/x/c", "/c", "", "/", "/b", "/bc", "aa", "/aab", "é",
        "éa", "éb", "/a/bbb", "zzz",
    ];

    /// As many of them as one subject may meet, from one on; every third asks for a host too.
    fn policy(from: usize) -> Policy {
        let asked = ASKED.iter().cycle().skip(from).take(16).enumerate();
        let builder = asked.fold(Policy::builder(), |builder, (number, (axis, pattern))| {
            let rule = Rule::new(format!("r{number}")).when(*axis, *pattern).quota("1/s");
            builder.rule(if number % 3 == 0 { rule.when("host", "x") } else { rule })
        });
        builder.build().unwrap_or_else(|errors| panic!("{errors}"))
    }

    fn check(policy: &Policy, subject: &Subject<'_>) {
        let facts = Facts::new(&policy.axes, &policy.units, subject, &Costs::default());
        let holds = |rule: &usize| {
            let mut tests = policy.rules[*rule].conditions.iter();
            tests.all(|test| facts.value(test.axis).is_some_and(|value| test.glob.matches(value)))
        };
        let applies: Vec<usize> = (0..policy.rules.len()).filter(holds).collect();
        let found: Vec<usize> = policy.index.candidates(&facts, &mut Found::new()).collect();
        assert!(found.is_sorted(), "{found:?}");
        let asked: Vec<usize> = found.into_iter().filter(holds).collect();
        assert_eq!(asked, applies, "{subject:?}");
    }

    #[test]
    fn every_rule_that_applies_is_found_in_order() {
        for policy in (0..ASKED.len()).map(policy) {
            for (route, method) in
                ROUTES.iter().flat_map(|route| ["GET", "POST", ""].map(|method| (*route, method)))
            {
                let subject = Subject::new().with("route", route).with("method", method);
                check(&policy, &subject);
                check(&policy, &subject.with("host", "x"));
            }
            check(&policy, &Subject::new());
        }
    }

    #[test]
    fn a_thousand_rules_for_a_thousand_routes_are_not_asked() {
        let rules = (0..1_000).map(|number| {
            let rule = Rule::new(format!("r{number}")).by("ip").quota("1/s");
            match number % 2 {
                0 => rule.when("route", format!("/api/{number}/*")).when("method", "GET"),
                _ => rule.when("route", format!("/api/{number}")),
            }
        });
        let builder = rules.fold(Policy::builder(), |builder, rule| builder.rule(rule));
        let policy = builder.build().unwrap_or_else(|errors| panic!("{errors}"));
        let subject = Subject::new().with("route", "/api/77").with("method", "PUT").with("ip", "a");
        let facts = Facts::new(&policy.axes, &policy.units, &subject, &Costs::default());
        let candidates =
            |facts| -> Vec<usize> { policy.index.candidates(facts, &mut Found::new()).collect() };
        assert_eq!(candidates(&facts), [77]);
        let Resolution::Charges(charges) = policy.resolve(&subject, &Costs::default()) else {
            panic!("no list is written");
        };
        assert_eq!(charges.rules().collect::<Vec<_>>(), [77]);
        // Five hundred ask for the method, and one for what the route starts with.
        let subject = Subject::new().with("route", "/api/76/x").with("method", "GET");
        let facts = Facts::new(&policy.axes, &policy.units, &subject, &Costs::default());
        assert_eq!(candidates(&facts), [76]);
    }
}
