//! What is printed: a table for people, or one JSON object per row.

use std::io::{self, Write};

use serde::Serialize;

/// How a report is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// A table.
    Table,
    /// One JSON object per line.
    Json,
}

impl Format {
    /// By what was asked for on the command line.
    pub(crate) fn of(json: bool) -> Self {
        match json {
            true => Self::Json,
            false => Self::Table,
        }
    }
}

/// The times of one contender on one workload.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct TimeRow {
    /// Always `decisions`.
    pub(crate) section: &'static str,
    /// The workload's name.
    pub(crate) workload: String,
    /// Threads that decided at once.
    pub(crate) threads: usize,
    /// The contender's name.
    pub(crate) contender: &'static str,
    /// The algorithm's name.
    pub(crate) algorithm: &'static str,
    /// Wall time per decision, over the decisions of all threads.
    #[serde(flatten)]
    pub(crate) times: Times,
    /// Decisions made: by the filling and by all runs.
    pub(crate) decisions: u64,
    /// Those that were granted.
    pub(crate) granted: u64,
    /// How many times as fast as governor on the same workload and threads.
    pub(crate) ratio_to_governor: Option<f64>,
}

/// Nanoseconds per decision over the runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Times {
    /// Half of the runs were faster.
    pub(crate) median_ns: f64,
    /// The fastest run.
    pub(crate) min_ns: f64,
    /// The slowest run.
    pub(crate) max_ns: f64,
    /// How many runs.
    pub(crate) runs: usize,
}

impl Times {
    /// Sums up the runs, of which there must be at least one.
    pub(crate) fn of(mut nanos: Vec<f64>) -> Self {
        nanos.sort_by(f64::total_cmp);
        let runs = nanos.len();
        Self {
            median_ns: tenth((nanos[(runs - 1) / 2] + nanos[runs / 2]) / 2.0),
            min_ns: tenth(nanos[0]),
            max_ns: tenth(nanos[runs - 1]),
            runs,
        }
    }
}

/// The memory of one contender.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct MemoryRow {
    /// Always `memory`.
    pub(crate) section: &'static str,
    /// Distinct live keys held.
    pub(crate) keys: usize,
    /// The contender's name.
    pub(crate) contender: &'static str,
    /// The algorithm's name.
    pub(crate) algorithm: &'static str,
    /// Bytes held after filling, divided by the keys.
    pub(crate) bytes_per_key: f64,
    /// Keys granted their filling.
    pub(crate) granted: u64,
    /// How many times as small as governor.
    pub(crate) ratio_to_governor: Option<f64>,
}

/// Rounded to what the measurement is worth.
pub(crate) fn tenth(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// Rounded to what a ratio is worth.
pub(crate) fn hundredth(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// Prints the rows of one workload.
pub(crate) fn times(out: &mut impl Write, format: Format, rows: &[TimeRow]) -> io::Result<()> {
    match (format, rows) {
        (Format::Json, rows) => json(out, rows)?,
        (Format::Table, []) => {}
        (Format::Table, [first, ..]) => {
            let title = format!("{}, {} thread(s)", first.workload, first.threads);
            writeln!(
                out,
                "\n{title:<37} {:>8} {:>15} {:>11} {:>12} {:>12}",
                "ns", "min–max", "× governor", "decisions", "granted"
            )?;
            rows.iter().try_for_each(|row| time_line(out, row))?;
        }
    }
    out.flush()
}

fn time_line(out: &mut impl Write, row: &TimeRow) -> io::Result<()> {
    let Times { median_ns, min_ns, max_ns, .. } = row.times;
    writeln!(
        out,
        "  {:<19} {:<15} {median_ns:>8.1} {:>15} {:>11} {:>12} {:>12}",
        row.contender,
        row.algorithm,
        format!("{min_ns:.1}–{max_ns:.1}"),
        ratio(row.ratio_to_governor),
        row.decisions,
        row.granted,
    )
}

/// Prints the memory held at one number of keys.
pub(crate) fn memory(out: &mut impl Write, format: Format, rows: &[MemoryRow]) -> io::Result<()> {
    match (format, rows) {
        (Format::Json, rows) => json(out, rows)?,
        (Format::Table, []) => {}
        (Format::Table, [first, ..]) => {
            let title = format!("{} live keys", first.keys);
            writeln!(
                out,
                "\n{title:<37} {:>13} {:>11} {:>12}",
                "bytes per key", "× governor", "granted"
            )?;
            for row in rows {
                writeln!(
                    out,
                    "  {:<19} {:<15} {:>13.1} {:>11} {:>12}",
                    row.contender,
                    row.algorithm,
                    row.bytes_per_key,
                    ratio(row.ratio_to_governor),
                    row.granted,
                )?;
            }
        }
    }
    out.flush()
}

fn ratio(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}"))
}

/// Prints rows as JSON.
pub(crate) fn json<T: Serialize>(out: &mut impl Write, rows: &[T]) -> io::Result<()> {
    for row in rows {
        serde_json::to_writer(&mut *out, row)?;
        writeln!(out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        let times = Times::of(vec![40.0, 10.0, 20.0, 90.0]);
        assert_eq!(times.median_ns, 30.0);
        assert_eq!((times.min_ns, times.max_ns, times.runs), (10.0, 90.0, 4));
        assert_eq!(Times::of(vec![3.0, 1.0, 2.0]).median_ns, 2.0);
    }

    #[test]
    fn a_row_is_one_flat_json_object() {
        let row = TimeRow {
            section: "decisions",
            workload: "hot mostly-allow".to_owned(),
            threads: 2,
            contender: "tollgate",
            algorithm: "token-bucket",
            times: Times::of(vec![12.34]),
            decisions: 7,
            granted: 7,
            ratio_to_governor: None,
        };
        let mut out = Vec::new();
        times(&mut out, Format::Json, &[row]).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.lines().count(), 1);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["median_ns"], 12.3);
        assert_eq!(value["runs"], 1);
        assert!(value["ratio_to_governor"].is_null());
    }
}
