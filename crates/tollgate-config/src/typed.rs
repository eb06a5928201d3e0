//! Settings as typed: what a file may hold, with the place of every value.
//!
//! Nothing is checked here but that fields exist and are of the right kind; [`crate::compile`] says
//! what they mean together. The documentation of these fields is that of the JSON Schema.

mod rule;

use std::borrow::Cow;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::fields::{self, Fields};
use crate::report::Problems;
use crate::schema;
use crate::settings::Dialect;
use crate::source::Spanned;
use crate::tree::{Node, Value};

pub(crate) use rule::{Condition, Override, Quota, Rule};

/// A whole file.
#[derive(Debug, Default, JsonSchema)]
#[schemars(title = "Tollgate settings", deny_unknown_fields)]
pub(crate) struct File {
    /// The networks whose X-Forwarded-For is believed; none unless told otherwise.
    #[schemars(with = "Option<Vec<String>>")]
    pub(crate) trusted_proxies: Vec<Spanned<String>>,
    /// How many leading bits of an IPv6 address tell clients apart: 64 unless told otherwise, for
    /// that is what one customer gets.
    #[schemars(range(min = 32, max = 128))]
    pub(crate) ipv6_prefix: Option<Spanned<u64>>,
    /// Which rate-limit header fields clients are told their limits in: draft-11 unless told
    /// otherwise.
    #[schemars(schema_with = "schema::dialect")]
    pub(crate) headers: Option<Spanned<Dialect>>,
    /// A secret that keys the digests of private values, so that nobody can find a value by guessing.
    /// Another salt means other buckets.
    pub(crate) salt: Option<Spanned<String>>,
    /// Where the buckets are.
    #[schemars(with = "Option<Store>")]
    pub(crate) store: Store,
    /// Where the server answers.
    #[schemars(with = "Option<Listen>")]
    pub(crate) listen: Listen,
    /// What operators may do.
    #[schemars(with = "Option<Admin>")]
    pub(crate) admin: Admin,
    /// The trail of decisions.
    #[schemars(with = "Option<Audit>")]
    pub(crate) audit: Audit,
    /// What is measured.
    #[schemars(with = "Option<Metrics>")]
    pub(crate) metrics: Metrics,
    /// Axes beside ip, method, route, host and user: where their values come from.
    #[schemars(schema_with = "schema::axes")]
    pub(crate) axes: Vec<Axis>,
    /// The limits, in the order in which they are told.
    #[schemars(with = "Option<Vec<Rule>>")]
    pub(crate) rule: Vec<Rule>,
    /// Other quotas for some subjects of a rule; of several that match, the first counts.
    #[schemars(rename = "override", with = "Option<Vec<Override>>")]
    pub(crate) overrides: Vec<Override>,
    /// Who is let through, uncounted: patterns by axis, on the axis ip networks.
    #[schemars(schema_with = "schema::list")]
    pub(crate) allow: List,
    /// Who is refused, before anything else is asked: patterns by axis, on the axis ip networks.
    #[schemars(schema_with = "schema::list")]
    pub(crate) deny: List,
}

/// Where the buckets are.
#[derive(Debug, Default, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Store {
    /// A Redis server, Sentinel or Cluster: redis://127.0.0.1:6379; absent or "memory": this process.
    pub(crate) url: Option<Spanned<String>>,
    /// The longest a decision waits for the store before the rules' fallbacks decide: 50ms unless
    /// told otherwise.
    #[schemars(schema_with = "schema::duration")]
    pub(crate) deadline: Option<Spanned<Duration>>,
    /// What every key in the store starts with: tollgate unless told otherwise.
    pub(crate) prefix: Option<Spanned<String>>,
    /// Connections to each node: 2 unless told otherwise.
    #[schemars(range(min = 1, max = 64))]
    pub(crate) connections: Option<Spanned<u64>>,
    /// Questions under way at once; those beyond are decided by fallback: 16384 unless told
    /// otherwise.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(crate) max_in_flight: Option<Spanned<u64>>,
    /// Refused keys remembered so that the store need not be asked again, 0 for none: 8192 unless
    /// told otherwise.
    #[schemars(range(max = 10_000_000))]
    pub(crate) deny_cache: Option<Spanned<u64>>,
    /// The most buckets of the store in memory: 8388608 unless told otherwise.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub(crate) max_keys: Option<Spanned<u64>>,
    /// The most entries of all sliding logs of the store in memory: 16777216 unless told otherwise.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub(crate) max_log_entries: Option<Spanned<u64>>,
    /// Servers that share the store, so that each grants its part of a quota while the store cannot
    /// be asked: 1 unless told otherwise.
    #[schemars(range(min = 1, max = 100_000))]
    pub(crate) replicas: Option<Spanned<u64>>,
}

