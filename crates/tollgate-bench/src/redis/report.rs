//! What is printed of a measurement on Redis.

use std::io::{self, Write};

use serde::Serialize;

use super::contender::Kind;
use super::load::Measured;
use crate::report::{Format, hundredth, json, tenth};

/// One contender at one number of requests in flight.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    section: &'static str,
    contender: &'static str,
    algorithm: &'static str,
    in_flight: usize,
    /// Medians over the runs.
    per_second: f64,
    p50_us: f64,
    p99_us: f64,
    redis_cpu_us: f64,
    runs: usize,
    granted: u64,
    /// How many times as many per second as bare `INCR`s.
    ratio_to_incr: Option<f64>,
    #[serde(skip)]
    kind: Kind,
}

impl Row {
    pub(crate) fn new(
        kind: Kind,
        in_flight: usize,
        measured: &[Measured],
        incr: Option<f64>,
    ) -> Self {
        let median = Measured::median(measured);
        Self {
            section: "decisions",
            contender: kind.contender(),
            algorithm: kind.algorithm(),
            in_flight,
            per_second: median.per_second.round(),
            p50_us: tenth(median.p50),
            p99_us: tenth(median.p99),
            redis_cpu_us: hundredth(median.redis_micros),
            runs: measured.len(),
            granted: median.granted,
            ratio_to_incr: incr.map(|incr| hundredth(median.per_second / incr)),
            kind,
        }
    }
}

/// One contender beside another, in one figure.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Ratio {
    section: &'static str,
    what: &'static str,
    ratio: f64,
    /// What Tollgate promises, if it does.
    promise: &'static str,
}

/// What keys of one kind cost.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Weight {
    pub(crate) section: &'static str,
    pub(crate) contender: &'static str,
    pub(crate) algorithm: &'static str,
    pub(crate) keys: usize,
    pub(crate) bytes_per_key: f64,
    pub(crate) bytes_per_request: f64,
}

impl Ratio {
    /// The comparisons that matter, as far as the contenders ran.
    pub(crate) fn all(rows: &[Row]) -> Vec<Self> {
        use tollgate::Algorithm::{FixedWindow, TokenBucket};

        let row = |kind: Kind, in_flight: usize| {
            rows.iter().find(|row| row.kind == kind && row.in_flight == in_flight)
        };
        let speed = |kind| row(kind, 1024).map(|row| row.per_second);
        let wait = |kind| row(kind, 1).map(|row| row.p50_us);
        let bucket = Kind::Tollgate(TokenBucket);
        let (asking, remembering) = (Kind::RefusedAsking, Kind::RefusedRemembering);
        let comparisons = [
            ("token bucket / hash script", "≥ 3", speed(bucket), speed(Kind::HashBucket)),
            ("token bucket / INCR", "≥ 0.3", speed(bucket), speed(Kind::Incr)),
            (
                "fixed window / INCR+PEXPIRE script",
                "≥ 2.5",
                speed(Kind::Tollgate(FixedWindow)),
                speed(Kind::IncrExpire),
            ),
            ("cost of user+tenant+all / cost of one", "< 2.5", speed(bucket), speed(Kind::Nested)),
            ("cost of 3 of one user / cost of one", "< 2.5", speed(bucket), speed(Kind::Composite)),
            ("refused with / without deny cache", "≥ 20", speed(remembering), speed(asking)),
            ("p50 of one alone / of one INCR", "≤ 1.3", wait(bucket), wait(Kind::Incr)),
            // Not promised: how much of that no script can do without.
            ("p50 of TIME, GET and SET / of one INCR", "", wait(Kind::Floor), wait(Kind::Incr)),
        ];
        let ratio = |(what, promise, one, other): (_, _, Option<f64>, Option<f64>)| {
            let ratio = hundredth(one? / other?);
            Some(Self { section: "ratios", what, ratio, promise })
        };
        comparisons.into_iter().filter_map(ratio).collect()
    }
}

/// Prints the rows of one number in flight.
pub(crate) fn rows(out: &mut impl Write, format: Format, rows: &[Row]) -> io::Result<()> {
    match (format, rows) {
        (Format::Json, rows) => json(out, rows)?,
        (Format::Table, []) => {}
        (Format::Table, [first, ..]) => {
            writeln!(
                out,
                "\n{:<46} {:>9} {:>9} {:>9} {:>9} {:>7} {:>9}",
                format!("{} in flight", first.in_flight),
                "per s",
                "p50 µs",
                "p99 µs",
                "redis µs",
                "× INCR",
                "granted"
            )?;
            for row in rows {
                writeln!(
                    out,
                    "  {:<29} {:<14} {:>9.0} {:>9.1} {:>9.1} {:>9.2} {:>7.2} {:>9}",
                    row.contender,
                    row.algorithm,
                    row.per_second,
                    row.p50_us,
                    row.p99_us,
                    row.redis_cpu_us,
                    row.ratio_to_incr.unwrap_or(f64::NAN),
                    row.granted,
                )?;
            }
        }
    }
    out.flush()
}

/// Prints the comparisons.
pub(crate) fn ratios(out: &mut impl Write, format: Format, ratios: &[Ratio]) -> io::Result<()> {
    match format {
        Format::Json => json(out, ratios)?,
        Format::Table => {
            writeln!(out, "\n{:<46} {:>9} {:>9}", "side by side", "ratio", "promise")?;
            for Ratio { what, ratio, promise, .. } in ratios {
                writeln!(out, "  {what:<44} {ratio:>9.2} {promise:>9}")?;
            }
        }
    }
    out.flush()
}

/// Prints what keys cost.
pub(crate) fn memory(out: &mut impl Write, format: Format, weight: &Weight) -> io::Result<()> {
    match format {
        Format::Json => json(out, std::slice::from_ref(weight))?,
        Format::Table => writeln!(
            out,
            "  {:<29} {:<14} {:>9} keys {:>9.1} bytes per key {:>7.1} per request",
            weight.contender,
            weight.algorithm,
            weight.keys,
            weight.bytes_per_key,
            weight.bytes_per_request,
        )?,
    }
    out.flush()
}
