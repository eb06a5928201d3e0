//! Values with the places they were written at, whatever the format.
//!
//! Both formats are read into one tree, so that everything after it is written once: settings are
//! read off it field by field, and every complaint can point at its text. Whatever the text is,
//! reading it ends soon and takes bounded memory: the text has a largest size, the tree a largest
//! depth and a largest number of nodes, the copies that YAML's aliases make among them.

mod toml;
mod yaml;

use crate::report::Problems;
use crate::source::{Source, Span};

/// The largest text that is read. A thousand rules take about a hundred kilobytes.
pub(crate) const MAX_BYTES: usize = 4 << 20;

/// The most values in a tree. YAML's aliases can make a short text into any number.
const MAX_NODES: usize = 400_000;

/// How deep lists and tables may lie in one another; it bounds every recursion over a tree.
const MAX_DEPTH: usize = 64;

/// How a text is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// TOML 1.1.
    Toml,
    /// YAML 1.2.
    Yaml,
}

impl Format {
    /// The format a file's name tells: YAML for `.yaml` and `.yml`, else TOML.
    pub fn of(name: &str) -> Self {
        let lower = name.to_ascii_lowercase();
        match lower.ends_with(".yaml") || lower.ends_with(".yml") {
            true => Self::Yaml,
            false => Self::Toml,
        }
    }
}

/// A value and where it is written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) span: Span,
}

/// A value as far as the format tells what it is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// Nothing: `key:` in YAML.
    Nothing,
    Flag(bool),
    Number(i64),
    Text(String),
    /// Text without quotes, from YAML, the environment or a flag: it is what it is asked to be.
    Plain(String),
    /// Something no setting is: a fraction, a date.
    Other {
        kind: &'static str,
        text: String,
    },
    List(Vec<Node>),
    Table(Vec<Entry>),
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) key_span: Span,
    pub(crate) node: Node,
}

impl Node {
    pub(crate) fn empty_table(span: Span) -> Self {
        Self { value: Value::Table(Vec::new()), span }
    }

    /// What it is, with an article, as a sentence needs it.
    pub(crate) fn kind(&self) -> &'static str {
        match &self.value {
            Value::Nothing => "nothing",
            Value::Flag(_) => "true or false",
            Value::Number(_) => "a number",
            Value::Text(_) | Value::Plain(_) => "text",
            Value::Other { kind, .. } => kind,
            Value::List(_) => "a list",
            Value::Table(_) => "a table",
        }
    }

    /// Puts a value at the end of a path of keys, instead of any there; tables come into being on
    /// the way.
    pub(crate) fn put(&mut self, path: &[&str], node: Node) {
        let Some((key, rest)) = path.split_first() else {
            *self = node;
            return;
        };
        if !matches!(self.value, Value::Table(_)) {
            self.value = Value::Table(Vec::new());
        }
        let Value::Table(entries) = &mut self.value else { return };
        let index = entries.iter().position(|entry| entry.key == **key).unwrap_or_else(|| {
            let node = Self::empty_table(node.span);
            entries.push(Entry { key: (*key).to_owned(), key_span: node.span, node });
            entries.len() - 1
        });
        entries[index].node.put(rest, node);
    }
}

/// The documents of a source; of TOML always one. Complains and keeps what it could read.
pub(crate) fn read(
    number: usize,
    source: &Source,
    format: Format,
    problems: &mut Problems,
) -> Vec<Node> {
    let text = source.text();
    if text.len() > MAX_BYTES {
        let start = Span::within(number, text, 0, 0);
        let most = MAX_BYTES >> 20;
        problems.error(
            start,
            format!("the file is larger than {most} MiB"),
            "split it, or shorten it",
        );
        return Vec::new();
    }
    match format {
        Format::Toml => vec![toml::read(number, text, problems)],
        Format::Yaml => yaml::read(number, text, problems),
    }
}
