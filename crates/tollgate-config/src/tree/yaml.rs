//! YAML into the tree.

use std::collections::{HashMap, HashSet};

use granit_parser::{Event, Marker, Parser, ScalarStyle};

use super::{Entry, MAX_DEPTH, MAX_NODES, Node, Value};
use crate::report::Problems;
use crate::secrets;
use crate::source::Span;

/// The documents, up to the first thing that is no YAML.
pub(super) fn read(source: usize, text: &str, problems: &mut Problems) -> Vec<Node> {
    let mut reader = Reader { source, text, anchors: HashMap::new(), open: Vec::new(), nodes: 0 };
    let mut documents = Vec::new();
    for event in Parser::new_from_str(text) {
        let read = match event {
            Ok((event, span)) => reader.event(event, span, problems),
            Err(error) => {
                let at = error.marker().byte_offset().unwrap_or(0);
                Err((reader.span(at, at), format!("this is no YAML: {}", error.info())))
            }
        };
        match read {
            Ok(None) => {}
            Ok(Some(document)) => documents.push(document),
            Err((span, message)) => {
                problems.error(span, message, "");
                break;
            }
        }
    }
    documents
}

/// Why no more is read, and where.
type Stop = (Span, String);

struct Reader<'a> {
    source: usize,
    text: &'a str,
    /// What aliases stand for, by the parser's numbers.
    anchors: HashMap<usize, Node>,
    /// The lists and tables that are not finished, outermost first.
    open: Vec<Open>,
    /// Values made so far, copies included.
    nodes: usize,
}

/// A list or a table while it is read.
struct Open {
    value: Value,
    span: Span,
    anchor: usize,
    /// The key that waits for its value.
    key: Option<(String, Span)>,
    /// The keys that have one.
    keys: HashSet<String>,
}

impl Reader<'_> {
    fn event(
        &mut self,
        event: Event<'_>,
        span: granit_parser::Span,
        problems: &mut Problems,
    ) -> Result<Option<Node>, Stop> {
        let span = self.between(&span.start, &span.end);
        match event {
            Event::Scalar(text, style, anchor, _) => {
                let value = match style {
                    ScalarStyle::Plain if matches!(&*text, "" | "~" | "null" | "Null" | "NULL") => {
                        Value::Nothing
                    }
                    ScalarStyle::Plain => Value::Plain(text.into_owned()),
                    _ => Value::Text(text.into_owned()),
                };
                self.finish(Node { value, span }, anchor, problems)
            }
            Event::SequenceStart(_, anchor, _) => self.start(Value::List(Vec::new()), span, anchor),
            Event::MappingStart(_, anchor, _) => self.start(Value::Table(Vec::new()), span, anchor),
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(open) = self.open.pop() else { return Ok(None) };
                self.finish(Node { value: open.value, span: open.span }, open.anchor, problems)
            }
            Event::Alias(number) => {
                let Some(node) = self.anchors.get(&number) else {
                    return Err((span, "this alias stands for something it is part of".to_owned()));
                };
                if self.open.len() + depth(node) > MAX_DEPTH {
                    return Err((span, TOO_DEEP.to_owned()));
                }
                self.nodes += count(node, MAX_NODES);
                let node = Node { value: node.value.clone(), span };
                self.finish(node, 0, problems)
            }
            Event::DocumentStart(..) => {
                self.anchors.clear();
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    fn start(&mut self, value: Value, span: Span, anchor: usize) -> Result<Option<Node>, Stop> {
        if self.open.len() == MAX_DEPTH {
            return Err((span, TOO_DEEP.to_owned()));
        }
        self.open.push(Open { value, span, anchor, key: None, keys: HashSet::new() });
        Ok(None)
    }

    /// Puts a finished value where it belongs; the outermost is a document.
    fn finish(
        &mut self,
        mut node: Node,
        anchor: usize,
        problems: &mut Problems,
    ) -> Result<Option<Node>, Stop> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err((
                node.span,
                format!("the file has more than {MAX_NODES} values, copies by alias included"),
            ));
        }
        merge(&mut node);
        if anchor != 0 {
            // Copied once here and once for every alias; both are counted.
            self.nodes += count(&node, MAX_NODES);
            self.anchors.insert(anchor, node.clone());
        }
        let Some(open) = self.open.last_mut() else { return Ok(Some(node)) };
        match (&mut open.value, open.key.take()) {
            (Value::Table(_), None) => open.key = Some(key(node, problems)),
            (Value::Table(entries), Some((key, key_span))) => {
                if open.keys.insert(key.clone()) {
                    entries.push(Entry { key, key_span, node });
                } else {
                    let message = match secrets::name(&key) {
                        Some(name) => format!("field {name:?} is written twice"),
                        None => "a field is written twice".to_owned(),
                    };
                    problems.error(key_span, message, "keep one of them");
                }
            }
            (Value::List(items), _) => items.push(node),
            _ => {}
        }
        Ok(None)
    }

    fn between(&self, start: &Marker, end: &Marker) -> Span {
        let at = start.byte_offset().unwrap_or(0);
        self.span(at, end.byte_offset().unwrap_or(at))
    }

    fn span(&self, start: usize, end: usize) -> Span {
        let span = Span::within(self.source, self.text, start, end);
        // The parser's spans reach to the next token; the blank between is not what is meant.
        let text = self.text[span.start..span.end].trim_end();
        Span { end: span.start + text.len(), ..span }
    }
}

const TOO_DEEP: &str = "tables and lists lie too deep in one another";

/// The key under which a table names others whose fields it takes over.
const MERGE: &str = "<<";

/// The name of a field. Keys that are no text have none, and are known by no reader.
fn key(node: Node, problems: &mut Problems) -> (String, Span) {
    let text = match node.value {
        Value::Text(text) | Value::Plain(text) => text,
        Value::Nothing => String::new(),
        _ => {
            problems.error(node.span, "a field's name must be text", "write name: value");
            String::new()
        }
    };
    (text, node.span)
}

/// Adds the fields of the tables named by `<<` that are not written here.
fn merge(node: &mut Node) {
    let Value::Table(entries) = &mut node.value else { return };
    let Some(index) = entries.iter().position(|entry| entry.key == MERGE) else { return };
    let merged = match &entries[index].node.value {
        Value::Table(_) => vec![entries[index].node.clone()],
        Value::List(items) => items.clone(),
        _ => return,
    };
    entries.remove(index);
    let mut known: HashSet<String> = entries.iter().map(|entry| entry.key.clone()).collect();
    for table in merged {
        let Value::Table(others) = table.value else { continue };
        entries.extend(others.into_iter().filter(|other| known.insert(other.key.clone())));
    }
}

/// How deep a tree is: one for a scalar.
fn depth(node: &Node) -> usize {
    let deepest = match &node.value {
        Value::List(items) => items.iter().map(depth).max(),
        Value::Table(entries) => entries.iter().map(|entry| depth(&entry.node)).max(),
        _ => None,
    };
    1 + deepest.unwrap_or(0)
}

/// How many values there are in a tree, as far as it matters.
fn count(node: &Node, most: usize) -> usize {
    let inner = |nodes: &mut dyn Iterator<Item = &Node>| {
        nodes.fold(1, |sum: usize, node| if sum > most { sum } else { sum + count(node, most) })
    };
    match &node.value {
        Value::List(items) => inner(&mut items.iter()),
        Value::Table(entries) => inner(&mut entries.iter().map(|entry| &entry.node)),
        _ => 1,
    }
}
