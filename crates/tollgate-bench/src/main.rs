//! Tollgate measured against its peers, on equal work, in one process.
//!
//! Peers are dependencies of this package only. See the README beside it for how to read the output.

use std::io;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use middleware::instructions;

mod alloc;
mod contender;
mod memory;
mod middleware;
mod policy;
mod redis;
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
    Memory(Options),
    /// Layers around an axum server over loopback: requests per second
    Middleware(MiddlewareArgs),
    /// Policies of ten rules and of a thousand: nanoseconds to find those that apply
    Policy(Options),
    /// Limiters that share a Redis: decisions per second, latency, and what they cost Redis
    Redis(Options),
}

#[derive(Debug, clap::Args)]
struct MiddlewareArgs {
    /// Print one JSON object per row
    #[arg(long)]
    json: bool,
    /// Interleaved runs of each contender
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=999))]
    runs: u16,
    /// Connections kept alive, each with one request at a time
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=512))]
    connections: u16,
    /// Count instructions under valgrind instead of taking times: the same each time, whoever else
    /// uses the machine
    #[arg(long, conflicts_with_all = ["runs", "connections"])]
    instructions: bool,
    /// What is run under valgrind: this contender, asked so often
    #[arg(long, hide = true, num_args = 2, value_names = ["CONTENDER", "REQUESTS"])]
    alone: Option<Vec<String>>,
}

impl MiddlewareArgs {
    fn run(self, out: &mut impl io::Write) -> io::Result<()> {
        if let Some([contender, requests]) = self.alone.as_deref() {
            return instructions::ask_alone(contender, requests);
        }
        match self.instructions {
            true => instructions::run(report::Format::of(self.json), out),
            false => middleware::run(&self.into(), out),
        }
    }
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
struct Options {
    /// Print one JSON object per row
    #[arg(long)]
    json: bool,
    /// Interleaved runs of each contender
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=11))]
    runs: u8,
    /// Make fewer decisions: under a minute, and noisier
    #[arg(long)]
    quick: bool,
    /// Run only rows whose description contains this, and what they are compared with
    ///
    /// In memory a row is described as SECTION WORKLOAD THREADS CONTENDER ALGORITHM, on Redis as
    /// CONTENDER ALGORITHM.
    #[arg(long, value_name = "SUBSTR", default_value = "", hide_default_value = true)]
    filter: String,
}

/// What to measure, and how.
#[derive(Clone, Debug)]
struct Plan {
    /// How to print it.
    format: report::Format,
    /// Runs of each contender.
    runs: usize,
    /// Whether to make fewer decisions.
    quick: bool,
    /// Only rows whose description contains this.
    filter: String,
}

impl From<Options> for Plan {
    fn from(options: Options) -> Self {
        Self {
            format: report::Format::of(options.json),
            runs: options.runs.into(),
            quick: options.quick,
            filter: options.filter,
        }
    }
}

fn main() -> ExitCode {
    let out = &mut io::stdout().lock();
    let measured = match Args::parse().bench {
        Bench::Memory(options) => memory::run(&options.into(), out),
        Bench::Middleware(args) => args.run(out),
        Bench::Policy(options) => policy::run(&options.into(), out),
        Bench::Redis(options) => redis::run(&options.into(), out),
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
