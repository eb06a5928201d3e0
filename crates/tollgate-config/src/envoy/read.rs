//! Reading the files, as strictly as the reference does.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Number, Value as Json};
use tollgate::{Meter, Quota};

use super::{DescriptorNode, Domains, Level, Limit, Loaded, Options, Rate, Unit};
use crate::fields::{self, one_of, shortened};
use crate::nearest::nearest;
use crate::report::{Problems, Report};
use crate::source::{Source, Span, Spanned};
use crate::tree::{self, Entry, Format, Node, Value};

/// The keys the reference knows, at whatever level.
const KEYS: [&str; 16] = [
    "domain",
    "key",
    "value",
    "descriptors",
    "rate_limit",
    "unit",
    "requests_per_unit",
    "unlimited",
    "shadow_mode",
    "quota_mode",
    "name",
    "replaces",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
    "metadata",
];

/// The keys that mean something at each level.
const OF_A_DOMAIN: [&str; 2] = ["domain", "descriptors"];
const OF_A_DESCRIPTOR: [&str; 10] = [
    "key",
    "value",
    "rate_limit",
    "descriptors",
    "shadow_mode",
    "quota_mode",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
    "metadata",
];
const OF_A_LIMIT: [&str; 5] = ["unit", "requests_per_unit", "unlimited", "name", "replaces"];
const OF_A_REPLACED: [&str; 1] = ["name"];

/// Reads every document of every source.
pub(super) fn read(sources: Vec<Source>, options: Options) -> Result<Loaded, Report> {
    let mut problems = Problems::default();
    problems.speak(Format::Yaml);
    let mut domains = Domains { named: HashMap::new(), order: Vec::new(), options };
    for (number, source) in sources.iter().enumerate() {
        let documents = tree::read(number, source, Format::Yaml, &mut problems);
        if documents.is_empty() && !problems.any_errors() {
            let start = Span::within(number, source.text(), 0, 0);
            problems.error(start, "the file is empty", "write domain = name, and descriptors");
        }
        for document in &documents {
            Reader { options, problems: &mut problems }.document(document, &mut domains);
        }
    }
    let failed = problems.any_errors();
    let report = problems.into_report(sources);
    match failed {
        true => Err(report),
        false => Ok(Loaded { domains, warnings: report }),
    }
}

struct Reader<'a> {
    options: Options,
    problems: &'a mut Problems,
}

