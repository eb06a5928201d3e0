//! TOML into the tree.

use ::toml::Spanned;
use ::toml::de::{DeTable, DeValue};

use super::{Entry, MAX_DEPTH, Node, Value};
use crate::report::Problems;
use crate::source::Span;

/// The one document there is; what could not be read is left out and complained about.
pub(super) fn read(source: usize, text: &str, problems: &mut Problems) -> Node {
    let (table, mut errors) = DeTable::parse_recoverable(text);
    errors.sort_by_key(|error| error.span().map(|range| range.start));
    let mut line = None;
    for error in &errors {
        let range = error.span().unwrap_or(0..0);
        let span = Span::within(source, text, range.start, range.end);
        // What follows in the same line mostly follows from it.
        let start = text[..span.start].rfind('\n');
        if line.replace(start) == Some(start) {
            continue;
        }
        problems.error(
            span,
            format!("this is no TOML: {}", one_line(error.message())),
            help(error.message()),
        );
    }
    let mut reader = Reader { source, text, problems };
    let whole = Span::within(source, text, 0, 0);
    Node { value: reader.table(table.into_inner(), 0), span: whole }
}

/// What to write instead, where the parser only says what it cannot read.
fn help(message: &str) -> &'static str {
    match message {
        text if text.contains("string") && !text.contains("invalid") => {
            "put text in double quotes: name = \"per-ip\""
        }
        text if text.contains("duplicate key") => "keep one of them",
        _ => "",
    }
}

fn one_line(message: &str) -> String {
    message.lines().map(str::trim).collect::<Vec<_>>().join(", ")
}

struct Reader<'a> {
    source: usize,
    text: &'a str,
    problems: &'a mut Problems,
}

impl Reader<'_> {
    fn span(&self, range: std::ops::Range<usize>) -> Span {
        Span::within(self.source, self.text, range.start, range.end)
    }

    fn table(&mut self, table: DeTable<'_>, depth: usize) -> Value {
        let mut entries: Vec<Entry> = Vec::with_capacity(table.len());
        for (key, value) in table {
            let key_span = self.span(key.span());
            let node = self.node(value, depth + 1);
            entries.push(Entry { key: key.into_inner().into_owned(), key_span, node });
        }
        // The parser sorts by name; people read from top to bottom.
        entries.sort_by_key(|entry| entry.key_span.start);
        Value::Table(entries)
    }

    fn node(&mut self, value: Spanned<DeValue<'_>>, depth: usize) -> Node {
        let span = self.span(value.span());
        if depth > MAX_DEPTH {
            self.problems.error(
                span,
                "tables and lists lie too deep in one another",
                "no setting does",
            );
            return Node { value: Value::Nothing, span };
        }
        let value = match value.into_inner() {
            DeValue::String(text) => Value::Text(text.into_owned()),
            DeValue::Boolean(flag) => Value::Flag(flag),
            DeValue::Integer(integer) => {
                match i64::from_str_radix(integer.as_str(), integer.radix()) {
                    Ok(number) => Value::Number(number),
                    Err(_) => Value::Other { kind: "a huge number", text: integer.to_string() },
                }
            }
            DeValue::Float(float) => Value::Other { kind: "a fraction", text: float.to_string() },
            DeValue::Datetime(date) => Value::Other { kind: "a date", text: date.to_string() },
            DeValue::Array(array) => {
                Value::List(array.into_iter().map(|item| self.node(item, depth + 1)).collect())
            }
            DeValue::Table(table) => self.table(table, depth),
        };
        Node { value, span }
    }
}
