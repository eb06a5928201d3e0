//! What is kept out of complaints, for they end up on screens, in logs and in answers.
//!
//! One rule: only what is known to hold no secret is shown.
//!
//! - Of a text that can be read, a value is shown if its field is known and is none of `store.url`,
//!   `admin.token` and `salt`. Whatever stands in the place of one of these or of its section is
//!   hidden, be it of the right shape or not.
//! - Of a text that cannot be read, a line is shown if its field is known to hold no secret, and the
//!   rest of the line names none.
//! - In what is left, and in what a message quotes, the login of an address is hidden.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::nearest::nearest;
use crate::report::Problems;
use crate::source::{Source, Span};
use crate::tree::{Entry, Node, Value};

/// Fields that hold no secret.
const HARMLESS: &str = "algorithm allow any_of audit axes by colocate connections consistency \
    critical deadline deny deny_cache file grpc hash header headers http ipv6_prefix listen margin \
    max_in_flight max_keys max_log_entries metrics missing name on_store_failure otlp override \
    overshoot prefix prometheus quota refusals_only replicas resp rule shadow starts_on tier \
    timezone trusted_proxies unit wait when";

/// Fields that are secrets, or hold one.
const SECRET: &str = "admin salt store token url";

/// What makes a line doubtful beside the names of such fields.
const DOUBTFUL: &str = ":// @ password secret";

/// What is written before the value of a password in an address.
const PASSWORD: &str = "password=";

/// The longest name of a field that is quoted.
const LONGEST_NAME: usize = 64;

fn is_listed(list: &str, word: &str) -> bool {
    list.split(' ').any(|known| known == word)
}

/// Hides a value with all that is in it.
pub(crate) fn hide(node: &Node, problems: &mut Problems) {
    match &node.value {
        Value::List(items) => items.iter().for_each(|item| hide(item, problems)),
        Value::Table(entries) => entries.iter().for_each(|entry| {
            problems.hide(entry.key_span);
            hide_value(entry, problems);
        }),
        _ => problems.hide(node.span),
    }
}

/// Hides the value of a field. One that is nothing may be a comment by mistake: `token: #abc`.
fn hide_value(entry: &Entry, problems: &mut Problems) {
    problems.hide(Span { start: entry.key_span.end, ..entry.key_span });
    hide(&entry.node, problems);
}

/// Hides all values of a tree nobody knows.
pub(crate) fn hide_values(tree: &Node, problems: &mut Problems) {
    let Value::Table(entries) = &tree.value else { return hide(tree, problems) };
    for entry in entries {
        let _ = hide_unknown(entry, &[], problems);
    }
}

/// Hides what is secret in a tree, and what stands where a table with a secret should.
pub(crate) fn hide_known(tree: &Node, path: &[&str], problems: &mut Problems) {
    let Value::Table(entries) = &tree.value else { return hide(tree, problems) };
    let Some((name, rest)) = path.split_first() else { return hide(tree, problems) };
    for entry in entries.iter().filter(|entry| entry.key == **name) {
        match rest {
            [] => hide_value(entry, problems),
            rest => hide_known(&entry.node, rest, problems),
        }
    }
}

/// Hides the value of a field nobody knows, for it may be a secret under a misspelled name; returns
/// the name to quote. One that looks like no name is hidden too: `{token:abc}` is all name in YAML.
pub(crate) fn hide_unknown<'e>(
    entry: &'e Entry,
    known: &[&'static str],
    problems: &mut Problems,
) -> Option<&'e str> {
    hide_value(entry, problems);
    let resembles = || nearest(&entry.key, known.iter().copied()).is_some();
    let is_field = |_: &&str| entry.node.value != Value::Nothing || resembles();
    let quoted = name(&entry.key).filter(is_field);
    if quoted.is_none() {
        problems.hide(entry.key_span);
    }
    quoted
}

/// A text that looks like the name of a field.
pub(crate) fn name(text: &str) -> Option<&str> {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    let fits = !text.is_empty() && text.len() <= LONGEST_NAME;
    (fits && text.chars().all(plain)).then_some(text)
}

/// Hides the secrets of a text that could not be read, wherever it is complained about.
pub(crate) fn hide_unread(source: &Source, problems: &mut Problems) {
    let lines: BTreeSet<usize> =
        problems.spans().map(|span| source.line_at(span.start).0).collect();
    for start in lines {
        let (start, line) = source.line_at(start);
        let hidden = unread(line);
        problems.hide(Span::within(0, source.text(), start + hidden.start, start + hidden.end));
    }
}

