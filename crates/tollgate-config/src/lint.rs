//! What is written right and cannot be meant: rules nobody meets, and requests that meet no rule.

use tollgate::{Glob, Missing, Network};

use crate::axis::ALWAYS_THERE;
use crate::compile::{Listed, glob, listed, name_of};
use crate::fields::{shortened, span_of};
use crate::report::Problems;
use crate::typed::{self, Condition, File, Quota};

/// Comparisons before the rest is left unlooked at: rules and overrides are compared with one
/// another, and a file may have any number.
const MAX_COMPARISONS: usize = 200_000;

/// Looks at everything.
pub(crate) fn look(file: &File, problems: &mut Problems) {
    let mut left = MAX_COMPARISONS;
    for rule in &file.rule {
        listed_whole(file, rule, &mut left, problems);
        tiers(rule, problems);
        if problems.is_full() {
            return;
        }
    }
    overrides(file, &mut left, problems);
    lists(file, &mut left, problems);
    unmet(file, &mut left, problems);
}

/// Whether there is time for so many more comparisons.
fn afford(left: &mut usize, comparisons: usize) -> bool {
    let enough = *left >= comparisons;
    *left = left.saturating_sub(comparisons);
    enough
}

/// A rule all of whose subjects are settled by a list before it is asked.
fn listed_whole(file: &File, rule: &typed::Rule, left: &mut usize, problems: &mut Problems) {
    for (list, name, verb) in
        [(&file.deny, "deny", "refuses"), (&file.allow, "allow", "lets through")]
    {
        if !afford(left, list.entries.len() * rule.when.len()) {
            return;
        }
        for condition in &rule.when {
            if list.entries.iter().any(|entry| list_covers(entry, condition)) {
                let message = format!("rule {:?} can never be reached", shortened(name_of(rule)));
                let help = format!(
                    "[{name}] {verb} everybody this condition is about; change the condition, or \
                     take the entry off the list"
                );
                problems.error(condition.pattern.span, message, help);
                return;
            }
        }
    }
}

/// Whether an entry of a list holds every value a condition does.
fn list_covers(entry: &Condition, condition: &Condition) -> bool {
    if entry.axis.value != condition.axis.value {
        return false;
    }
    match listed(entry) {
        Listed::Pattern => pattern_covers(entry, condition),
        Listed::Network => {
            let network = entry.pattern.value.parse::<Network>();
            let address = condition.pattern.value.parse();
            matches!((network, address), (Ok(network), Ok(address)) if network.contains(address))
        }
    }
}

/// Whether everything that matches `narrow` matches `wide`; "no" where that is hard to tell.
fn pattern_covers(wide: &Condition, narrow: &Condition) -> bool {
    if wide.axis.value != narrow.axis.value {
        return false;
    }
    let (Some(wide), Some(narrow)) = (glob(wide), glob(narrow)) else { return false };
    match narrow.literal() {
        Some(value) => wide.matches(value),
        None if wide.as_str() == narrow.as_str() => true,
        None => is_prefix(&wide) && head(&narrow).starts_with(head(&wide)),
    }
}

/// Whether no value matches both; "no" where that is hard to tell.
fn disjoint(one: &Glob, two: &Glob) -> bool {
    match (one.literal(), two.literal()) {
        (Some(value), _) => !two.matches(value),
        (_, Some(value)) => !one.matches(value),
        (None, None) => !head(one).starts_with(head(two)) && !head(two).starts_with(head(one)),
    }
}

/// What every match starts with, as written; what is escaped counts as the end of it.
fn head(glob: &Glob) -> &str {
    glob.as_str().split(['*', '?', '\\']).next().unwrap_or("")
}

/// Whether a pattern is some text and a star.
fn is_prefix(glob: &Glob) -> bool {
    head(glob).len() + 1 == glob.as_str().len() && glob.as_str().ends_with('*')
}

/// Tiers that the rule's own condition keeps out.
fn tiers(rule: &typed::Rule, problems: &mut Problems) {
    let (Some(Quota::ByTier(tiers)), Some(axis)) = (&rule.quota, &rule.tier) else { return };
    let condition = rule.when.iter().find(|condition| condition.axis.value == axis.value);
    let Some(glob) = condition.and_then(glob) else { return };
    for (name, _) in tiers.named.iter().filter(|(name, _)| !glob.matches(&name.value)) {
        let message = format!("tier {:?} can never be reached", shortened(&name.value));
        let help =
            format!("the rule applies only when {} is {glob:?}", axis.value, glob = glob.as_str());
        problems.warn(name.span, message, help);
    }
}

