//! The command line as meant: checked, with nothing left to interpret.

use std::fmt::Display;

use clap_complete::Shell;
use tollgate::{Algorithm, Cost, Meter, Prefix, quota};
use tollgate_redis::{RedisStore, RedisStoreBuilder};

use crate::args::{self, Args, Command};
use crate::exit::Failure;
use crate::{config, init};

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
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Serve {
    pub(crate) http: Address,
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

/// A host and a port, known to look like them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Address(String);

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
        Ok(Self { http: Address::parse("--http", &args.http)?, print: args.json.into() })
    }
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
    let Some(url) = args.url else {
        return Err(Failure::new(
            "a bucket in memory would end with this command; name a store that outlives it, \
             such as --store redis://127.0.0.1:6379",
        ));
    };
    let builder = RedisStore::builder(&url);
    let builder = builder.map_err(|error| Failure::new(format_args!("--store: {error}")))?;
    let prefix = args.prefix.parse::<Prefix>();
    let prefix = prefix.map_err(|error| Failure::new(format_args!("--prefix: {error}")))?;
    Ok(builder.prefix(prefix))
}

impl Address {
    /// Reads the value of `flag`.
    fn parse(flag: &str, text: &str) -> Result<Self, Failure> {
        let fits = text.rsplit_once(':').is_some_and(|(host, port)| {
            let bracketed = host.starts_with('[') && host.ends_with(']');
            let host_fits = !host.is_empty() && (bracketed || !host.contains(':'));
            host_fits && port.parse::<u16>().is_ok()
        });
        match fits {
            true => Ok(Self(text.to_owned())),
            false => Err(Failure::new(format_args!(
                "{flag} {text:?} is no address; write HOST:PORT, such as 127.0.0.1:8080, \
                 [::1]:8080 or 0.0.0.0:8080"
            ))),
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_host_and_a_port() {
        for text in ["127.0.0.1:8080", "localhost:0", "[::1]:65535", "0.0.0.0:80"] {
            assert_eq!(Address::parse("--http", text).unwrap().as_str(), text);
        }
        for text in ["", "8080", ":8080", "localhost", "localhost:", "::1:80", "h:65536", "h:-1"] {
            let failure = Address::parse("--http", text).unwrap_err();
            let expected = format!("--http {text:?} is no address; write HOST:PORT");
            assert!(failure.to_string().starts_with(&expected), "{failure}");
        }
    }
}
