//! How many instructions a request takes, server and load generator together, counted by valgrind.
//!
//! Each contender runs in a process of its own, under callgrind, and is asked so often and then, in
//! another, twice as often: the difference is what requests take without the start. Over one
//! connection, for then server and load generator take turns, and nothing is left to chance.

use std::env;
use std::io::{self, Write};
use std::process::{Command, Stdio};

use serde::Serialize;

use super::load::Load;
use super::server::{Kind, Server};
use crate::report::{self, Format};

/// More requests than a layer looks at more closely.
const REQUESTS: u64 = 12_000;

/// One contender.
#[derive(Clone, Debug, Serialize)]
struct Row {
    section: &'static str,
    contender: &'static str,
    instructions_per_request: f64,
    /// What the layer adds to the bare server's.
    added_instructions: f64,
    /// What `tower_governor` adds, as a multiple of that.
    ratio_to_governor: Option<f64>,
    requests: u64,
}

/// Counts for all contenders and prints it to `out`.
pub(crate) fn run(format: Format, out: &mut impl Write) -> io::Result<()> {
    let mut counted = Vec::new();
    for kind in Kind::ALL {
        eprintln!("counting {}", kind.name());
        let (some, twice) = (count(kind, REQUESTS)?, count(kind, 2 * REQUESTS)?);
        counted.push((kind, twice.saturating_sub(some) as f64 / REQUESTS as f64));
    }
    let of =
        |wanted: Kind| counted.iter().find(|(kind, _)| *kind == wanted).map(|(_, count)| *count);
    let bare = of(Kind::Bare).unwrap_or_default();
    let governor = of(Kind::TowerGovernor).map(|count| count - bare);
    let row = |&(kind, count): &(Kind, f64)| Row {
        section: "middleware_instructions",
        contender: kind.name(),
        instructions_per_request: count.round(),
        added_instructions: (count - bare).round(),
        ratio_to_governor: governor
            .filter(|_| kind != Kind::Bare)
            .map(|governor| report::hundredth(governor / (count - bare))),
        requests: REQUESTS,
    };
    print(format, &counted.iter().map(row).collect::<Vec<_>>(), out)
}

fn print(format: Format, rows: &[Row], out: &mut impl Write) -> io::Result<()> {
    if format == Format::Json {
        return report::json(out, rows);
    }
    writeln!(
        out,
        "instructions per request, of {REQUESTS}, by callgrind\n\n{:<28} {:>12} {:>9} {:>11}",
        "", "instructions", "+", "× governor",
    )?;
    for row in rows {
        let ratio = row.ratio_to_governor.map(|ratio| format!("{ratio:.2}")).unwrap_or_default();
        writeln!(
            out,
            "{:<28} {:>12} {:>9} {ratio:>11}",
            row.contender, row.instructions_per_request, row.added_instructions,
        )?;
    }
    out.flush()
}

/// The instructions of a whole process that asks a server so often.
fn count(kind: Kind, requests: u64) -> io::Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(env::current_exe()?)
        .args(["middleware", "--alone", kind.name(), &requests.to_string()])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                io::Error::other("valgrind was not found; install it: apt-get install valgrind")
            }
            _ => error,
        })?;
    let said = String::from_utf8_lossy(&output.stderr);
    match (output.status.success(), collected(&said)) {
        (true, Some(instructions)) => Ok(instructions),
        _ => Err(io::Error::other(format!("{} under valgrind: {said}", kind.name()))),
    }
}

/// What callgrind says it has counted.
fn collected(said: &str) -> Option<u64> {
    let line = said.lines().find_map(|line| line.split_once("Collected :"))?;
    line.1.trim().parse().ok()
}

/// Asks a server so often, in this process.
pub(crate) fn ask_alone(contender: &str, requests: &str) -> io::Result<()> {
    let kind = Kind::ALL.into_iter().find(|kind| kind.name() == contender);
    let (Some(kind), Ok(requests)) = (kind, requests.parse()) else {
        return Err(io::Error::other(format!(
            "no contender {contender:?}, asked {requests:?} times"
        )));
    };
    let server = Server::start(kind, None);
    let answers = Load::connect(server.address(), 1)?.run_rounds(requests)?;
    match answers == requests {
        true => Ok(()),
        false => Err(io::Error::other(format!("{answers} answers to {requests} requests"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_valgrind_says_is_read() {
        let said = "==7== Events    : Ir\n==7== Collected : 177716434\n==7== \n";
        assert_eq!(collected(said), Some(177_716_434));
        assert_eq!(collected("valgrind: no such tool"), None);
    }

    #[test]
    fn every_contender_is_asked_as_often_as_said() {
        for kind in Kind::ALL {
            ask_alone(kind.name(), "3").unwrap();
        }
        let error = ask_alone("nobody", "3").unwrap_err().to_string();
        assert!(error.contains("nobody"), "{error}");
    }
}
