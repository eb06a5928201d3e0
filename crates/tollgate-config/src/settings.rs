//! Settings as meant: checked, complete, with nothing left to interpret.

use std::fmt;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tollgate::{Network, Policy, Prefix};

/// Everything a server can be told. This is where the defaults are: [`Settings::default`] is what an
/// empty file means.
///
/// | setting | default |
/// |---|---|
/// | `trusted_proxies` | none |
/// | `ipv6_prefix` | 64 |
/// | `headers` | `draft-11` |
/// | `salt` | none: digests of private values are not keyed |
/// | `store.url` | none: the store in memory |
/// | `store.deadline` | 50 ms |
/// | `store.prefix` | `tollgate` |
/// | `store.connections` | 2 to each node |
/// | `store.max_in_flight` | 16,384 |
/// | `store.deny_cache` | 8,192 keys |
/// | `store.max_keys` | 8,388,608 |
/// | `store.max_log_entries` | 16,777,216 |
/// | `store.replicas` | 1 |
/// | `listen.http` | `127.0.0.1:8080` |
/// | `listen.grpc` | `127.0.0.1:8081` |
/// | `listen.resp` | `127.0.0.1:6380` |
/// | `admin.token` | none: administrative calls are off |
/// | `audit.file` | none: no trail |
/// | `metrics.prometheus` | true |
/// | `metrics.otlp` | none |
/// | a rule's `algorithm` | `sliding-window` |
/// | a rule's `on_store_failure` | `local` |
/// | a rule's `missing` | `skip` |
/// | a rule's `unit` | `requests` |
/// | a rule's `consistency` | `strict` (with `leased`, an `overshoot` of 10 per cent) |
/// | a rule's `critical` | true |
/// | a rule's `shadow`, `hash`, `margin`, `wait`, `colocate`, `any_of` | none |
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// Where the buckets are.
    pub store: StoreSettings,
    /// Where the server answers.
    pub listen: Listen,
    /// The bearer token of administrative calls; without one they are off.
    pub admin_token: Option<Secret>,
    /// How clients are told their limits.
    pub headers: Dialect,
    /// Whose X-Forwarded-For is believed.
    pub trusted_proxies: Vec<Network>,
    /// How many leading bits of an IPv6 address tell clients apart.
    pub ipv6_prefix: u8,
    /// Axes whose values front ends read from a header.
    pub axes: Vec<HeaderAxis>,
    /// The trail of decisions.
    pub audit: Audit,
    /// What is measured.
    pub metrics: Metrics,
    /// The rules and lists, compiled.
    pub policy: Arc<Policy>,
    /// What else each rule says, in the order of [`Policy::rules`].
    pub rules: Vec<RuleSettings>,
}

impl Default for Settings {
    fn default() -> Self {
        let policy = Policy::builder().build().expect("a policy without rules is right");
        Self {
            store: StoreSettings::default(),
            listen: Listen::default(),
            admin_token: None,
            headers: Dialect::default(),
            trusted_proxies: Vec::new(),
            ipv6_prefix: 64,
            axes: Vec::new(),
            audit: Audit::default(),
            metrics: Metrics::default(),
            policy: Arc::new(policy),
            rules: Vec::new(),
        }
    }
}

/// Where the buckets are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSettings {
    /// A Redis server, Sentinel or Cluster; this process if there is none. It may hold a password.
    pub url: Option<Secret>,
    /// The longest a decision waits for the store.
    pub deadline: Duration,
    /// What every key in the store starts with.
    pub prefix: Prefix,
    /// Connections to each node.
    pub connections: usize,
    /// Questions under way at once.
    pub max_in_flight: usize,
    /// Refused keys remembered; zero for none.
    pub deny_cache: usize,
    /// The most buckets of the store in memory.
    pub max_keys: usize,
    /// The most entries of all sliding logs of the store in memory.
    pub max_log_entries: usize,
    /// Servers that share the store: each grants its part of a quota while the store cannot be
    /// asked.
    pub replicas: NonZeroU32,
}

impl Default for StoreSettings {
    fn default() -> Self {
        Self {
            url: None,
            deadline: Duration::from_millis(50),
            prefix: Prefix::default(),
            connections: 2,
            max_in_flight: 16_384,
            deny_cache: 8_192,
            max_keys: 1 << 23,
            max_log_entries: 1 << 24,
            replicas: NonZeroU32::MIN,
        }
    }
}

/// Where the server answers: HOST:PORT each, or nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// HTTP.
    pub http: Option<String>,
    /// Envoy's rate limit service.
    pub grpc: Option<String>,
    /// The Redis protocol.
    pub resp: Option<String>,
}

impl Default for Listen {
    fn default() -> Self {
        Self {
            http: Some("127.0.0.1:8080".to_owned()),
            grpc: Some("127.0.0.1:8081".to_owned()),
            resp: Some("127.0.0.1:6380".to_owned()),
        }
    }
}

/// Something that must not be printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps a text out of everything that is printed.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// How clients are told their limits. The names are those of `tollgate_tower::Dialect`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// draft-ietf-httpapi-ratelimit-headers-11.
    #[default]
    Draft11,
    /// Its seventh draft.
    Draft7,
    /// Its sixth draft.
    Draft6,
    /// `X-RateLimit-*` with the reset in seconds since the epoch.
    XRateLimitEpoch,
    /// `X-RateLimit-*` with the reset in seconds from now.
    XRateLimitDelta,
    /// As Envoy writes them.
    Envoy03,
    /// No rate-limit fields.
    Off,
}

impl Dialect {
    /// Every dialect with its name.
    pub(crate) const NAMED: [(&'static str, Self); 7] = [
        ("draft-11", Self::Draft11),
        ("draft-7", Self::Draft7),
        ("draft-6", Self::Draft6),
        ("x-ratelimit", Self::XRateLimitEpoch),
        ("x-ratelimit-delta", Self::XRateLimitDelta),
        ("envoy-03", Self::Envoy03),
        ("off", Self::Off),
    ];

    /// The name in configuration.
    pub fn name(self) -> &'static str {
        let found = Self::NAMED.iter().find(|(_, dialect)| *dialect == self);
        found.map_or("off", |(name, _)| name)
    }
}

/// An axis whose value stands in a header of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderAxis {
    /// The axis.
    pub axis: String,
    /// The header, in lower case.
    pub header: String,
}

/// The trail of decisions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// The file it is appended to; without one there is no trail.
    pub file: Option<PathBuf>,
    /// Whether only refusals are written.
    pub refusals_only: bool,
}

/// What is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metrics {
    /// Whether `GET /metrics` is answered.
    pub prometheus: bool,
    /// The OpenTelemetry collector.
    pub otlp: Option<String>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self { prometheus: true, otlp: None }
    }
}

/// What a rule says beyond what a [`Policy`] decides by.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuleSettings {
    /// The rule's name.
    pub name: String,
    /// Whether every decision asks the store.
    pub consistency: Consistency,
    /// Of a leased rule: per cent of the limit that may be granted beyond it at worst.
    pub overshoot: u8,
    /// The axis by whose value its buckets are kept together on a Redis Cluster.
    pub colocate: Option<String>,
    /// How long a request is held instead of being refused.
    pub wait: Option<Duration>,
    /// Whether a request waits for its decision.
    pub critical: bool,
}

/// Whether every decision of a rule asks the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Consistency {
    /// It does.
    #[default]
    Strict,
    /// Slices of the quota are spent in process.
    Leased,
}

impl Consistency {
    /// Both with their names.
    pub(crate) const NAMED: [(&'static str, Self); 2] =
        [("strict", Self::Strict), ("leased", Self::Leased)];
}
