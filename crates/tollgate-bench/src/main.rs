//! Tollgate measured against its peers, on equal work, in one process.
//!
//! Peers are dependencies of this package only. See the README beside it for how to read the output.

use std::io;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod alloc;
mod contender;
mod memory;
mod middleware;
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
    /// Layers around an axum server over loopback: requests per second
    Middleware(MiddlewareArgs),
}

#[derive(Debug, clap::Args)]
struct MiddlewareArgs {
    /// Print one JSON object per row
    #[arg(long)]
    json: bool,
    /// Interleaved runs of each contender
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u8).range(1..=51))]
    runs: u8,
    /// Connections kept alive, each with one request at a time
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=512))]
    connections: u16,
}

impl From<MiddlewareArgs> for middleware::Plan {
    fn from(args: MiddlewareArgs) -> Self {
        Self {
            format: report::Format::of(args.json),
            runs: args.runs.into(),
            connections: args.connections.into(),
        }
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
            format: report::Format::of(args.json),
            runs: args.runs.into(),
            quick: args.quick,
            filter: args.filter,
        }
    }
}

fn main() -> ExitCode {
    let mut out = io::stdout().lock();
    let measured = match Args::parse().bench {
        Bench::Memory(args) => memory::run(&args.into(), &mut out),
        Bench::Middleware(args) => middleware::run(&args.into(), &mut out),
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