/// What is hidden of a line that may be anything.
fn unread(line: &str) -> Range<usize> {
    let around = |c: char| c.is_whitespace() || "-[]{}\"'".contains(c);
    let end = line.find(['=', ':']).unwrap_or(line.len());
    let path = line[..end].trim_matches(around);
    let mut harmless = false;
    for word in path.split('.').map(|word| word.trim_matches(around)) {
        harmless = is_listed(HARMLESS, word);
        if !harmless && !is_listed(SECRET, word) {
            return 0..line.len();
        }
    }
    let value = line[end..].to_lowercase();
    let doubtful = |list: &str| list.split(' ').any(|word| value.contains(word));
    match harmless && !doubtful(SECRET) && !doubtful(DOUBTFUL) {
        true => line.len()..line.len(),
        // The sign between the field and its value says what the line is.
        false => (end + 1).min(line.len())..line.len(),
    }
}

/// A hidden place with what a secret may have become beside it: a comment after it, a tag or an anchor
/// before it, as in `token: !abc def #ghi`.
pub(crate) fn with_what_is_beside(mut place: Span, source: &Source) -> Span {
    let (before, after) = (&source.text()[..place.start], &source.text()[place.end..]);
    // Looked at only as far as needed: a line may hold very many of them.
    let rest = after.trim_start_matches([' ', '\t', ':', '=', ',', ']', '}']);
    if rest.starts_with('#') {
        place.end = source.text().len() - rest.len() + rest.find('\n').unwrap_or(rest.len());
    }
    let trimmed = before.trim_end();
    if trimmed.len() < before.len()
        && let Some(word) = trimmed.rsplit(char::is_whitespace).next()
        && word.starts_with(['!', '&'])
    {
        place.start = trimmed.len() - word.len();
    }
    place
}

/// Where a text holds logins of addresses: `redis://HERE@host` and `password=HERE`. Of several the
/// first and the last tell from where to where, for a password may hold what ends another.
pub(crate) fn logins(text: &str) -> [Range<usize>; 2] {
    let none = text.len();
    let before_host = text.find("://").map_or(none, |at| at + "://".len());
    let first = text.find(PASSWORD).map_or(none, |at| at + PASSWORD.len());
    let last = text.rfind(PASSWORD).map_or(none, |at| at + PASSWORD.len());
    let end = text[last..].find(|c: char| c.is_whitespace() || "&\"',;".contains(c));
    [before_host..text.rfind('@').unwrap_or(0), first..end.map_or(none, |end| last + end)]
}

/// A text with stars for its logins.
pub(crate) fn without_logins(text: &str) -> String {
    let logins = logins(text);
    let shown = text.char_indices().map(|(at, c)| match logins.iter().any(|it| it.contains(&at)) {
        true => '*',
        false => c,
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    fn fields(schema: &Value, found: &mut BTreeSet<String>) {
        let Value::Object(table) = schema else { return };
        if let Some(Value::Object(properties)) = table.get("properties") {
            found.extend(properties.keys().cloned());
        }
        table.values().for_each(|inner| fields(inner, found));
    }

    #[test]
    fn every_field_is_harmless_or_secret() {
        let mut found = BTreeSet::new();
        fields(&crate::schema(), &mut found);
        let listed = HARMLESS.split(' ').chain(SECRET.split(' ')).map(str::to_owned);
        assert_eq!(found, listed.collect());
    }

    #[test]
    fn of_a_line_that_cannot_be_read_only_what_is_known_to_be_harmless_is_shown() {
        for (line, shown) in [
            ("name = per-ip", "name = per-ip"),
            ("  - quota: \"100/min", "  - quota: \"100/min"),
            ("[[rule]", "[[rule]"),
            ("[rule.quota", "[rule.quota"),
            ("[store", "[store"),
            ("store.deadline = 5ms", "store.deadline = 5ms"),
            ("token = hunter2", "token ="),
            ("  \"url\": hunter2", "  \"url\":"),
            ("store: {deadline: 5ms, url", "store:"),
            ("admin.token = [", "admin.token ="),
            ("tokn = hunter2", ""),
            ("token hunter2", ""),
            ("  \"hunter2\",", ""),
            ("hunter2.name = 1", ""),
            ("aHVudGVyMg==", ""),
            ("name = \"a\"url = \"hunter2\"", "name ="),
            ("name = \"a\" salt = hunter2", "name ="),
            ("file = redis://u:hunter2", "file ="),
            ("=", ""),
            ("", ""),
        ] {
            let hidden = unread(line);
            assert_eq!(&line[..hidden.start], shown, "{line}");
        }
    }

    #[test]
    fn logins_are_hidden_wherever_they_stand() {
        for (text, shown) in [
            ("redis://gate:x@h", "redis://******@h"),
            ("# redis://a:b@h, rediss://c@d:e@h", "# redis://*********************@h"),
            ("unix:///s?password=abc&database=1", "unix:///s?password=***&database=1"),
            ("?sentinel_password=é\" # why", "?sentinel_password=*\" # why"),
            ("?password=a&sentinel_password=b&c", "?password=*********************&c"),
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("somebody@example.com", "somebody@example.com"),
            ("a@b://c", "a@b://c"),
        ] {
            assert_eq!(without_logins(text), shown);
        }
    }
}
