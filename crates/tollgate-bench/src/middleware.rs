//! Layers around an axum server: how many requests it answers in a second, and what a request costs.
//!
//! ```text
//! round 1…m ── for each contender a server of its own, started anew, on a thread of its own, over loopback
//!     run 1…n ── each contender in turn, from the same load generator (so that noise meets all alike)
//! ```
//!
//! Where a server's code and data happen to lie, and what they then share a cache set with, makes a
//! tenth of a microsecond a request, more than layers differ by. It stays for as long as the server
//! does, so that no number of runs averages it out; servers that are started anew do.
//!
//! That noise is no smaller than what layers differ by, so there is a second measure: the instructions a
//! request takes (`middleware/instructions.rs`), which are the same each time.
//!
//! The server's thread is the bottleneck: the load generator, on another, only writes the same bytes
//! and looks for the end of the answer. Where there are two cores each has one to itself.

use std::io::{self, Write};
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use core_affinity::CoreId;
use serde::Serialize;

use crate::report::{self, Format, hundredth, tenth};

pub(crate) mod instructions;
mod load;
mod server;

use load::Load;
use server::{Kind, Server};

/// How long each run takes: long enough for thousands of requests, and so short that a change of pace of
/// the machine, which may last for seconds, meets all contenders alike.
const RUN: Duration = Duration::from_millis(100);

/// How long each server is warmed up: for more requests than a layer looks at more closely.
const WARM_UP: Duration = Duration::from_millis(200);

/// Runs of each contender before servers are started anew.
const ROUND: usize = 10;

/// What to measure, and how.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// How to print it.
    pub(crate) format: Format,
    /// Runs of each contender.
    pub(crate) runs: usize,
    /// Connections kept alive.
    pub(crate) connections: usize,
}

/// One contender.
#[derive(Clone, Debug, Serialize)]
struct Row {
    section: &'static str,
    contender: &'static str,
    connections: usize,
    requests_per_second: f64,
    min_requests_per_second: f64,
    max_requests_per_second: f64,
    /// Time on a processor that the server's thread spent on a request; less noisy than the wall.
    server_us_per_request: f64,
    /// What the layer adds to that.
    added_us_per_request: f64,
    /// Requests per second as a share of the bare server's, run by run, median.
    share_of_bare: f64,
    /// The same by the server's time on a processor.
    cpu_share_of_bare: f64,
    requests: u64,
    runs: usize,
}

/// What one run showed.
#[derive(Clone, Copy, Debug)]
struct Sample {
    requests: u64,
    per_second: f64,
    server_us: f64,
}

/// Measures everything in `plan` and prints it to `out`.
pub(crate) fn run(plan: &Plan, out: &mut impl Write) -> io::Result<()> {
    // Before this thread keeps to one of them.
    let available = thread::available_parallelism()?.get();
    let mut cores = core_affinity::get_core_ids().unwrap_or_default().into_iter();
    let (own, servers) = (cores.next(), cores.next());
    own.map(core_affinity::set_for_current);
    let mut samples = vec![Vec::new(); Kind::ALL.len()];
    for first in (0..plan.runs).step_by(ROUND) {
        eprintln!("run {} of {}", first + 1, plan.runs);
        let runs = first..plan.runs.min(first + ROUND);
        round(plan, servers, runs, &mut samples)?;
    }
    let rows: Vec<Row> = Kind::ALL
        .iter()
        .zip(&samples)
        .map(|(kind, own)| row(plan, *kind, own, &samples[0]))
        .collect();
    print(plan, available, &rows, out)
}

/// Starts all servers, asks them in turn for some runs, and stops them.
fn round(
    plan: &Plan,
    core: Option<CoreId>,
    runs: Range<usize>,
    samples: &mut [Vec<Sample>],
) -> io::Result<()> {
    let servers = Kind::ALL.map(|kind| Server::start(kind, core));
    let mut loads = Vec::new();
    for server in &servers {
        let load = Load::connect(server.address(), plan.connections)?;
        load.run_for(WARM_UP)?;
        loads.push(load);
    }
    for run in runs {
        // Another begins each time, so that none is always the first.
        for turn in 0..servers.len() {
            let index = (run + turn) % servers.len();
            samples[index].push(sample(&servers[index], &loads[index])?);
        }
    }
    Ok(())
}

