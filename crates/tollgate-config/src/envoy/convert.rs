//! The same limits as a file of our own.
//!
//! A key becomes an axis. Where a descriptor has a value the rule has a condition, where it has none
//! the rule counts by the axis, and where a more specific sibling has a limit of its own that is an
//! override. What has no counterpart is said in a comment, in its place.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;

use super::{DescriptorNode, Domains, Level, Limit, Rate, Unit};

/// The axis that tells domains apart where a file has several.
const DOMAIN: &str = "domain";

impl Domains {
    /// The same limits as a file of settings, in TOML.
    pub fn to_toml(&self) -> String {
        let mut writer = Writer { algorithm: self.options.algorithm.name(), ..Writer::default() };
        for name in &self.order {
            let mut way = Way::default();
            if self.order.len() > 1 {
                way.conditions.push((DOMAIN.to_owned(), escaped(name)));
                writer.axes.insert(DOMAIN.to_owned());
            }
            writer.level(&self.named[name], &way);
        }
        writer.finish()
    }
}

/// Patterns of one key at one level that are compared with one another; a bound on the time it takes.
const MAX_PATTERNS: usize = 1_000;

/// How a descriptor is reached: what its rule has to say before its own part.
#[derive(Clone, Debug, Default)]
struct Way {
    conditions: Vec<(String, String)>,
    by: Vec<String>,
}

impl Way {
    /// The way through a descriptor; `None` if it asks twice for one key.
    fn through(&self, node: &DescriptorNode) -> Option<Self> {
        let asked = |key: &String| *key == node.key;
        if self.conditions.iter().any(|(key, _)| asked(key)) || self.by.iter().any(asked) {
            return None;
        }
        let mut way = self.clone();
        if !node.value.is_empty() {
            way.conditions.push((node.key.clone(), pattern(node)));
        }
        if node.value.is_empty() || is_wildcard(node) && !node.share_threshold {
            way.by.push(node.key.clone());
        }
        Some(way)
    }
}

/// Writes rules and overrides.
#[derive(Debug, Default)]
struct Writer {
    algorithm: &'static str,
    axes: BTreeSet<String>,
    rules: String,
    overrides: String,
    denied: Vec<(String, String)>,
}

impl Writer {
    fn level(&mut self, level: &Level, way: &Way) {
        // In the order in which they are looked for, for the first override that matches counts.
        let mut nodes: Vec<&DescriptorNode> = level.nodes.iter().collect();
        nodes.sort_by_key(|node| (node.value.is_empty(), is_wildcard(node)));
        let siblings = Siblings::of(level);
        for node in nodes {
            let siblings = &siblings[node.key.as_str()];
            self.axes.insert(node.key.clone());
            let Some(through) = way.through(node) else {
                self.note(&format!(
                    "{}: a request has one value per axis, and this asks twice for {}",
                    path(node),
                    node.key
                ));
                continue;
            };
            match (&node.limit, siblings.wider(node)) {
                _ if siblings.hide(node) => {
                    self.note(&format!(
                        "{}: an earlier pattern matches all that it does",
                        path(node)
                    ));
                }
                (Some(limit), wide) => self.limit(node, limit, wide, &through),
                // Found before its sibling, it keeps the sibling's limit away.
                (None, Some(wide)) => self.exception(node, &wide.path, &unlimited()),
                (None, None) => {}
            }
            self.level(&node.level, &through);
        }
    }

    fn limit(&mut self, node: &DescriptorNode, limit: &Limit, wide: Option<&Limit>, through: &Way) {
        for (written, what) in [
            (!limit.replaces.is_empty(), "replaces: both rules apply, and the lower counts"),
            (limit.metadata.is_some(), "metadata: answers carry none"),
        ] {
            if written {
                self.note(&format!("{}: no counterpart of {what}", limit.path));
            }
        }
        match (limit.rate, wide) {
            (None, None) => {}
            (None, Some(wide)) => self.exception(node, &wide.path, &unlimited()),
            (Some(Rate { requests_per_unit: 0, .. }), _) => match &through.conditions[..] {
                [(axis, pattern)] if through.by.iter().all(|by| by == axis) => {
                    self.denied.push((axis.clone(), pattern.clone()));
                }
                _ => self.note(&format!("{}: refuses everything; add it to [deny]", limit.path)),
            },
            (Some(rate), Some(wide)) if same_kind(limit, wide) => {
                self.exception(node, &wide.path, &quota(rate));
            }
            (Some(rate), wide) => {
                if let Some(wide) = wide {
                    self.note(&format!(
                        "{}: {} applies too, for it is of another mode",
                        limit.path, wide.path
                    ));
                }
                self.rule(limit, rate, through);
            }
        }
    }

    fn rule(&mut self, limit: &Limit, rate: Rate, way: &Way) {
        let out = &mut self.rules;
        // Writing to a string cannot fail.
        let _ = writeln!(out, "\n[[rule]]\nname = {}", quoted(&limit.path));
        if !way.conditions.is_empty() {
            let conditions = way.conditions.iter();
            let conditions: Vec<String> = conditions
                .map(|(axis, pattern)| format!("{} = {}", key(axis), quoted(pattern)))
                .collect();
            let _ = writeln!(out, "when = {{ {} }}", conditions.join(", "));
        }
        if !way.by.is_empty() {
            let by: Vec<String> = way.by.iter().map(|axis| quoted(axis)).collect();
            let _ = writeln!(out, "by = [{}]", by.join(", "));
        }
        let _ =
            writeln!(out, "quota = {}\nalgorithm = \"{}\"", quoted(&quota(rate)), self.algorithm);
        if limit.shadow_mode {
            out.push_str("shadow = true\n");
        } else if limit.quota_mode {
            out.push_str("any_of = 0\n");
        }
    }

