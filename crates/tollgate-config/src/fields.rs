//! Reading values off the tree, field by field.
//!
//! Nothing here stops at the first complaint: a value that is wrong is complained about and left
//! out, and reading goes on.

use std::time::Duration;

use crate::nearest::nearest;
use crate::report::Problems;
use crate::secrets;
use crate::source::{Span, Spanned};
use crate::tree::{Entry, Node, Value};

/// The fields of a table. Those that nobody asked for are unknown.
pub(crate) struct Fields<'n> {
    entries: &'n [Entry],
    /// What the table is, with an article.
    what: &'static str,
    asked: Vec<&'static str>,
    /// Whether it is a table at all.
    is_table: bool,
}

impl<'n> Fields<'n> {
    /// The fields of a node that has to be a table.
    pub(crate) fn of(node: &'n Node, what: &'static str, problems: &mut Problems) -> Self {
        let (entries, is_table): (&[Entry], bool) = match &node.value {
            Value::Table(entries) => (entries, true),
            Value::Nothing => (&[], true),
            _ => {
                let message = format!("{what} must be a table, not {}", node.kind());
                let help = match what {
                    "an axis" => "write { header = \"x-tenant\" }, or {} if callers say it",
                    "a rule" => "write name = \"per-ip\" and the other fields",
                    _ => "write its fields, each with a value",
                };
                problems.error(node.span, message, help);
                (&[], false)
            }
        };
        Self { entries, what, asked: Vec::new(), is_table }
    }

    /// Whether a field that has to be there is not, nor one whose name is almost its.
    pub(crate) fn lacks(&mut self, name: &'static str) -> bool {
        let almost = |entry: &Entry| entry.key != name && nearest(&entry.key, [name]).is_some();
        self.is_table && self.take(name).is_none() && !self.entries.iter().any(almost)
    }

    /// The value of a field, if it is written.
    pub(crate) fn take(&mut self, name: &'static str) -> Option<&'n Node> {
        if !self.asked.contains(&name) {
            self.asked.push(name);
        }
        let found = self.entries.iter().find(|entry| entry.key == name);
        found.map(|entry| &entry.node).filter(|node| node.value != Value::Nothing)
    }

    /// The value of a field, read by `read`.
    pub(crate) fn read<T>(
        &mut self,
        name: &'static str,
        problems: &mut Problems,
        read: impl FnOnce(&'n Node, &str, &mut Problems) -> Option<T>,
    ) -> Option<T> {
        let node = self.take(name)?;
        read(node, name, problems)
    }

    /// Complains about every field nobody asked for.
    pub(crate) fn finish(self, problems: &mut Problems) {
        for entry in self.entries.iter().filter(|entry| !self.asked.contains(&entry.key.as_str())) {
            let name = secrets::hide_unknown(entry, &self.asked, problems);
            if problems.is_full() {
                continue;
            }
            let known = self.asked.join(", ");
            let help = match nearest(&entry.key, self.asked.iter().copied()) {
                Some(meant) => format!("write {meant:?}; the fields are {known}"),
                None => format!("the fields are {known}"),
            };
            let message = match name {
                Some(name) => format!("unknown field {name:?} in {}", self.what),
                None => format!("unknown field in {}", self.what),
            };
            problems.error(entry.key_span, message, help);
        }
    }
}

/// Text, quoted or not; numbers are text where text is asked for only if they were not quoted.
pub(crate) fn text(node: &Node, name: &str, problems: &mut Problems) -> Option<Spanned<String>> {
    let value = match &node.value {
        Value::Text(text) | Value::Plain(text) => text.clone(),
        _ => {
            let message = format!("{:?} must be text, not {}", shortened(name), node.kind());
            problems.error(node.span, message, text_help(node));
            return None;
        }
    };
    Some(Spanned { value, span: node.span })
}

/// Text that is never quoted.
pub(crate) fn secret(node: &Node, name: &str, problems: &mut Problems) -> Option<Spanned<String>> {
    if matches!(node.value, Value::Text(_) | Value::Plain(_)) {
        return text(node, name, problems);
    }
    let message = format!("{name:?} must be text, not {}", node.kind());
    problems.error(node.span, message, "write one text in quotes");
    None
}

fn text_help(node: &Node) -> String {
    match &node.value {
        Value::Flag(flag) => format!("put it in quotes: \"{flag}\""),
        Value::Number(number) => format!("put it in quotes: \"{number}\""),
        Value::Other { text, .. } => format!("put it in quotes: \"{text}\""),
        Value::List(_) => "write one text in quotes".to_owned(),
        _ => String::new(),
    }
}

/// True or false, also in the ways YAML 1.1 wrote them.
pub(crate) fn flag(node: &Node, name: &str, problems: &mut Problems) -> Option<Spanned<bool>> {
    let value = match &node.value {
        Value::Flag(flag) => Some(*flag),
        Value::Plain(text) => match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "y" => Some(true),
            "false" | "no" | "off" | "n" => Some(false),
            _ => None,
        },
        _ => None,
    };
    if value.is_none() {
        let message = format!("{name:?} must be true or false, not {}", shown(node));
        problems.error(node.span, message, format!("write {name} = true or {name} = false"));
    }
    value.map(|value| Spanned { value, span: node.span })
}

/// A whole number within bounds.
pub(crate) fn whole(
    within: std::ops::RangeInclusive<u64>,
) -> impl FnOnce(&Node, &str, &mut Problems) -> Option<Spanned<u64>> {
    move |node, name, problems| {
        let value = match &node.value {
            Value::Number(number) => u64::try_from(*number).ok(),
            Value::Plain(text) => text.replace('_', "").parse().ok(),
            _ => None,
        };
        let value = value.filter(|value| within.contains(value));
        if value.is_none() {
            let (least, most) = (within.start(), within.end());
            let message = format!("{name:?} must be a whole number, not {}", shown(node));
            problems.error(node.span, message, format!("write one from {least} to {most}"));
        }
        value.map(|value| Spanned { value, span: node.span })
    }
}

/// A span of time such as `50ms`, `2s` or `5m`.
pub(crate) fn duration(
    node: &Node,
    name: &str,
    problems: &mut Problems,
) -> Option<Spanned<Duration>> {
    let text = text(node, name, problems)?;
    let read = read_duration(&text.value);
    if read.is_none() {
        let message = format!("{name:?} must be a time, not {:?}", shortened(&text.value));
        problems.error(text.span, message, "write a whole number and ms, s, m, h or d: \"50ms\"");
    }
    read.map(|value| Spanned { value, span: node.span })
}

fn read_duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '_')?;
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.replace('_', "").parse().ok()?;
    let millis = match unit.trim() {
        "ms" => 1,
        "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.checked_mul(millis).map(Duration::from_millis)
}

