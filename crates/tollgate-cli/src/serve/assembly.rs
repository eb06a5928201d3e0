//! From settings to a server's parts: the store, the gate over it, and what keeps its policy fresh.

use std::path::PathBuf;
use std::sync::Arc;

use tollgate::{Gate, MemoryStore};
use tollgate_config::envoy::{self, Domains, Options};
use tollgate_config::{
    Consistency, Loaded, Loader, Reloader, Report, Settings, Severity, StoreSettings,
};
use tollgate_redis::RedisStore;
use tollgate_server::{AdminToken, AnyStore, Descriptors, Reload, Reloads, Trouble};
use tollgate_tower::Dialect;
use tracing::{error, info, warn};

use crate::exit::Failure;

/// What is read again: the file of settings, and those of envoyproxy/ratelimit.
const OWN: &str = "policy";
const ENVOY: &str = "file of descriptors";

/// A server that is ready to run.
pub(super) struct Assembly {
    pub(super) settings: tollgate_server::Settings<AnyStore>,
    // One for each file or folder that is read again.
    pub(super) reloaders: Arc<[Reloader]>,
}

impl Assembly {
    /// What `settings` describe; `loader` has read them and will read them again.
    pub(super) fn new(
        settings: Settings,
        loader: Loader,
        envoy: Option<(PathBuf, Options)>,
    ) -> Result<Self, Failure> {
        let (store, trouble) = store(&settings.store)?;
        let gate = Gate::new(Arc::clone(&settings.policy), store);
        let gate = Arc::new(gate.with_replicas(settings.store.replicas));
        let reloads = Reloads::default();
        reloads.in_force(settings.policy.version());
        let admin = admin(&settings)?;
        let metrics = settings.metrics.prometheus;
        warn_of_what_is_not_there(&settings);
        let dialect = dialect(&settings)?;
        let (descriptors, envoy) = match envoy {
            Some((path, options)) => {
                let (descriptors, reloader) = descriptors(path, options, &reloads)?;
                (Some(descriptors), Some(reloader))
            }
            None => (None, None),
        };
        let own = watch(settings, loader, &gate, &reloads);
        let reloaders: Arc<[Reloader]> = own.into_iter().chain(envoy).collect();
        let reload = (!reloaders.is_empty()).then(|| {
            let reloaders = Arc::clone(&reloaders);
            let reload = move || {
                // All of them, whatever is wrong with the first.
                let read = reloaders.iter().filter_map(|reloader| reloader.reload().err());
                let wrong: Vec<String> = read.map(|report| report.to_string()).collect();
                if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
            };
            Arc::new(reload) as Reload
        });
        let settings = tollgate_server::Settings {
            dialect,
            admin,
            metrics,
            trouble,
            reloads,
            descriptors,
            reload,
            ..tollgate_server::Settings::with_gate(gate)
        };
        Ok(Self { settings, reloaders })
    }
}

/// The store, and what tells whether it answers.
fn store(settings: &StoreSettings) -> Result<(AnyStore, Trouble), Failure> {
    let Some(url) = &settings.url else {
        let store = MemoryStore::builder()
            .max_keys(settings.max_keys)
            .max_log_entries(settings.max_log_entries)
            .build();
        return Ok((AnyStore::Memory(store), Arc::new(|| None)));
    };
    let fail = |error: &dyn std::fmt::Display| Failure::new(format_args!("store: {error}"));
    let store = RedisStore::builder(url.reveal())
        .map_err(|error| fail(&error))?
        .deadline(settings.deadline)
        .prefix(settings.prefix.clone())
        .connections(settings.connections)
        .max_in_flight(settings.max_in_flight)
        .deny_cache(settings.deny_cache)
        .build()
        .map_err(|error| fail(&format_args!("failed to {error}")))?;
    let asked = store.clone();
    let trouble =
        move || asked.stats().is_breaker_open().then(|| "Redis is not reached".to_owned());
    Ok((AnyStore::Redis(store), Arc::new(trouble)))
}

fn admin(settings: &Settings) -> Result<Option<AdminToken>, Failure> {
    let Some(secret) = &settings.admin_token else {
        return Ok(None);
    };
    let least = AdminToken::MIN_LENGTH;
    AdminToken::new(secret.reveal()).map(Some).ok_or_else(|| {
        Failure::new(format_args!("the admin token is too short; use at least {least} characters"))
    })
}

