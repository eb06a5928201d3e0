//! The command line as typed. [`plan`](crate::plan) says what it means.

use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{CommandFactory, Parser, Subcommand};
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
    /// Take units from one bucket; exits with 0 if they were there, with 1 if not
    ///
    /// The bucket is one of its own, as are those of charges over HTTP: rules have others, which only
    /// POST /v1/take reaches.
    Take(Decide),
    /// See what taking would do, and take nothing
    ///
    /// The bucket is one of its own, as are those of charges over HTTP: rules have others, which only
    /// POST /v1/peek reaches.
    Peek(Decide),
    /// Forget what was counted in one bucket
    ///
    /// The bucket is one of its own, as are those of charges over HTTP: rules have others, which only
    /// POST /v1/reset reaches, with {"rule":…,"subject":{…}}.
    Reset(Decide),
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

impl Args {
    /// The variables that the command line itself reads.
    pub(crate) fn variables() -> Vec<String> {
        let command = Self::command();
        let args = command.get_subcommands().flat_map(clap::Command::get_arguments);
        let names = args.filter_map(clap::Arg::get_env);
        names.map(|name| name.to_string_lossy().into_owned()).collect()
    }
}

/// How to serve. Flags stand over the environment, which stands over the file.
#[derive(Debug, clap::Args)]
pub(crate) struct Serve {
    /// The file of settings, TOML or YAML; read again when it changes and on SIGHUP
    #[arg(long, short, value_name = "FILE", env = "TOLLGATE_CONFIG", value_parser = path())]
    pub(crate) config: Option<PathBuf>,
    /// A file of envoyproxy/ratelimit, or a folder of them, unchanged: POST /json decides by it
    #[arg(long, value_name = "PATH", env = "TOLLGATE_ENVOY_CONFIG", value_parser = path())]
    pub(crate) envoy_config: Option<PathBuf>,
    /// How the limits of --envoy-config are metered
    #[arg(long, value_name = "NAME", default_value = "fixed-window", requires = "envoy_config")]
    pub(crate) envoy_algorithm: String,
    /// Where to answer HTTP; port 0 picks a free one [env: TOLLGATE_HTTP] [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    pub(crate) http: Option<String>,
    /// Where the buckets are: a Redis, such as redis://127.0.0.1:6379, redis+sentinel://HOST:PORT/SERVICE
    /// or redis+cluster://HOST:PORT; one with a password belongs in the variable, for whoever lists
    /// processes sees flags [env: TOLLGATE_STORE_URL] [default: this process]
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,
    /// The longest a decision waits for the store [env: TOLLGATE_STORE_DEADLINE] [default: 50ms]
    #[arg(long, value_name = "TIME")]
    pub(crate) deadline: Option<String>,
    /// What every key in the store starts with [env: TOLLGATE_STORE_PREFIX] [default: tollgate]
    #[arg(long, value_name = "TEXT")]
    pub(crate) prefix: Option<String>,
    /// How limits are told in headers: draft-11, draft-7, draft-6, x-ratelimit, x-ratelimit-delta,
    /// envoy-03 or off [env: TOLLGATE_HEADERS] [default: draft-11]
    #[arg(long, value_name = "DIALECT")]
    pub(crate) headers: Option<String>,
    /// Log what is at least so grave: error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL", env = "TOLLGATE_LOG", default_value = "info")]
    pub(crate) log: String,
    /// Print what is printed as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Reads a path that may be empty, as a variable is that is set to nothing.
fn path() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

/// Which bucket, and how it is metered.
#[derive(Debug, clap::Args)]
pub(crate) struct Decide {
    /// The bucket, such as user:42; one of its own, not a rule's
    pub(crate) key: String,
    /// LIMIT/PERIOD [burst N], such as "100/min" or "10/s burst 50"; several joined by ;
    #[arg(long, value_name = "QUOTA")]
    pub(crate) quota: String,
    /// fixed-window, sliding-log, sliding-window, token-bucket or leaky-bucket
    #[arg(long, value_name = "NAME", default_value = "sliding-window")]
    pub(crate) algorithm: String,
    /// Units to take
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) cost: String,
    #[command(flatten)]
    pub(crate) store: Store,
    /// Print the decision as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Where the buckets are.
#[derive(Debug, clap::Args)]
pub(crate) struct Store {
    /// A Redis, such as redis://127.0.0.1:6379, redis+sentinel://HOST:PORT/SERVICE or
    /// redis+cluster://HOST:PORT; one with a password belongs in the variable, for whoever lists
    /// processes sees flags
    #[arg(long = "store", value_name = "URL", env = "TOLLGATE_STORE_URL", hide_env_values = true)]
    pub(crate) url: Option<String>,
    /// What every key in the store starts with
    #[arg(long, value_name = "TEXT", env = "TOLLGATE_STORE_PREFIX", default_value = "tollgate")]
    pub(crate) prefix: String,
}
