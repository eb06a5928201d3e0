//! The command `tollgate`: arguments as typed become a plan as meant, and the plan is run.

use std::process::ExitCode;

use clap::Parser;

mod args;
mod config;
mod decide;
mod exit;
mod init;
mod pages;
mod plan;
mod serve;
mod store;

use args::Args;
use exit::{Exit, Failure};
use plan::Plan;

fn main() -> ExitCode {
    let exit = match Args::try_parse() {
        Ok(args) => Plan::new(args).and_then(run).unwrap_or_else(Failure::tell),
        Err(error) => Exit::of_usage(&error),
    };
    exit.into()
}

fn run(plan: Plan) -> Result<Exit, Failure> {
    match plan {
        Plan::Serve(plan) => serve::run(plan),
        Plan::Decide(plan) => decide::run(plan),
        Plan::Config(command) => config::run(command),
        Plan::Init(plan) => init::run(plan),
        Plan::Completions(shell) => pages::completions(shell),
        Plan::Man(command) => pages::man(command.as_deref()),
    }
}
