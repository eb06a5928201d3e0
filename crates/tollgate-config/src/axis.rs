//! The axes a file may speak of, and what their values can look like.

use std::collections::BTreeSet;

use tollgate::Glob;

use crate::fields::{one_of, shortened};
use crate::nearest::nearest;
use crate::report::Problems;
use crate::source::Spanned;
use crate::typed::{Condition, File};

/// The axes front ends know by themselves.
pub(crate) const BUILT_IN: [&str; 5] = ["ip", "method", "route", "host", "user"];

/// The axes of [`BUILT_IN`] that every HTTP request has.
pub(crate) const ALWAYS_THERE: [&str; 4] = ["ip", "method", "route", "host"];

/// The axes known in a file: those built in, those declared, and those some rule counts by.
pub(crate) struct Axes<'a> {
    known: BTreeSet<&'a str>,
    declared: BTreeSet<&'a str>,
}

impl<'a> Axes<'a> {
    pub(crate) fn of(file: &'a File) -> Self {
        let declared = file.axes.iter().map(|axis| axis.name.value.as_str());
        let declared: BTreeSet<&str> = BUILT_IN.into_iter().chain(declared).collect();
        let counted = file.rule.iter().flat_map(|rule| {
            let tier = rule.tier.iter();
            rule.by.iter().chain(tier).map(|axis| axis.value.as_str())
        });
        Self { known: counted.chain(declared.iter().copied()).collect(), declared }
    }

    /// An axis nobody could say anything of is a slip of the pen.
    pub(crate) fn check(&self, axis: &Spanned<String>, problems: &mut Problems) {
        if self.known.contains(axis.value.as_str()) || problems.is_full() {
            return;
        }
        let name = shortened(&axis.value);
        let help = match nearest(&axis.value, self.known.iter().copied()) {
            Some(meant) => format!(
                "write {meant:?}, or declare it: [axes] {name} = {{ header = \"x-{name}\" }}"
            ),
            None => format!(
                "{}; or declare it: [axes] {name} = {{ header = \"x-{name}\" }}, or {name} = {{}} if callers say it",
                one_of("", self.known.iter().copied())
            ),
        };
        problems.error(axis.span, format!("unknown axis {name:?}"), help);
    }

    /// An axis to count by makes itself known; one that is almost another is doubtful.
    pub(crate) fn doubt(&self, axis: &Spanned<String>, problems: &mut Problems) {
        if self.declared.contains(axis.value.as_str()) || problems.is_full() {
            return;
        }
        if let Some(meant) = nearest(&axis.value, self.declared.iter().copied()) {
            let message = format!("axis {:?} is new, and almost {meant:?}", shortened(&axis.value));
            let help = format!("write {meant:?}, or declare the axis under [axes] if it is meant");
            problems.warn(axis.span, message, help);
        }
    }

    /// A pattern that no value of its axis can match.
    pub(crate) fn check_pattern(&self, condition: &Condition, problems: &mut Problems) {
        let pattern = &condition.pattern;
        let glob: Glob = match pattern.value.parse() {
            Ok(glob) => glob,
            Err(error) => return problems.told(pattern.span, &format!("{error}")),
        };
        if let Some(help) = mismatch(&condition.axis.value, &glob) {
            let shown = shortened(&pattern.value);
            let message = format!("pattern {shown:?} can match no {}", condition.axis.value);
            problems.error(pattern.span, message, help);
        }
    }
}

/// What to write instead of a pattern that can match no value of a built-in axis.
fn mismatch(axis: &str, glob: &Glob) -> Option<String> {
    let text = glob.as_str();
    let open = text.starts_with(['*', '?', '\\']);
    match axis {
        "method" if text.chars().any(|c| c.is_ascii_lowercase()) => {
            Some(format!("methods are in upper case: write {:?}", text.to_ascii_uppercase()))
        }
        "route" if text.contains("://") => {
            Some("a route is a path without scheme and host: write \"/api/*\"".to_owned())
        }
        "route" if !open && !text.starts_with('/') => {
            Some(format!("routes start with a slash: write \"/{text}\""))
        }
        "host" if text.contains('/') => {
            Some("a host is a name without scheme and path: write \"api.example.com\"".to_owned())
        }
        "ip" if text.contains('/') => Some(
            "a condition compares addresses as text: write \"10.*\", or put the network under \
             [allow] or [deny]"
                .to_owned(),
        ),
        "ip" if text.chars().any(|c| !is_of_address(c)) => {
            Some("an address has digits, dots and colons: write \"192.0.2.*\"".to_owned())
        }
        _ => None,
    }
}

/// Whether a character can stand in an address or a pattern of addresses.
fn is_of_address(c: char) -> bool {
    matches!(c, '0'..='9' | 'a'..='f' | '.' | ':' | '*' | '?')
}