    fn exception(&mut self, node: &DescriptorNode, rule: &str, quota: &str) {
        let _ = writeln!(
            self.overrides,
            "\n[[override]]\nrule = {}\nwhen = {{ {} = {} }}\nquota = {}",
            quoted(rule),
            key(&node.key),
            quoted(&pattern(node)),
            quoted(quota)
        );
    }

    fn note(&mut self, text: &str) {
        let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let _ = writeln!(self.rules, "\n# {line}");
    }

    fn finish(self) -> String {
        let mut text = String::from(
            "# Converted from the YAML of envoyproxy/ratelimit. Every rule that applies to a request \
             counts,\n# where there the most specific descriptor does.\n\n[axes]\n",
        );
        for axis in &self.axes {
            let _ = writeln!(text, "{} = {{}}", key(axis));
        }
        text.push_str(&self.rules);
        text.push_str(&self.overrides);
        if !self.denied.is_empty() {
            text.push_str("\n[deny]\n");
            let axes: BTreeSet<&String> = self.denied.iter().map(|(axis, _)| axis).collect();
            for axis in axes {
                let patterns = self.denied.iter().filter(|(known, _)| known == axis);
                let patterns: Vec<String> = patterns.map(|(_, pattern)| quoted(pattern)).collect();
                let _ = writeln!(text, "{} = [{}]", key(axis), patterns.join(", "));
            }
        }
        text
    }
}

/// The less specific descriptors of one key at one level.
#[derive(Default)]
struct Siblings<'l> {
    /// Those with a star, in order.
    patterns: Vec<&'l DescriptorNode>,
    /// The one without a value.
    any: Option<&'l DescriptorNode>,
}

impl<'l> Siblings<'l> {
    /// Those of every key of a level.
    fn of(level: &'l Level) -> HashMap<&'l str, Self> {
        let mut keys: HashMap<&str, Self> = HashMap::new();
        for node in &level.nodes {
            let siblings = keys.entry(&node.key).or_default();
            if node.value.is_empty() {
                siblings.any = Some(node);
            } else if is_wildcard(node) && siblings.patterns.len() < MAX_PATTERNS {
                siblings.patterns.push(node);
            }
        }
        keys
    }

    /// The limit that a descriptor's values would meet if it were not there, as a rule of its own.
    fn wider(&self, node: &DescriptorNode) -> Option<&'l Limit> {
        let metered = |other: &&DescriptorNode| {
            let rate = other.limit.as_ref().and_then(|limit| limit.rate);
            rate.is_some_and(|rate| rate.requests_per_unit > 0)
        };
        let found = match (node.value.is_empty(), self.any.filter(metered)) {
            (true, _) => None,
            (false, Some(any)) => Some(any),
            (false, None) if is_wildcard(node) => None,
            (false, None) => {
                let mut patterns = self.patterns.iter().copied();
                patterns.find(|other| covers(&other.value, &node.value)).filter(metered)
            }
        };
        found.and_then(|other| other.limit.as_deref())
    }

    /// Whether a pattern before it takes everything that a pattern matches.
    fn hide(&self, node: &DescriptorNode) -> bool {
        let mut earlier = self.patterns.iter().take_while(|other| !std::ptr::eq(**other, node));
        // A star stands for anything, itself included, so a pattern matches those it covers.
        is_wildcard(node) && earlier.any(|other| covers(&other.value, &node.value))
    }
}

/// Whether two limits refuse alike, so that one can stand in for the other.
fn same_kind(one: &Limit, two: &Limit) -> bool {
    (one.shadow_mode, one.quota_mode) == (two.shadow_mode, two.quota_mode)
}

fn is_wildcard(node: &DescriptorNode) -> bool {
    node.value.contains('*')
}

fn covers(pattern: &str, value: &str) -> bool {
    let glob = escaped(pattern).replace(r"\*", "*");
    glob.parse::<tollgate::Glob>().is_ok_and(|glob| glob.matches(value))
}

fn path(node: &DescriptorNode) -> String {
    node.limit.as_ref().map_or_else(|| node.name(), |limit| limit.path.clone())
}

fn pattern(node: &DescriptorNode) -> String {
    match is_wildcard(node) {
        true => escaped(&node.value).replace(r"\*", "*"),
        false => escaped(&node.value),
    }
}

/// A text as a pattern that matches only itself.
fn escaped(text: &str) -> String {
    text.replace('\\', r"\\").replace('*', r"\*").replace('?', r"\?")
}

fn quota(Rate { requests_per_unit, unit }: Rate) -> String {
    let period = match unit {
        Unit::Second => "s",
        Unit::Minute => "min",
        Unit::Hour => "h",
        Unit::Day => "day",
        Unit::Week => "7d",
        Unit::Month => "30d",
        Unit::Year => "365d",
    };
    format!("{requests_per_unit}/{period}")
}

/// More than anybody can take.
fn unlimited() -> String {
    format!("{}/day", u32::MAX)
}

/// A key as TOML writes it: in quotes only where it has to be.
fn key(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    match !text.is_empty() && text.chars().all(plain) {
        true => text.to_owned(),
        false => quoted(text),
    }
}

/// A text as TOML writes it.
fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str(r"\\"),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