/// One of several names.
pub(crate) fn choice<T: Copy>(
    choices: &[(&'static str, T)],
) -> impl FnOnce(&Node, &str, &mut Problems) -> Option<Spanned<T>> {
    move |node, name, problems| {
        let text = text(node, name, problems)?;
        let found = choices.iter().find(|(known, _)| *known == text.value);
        if found.is_none() {
            let message = format!("unknown {name} {:?}", shortened(&text.value));
            problems.error(
                text.span,
                message,
                one_of(&text.value, choices.iter().map(|(n, _)| *n)),
            );
        }
        found.map(|(_, value)| Spanned { value: *value, span: text.span })
    }
}

/// A list of texts; one text alone is a list of one.
pub(crate) fn texts(
    node: &Node,
    name: &str,
    problems: &mut Problems,
) -> Option<Vec<Spanned<String>>> {
    match &node.value {
        Value::List(items) => {
            let items: Vec<_> = items.iter().map(|item| text(item, name, problems)).collect();
            Some(items.into_iter().flatten().collect())
        }
        _ => text(node, name, problems).map(|one| vec![one]),
    }
}

/// A table of texts.
pub(crate) fn pairs(
    node: &Node,
    name: &str,
    problems: &mut Problems,
) -> Option<Vec<(Spanned<String>, Spanned<String>)>> {
    let Value::Table(entries) = &node.value else {
        let message = format!("{name:?} must be a table, not {}", node.kind());
        problems.error(node.span, message, format!("write {name} = {{ … = \"…\" }}"));
        return None;
    };
    let written = entries.iter().filter(|entry| entry.node.value != Value::Nothing);
    let read = written.map(|entry| {
        let key = Spanned { value: entry.key.clone(), span: entry.key_span };
        Some((key, text(&entry.node, &entry.key, problems)?))
    });
    let read: Vec<_> = read.collect();
    Some(read.into_iter().flatten().collect())
}

/// Help that names the one that was probably meant, and all.
pub(crate) fn one_of<'k>(word: &str, known: impl Iterator<Item = &'k str> + Clone) -> String {
    let all: Vec<&str> = known.clone().collect();
    let all = all.join(", ");
    match nearest(word, known) {
        Some(meant) => format!("write {meant:?}; there are {all}"),
        None => format!("write one of {all}"),
    }
}

/// What stands there, short enough for a sentence.
fn shown(node: &Node) -> String {
    match &node.value {
        Value::Text(text) | Value::Plain(text) => format!("{:?}", shortened(text)),
        Value::Number(number) => number.to_string(),
        Value::Flag(flag) => flag.to_string(),
        Value::Other { text, .. } => shortened(text),
        _ => node.kind().to_owned(),
    }
}

/// The start of a text as it is quoted: without logins, and the rest would only be noise.
pub(crate) fn shortened(text: &str) -> String {
    secrets::without_logins(text).chars().take(80).collect()
}

/// Where a node's text is, or the place of the table it is missing from.
pub(crate) fn span_of<T>(field: Option<&Spanned<T>>, otherwise: Span) -> Span {
    field.map_or(otherwise, |field| field.span)
}
