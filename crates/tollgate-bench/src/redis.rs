//! Limiters that share a Redis: decisions per second, how long each takes, and what it costs Redis.
//!
//! ```text
//! redis-server, on a core of its own ── one for the whole measurement
//!    └ requests in flight: 1, 64, 1024
//!         └ run 1…n ── each contender in turn   (so that noise meets all alike)
//! ```
//!
//! The load runs on one thread, on another core than Redis where there are two.

use std::io::{self, Write};
use std::time::Duration;

use tollgate_testkit::redis::{Server, installed};

use crate::Plan;
use crate::report::Format;

mod contender;
mod load;
mod memory;
mod report;

use contender::{Contender, Kind};
use load::Measured;
use report::{Ratio, Row};

/// Requests under way at once.
const IN_FLIGHT: [usize; 3] = [1, 64, 1024];

/// Requests made in one run, for each number in flight: a fraction of a second each.
const REQUESTS: [usize; 3] = [4_000, 30_000, 100_000];

/// How many times fewer a quick look makes.
const QUICK: usize = 8;

/// So far do decisions out-wait everything that can go wrong on a busy machine: whatever takes
/// longer is a defect, not a measurement.
const PATIENCE: Duration = Duration::from_secs(5);

/// Measures everything in `plan` and prints it to `out`.
pub(crate) fn run(plan: &Plan, out: &mut impl Write) -> io::Result<()> {
    installed("redis-server")?;
    let server = Server::start();
    let placed = place(&server);
    header(plan, placed, out)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut rows = Vec::new();
        for (in_flight, requests) in IN_FLIGHT.into_iter().zip(REQUESTS) {
            let requests = requests / if plan.quick { QUICK } else { 1 };
            let measured = race(plan, &server, in_flight, requests).await?;
            report::rows(out, plan.format, &measured)?;
            rows.extend(measured);
        }
        report::ratios(out, plan.format, &Ratio::all(&rows))?;
        for kind in Kind::WEIGHED.into_iter().filter(|kind| is_wanted(plan, *kind)) {
            report::memory(out, plan.format, &memory::weigh(kind).await?)?;
        }
        Ok(())
    })
}

/// Whether `kind` is wanted, or what the others are compared with.
fn is_wanted(plan: &Plan, kind: Kind) -> bool {
    kind == Kind::Incr || kind.to_string().contains(&plan.filter)
}

/// Runs all contenders in turn, as often as planned.
async fn race(
    plan: &Plan,
    server: &Server,
    in_flight: usize,
    requests: usize,
) -> io::Result<Vec<Row>> {
    let mut contenders = Vec::new();
    for kind in Kind::ALL.into_iter().filter(|kind| is_wanted(plan, *kind)) {
        let contender = Contender::new(kind, server).await?;
        // Connections, scripts and keys are there before the clock starts.
        load::run(&contender, server, in_flight, requests / 4).await?;
        contenders.push((kind, contender, Vec::new()));
    }
    for run in 1..=plan.runs {
        eprintln!("{in_flight} in flight: run {run} of {}", plan.runs);
        for (kind, contender, measured) in &mut contenders {
            let requests = requests * kind.repeats();
            measured.push(load::run(contender, server, in_flight, requests).await?);
        }
    }
    let incr = contenders.iter().find(|(kind, ..)| *kind == Kind::Incr);
    let incr = incr.map(|(.., measured)| Measured::median(measured).per_second);
    let row = |(kind, _, measured): &(Kind, Contender, Vec<Measured>)| {
        Row::new(*kind, in_flight, measured, incr)
    };
    Ok(contenders.iter().map(row).collect())
}

/// Gives Redis the first core and this thread the second; whether there were two.
fn place(server: &Server) -> bool {
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    let [redis, load, ..] = cores[..] else {
        return false;
    };
    let core = redis.id.to_string();
    let pinned = std::process::Command::new("taskset")
        .args(["-a", "-c", "-p", &core, &server.process_id().to_string()])
        .stdout(std::process::Stdio::null())
        .status();
    pinned.is_ok_and(|status| status.success()) && core_affinity::set_for_current(load)
}

/// Says what is measured where.
fn header(plan: &Plan, placed: bool, out: &mut impl Write) -> io::Result<()> {
    let command: Vec<String> = std::env::args().skip(1).collect();
    let cores = if placed { "a core each for Redis and load" } else { "one core for both" };
    let text = format!(
        "machine    {}, load {} before; {cores}\n\
         command    cargo run --release -p tollgate-bench -- {}\n\
         work       {} interleaved runs, median; {} keys, all granted but where it says refused\n\
         redis µs   processor time of the server per decision\n\
         granted    in all runs together; equal where the work was equal",
        crate::memory::cpu_model(),
        crate::memory::load(),
        command.join(" "),
        plan.runs,
        contender::KEYS,
    );
    match plan.format {
        Format::Table => writeln!(out, "{text}"),
        Format::Json => writeln!(io::stderr(), "{text}"),
    }
}
