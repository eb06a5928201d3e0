//! Tollgate measured against its peers, on equal work, in one process.
//!
//! Peers are dependencies of this package only. See the README beside it for how to read the output.

use std::io;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod alloc;
mod contender;
mod memory;
mod policy;
mod report;
mod workload;

#[global_allocator]
static TALLY: alloc::Tally = alloc::Tally;

/// Measures Tollgate against its peers.
#[derive(Debug, Parser)]
#[command(name = "tollgate-bench")]
struct Args {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// Limiters in this process: nanoseconds per decision and bytes per key
    Memory(MemoryArgs),
    /// Policies of ten rules and of a thousand: nanoseconds to find those that apply
    Policy(PolicyArgs),
}

#[derive(Debug, clap::Args)]
struct PolicyArgs {
    /// Print one JSON object per row
    #[arg(long)]
    json: bool,
    /// Interleaved runs of each size
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=11))]
    runs: u8,
    /// Ask less often: a second, and noisier
    #[arg(long)]
    quick: bool,
}

impl From<PolicyArgs> for policy::Plan {
    fn from(args: PolicyArgs) -> Self {
        let format = if args.json { report::Format::Json } else { report::Format::Table };
        Self { format, runs: args.runs.into(), quick: args.quick }
    }
}

#[derive(Debug, clap::Args)]
struct MemoryArgs {
    /// Print one JSON object per row
    #[arg(long)]
    json: bool,
    /// Interleaved runs of each contender
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=11))]
    runs: u8,
    /// Make fewer decisions: under a minute, and noisier
    #[arg(long)]
    quick: bool,
    /// Run only rows whose "SECTION WORKLOAD THREADS CONTENDER ALGORITHM" contains this, and governor
    #[arg(long, value_name = "SUBSTR", default_value = "", hide_default_value = true)]
    filter: String,
}

impl From<MemoryArgs> for memory::Plan {
    fn from(args: MemoryArgs) -> Self {
        Self {
            format: match args.json {
                true => report::Format::Json,
                false => report::Format::Table,
            },
            runs: args.runs.into(),
            quick: args.quick,
            filter: args.filter,
        }
    }
}

fn main() -> ExitCode {
    let out = &mut io::stdout().lock();
    let measured = match Args::parse().bench {
        Bench::Memory(args) => memory::run(&args.into(), out),
        Bench::Policy(args) => policy::run(&args.into(), out),
    };
    match measured {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever was reading has read enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("failed to measure: {error}");
            ExitCode::FAILURE
        }
    }
}
