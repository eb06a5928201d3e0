//! One decision from the shell.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use tollgate::{
    Ask, Charge, ChargeSet, Decision, Key, Limiter, Meter, Micros, Op, Outcome, Retry, Verdict,
};
use tollgate_server::decision_json;
use tracing::Level;

use crate::exit::{Exit, Failure};
use crate::plan::{Decide, Print, Verb};

/// How long a person waits. A request would not, but nobody sits before those.
const DEADLINE: Duration = Duration::from_secs(5);

/// Decides as planned: allowed is fine, refused is not.
pub(crate) fn run(plan: Decide) -> Result<Exit, Failure> {
    // Servers that cannot be reached are in the log.
    tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_max_level(Level::WARN)
        .init();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime
        .map_err(|error| Failure::new(format_args!("failed to start a runtime: {error}")))?;
    runtime.block_on(decide(plan))
}

async fn decide(plan: Decide) -> Result<Exit, Failure> {
    let Decide { verb, key, meters, cost, store, print } = plan;
    let op = match verb {
        Verb::Take => Op::Take(Ask::exactly(cost)),
        Verb::Peek => Op::Peek(cost),
        Verb::Reset => Op::Reset,
    };
    let mut set = ChargeSet::new();
    for meter in meters {
        let pushed = set.push(Charge::new(Key::new(&key), meter, op));
        pushed.map_err(|error| Failure::new(format_args!("--quota: {error}")))?;
    }
    let store = store.deadline(DEADLINE).build();
    let store = store.map_err(|error| Failure::new(format_args!("failed to {error}")))?;
    let limiter = Limiter::new(store);
    let decision = limiter.take_set(&set).await;
    let decision = decision.map_err(|error| Failure::new(format_args!("failed to {error:#}")))?;
    let text = match print {
        Print::Json => {
            let names = vec![key.as_str(); set.len()];
            decision_json(&names, &set, &decision)
        }
        Print::Text => describe(verb, &set, &decision),
    };
    let mut out = io::stdout().lock();
    // A reader that has seen enough is no failure.
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
    Ok(if decision.is_allowed() { Exit::Fine } else { Exit::Wanting })
}

/// A decision in words, a line for each quota.
fn describe(verb: Verb, set: &ChargeSet<'_>, decision: &Decision) -> String {
    let charges = set.charges().iter().zip(decision.outcomes());
    let line = |(charge, outcome): (&Charge<'_>, &Outcome)| match verb {
        Verb::Reset => format!("{}: forgotten", charge.meter),
        Verb::Take | Verb::Peek => describe_outcome(&charge.meter, outcome),
    };
    let mut lines: Vec<String> = charges.map(line).collect();
    if verb == Verb::Reset {
        lines.push("servers that remember a refusal forget it within a second".to_owned());
        lines.push("buckets of rules stay as they are; POST /v1/reset forgets those".to_owned());
    }
    lines.join("\n")
}

fn describe_outcome(meter: &Meter, outcome: &Outcome) -> String {
    let verdict = match outcome.verdict {
        Verdict::Allow => "allowed",
        Verdict::Deny => "refused",
    };
    let retry = match outcome.retry() {
        Retry::Now => String::new(),
        Retry::After(wait) => format!(", try again in {}", duration(wait)),
        Retry::Never => ", for such a cost can never fit".to_owned(),
    };
    let Some(reading) = outcome.reading else {
        return format!("{meter}: {verdict}{retry}");
    };
    let delay = match reading.delay {
        Micros::ZERO => String::new(),
        delay => format!(", go on in {}", duration(delay)),
    };
    let (remaining, capacity) = (reading.remaining, reading.capacity);
    let reset = match reading.reset {
        Micros::ZERO => String::new(),
        reset => format!(", all again in {}", duration(reset)),
    };
    format!("{meter}: {verdict}{delay}{retry}; {remaining} of {capacity} left{reset}")
}

/// A time people can read, rounded up.
fn duration(micros: Micros) -> String {
    match micros.as_millis_ceil() {
        millis @ 0..=9_999 => format!("{millis} ms"),
        millis => format!("{} s", millis.div_ceil(1000)),
    }
}
