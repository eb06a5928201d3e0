//! Says what a file makes of a request.

use std::path::Path;

use serde_json::{Map, Value, json};
use tollgate::policy::{Because, Explained, Explanation, Source};
use tollgate::{Charge, Cost, Costs, Enforcement, Op, Subject};
use tollgate_config::envoy::{self, Domains, Effect, Hits, Options, Via};
use tollgate_config::{Loader, Report};

use super::{Question, readable, say, wanting};
use crate::exit::{Exit, Failure};
use crate::plan::Print;
use crate::store;

/// Answers a question about a file.
pub(super) fn run(file: &Path, question: &Question, print: Print) -> Result<Exit, Failure> {
    readable(file)?;
    let answer = match question {
        Question::Subject { pairs, costs } => subject(file, pairs, costs, print),
        Question::Descriptor { domain, entries } => descriptor(file, domain, entries, print),
    };
    match answer {
        Ok(text) => {
            say(&text)?;
            Ok(Exit::Fine)
        }
        Err(report) => Ok(wanting(&report)),
    }
}

fn subject(
    file: &Path,
    pairs: &[(String, String)],
    costs: &[(String, Cost)],
    print: Print,
) -> Result<String, Report> {
    let policy = Loader::new().store_urls(store::check).file(file).load()?.settings.policy;
    let subject: Subject<'_> =
        pairs.iter().map(|(axis, value)| (axis.as_str(), value.as_str())).collect();
    let costs = costs.iter().fold(Costs::default(), |costs, (unit, cost)| costs.with(unit, *cost));
    let explanation = policy.explain(&subject, &costs);
    Ok(match print {
        Print::Text => in_words(&explanation),
        Print::Json => format!("{}\n", in_json(&explanation)),
    })
}

fn in_words(explanation: &Explanation<'_>) -> String {
    let mut text = String::new();
    match (explanation.denylisted, explanation.allowlisted) {
        (Some(entry), _) => {
            text += &format!(
                "refused: {} {entry} is on the deny-list; no rule is asked\n",
                entry.axis()
            );
        }
        (None, Some(entry)) => {
            text += &format!(
                "let through: {} {entry} is on the allowlist; no rule is asked\n",
                entry.axis()
            );
        }
        (None, None) => {}
    }
    let rules = &explanation.rules;
    let width = rules.iter().map(|explained| explained.rule.name().chars().count()).max();
    let width = width.unwrap_or(0).min(40);
    for Explained { rule, because } in rules {
        let mode = match rule.enforcement() {
            Enforcement::Shadow if because.applies() => " (only watches)".to_owned(),
            Enforcement::AnyOf(group) if because.applies() => format!(" (any of group {group})"),
            _ => String::new(),
        };
        text += &format!("{:width$}  {because}{mode}\n", rule.name());
    }
    if !rules.iter().any(|explained| explained.because.applies()) {
        text += "no rule applies: the request is let through, uncounted\n";
    }
    text
}

fn in_json(explanation: &Explanation<'_>) -> Value {
    let listed = |entry: Option<&tollgate::policy::Listing>| {
        entry.map(|entry| json!({ "axis": entry.axis(), "entry": entry.to_string() }))
    };
    json!({
        "denylisted": listed(explanation.denylisted),
        "allowlisted": listed(explanation.allowlisted),
        "rules": explanation.rules.iter().map(rule_in_json).collect::<Vec<_>>(),
    })
}

fn rule_in_json(explained: &Explained<'_>) -> Value {
    let mut rule = json!({
        "rule": explained.rule.name(),
        "applies": explained.because.applies(),
        "because": explained.because.to_string(),
    });
    if let Because::Applies { charges, source } = &explained.because {
        rule["charges"] = charges.iter().map(charge_in_json).collect();
        rule["source"] = match source {
            Source::Tier(tier) => json!({ "tier": tier }),
            Source::Override(index) => json!({ "override": index + 1 }),
            _ => json!("rule"),
        };
    }
    rule
}