/// Where the server answers; HOST:PORT, port 0 for a free one, or "off".
#[derive(Debug, Default, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Listen {
    /// HTTP: 127.0.0.1:8080 unless told otherwise.
    pub(crate) http: Option<Spanned<String>>,
    /// Envoy's rate limit service over gRPC: 127.0.0.1:8081 unless told otherwise.
    pub(crate) grpc: Option<Spanned<String>>,
    /// The Redis protocol: 127.0.0.1:6380 unless told otherwise.
    pub(crate) resp: Option<Spanned<String>>,
}

/// What operators may do.
#[derive(Debug, Default, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Admin {
    /// The bearer token of administrative calls; without one they are off.
    pub(crate) token: Option<Spanned<String>>,
}

/// The trail of decisions.
#[derive(Debug, Default, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Audit {
    /// The file it is appended to; without one there is no trail.
    pub(crate) file: Option<Spanned<String>>,
    /// Write only refusals: false unless told otherwise.
    pub(crate) refusals_only: Option<Spanned<bool>>,
}

/// What is measured.
#[derive(Debug, Default, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Metrics {
    /// Answer GET /metrics: true unless told otherwise.
    pub(crate) prometheus: Option<Spanned<bool>>,
    /// The OpenTelemetry collector metrics and spans are sent to: http://127.0.0.1:4317; without one
    /// none are.
    pub(crate) otlp: Option<Spanned<String>>,
}

/// Where the values of an axis come from.
#[derive(Debug)]
pub(crate) struct Axis {
    pub(crate) name: Spanned<String>,
    /// The header it is read from; callers say it themselves if there is none.
    pub(crate) header: Option<Spanned<String>>,
}

/// Patterns by axis.
#[derive(Debug, Default)]
pub(crate) struct List {
    pub(crate) entries: Vec<Condition>,
}

impl File {
    /// Reads a whole tree.
    pub(crate) fn read(node: &Node, problems: &mut Problems) -> Self {
        let mut fields = Fields::of(node, "the file", problems);
        let file = Self {
            trusted_proxies: fields.read("trusted_proxies", problems, networks).unwrap_or_default(),
            ipv6_prefix: fields.read("ipv6_prefix", problems, fields::whole(32..=128)),
            headers: fields.read("headers", problems, fields::choice(&Dialect::NAMED)),
            salt: fields.read("salt", problems, fields::secret),
            store: section(fields.take("store"), problems, Store::read),
            listen: section(fields.take("listen"), problems, Listen::read),
            admin: section(fields.take("admin"), problems, Admin::read),
            audit: section(fields.take("audit"), problems, Audit::read),
            metrics: section(fields.take("metrics"), problems, Metrics::read),
            axes: fields.take("axes").map_or_else(Vec::new, |node| axes(node, problems)),
            rule: many(fields.take("rule"), "rule", problems, Rule::read),
            overrides: many(fields.take("override"), "override", problems, Override::read),
            allow: section(fields.take("allow"), problems, List::read),
            deny: section(fields.take("deny"), problems, List::read),
        };
        fields.finish(problems);
        file
    }
}

/// A list of texts; in one text, as the environment has it, they are separated by commas.
fn networks(node: &Node, name: &str, problems: &mut Problems) -> Option<Vec<Spanned<String>>> {
    let list = fields::texts(node, name, problems)?;
    let apart = list.into_iter().flat_map(|one| {
        let parts: Vec<String> = one.value.split(',').map(|part| part.trim().to_owned()).collect();
        parts.into_iter().map(move |value| Spanned { value, span: one.span })
    });
    Some(apart.filter(|one| !one.value.is_empty()).collect())
}

fn section<T: Default>(
    node: Option<&Node>,
    problems: &mut Problems,
    read: impl FnOnce(&Node, &mut Problems) -> T,
) -> T {
    node.map_or_else(T::default, |node| read(node, problems))
}