impl Reader<'_> {
    fn document(&mut self, node: &Node, domains: &mut Domains) {
        let entries = self.entries(node, "a document", &OF_A_DOMAIN);
        let domain = find(entries, "domain");
        let name = domain.and_then(|node| fields::text(node, "domain", self.problems));
        let Some(name) = name.filter(|name| !name.value.is_empty()) else {
            let span = domain.map_or(node.span, |node| node.span);
            let help = "write domain = and the domain that Envoy's configuration names";
            self.problems.error(span, "the domain is empty", help);
            return;
        };
        let known = domains.named.contains_key(&name.value);
        if known && !self.options.merge_domains {
            let message = format!("domain {:?} is written twice", shortened(&name.value));
            let help = "put all its descriptors in one document";
            self.problems.error(name.span, message, help);
            return;
        }
        if !known {
            domains.order.push(name.value.clone());
        }
        let level = domains.named.entry(name.value.clone()).or_default();
        self.level(find(entries, "descriptors"), &name.value, level);
    }

    /// Adds the descriptors of a list to a level.
    fn level(&mut self, list: Option<&Node>, path: &str, level: &mut Level) {
        for item in self.tables(list, "descriptors") {
            let Some((node, span)) = self.descriptor(item, path) else { continue };
            let name = node.name();
            if level.named.contains_key(&name) {
                let message = format!("descriptor {:?} is written twice", shortened(&name));
                self.problems.error(span, message, "merge the two, or change a value");
                continue;
            }
            let place = level.nodes.len();
            if name.contains('*') {
                let parts = name.split('*').map(str::to_owned).collect();
                level.wildcards.push((parts, place));
            }
            level.named.insert(name, place);
            level.nodes.push(node);
        }
    }

    fn descriptor(&mut self, item: &Node, path: &str) -> Option<(DescriptorNode, Span)> {
        let entries = self.entries(item, "a descriptor", &OF_A_DESCRIPTOR);
        let key = self.text(entries, "key").filter(|key| !key.value.is_empty());
        let Some(key) = key else {
            let span = find(entries, "key").map_or(item.span, |node| node.span);
            let help = "write key = and the descriptor's key";
            self.problems.error(span, "a descriptor has an empty key", help);
            return None;
        };
        let value = self.text(entries, "value").map_or_else(String::new, |value| value.value);
        let mut node = DescriptorNode {
            key: key.value,
            value,
            limit: None,
            share_threshold: self.flag(entries, "share_threshold"),
            value_to_metric: self.flag(entries, "value_to_metric"),
            level: Level::default(),
        };
        let name = node.name();
        if node.share_threshold && !name.contains('*') {
            let span = find(entries, "share_threshold").map_or(item.span, |node| node.span);
            let help = "write a value with *, or leave share_threshold out";
            let message = "only a value with * can share its threshold";
            self.problems.error(span, message, help);
        }
        let path = format!("{path}.{name}");
        let metadata = find(entries, "metadata").and_then(|node| self.metadata(node));
        let marks = Limit {
            path: path.clone(),
            name: String::new(),
            rate: None,
            replaces: Vec::new(),
            shadow_mode: self.flag(entries, "shadow_mode"),
            quota_mode: self.flag(entries, "quota_mode"),
            detailed_metric: self.flag(entries, "detailed_metric"),
            metadata,
        };
        let limit = find(entries, "rate_limit").and_then(|limit| self.limit(limit, marks));
        node.limit = limit.map(Arc::new);
        self.level(find(entries, "descriptors"), &path, &mut node.level);
        Some((node, key.span))
    }

    fn limit(&mut self, node: &Node, marks: Limit) -> Option<Limit> {
        let entries = self.entries(node, "a rate_limit", &OF_A_LIMIT);
        let name = self.text(entries, "name").map_or_else(String::new, |name| name.value);
        let unlimited = self.flag(entries, "unlimited");
        let written = self.text(entries, "unit");
        let unit = written.as_ref().and_then(|text| Unit::of_name(&text.value));
        let requests = self.requests(entries);
        let rate = match (unlimited, unit) {
            (true, Some(_)) => {
                let span = written.as_ref().map_or(node.span, |text| text.span);
                let help = "leave the unit out, or unlimited";
                self.problems.error(span, "an unlimited limit has no unit", help);
                None
            }
            (true, None) => None,
            (false, None) => {
                let names = Unit::ALL.map(|(_, name, ..)| name);
                let (found, span) = match &written {
                    Some(text) => (text.value.as_str(), text.span),
                    None => ("", node.span),
                };
                let message = format!("there is no unit {:?}", shortened(found));
                self.problems.error(span, message, one_of(found, names.into_iter()));
                None
            }
            (false, Some(unit)) => {
                let requests_per_unit = requests.as_ref().map_or(0, |found| found.value);
                let rate = Rate { requests_per_unit, unit };
                let span = requests.as_ref().map_or(node.span, |found| found.span);
                self.fits(rate, span);
                Some(rate)
            }
        };
        let replaces = self.replaces(find(entries, "replaces"), &name);
        Some(Limit { name, rate, replaces, ..marks })
    }

    fn requests(&mut self, entries: &[Entry]) -> Option<Spanned<u32>> {
        let node = find(entries, "requests_per_unit")?;
        let read = fields::whole(0..=u32::MAX.into())(node, "requests_per_unit", self.problems)?;
        Some(Spanned { value: u32::try_from(read.value).ok()?, span: read.span })
    }

    /// Whether the algorithm that was asked for can meter a rate.
    fn fits(&mut self, rate: Rate, span: Span) {
        let quota = Quota::new(rate.requests_per_unit.into(), rate.unit.period());
        let fit = quota.map(|quota| Meter::new(quota, self.options.algorithm));
        if let Some(Err(error)) = fit {
            self.problems.told(span, &error.to_string());
        }
    }

    fn replaces(&mut self, list: Option<&Node>, own: &str) -> Vec<String> {
        let mut replaces = Vec::new();
        for item in self.tables(list, "replaces") {
            let entries = self.entries(item, "an entry of replaces", &OF_A_REPLACED);
            let name = self.text(entries, "name").map_or_else(String::new, |name| name.value);
            if name.is_empty() {
                let help = "write name = and the name of another limit";
                self.problems.error(item.span, "an entry of replaces has no name", help);
            } else if name == own {
                let message = "a limit cannot replace itself";
                self.problems.error(item.span, message, "write the name of another limit");
            } else {
                replaces.push(name);
            }
        }
        replaces
    }

    /// Whatever is written, as JSON; Envoy is handed it as it is.
    fn metadata(&mut self, node: &Node) -> Option<Map<String, Json>> {
        match json(node) {
            Json::Object(fields) if fields.is_empty() => None,
            Json::Object(fields) => Some(fields),
            _ => {
                let message = format!("metadata must be a table, not {}", node.kind());
                self.problems.error(node.span, message, "write metadata = and fields under it");
                None
            }
        }
    }

    /// The entries of a table, each of a key the reference knows.
    fn entries<'n>(&mut self, node: &'n Node, what: &str, here: &[&str]) -> &'n [Entry] {
        let entries = match &node.value {
            Value::Table(entries) => entries.as_slice(),
            Value::Nothing => &[],
            _ => {
                let message = format!("{what} must be a table, not {}", node.kind());
                self.problems.error(node.span, message, format!("write {} = …", here[0]));
                &[]
            }
        };
        for entry in entries {
            let name = entry.key.as_str();
            if self.problems.is_full() || here.contains(&name) {
                self.scalar(entry);
            } else if KEYS.contains(&name) {
                let message = format!("{name:?} means nothing in {what}, and is passed over");
                self.problems.warn(
                    entry.key_span,
                    message,
                    format!("there are {}", here.join(", ")),
                );
            } else {
                let help = match nearest(name, here.iter().copied()) {
                    Some(meant) => format!("write {meant:?}; there are {}", here.join(", ")),
                    None => format!("there are {}", here.join(", ")),
                };
                let message = format!("unknown key {:?} in {what}", shortened(name));
                self.problems.error(entry.key_span, message, help);
            }
        }
        entries
    }

    /// The reference takes no fraction for a text.
    fn scalar(&mut self, entry: &Entry) {
        let Value::Plain(text) = &entry.node.value else { return };
        let is_fraction = text.contains(['.', 'e', 'E'])
            && text.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '.')
            && text.parse::<f64>().is_ok();
        if is_fraction && entry.key != "metadata" {
            let message = format!("{:?} must not be a fraction", entry.key);
            let help = format!("put it in quotes: \"{}\"", shortened(text));
            self.problems.error(entry.node.span, message, help);
        }
    }

    /// The items of a list of tables.
    fn tables<'n>(&mut self, list: Option<&'n Node>, name: &str) -> Vec<&'n Node> {
        let Some(node) = list else { return Vec::new() };
        let Value::List(items) = &node.value else {
            let message = format!("{name:?} must be a list, not {}", node.kind());
            self.problems.error(node.span, message, "write a dash before each item");
            return Vec::new();
        };
        let mut tables = Vec::with_capacity(items.len());
        for item in items {
            match item.value {
                Value::Table(_) => tables.push(item),
                _ => {
                    let message = format!("{name:?} is a list of tables, not of {}", item.kind());
                    self.problems.error(item.span, message, "write fields after the dash");
                }
            }
        }
        tables
    }

    fn text(&mut self, entries: &[Entry], name: &str) -> Option<Spanned<String>> {
        fields::text(find(entries, name)?, name, self.problems)
    }

    fn flag(&mut self, entries: &[Entry], name: &str) -> bool {
        let node = find(entries, name);
        let flag = node.and_then(|node| fields::flag(node, name, self.problems));
        flag.is_some_and(|flag| flag.value)
    }
}