fn dialect(settings: &Settings) -> Result<Dialect, Failure> {
    let name = settings.headers.name();
    name.parse().map_err(|error| Failure::new(format_args!("headers: {error}")))
}

/// Keeps the policy as the file has it.
fn watch(
    settings: Settings,
    loader: Loader,
    gate: &Arc<Gate<AnyStore>>,
    reloads: &Reloads,
) -> Option<Reloader> {
    let path = loader.path()?.to_owned();
    let (gate, reloads) = (Arc::clone(gate), reloads.clone());
    let tell = move |read: Result<&Loaded, &Report>| match read {
        Ok(loaded) => {
            let policy = Arc::clone(&loaded.settings.policy);
            let version = policy.version();
            gate.set_policy(policy);
            reloads.in_force(version);
            reloads.mended(OWN);
            info!(version, rules = loaded.settings.rules.len(), "the policy was read again");
            if !loaded.warnings.is_empty() {
                warn!("the policy has doubtful parts:\n{}", loaded.warnings);
            }
            if !same_but_for_rules(&settings, &loaded.settings) {
                warn!("only rules and lists change while the server runs; restart it for the rest");
            }
        }
        Err(report) => {
            reloads.failed(OWN, first_error(report));
            error!("the policy stays as it was, for the file is wrong:\n{report}");
        }
    };
    Some(Reloader::new([path], move || loader.load(), tell))
}

/// The limits of files of envoyproxy/ratelimit, kept as the files have them.
fn descriptors(
    path: PathBuf,
    options: Options,
    reloads: &Reloads,
) -> Result<(Descriptors, Reloader), Failure> {
    let envoy::Loaded { domains, warnings, .. } =
        Domains::load(&path, options).map_err(Failure::settings)?;
    if !warnings.is_empty() {
        eprint!("{warnings}");
    }
    let descriptors = Descriptors::new(domains);
    let (in_force, reloads) = (descriptors.clone(), reloads.clone());
    let tell = move |read: Result<&envoy::Loaded, &Report>| match read {
        Ok(loaded) => {
            in_force.replace(loaded.domains.clone());
            reloads.mended(ENVOY);
            info!("the limits for descriptors were read again");
        }
        Err(report) => {
            reloads.failed(ENVOY, first_error(report));
            error!("the limits for descriptors stay as they were:\n{report}");
        }
    };
    let again = path.clone();
    let reloader = Reloader::new([path], move || Domains::load(&again, options), tell);
    Ok((descriptors, reloader))
}

fn same_but_for_rules(one: &Settings, other: &Settings) -> bool {
    let server = |settings: &Settings| {
        let Settings { store, listen, admin_token, headers, .. } = settings.clone();
        (store, listen, admin_token, headers)
    };
    let rest = |settings: &Settings| {
        let Settings { trusted_proxies, ipv6_prefix, axes, audit, metrics, .. } = settings.clone();
        (trusted_proxies, ipv6_prefix, axes, audit, metrics)
    };
    server(one) == server(other) && rest(one) == rest(other)
}

/// Says which settings are understood and not acted on yet.
fn warn_of_what_is_not_there(settings: &Settings) {
    let default = Settings::default();
    let leased = settings.rules.iter().any(|rule| rule.consistency == Consistency::Leased);
    let unused = [
        ("audit", settings.audit != default.audit),
        ("metrics.otlp", settings.metrics.otlp.is_some()),
        ("listen.grpc", settings.listen.grpc != default.listen.grpc),
        ("listen.resp", settings.listen.resp != default.listen.resp),
        ("trusted_proxies", !settings.trusted_proxies.is_empty()),
        ("ipv6_prefix", settings.ipv6_prefix != default.ipv6_prefix),
        ("axes", !settings.axes.is_empty()),
        ("consistency = \"leased\"", leased),
    ];
    for (setting, _) in unused.into_iter().filter(|(_, used)| *used) {
        warn!(setting, "this server does not act on a setting yet");
    }
}

/// What is wrong first, and where: the rest is in the log.
fn first_error(report: &Report) -> String {
    let error = report.findings().find(|finding| finding.severity == Severity::Error);
    let Some(error) = error else {
        return report.to_string();
    };
    match error.place {
        Some(place) => format!("{} at {}:{}", error.message, place.source, place.line),
        None => error.message.to_owned(),
    }
}