/// The items of a list of tables.
fn many<T>(
    node: Option<&Node>,
    name: &str,
    problems: &mut Problems,
    read: impl Fn(&Node, &mut Problems) -> T,
) -> Vec<T> {
    match node.map(|node| (node, &node.value)) {
        None => Vec::new(),
        Some((_, Value::List(items))) => items.iter().map(|item| read(item, problems)).collect(),
        Some((node, _)) => {
            let message = format!("{name:?} must be a list of tables, not {}", node.kind());
            problems.error(
                node.span,
                message,
                format!("write [[{name}]] above each, or in YAML a dash before each"),
            );
            Vec::new()
        }
    }
}

impl Store {
    fn read(node: &Node, problems: &mut Problems) -> Self {
        let mut fields = Fields::of(node, "[store]", problems);
        let store = Self {
            url: fields.read("url", problems, fields::secret),
            deadline: fields.read("deadline", problems, fields::duration),
            prefix: fields.read("prefix", problems, fields::text),
            connections: fields.read("connections", problems, fields::whole(1..=64)),
            max_in_flight: fields.read("max_in_flight", problems, fields::whole(1..=1_000_000)),
            deny_cache: fields.read("deny_cache", problems, fields::whole(0..=10_000_000)),
            max_keys: fields.read("max_keys", problems, fields::whole(1..=1_000_000_000)),
            max_log_entries: fields.read(
                "max_log_entries",
                problems,
                fields::whole(1..=1_000_000_000),
            ),
            replicas: fields.read("replicas", problems, fields::whole(1..=100_000)),
        };
        fields.finish(problems);
        store
    }
}

impl Listen {
    fn read(node: &Node, problems: &mut Problems) -> Self {
        let mut fields = Fields::of(node, "[listen]", problems);
        let listen = Self {
            http: fields.read("http", problems, fields::text),
            grpc: fields.read("grpc", problems, fields::text),
            resp: fields.read("resp", problems, fields::text),
        };
        fields.finish(problems);
        listen
    }
}

impl Admin {
    fn read(node: &Node, problems: &mut Problems) -> Self {
        let mut fields = Fields::of(node, "[admin]", problems);
        let admin = Self { token: fields.read("token", problems, fields::secret) };
        fields.finish(problems);
        admin
    }
}

impl Audit {
    fn read(node: &Node, problems: &mut Problems) -> Self {
        let mut fields = Fields::of(node, "[audit]", problems);
        let audit = Self {
            file: fields.read("file", problems, fields::text),
            refusals_only: fields.read("refusals_only", problems, fields::flag),
        };
        fields.finish(problems);
        audit
    }
}

impl Metrics {
    fn read(node: &Node, problems: &mut Problems) -> Self {
        let mut fields = Fields::of(node, "[metrics]", problems);
        let metrics = Self {
            prometheus: fields.read("prometheus", problems, fields::flag),
            otlp: fields.read("otlp", problems, fields::text),
        };
        fields.finish(problems);
        metrics
    }
}

fn axes(node: &Node, problems: &mut Problems) -> Vec<Axis> {
    let Value::Table(entries) = &node.value else {
        let help = "write [axes] and under it tenant = { header = \"x-tenant\" }";
        problems.error(node.span, format!("[axes] must be a table, not {}", node.kind()), help);
        return Vec::new();
    };
    let read = entries.iter().map(|entry| {
        let mut fields = Fields::of(&entry.node, "an axis", problems);
        let header = fields.read("header", problems, fields::text);
        fields.finish(problems);
        Axis { name: Spanned { value: entry.key.clone(), span: entry.key_span }, header }
    });
    read.collect()
}

impl List {
    fn read(node: &Node, problems: &mut Problems) -> Self {
        let Value::Table(entries) = &node.value else {
            let help = "write the axis first: ip = [\"10.0.0.0/8\"]";
            problems.error(node.span, format!("a list must be a table, not {}", node.kind()), help);
            return Self::default();
        };
        let mut list = Self::default();
        for entry in entries {
            let axis = Spanned { value: entry.key.clone(), span: entry.key_span };
            let patterns = fields::texts(&entry.node, &entry.key, problems).unwrap_or_default();
            let conditions = patterns.into_iter();
            list.entries
                .extend(conditions.map(|pattern| Condition { axis: axis.clone(), pattern }));
        }
        list
    }
}

/// A value's schema is that of what is written, not of where.
impl<T: JsonSchema> JsonSchema for Spanned<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}
