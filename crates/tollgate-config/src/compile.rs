//! From settings as typed to settings as meant.

mod server;

use std::collections::HashMap;
use std::sync::Arc;

use tollgate::policy::{Place, PolicyBuilder, PolicyError, Quotas};
use tollgate::{Algorithm, Glob, Network, Override, Policy, Rule};

use crate::axis::Axes;
use crate::calendar::{self, Whose};
use crate::fields::{self, span_of};
use crate::lint;
use crate::nearest::nearest;
use crate::quota;
use crate::report::Problems;
use crate::settings::{Audit, Dialect, HeaderAxis, Metrics, RuleSettings, Settings};
use crate::source::{Span, Spanned};
use crate::typed::{self, Condition, File};
use crate::url;

/// The name of a rule that has none: it is complained about already, and others should not be.
const NAMELESS: &str = "";

/// What a file means, or `None` if anything is wrong with it.
pub(crate) fn compile(
    file: &File,
    version: u64,
    store_urls: url::Check,
    problems: &mut Problems,
) -> Option<Settings> {
    let store = server::store(&file.store, store_urls, problems);
    let listen = server::listen(&file.listen, problems);
    let admin_token = server::admin_token(file.admin.token.as_ref(), problems);
    let trusted_proxies = server::networks(&file.trusted_proxies, problems);
    let policy = Compiler { file, axes: Axes::of(file), problems }.policy(version);
    lint::look(file, problems);
    if problems.any_errors() {
        return None;
    }
    let value = |text: &Option<Spanned<String>>| text.as_ref().map(|text| text.value.clone());
    Some(Settings {
        store,
        listen,
        admin_token,
        headers: file.headers.as_ref().map_or_else(Dialect::default, |found| found.value),
        trusted_proxies,
        ipv6_prefix: file.ipv6_prefix.as_ref().map_or(64, |bits| bits.value as u8),
        axes: header_axes(file),
        audit: Audit {
            file: value(&file.audit.file).map(Into::into),
            refusals_only: is_set(&file.audit.refusals_only),
        },
        metrics: Metrics {
            prometheus: file.metrics.prometheus.as_ref().is_none_or(|flag| flag.value),
            otlp: value(&file.metrics.otlp),
        },
        policy: Arc::new(policy?),
        rules: file.rule.iter().map(rule_settings).collect(),
    })
}

fn is_set(flag: &Option<Spanned<bool>>) -> bool {
    flag.as_ref().is_some_and(|flag| flag.value)
}

fn header_axes(file: &File) -> Vec<HeaderAxis> {
    let named = file.axes.iter().filter_map(|axis| Some((axis, axis.header.as_ref()?)));
    let named = named.map(|(axis, header)| HeaderAxis {
        axis: axis.name.value.clone(),
        header: header.value.to_ascii_lowercase(),
    });
    named.collect()
}

/// What a rule says that the policy does not hold. Whoever teaches the policy one of these hands it
/// over in [`Compiler::rule`].
fn rule_settings(rule: &typed::Rule) -> RuleSettings {
    RuleSettings {
        name: name_of(rule).to_owned(),
        consistency: rule.consistency.as_ref().map_or_else(Default::default, |found| found.value),
        overshoot: rule.overshoot.as_ref().map_or(10, |found| found.value as u8),
        colocate: rule.colocate.as_ref().map(|axis| axis.value.clone()),
        wait: rule.wait.as_ref().map(|wait| wait.value),
        critical: rule.critical.as_ref().is_none_or(|flag| flag.value),
    }
}

pub(crate) fn name_of(rule: &typed::Rule) -> &str {
    rule.name.as_ref().map_or(NAMELESS, |name| &name.value)
}

/// Whose calendar a rule says it goes by.
fn whose(typed: &typed::Rule) -> Whose {
    let default = Whose::default();
    Whose {
        zone: typed.timezone.as_ref().map_or(default.zone, |zone| zone.value.clone()),
        starts_on: typed.starts_on.as_ref().map_or(default.starts_on, |day| day.value as i8),
    }
}

/// Puts a policy together.
struct Compiler<'a> {
    file: &'a File,
    axes: Axes<'a>,
    problems: &'a mut Problems,
}