/// Overrides for nobody: of subjects the rule does not have, or that an earlier one takes.
fn overrides(file: &File, left: &mut usize, problems: &mut Problems) {
    let names: std::collections::HashMap<&str, &typed::Rule> =
        file.rule.iter().map(|rule| (name_of(rule), rule)).collect();
    for (index, exception) in file.overrides.iter().enumerate() {
        let Some(rule) = exception.rule.as_ref().and_then(|name| names.get(name.value.as_str()))
        else {
            continue;
        };
        if !afford(left, index + rule.when.len() * exception.when.len()) {
            return;
        }
        if let Some(condition) = outside(rule, exception) {
            let message = "this override can never be reached";
            let help = format!(
                "rule {:?} applies only when {} is {:?}",
                shortened(name_of(rule)),
                condition.axis.value,
                condition.pattern.value
            );
            problems.error(exception.when[0].pattern.span, message, help);
        } else if let Some(earlier) = taken(&file.overrides[..index], exception) {
            let message = "this override can never be reached";
            let help = format!(
                "override {} of the same rule matches everybody it does, and the first counts; \
                 move this one before it",
                earlier + 1
            );
            problems.error(exception.when[0].pattern.span, message, help);
        }
    }
}

/// The condition of a rule that keeps out everybody an override is for.
fn outside<'r>(rule: &'r typed::Rule, exception: &typed::Override) -> Option<&'r Condition> {
    rule.when.iter().find(|own| {
        let same = exception.when.iter().filter(|other| other.axis.value == own.axis.value);
        same.into_iter().any(|other| match (glob(own), glob(other)) {
            (Some(one), Some(two)) => disjoint(&one, &two),
            _ => false,
        })
    })
}

/// The earlier override of the same rule that takes everybody.
fn taken(earlier: &[typed::Override], exception: &typed::Override) -> Option<usize> {
    let rule = |exception: &typed::Override| exception.rule.as_ref().map(|rule| rule.value.clone());
    earlier.iter().position(|known| {
        let wider =
            |wide: &Condition| exception.when.iter().any(|narrow| pattern_covers(wide, narrow));
        !known.when.is_empty() && rule(known) == rule(exception) && known.when.iter().all(wider)
    })
}

/// Entries of the allowlist that the deny-list refuses all the same.
fn lists(file: &File, left: &mut usize, problems: &mut Problems) {
    for entry in &file.allow.entries {
        if !afford(left, file.deny.entries.len()) {
            return;
        }
        let denied = file.deny.entries.iter().any(|denied| {
            denied.axis.value == entry.axis.value && denied.pattern.value == entry.pattern.value
                || list_covers(denied, entry)
        });
        if denied {
            let message = format!("{:?} is on both lists", shortened(&entry.pattern.value));
            let help = "the deny-list wins: take the entry off one of them";
            problems.warn(entry.pattern.span, message, help);
        }
    }
}

/// Rules that skip whoever lacks an axis, where nothing else applies to those.
fn unmet(file: &File, left: &mut usize, problems: &mut Problems) {
    let skips = |rule: &typed::Rule| rule.missing.as_ref().is_none_or(|m| m.value == Missing::Skip);
    let lacks = |rule: &typed::Rule| {
        let mut optional = rule.by.iter();
        optional.find(|axis| !ALWAYS_THERE.contains(&axis.value.as_str())).cloned()
    };
    for rule in file.rule.iter().filter(|rule| skips(rule)) {
        let Some(axis) = lacks(rule) else { continue };
        if problems.is_full() || !afford(left, file.rule.len()) {
            return;
        }
        let met = file.rule.iter().any(|other| {
            let there = !skips(other) || lacks(other).is_none();
            there && same_unit(rule, other) && implied(&other.when, &rule.when)
        });
        if !met {
            let name = shortened(&axis.value);
            let message = format!(
                "a request without {name:?} skips rule {:?}, and could meet no other",
                shortened(name_of(rule))
            );
            let help = "write missing = \"share\" or missing = \"deny\", or add a rule for it";
            problems.warn(span_of(Some(&axis), rule.span), message, help);
        }
    }
}

fn same_unit(one: &typed::Rule, two: &typed::Rule) -> bool {
    let unit =
        |rule: &typed::Rule| rule.unit.as_ref().map_or("requests".to_owned(), |u| u.value.clone());
    unit(one) == unit(two)
}

/// Whether all of `conditions` hold wherever all of `given` do.
fn implied(conditions: &[Condition], given: &[Condition]) -> bool {
    conditions.iter().all(|wide| given.iter().any(|narrow| pattern_covers(wide, narrow)))
}