fn charge_in_json(charge: &Charge<'_>) -> Value {
    let cost = match charge.op {
        Op::Take(ask) => ask.max.get(),
        Op::Peek(cost) | Op::Refund { cost, .. } => cost.get(),
        Op::Reset => 0,
    };
    json!({
        "key": charge.key.to_string(),
        "quota": charge.meter.quota().to_string(),
        "algorithm": charge.meter.algorithm().name(),
        "cost": cost,
        "enforcement": match charge.enforcement {
            Enforcement::Enforce => json!("enforce"),
            Enforcement::Shadow => json!("shadow"),
            Enforcement::AnyOf(group) => json!({ "any_of": group }),
        },
    })
}

fn descriptor(
    file: &Path,
    domain: &str,
    entries: &[(String, String)],
    print: Print,
) -> Result<String, Report> {
    let domains = Domains::load(file, Options::default())?.domains;
    let entries: Vec<(&str, &str)> =
        entries.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let (steps, _) = domains.explain(domain, &entries);
    let request = envoy::Descriptor { entries: &entries, limit: None, hits: Hits::Take(Cost::ONE) };
    let mut answer = Map::new();
    answer.insert("domain".to_owned(), json!(domain));
    answer.insert("known".to_owned(), json!(domains.names().any(|name| name == domain)));
    answer.insert("steps".to_owned(), steps.iter().map(step_in_json).collect());
    // One descriptor is one charge at most, and that always fits.
    if let Ok(charges) = domains.resolve(domain, &[request])
        && let Some(found) = charges.matches.first()
    {
        answer.insert("limit".to_owned(), json!(found.limit.as_ref().map(|limit| &limit.path)));
        answer.insert("effect".to_owned(), json!(effect(found.effect)));
        answer.insert(
            "charges".to_owned(),
            charges.set.charges().iter().map(charge_in_json).collect(),
        );
    }
    Ok(match print {
        Print::Json => format!("{}\n", Value::Object(answer)),
        Print::Text => steps_in_words(&answer, &steps),
    })
}

fn step_in_json(step: &envoy::Step<'_>) -> Value {
    let via = match &step.via {
        Via::Value => json!("value"),
        Via::Pattern(pattern) => json!({ "pattern": pattern }),
        Via::Key => json!("key"),
        Via::Nothing => Value::Null,
    };
    json!({ "key": step.key, "value": step.value, "via": via })
}

fn effect(effect: Effect) -> &'static str {
    match effect {
        Effect::Unlimited => "unlimited",
        Effect::Replaced => "replaced",
        Effect::Refuse => "refuse",
        Effect::WouldRefuse => "would refuse",
        Effect::Charge(_) => "charge",
        _ => "nothing",
    }
}

fn steps_in_words(answer: &Map<String, Value>, steps: &[envoy::Step<'_>]) -> String {
    let mut text = String::new();
    if answer["known"] == false {
        return format!(
            "there is no domain {}: the request is let through, uncounted\n",
            answer["domain"]
        );
    }
    for step in steps {
        let how = match &step.via {
            Via::Value => "found by its value".to_owned(),
            Via::Pattern(pattern) => format!("found by the pattern {pattern:?}"),
            Via::Key => "found by its key alone".to_owned(),
            Via::Nothing => "not found".to_owned(),
        };
        text += &format!("{}={}: {how}\n", step.key, step.value);
    }
    let limit = answer.get("limit").and_then(Value::as_str);
    let charge = answer.get("charges").and_then(|charges| charges.get(0));
    text += &match (limit, charge) {
        (None, _) => "no limit there: the descriptor is let through, uncounted\n".to_owned(),
        (Some(limit), Some(charge)) => format!(
            "{limit} applies: {} {} to {}\n",
            charge["quota"].as_str().unwrap_or_default(),
            charge["algorithm"].as_str().unwrap_or_default(),
            charge["key"].as_str().unwrap_or_default()
        ),
        (Some(limit), None) => {
            format!("{limit} applies: {}\n", answer["effect"].as_str().unwrap_or_default())
        }
    };
    text
}
