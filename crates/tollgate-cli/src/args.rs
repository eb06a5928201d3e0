//! The command line as typed. [`plan`](crate::plan) says what it means.

use clap::{Parser, Subcommand};
use clap_complete::Shell;

use crate::{config, init};

/// An exact rate limiter.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Answer take, peek and refund over HTTP until SIGTERM or SIGINT
    Serve(Serve),
    /// Look at files of settings: check, explain, convert
    Config {
        #[command(subcommand)]
        command: config::Command,
    },
    /// Write a file of settings to start from
    Init(init::Args),
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page of tollgate or of one of its commands
    Man {
        /// The command
        command: Option<String>,
    },
}

/// How to serve.
#[derive(Debug, clap::Args)]
pub(crate) struct Serve {
    /// Where to answer HTTP; port 0 picks a free one
    #[arg(long, value_name = "ADDR", env = "TOLLGATE_HTTP", default_value = "127.0.0.1:8080")]
    pub(crate) http: String,
    /// Print what is printed as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