/// The value of a key, if there is any.
fn find<'n>(entries: &'n [Entry], name: &str) -> Option<&'n Node> {
    let found = entries.iter().find(|entry| entry.key == name).map(|entry| &entry.node);
    found.filter(|node| node.value != Value::Nothing)
}

fn json(node: &Node) -> Json {
    match &node.value {
        Value::Nothing => Json::Null,
        Value::Flag(flag) => Json::Bool(*flag),
        Value::Number(number) => Json::Number((*number).into()),
        Value::Text(text) | Value::Other { text, .. } => Json::String(text.clone()),
        Value::Plain(text) => plain(text),
        Value::List(items) => Json::Array(items.iter().map(json).collect()),
        Value::Table(entries) => {
            let fields = entries.iter().map(|entry| (entry.key.clone(), json(&entry.node)));
            Json::Object(fields.collect())
        }
    }
}

/// What a text without quotes is when nobody says what it should be.
fn plain(text: &str) -> Json {
    if let Ok(number) = text.parse::<i64>() {
        return Json::Number(number.into());
    }
    let number =
        text.parse().ok().filter(|_| text.starts_with(|c: char| c.is_ascii_digit() || c == '-'));
    match (text, number.and_then(Number::from_f64)) {
        ("true" | "True" | "TRUE" | "yes" | "on", _) => Json::Bool(true),
        ("false" | "False" | "FALSE" | "no" | "off", _) => Json::Bool(false),
        (_, Some(number)) => Json::Number(number),
        _ => Json::String(text.to_owned()),
    }
}