fn sample(server: &Server, load: &Load) -> io::Result<Sample> {
    let (before, start) = (server.cpu_time(), Instant::now());
    let requests = load.run_for(RUN)?;
    let (elapsed, cpu) = (start.elapsed(), server.cpu_time().saturating_sub(before));
    Ok(Sample {
        requests,
        per_second: requests as f64 / elapsed.as_secs_f64(),
        server_us: cpu.as_secs_f64() * 1e6 / requests as f64,
    })
}

fn row(plan: &Plan, kind: Kind, own: &[Sample], bare: &[Sample]) -> Row {
    let of = |number: fn(&Sample) -> f64| median(own.iter().map(number).collect());
    let pairs = || own.iter().zip(bare);
    let per_second = own.iter().map(|sample| sample.per_second);
    Row {
        section: "middleware",
        contender: kind.name(),
        connections: plan.connections,
        requests_per_second: of(|sample| sample.per_second).round(),
        min_requests_per_second: per_second.clone().fold(f64::INFINITY, f64::min).round(),
        max_requests_per_second: per_second.fold(0.0, f64::max).round(),
        server_us_per_request: hundredth(of(|sample| sample.server_us)),
        added_us_per_request: hundredth(median(
            pairs().map(|(own, bare)| own.server_us - bare.server_us).collect(),
        )),
        share_of_bare: hundredth(median(
            pairs().map(|(own, bare)| own.per_second / bare.per_second).collect(),
        )),
        cpu_share_of_bare: hundredth(median(
            pairs().map(|(own, bare)| bare.server_us / own.server_us).collect(),
        )),
        requests: own.iter().map(|sample| sample.requests).sum(),
        runs: own.len(),
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    (values[(values.len() - 1) / 2] + values[middle]) / 2.0
}

fn print(plan: &Plan, cores: usize, rows: &[Row], out: &mut impl Write) -> io::Result<()> {
    if plan.format == Format::Json {
        return report::json(out, rows);
    }
    writeln!(
        out,
        "{cores} core(s), {} connections, {} interleaved runs of {RUN:?}, medians; servers started anew \
         every {ROUND} runs\n\n\
         {:<28} {:>10} {:>15} {:>8} {:>10} {:>8} {:>8}",
        plan.connections,
        plan.runs,
        "",
        "requests/s",
        "min–max",
        "× bare",
        "server µs",
        "+ µs",
        "× bare",
    )?;
    for row in rows {
        let range = format!("{}–{}", row.min_requests_per_second, row.max_requests_per_second);
        writeln!(
            out,
            "{:<28} {:>10} {range:>15} {:>8.2} {:>10.1} {:>8.2} {:>8.2}",
            row.contender,
            row.requests_per_second,
            row.share_of_bare,
            tenth(row.server_us_per_request),
            row.added_us_per_request,
            row.cpu_share_of_bare,
        )?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_server_answers_and_tells_what_it_should() {
        for kind in Kind::ALL {
            let server = Server::start(kind, None);
            let head = load::ask_once(server.address()).unwrap().to_lowercase();
            assert!(head.starts_with("http/1.1 200"), "{head}");
            let fields = ["ratelimit:", "x-ratelimit-limit:"].map(|field| head.contains(field));
            let expected = match kind {
                Kind::Bare => [false, false],
                Kind::TowerGovernor => [false, true],
                Kind::Tollgate | Kind::TollgateBucket => [true, false],
            };
            assert_eq!(fields, expected, "{}: {head}", kind.name());
            let load = Load::connect(server.address(), 2).unwrap();
            assert!(load.run_for(Duration::from_millis(20)).unwrap() > 0);
            assert!(server.cpu_time() > Duration::ZERO);
        }
    }

    #[test]
    fn the_median_lies_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
