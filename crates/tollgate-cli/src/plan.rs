//! The command line as meant: checked, with nothing left to interpret.

use std::ffi::OsString;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use clap_complete::Shell;
use tollgate::{Algorithm, Cost, Meter, Prefix, quota};
use tollgate_config::envoy::Options;
use tollgate_config::{Loader, Setting};
use tollgate_redis::{RedisStore, RedisStoreBuilder};
use tracing::Level;

use crate::args::{self, Args, Command};
use crate::exit::Failure;
use crate::{config, init, store};

/// What to do.
#[derive(Debug)]
pub(crate) enum Plan {
    Serve(Serve),
    Decide(Decide),
    Config(config::Plan),
    Init(init::Args),
    Completions(Shell),
    Man(Option<String>),
}

/// A server to run.
#[derive(Debug)]
pub(crate) struct Serve {
    // The file, the environment and the flags, to be read now and whenever the file changes.
    pub(crate) loader: Loader,
    // Limits for Envoy's descriptors, if any.
    pub(crate) envoy: Option<(PathBuf, Options)>,
    pub(crate) log: Level,
    pub(crate) print: Print,
}

/// One decision from the shell.
#[derive(Debug)]
pub(crate) struct Decide {
    pub(crate) verb: Verb,
    pub(crate) key: String,
    // One bucket for each quota.
    pub(crate) meters: Vec<Meter>,
    pub(crate) cost: Cost,
    pub(crate) store: RedisStoreBuilder,
    pub(crate) print: Print,
}

/// What to do with a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Take,
    Peek,
    Reset,
}

impl From<bool> for Print {
    /// What `--json` means.
    fn from(json: bool) -> Self {
        if json { Self::Json } else { Self::Text }
    }
}

/// How things are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Print {
    Text,
    Json,
}

impl Plan {
    /// What `args` mean.
    pub(crate) fn new(args: Args) -> Result<Self, Failure> {
        Ok(match args.command {
            Command::Serve(args) => Self::Serve(Serve::new(args)?),
            Command::Take(args) => Self::Decide(Decide::new(Verb::Take, args)?),
            Command::Peek(args) => Self::Decide(Decide::new(Verb::Peek, args)?),
            Command::Reset(args) => Self::Decide(Decide::new(Verb::Reset, args)?),
            Command::Config { command } => Self::Config(config::Plan::new(command)?),
            Command::Init(args) => Self::Init(args),
            Command::Completions { shell } => Self::Completions(shell),
            Command::Man { command } => Self::Man(command),
        })
    }
}

impl Serve {
    fn new(args: args::Serve) -> Result<Self, Failure> {
        let flags = [
            ("--http", Setting::Http, args.http),
            ("--store", Setting::StoreUrl, args.store),
            ("--deadline", Setting::StoreDeadline, args.deadline),
            ("--prefix", Setting::StorePrefix, args.prefix),
            ("--headers", Setting::Headers, args.headers),
        ];
        let loader = Loader::new().store_urls(store::check).environment(environment());
        let loader = loader.other_variables(Args::variables());
        let loader = match args.config.filter(|path| is_given(path)) {
            Some(path) => loader.file(path),
            None => loader,
        };
        let given =
            |loader: Loader, (flag, setting, value): (&str, Setting, Option<String>)| match value {
                Some(value) => loader.flag(flag, setting, value),
                None => loader,
            };
        let loader = flags.into_iter().fold(loader, given);
        let log = if args.log.is_empty() { Ok(Level::INFO) } else { args.log.parse() };
        let log = log.map_err(|_| {
            let level = &args.log;
            Failure::new(format_args!(
                "--log {level:?} is no level; write error, warn, info, debug or trace"
            ))
        })?;
        let algorithm: Algorithm = args.envoy_algorithm.parse().map_err(|error| {
            Failure::new(format_args!("--envoy-algorithm {:?}: {error}", args.envoy_algorithm))
        })?;
        let options = Options::default().algorithm(algorithm);
        let envoy = args.envoy_config.filter(|path| is_given(path)).map(|path| (path, options));
        Ok(Self { loader, envoy, log, print: args.json.into() })
    }
}

/// Whether it names a file. A variable that is set to nothing is as good as none.
fn is_given(path: &Path) -> bool {
    !path.as_os_str().is_empty()
}

/// The variables that are text; settings are nothing else.
fn environment() -> impl Iterator<Item = (String, String)> {
    let text = |text: OsString| text.into_string().ok();
    std::env::vars_os().filter_map(move |(name, value)| Some((text(name)?, text(value)?)))
}

impl Decide {
    fn new(verb: Verb, args: args::Decide) -> Result<Self, Failure> {
        let algorithm: Algorithm = args.algorithm.parse().map_err(|error| {
            Failure::new(format_args!("--algorithm {:?}: {error}", args.algorithm))
        })?;
        let quota = |error: &dyn Display| Failure::new(format_args!("--quota: {error}"));
        let quotas = quota::parse_list(&args.quota).map_err(|error| quota(&error))?;
        let meters = quotas.into_iter().map(|one| Meter::new(one, algorithm));
        let meters: Result<Vec<Meter>, _> = meters.collect();
        let cost = args.cost.parse().ok().and_then(Cost::new).ok_or_else(|| {
            let cost = &args.cost;
            Failure::new(format_args!("--cost {cost:?} is no cost; write a whole number from 1"))
        })?;
        if args.key.is_empty() {
            return Err(Failure::new("the key is empty; write a name such as user:42"));
        }
        Ok(Self {
            verb,
            key: args.key,
            meters: meters.map_err(|error| quota(&error))?,
            cost,
            store: redis(args.store)?,
            print: args.json.into(),
        })
    }
}

/// The Redis that `args` name.
fn redis(args: args::Store) -> Result<RedisStoreBuilder, Failure> {
    let Some(url) = args.url.filter(|url| !matches!(url.as_str(), "" | "memory")) else {
        return Err(Failure::new(
            "a bucket in memory would end with this command; name a store that outlives it, \
             such as --store redis://127.0.0.1:6379",
        ));
    };
    let builder = RedisStore::builder(&url);
    let builder = builder.map_err(|error| Failure::new(format_args!("--store: {error}")))?;
    if args.prefix.is_empty() {
        return Ok(builder);
    }
    let prefix = args.prefix.parse::<Prefix>();
    let prefix = prefix.map_err(|error| Failure::new(format_args!("--prefix: {error}")))?;
    Ok(builder.prefix(prefix))
}