impl Compiler<'_> {
    fn policy(mut self, version: u64) -> Option<Policy> {
        let file = self.file;
        self.names();
        let mut builder = Policy::builder().version(version);
        for rule in &file.rule {
            builder = builder.rule(self.rule(rule));
        }
        for exception in &file.overrides {
            builder = builder.overriding(self.exception(exception));
        }
        builder = self.lists(builder);
        if let Some(salt) = &file.salt {
            builder = builder.salt(&salt.value);
        }
        match builder.build() {
            Ok(policy) => Some(policy),
            Err(errors) => {
                errors.iter().for_each(|error| self.tell(error));
                None
            }
        }
    }

    /// Two rules of one name would share buckets.
    fn names(&mut self) {
        let mut first: HashMap<&str, usize> = HashMap::new();
        for (index, rule) in self.file.rule.iter().enumerate() {
            let Some(name) = &rule.name else { continue };
            if name.value.is_empty() {
                let help = "write name = \"per-ip\" or the like; keys and headers show it";
                self.problems.error(name.span, "the rule's name is empty", help);
                continue;
            }
            let known = *first.entry(&name.value).or_insert(index);
            if known != index {
                let message = format!("two rules are named {:?}", fields::shortened(&name.value));
                let help = format!(
                    "rename one of them: names tell buckets apart, and rule {} has this one",
                    known + 1
                );
                self.problems.error(name.span, message, help);
            }
        }
    }

    fn rule(&mut self, typed: &typed::Rule) -> Rule {
        let algorithm =
            typed.algorithm.as_ref().map_or(Algorithm::SlidingWindow, |found| found.value);
        let mut rule = Rule::new(name_of(typed)).algorithm(algorithm);
        for condition in &typed.when {
            self.axes.check(&condition.axis, self.problems);
            self.axes.check_pattern(condition, self.problems);
            rule = rule.when(&condition.axis.value, &condition.pattern.value);
        }
        for axis in &typed.by {
            self.axes.doubt(axis, self.problems);
            rule = rule.by(&axis.value);
        }
        rule = self.quota(rule, typed, algorithm);
        if let Some(unit) = &typed.unit {
            rule = rule.unit(&unit.value);
        }
        if is_set(&typed.shadow) {
            rule = rule.shadow();
        }
        if let Some(group) = &typed.any_of {
            rule = rule.any_of(group.value as u8);
        }
        if let Some(missing) = &typed.missing {
            rule = rule.missing(missing.value);
        }
        if let Some(fallback) = &typed.on_store_failure {
            rule = rule.on_store_failure(fallback.value);
        }
        if let Some(margin) = &typed.margin {
            rule = rule.margin(margin.value as u8);
        }
        if is_set(&typed.hash) {
            rule = rule.hash();
        }
        if let Some(wait) = &typed.wait {
            rule = rule.wait(wait.value);
        }
        if typed.critical.as_ref().is_some_and(|critical| !critical.value) {
            rule = rule.non_critical();
        }
        match self.colocation(typed) {
            Some(axis) => rule.colocate(axis),
            None => rule,
        }
    }

    /// The quota and the tiers, which need one another.
    fn quota(&mut self, rule: Rule, typed: &typed::Rule, algorithm: Algorithm) -> Rule {
        let whose = self.whose_calendar(typed);
        match (&typed.quota, &typed.tier) {
            (Some(typed::Quota::Same(text)), tier) => {
                if let Some(tier) = tier {
                    let message =
                        format!("tier {:?} has no table of quotas", fields::shortened(&tier.value));
                    let help = "write quota = { free = \"100/day\", paid = \"10000/day\" }, or leave \
                                \"tier\" out";
                    self.problems.error(tier.span, message, help);
                }
                match quota::read(text, algorithm, &whose, self.problems) {
                    Some(quotas) => rule.quota(quotas),
                    None => rule,
                }
            }
            (Some(typed::Quota::ByTier(tiers)), Some(tier)) => {
                let read = |(name, text): &(Spanned<String>, Spanned<String>)| {
                    Some((name.value.clone(), quota::read(text, algorithm, &whose, self.problems)?))
                };
                let named: Vec<(String, Quotas)> = tiers.named.iter().filter_map(read).collect();
                rule.tier(&tier.value, named)
            }
            (Some(typed::Quota::ByTier(tiers)), None) => {
                let help = "write tier = and the axis whose value names the tier: tier = \"plan\"";
                self.problems.error(tiers.span, "a table of quotas needs a tier", help);
                rule
            }
            (None, _) => rule,
        }
    }

    /// Whose calendar a rule goes by, which has to exist and to be asked for.
    fn whose_calendar(&mut self, typed: &typed::Rule) -> Whose {
        let texts: Vec<&str> = match &typed.quota {
            Some(typed::Quota::Same(text)) => vec![&text.value],
            Some(typed::Quota::ByTier(tiers)) => {
                tiers.named.iter().map(|(_, text)| text.value.as_str()).collect()
            }
            None => Vec::new(),
        };
        let by_calendar = texts.iter().any(|text| quota::is_calendar(text));
        let by_month =
            texts.iter().any(|text| text.to_ascii_lowercase().contains("calendar-month"));
        if let (Some(zone), false) = (&typed.timezone, by_calendar) {
            let help = "write quota = \"1000/calendar-day\" or the like, or leave it out";
            self.problems.error(zone.span, "only calendar windows have a time zone", help);
        }
        if let (Some(day), false) = (&typed.starts_on, by_month) {
            let help = "write quota = \"1000/calendar-month\" or the like, or leave it out";
            self.problems.error(day.span, "only calendar months begin on a day of choice", help);
        }
        if let Some(zone) = &typed.timezone
            && calendar::zone(&zone.value).is_none()
        {
            let message = format!("there is no time zone {:?}", fields::shortened(&zone.value));
            let known = calendar::zones();
            let help = match nearest(&zone.value, known.iter().map(String::as_str)) {
                Some(meant) => format!("write {meant:?}"),
                None => "write a name such as \"Europe/Berlin\" or \"UTC\"".to_owned(),
            };
            self.problems.error(zone.span, message, help);
        }
        whose(typed)
    }

    /// A bucket stays where it is only if every request for it says the same.
    fn colocation<'t>(&mut self, typed: &'t typed::Rule) -> Option<&'t str> {
        let axis = typed.colocate.as_ref()?;
        if typed.by.iter().any(|known| known.value == axis.value) {
            return Some(&axis.value);
        }
        let message = format!("the rule does not count by {:?}", fields::shortened(&axis.value));
        let known: Vec<&str> = typed.by.iter().map(|axis| axis.value.as_str()).collect();
        let help = match &known[..] {
            [] => "leave \"colocate\" out, or add the axis to \"by\"".to_owned(),
            known => format!("write one of {}, or add it to \"by\"", known.join(", ")),
        };
        self.problems.error(axis.span, message, help);
        None
    }

    fn exception(&mut self, typed: &typed::Override) -> Override {
        let about = typed.rule.as_ref().map_or(NAMELESS, |rule| &rule.value);
        let rule = self.file.rule.iter().find(|rule| name_of(rule) == about);
        let algorithm = rule.and_then(|rule| rule.algorithm.as_ref());
        let algorithm = algorithm.map_or(Algorithm::SlidingWindow, |found| found.value);
        if let (Some(name), None) = (&typed.rule, rule) {
            let known = self.file.rule.iter().map(name_of).filter(|name| !name.is_empty());
            let message = format!("there is no rule {:?} to override", fields::shortened(about));
            self.problems.error(name.span, message, fields::one_of(about, known));
        }
        let quotas = typed.quota.as_ref();
        let whose = rule.map(whose).unwrap_or_default();
        let quotas = quotas.and_then(|text| quota::read(text, algorithm, &whose, self.problems));
        let mut exception = Override::new(about, quotas.unwrap_or_else(|| Vec::new().into()));
        for condition in &typed.when {
            self.axes.check(&condition.axis, self.problems);
            self.axes.check_pattern(condition, self.problems);
            exception = exception.when(&condition.axis.value, &condition.pattern.value);
        }
        exception
    }

    fn lists(&mut self, mut builder: PolicyBuilder) -> PolicyBuilder {
        for entry in &self.file.allow.entries {
            builder = match self.entry(entry) {
                Listed::Network => builder.allow_network(&entry.axis.value, &entry.pattern.value),
                Listed::Pattern => builder.allow(&entry.axis.value, &entry.pattern.value),
            };
        }
        for entry in &self.file.deny.entries {
            builder = match self.entry(entry) {
                Listed::Network => builder.deny_network(&entry.axis.value, &entry.pattern.value),
                Listed::Pattern => builder.deny(&entry.axis.value, &entry.pattern.value),
            };
        }
        builder
    }

    fn entry(&mut self, entry: &Condition) -> Listed {
        self.axes.check(&entry.axis, self.problems);
        let listed = listed(entry);
        match listed {
            Listed::Network => {
                if let Err(error) = entry.pattern.value.parse::<Network>() {
                    self.problems.told(entry.pattern.span, &error.to_string());
                }
            }
            Listed::Pattern => self.axes.check_pattern(entry, self.problems),
        }
        listed
    }

    /// Passes on what the policy itself finds wrong, unless that was said already.
    fn tell(&mut self, error: &PolicyError) {
        let span = self.span_of(error);
        if self.is_left_out(error) {
            return;
        }
        if let Some(span) = span.filter(|span| !self.problems.touch(*span)) {
            self.problems.told(span, &error.problem().to_string());
        } else if span.is_none() && !self.problems.any_errors() {
            self.problems.nowhere(error.to_string(), "");
        }
    }

    /// Whether it is about a field that is not there: whoever read the rule has said so, or why.
    fn is_left_out(&self, error: &PolicyError) -> bool {
        let Place::Rule { index, .. } = error.place() else { return false };
        let rule = self.file.rule.get(*index);
        rule.is_some_and(|rule| match error.field() {
            "name" => rule.name.is_none(),
            "quota" => rule.quota.is_none(),
            _ => false,
        })
    }

    /// Where in the file the policy's complaint belongs.
    fn span_of(&self, error: &PolicyError) -> Option<Span> {
        match error.place() {
            Place::Rule { index, .. } => {
                let rule = self.file.rule.get(*index)?;
                let named = span_of(rule.name.as_ref(), rule.span);
                Some(match error.field() {
                    "unit" => span_of(rule.unit.as_ref(), named),
                    "margin" => span_of(rule.margin.as_ref(), named),
                    "tier" => span_of(rule.tier.as_ref(), named),
                    "by" => covering(rule.by.iter().map(|axis| axis.span)).unwrap_or(named),
                    "when" => conditions_span(&rule.when).unwrap_or(named),
                    "quota" => match &rule.quota {
                        Some(typed::Quota::Same(text)) => text.span,
                        Some(typed::Quota::ByTier(tiers)) => tiers.span,
                        None => named,
                    },
                    _ => named,
                })
            }
            Place::Override { index, .. } => {
                let exception = self.file.overrides.get(*index)?;
                Some(match error.field() {
                    "rule" => span_of(exception.rule.as_ref(), exception.span),
                    "quota" => span_of(exception.quota.as_ref(), exception.span),
                    _ => conditions_span(&exception.when).unwrap_or(exception.span),
                })
            }
            Place::Allow { index } => Some(self.file.allow.entries.get(*index)?.pattern.span),
            Place::Deny { index } => Some(self.file.deny.entries.get(*index)?.pattern.span),
            _ => self.file.rule.first().map(|rule| span_of(rule.name.as_ref(), rule.span)),
        }
    }
}

/// How an entry of a list is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    Network,
    Pattern,
}

/// On the axis of addresses every entry is a network; elsewhere those that look like one are.
pub(crate) fn listed(entry: &Condition) -> Listed {
    let looks = entry.pattern.value.parse::<Network>().is_ok();
    match looks || entry.axis.value == "ip" {
        true => Listed::Network,
        false => Listed::Pattern,
    }
}

fn conditions_span(conditions: &[Condition]) -> Option<Span> {
    covering(conditions.iter().flat_map(|condition| [condition.axis.span, condition.pattern.span]))
}

/// From the first to the last of several spans.
fn covering(spans: impl Iterator<Item = Span>) -> Option<Span> {
    spans.reduce(|one, two| Span {
        source: one.source,
        start: one.start.min(two.start),
        end: one.end.max(two.end),
    })
}

/// A pattern that can be read.
pub(crate) fn glob(condition: &Condition) -> Option<Glob> {
    condition.pattern.value.parse().ok()
}
