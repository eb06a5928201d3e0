//! Where settings come from: a file, the environment over it, flags over both.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::compile::compile;
use crate::nearest::nearest;
use crate::report::{Problems, Report};
use crate::secrets;
use crate::settings::Settings;
use crate::source::{Source, Span};
use crate::tree::{self, Format, MAX_BYTES, Node, Value};
use crate::typed;
use crate::url::{self, WrongUrl};

/// Reads settings from all their sources, as often as one likes.
///
/// The environment stands over the file, and flags stand over both. Whatever a value came from, a
/// complaint about it says so.
///
/// ```
/// use tollgate_config::{Format, Loader, Setting, Source};
///
/// let file = Source::new("tollgate.toml", r#"
///     store.url = "redis://10.0.0.5"
///     listen.http = "0.0.0.0:80"
/// "#);
/// let loader = Loader::new()
///     .environment([("TOLLGATE_STORE_URL", "redis://10.0.0.6")])
///     .flag("--http", Setting::Http, "127.0.0.1:9000");
/// let loaded = loader.load_text(file, Format::Toml)?;
/// let settings = loaded.settings;
/// assert_eq!(settings.store.url.unwrap().reveal(), "redis://10.0.0.6");
/// assert_eq!(settings.listen.http.unwrap(), "127.0.0.1:9000");
/// # Ok::<(), tollgate_config::Report>(())
/// ```
#[derive(Debug, Default)]
pub struct Loader {
    file: Option<PathBuf>,
    layers: Vec<Layer>,
    /// Tells addresses of stores from others; by their schemes, if nobody knows better.
    store_urls: Option<url::Check>,
    /// Variables that are named like ours and are none.
    strange: Vec<String>,
    /// Variables that are somebody else's business.
    others: Vec<String>,
    /// Numbers the policies, so that a reader can see which one decided.
    version: AtomicU64,
}

/// One value over those of the file.
#[derive(Clone, Debug)]
struct Layer {
    setting: Setting,
    source: Source,
    rank: Rank,
}

/// Whose word counts more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Environment,
    Flag,
}

/// Settings, and what is doubtful about them.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The settings.
    pub settings: Settings,
    /// Warnings only; often empty.
    pub warnings: Report,
}

/// A setting that the environment or a flag can stand in for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each is the setting of its name")]
pub enum Setting {
    StoreUrl,
    StoreDeadline,
    StorePrefix,
    StoreConnections,
    StoreMaxInFlight,
    StoreDenyCache,
    StoreMaxKeys,
    StoreMaxLogEntries,
    StoreReplicas,
    Http,
    Grpc,
    Resp,
    AdminToken,
    Headers,
    TrustedProxies,
    Ipv6Prefix,
    Salt,
    AuditFile,
    AuditRefusalsOnly,
    MetricsPrometheus,
    MetricsOtlp,
}

/// What the names of all variables begin with.
const OURS: &str = "TOLLGATE_";

/// Every such setting: its variable and its place in a file.
const SETTINGS: [(Setting, &str, &[&str]); 21] = [
    (Setting::StoreUrl, "TOLLGATE_STORE_URL", &["store", "url"]),
    (Setting::StoreDeadline, "TOLLGATE_STORE_DEADLINE", &["store", "deadline"]),
    (Setting::StorePrefix, "TOLLGATE_STORE_PREFIX", &["store", "prefix"]),
    (Setting::StoreConnections, "TOLLGATE_STORE_CONNECTIONS", &["store", "connections"]),
    (Setting::StoreMaxInFlight, "TOLLGATE_STORE_MAX_IN_FLIGHT", &["store", "max_in_flight"]),
    (Setting::StoreDenyCache, "TOLLGATE_STORE_DENY_CACHE", &["store", "deny_cache"]),
    (Setting::StoreMaxKeys, "TOLLGATE_STORE_MAX_KEYS", &["store", "max_keys"]),
    (Setting::StoreMaxLogEntries, "TOLLGATE_STORE_MAX_LOG_ENTRIES", &["store", "max_log_entries"]),
    (Setting::StoreReplicas, "TOLLGATE_STORE_REPLICAS", &["store", "replicas"]),
    (Setting::Http, "TOLLGATE_HTTP", &["listen", "http"]),
    (Setting::Grpc, "TOLLGATE_GRPC", &["listen", "grpc"]),
    (Setting::Resp, "TOLLGATE_RESP", &["listen", "resp"]),
    (Setting::AdminToken, "TOLLGATE_ADMIN_TOKEN", &["admin", "token"]),
    (Setting::Headers, "TOLLGATE_HEADERS", &["headers"]),
    (Setting::TrustedProxies, "TOLLGATE_TRUSTED_PROXIES", &["trusted_proxies"]),
    (Setting::Ipv6Prefix, "TOLLGATE_IPV6_PREFIX", &["ipv6_prefix"]),
    (Setting::Salt, "TOLLGATE_SALT", &["salt"]),
    (Setting::AuditFile, "TOLLGATE_AUDIT_FILE", &["audit", "file"]),
    (Setting::AuditRefusalsOnly, "TOLLGATE_AUDIT_REFUSALS_ONLY", &["audit", "refusals_only"]),
    (Setting::MetricsPrometheus, "TOLLGATE_METRICS_PROMETHEUS", &["metrics", "prometheus"]),
    (Setting::MetricsOtlp, "TOLLGATE_METRICS_OTLP", &["metrics", "otlp"]),
];

/// Those that are never shown. A URL may hold a password.
const SECRETS: [Setting; 3] = [Setting::StoreUrl, Setting::AdminToken, Setting::Salt];

impl Setting {
    /// Every setting.
    pub fn all() -> impl ExactSizeIterator<Item = Self> {
        SETTINGS.iter().map(|(setting, ..)| *setting)
    }

    /// The environment variable that stands over the file.
    pub fn variable(self) -> &'static str {
        SETTINGS[self as usize].1
    }

    /// Its place in a file, from the outside in.
    pub fn path(self) -> &'static [&'static str] {
        SETTINGS[self as usize].2
    }
}

/// The table is looked into by number.
const _: () = {
    let mut index = 0;
    while index < SETTINGS.len() {
        assert!(SETTINGS[index].0 as usize == index);
        index += 1;
    }
};

impl Loader {
    /// Nothing but defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// The file to read: YAML if its name says so, else TOML.
    pub fn file(self, path: impl Into<PathBuf>) -> Self {
        Self { file: Some(path.into()), ..self }
    }

    /// Judges the store's URL by `check`, so that what a store would refuse is complained about where
    /// it is written. Only the scheme is looked at otherwise: this crate knows no store.
    ///
    /// ```
    /// use tollgate_config::{Loader, Setting, WrongUrl};
    ///
    /// let loader = Loader::new().flag("--store", Setting::StoreUrl, "redis://a,b").store_urls(|url| {
    ///     let wrong = || WrongUrl { wrong: "one host is enough".into(), help: "choose one".into() };
    ///     if url.contains(',') { Err(wrong()) } else { Ok(()) }
    /// });
    /// let report = loader.load().unwrap_err().to_string();
    /// assert!(report.starts_with("error: the store's URL: one host is enough\n --> --store:1:1\n"));
    /// ```
    pub fn store_urls(self, check: fn(&str) -> Result<(), WrongUrl>) -> Self {
        Self { store_urls: Some(check), ..self }
    }

    /// Variables over the file; those that are not ours are left alone.
    pub fn environment<N, V>(mut self, variables: impl IntoIterator<Item = (N, V)>) -> Self
    where
        N: Into<String>,
        V: Into<String>,
    {
        for (name, value) in variables {
            let (name, value) = (name.into(), value.into());
            if !name.starts_with(OURS) || value.is_empty() {
                continue;
            }
            match SETTINGS.iter().find(|(_, variable, _)| *variable == name) {
                Some((setting, ..)) => self.layer(*setting, name, value, Rank::Environment),
                None => self.strange.push(name),
            }
        }
        self
    }

    /// Variables that begin like those of settings and are read by somebody else, so that they are
    /// not taken for misspelled ones.
    pub fn other_variables(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.others.extend(names.into_iter().map(Into::into));
        self
    }

    /// The variables of this process over the file; those that are no UTF-8 are left alone.
    pub fn own_environment(self) -> Self {
        let variables = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        self.environment(variables)
    }

    /// A flag over everything else, under the name it was typed by.
    pub fn flag(mut self, flag: &str, setting: Setting, value: impl Into<String>) -> Self {
        self.layer(setting, flag.to_owned(), value.into(), Rank::Flag);
        self
    }

    fn layer(&mut self, setting: Setting, name: String, value: String, rank: Rank) {
        self.layers.push(Layer { setting, source: Source::new(name, value), rank });
    }

    /// The file it reads, if any.
    pub fn path(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Reads everything now.
    pub fn load(&self) -> Result<Loaded, Report> {
        let Some(path) = &self.file else {
            return self.load_text(Source::new("", ""), Format::Toml);
        };
        let name = path.display().to_string();
        let text = read_text(path).map_err(|error| unreadable(&name, &error))?;
        let format = Format::of(&name);
        self.load_text(Source::new(name, text), format)
    }

    /// The same, with this text instead of the file's.
    pub fn load_text(&self, source: Source, format: Format) -> Result<Loaded, Report> {
        let mut problems = Problems::default();
        problems.speak(format);
        let mut documents = tree::read(0, &source, format, &mut problems);
        if problems.any_errors() {
            secrets::hide_unread(&source, &mut problems);
            // What could be read of a broken text says nothing about what was meant.
            return Err(problems.into_report(vec![source]));
        }
        if let Some(second) = documents.get(1) {
            let help = "keep one; several documents are for envoyproxy/ratelimit's files only";
            problems.error(second.span, "the file has several documents", help);
        }
        let start = Span::within(0, source.text(), 0, 0);
        for other in documents.drain(1.min(documents.len())..) {
            secrets::hide_values(&other, &mut problems);
        }
        let mut tree = documents.pop().unwrap_or_else(|| Node::empty_table(start));
        let mut sources = vec![source];
        // What is about to be covered by a layer is secret all the same.
        hide_secrets(&tree, &mut problems);
        self.put_layers(&mut tree, &mut sources);
        hide_secrets(&tree, &mut problems);
        let file = typed::File::read(&tree, &mut problems);
        for (name, meant) in self.misspelled() {
            let number = sources.len();
            sources.push(Source::new("environment", name));
            let span = Span { source: number, start: 0, end: name.len() };
            problems.warn(span, format!("unknown variable {name:?}"), format!("write {meant}"));
        }
        let version = self.version.fetch_add(1, Ordering::Relaxed) + 1;
        let store_urls = self.store_urls.unwrap_or(url::has_scheme);
        let settings = compile(&file, version, store_urls, &mut problems);
        let report = problems.into_report(sources);
        match settings {
            Some(settings) => Ok(Loaded { settings, warnings: report }),
            None => Err(report),
        }
    }

    /// Variables that are almost one there is, and that one. What all begin with says nothing.
    fn misspelled(&self) -> Vec<(&str, String)> {
        let settings = SETTINGS.iter().map(|(_, variable, _)| *variable);
        let known: Vec<&str> = settings.chain(self.others.iter().map(String::as_str)).collect();
        let strange = self.strange.iter().filter(|name| !known.contains(&name.as_str()));
        let meant = strange.filter_map(|name| {
            let endings = known.iter().filter_map(|known| known.strip_prefix(OURS));
            Some((name.as_str(), format!("{OURS}{}", nearest(name.strip_prefix(OURS)?, endings)?)))
        });
        meant.collect()
    }

    /// Puts the layers over the tree, so that everything is read once and in one way.
    fn put_layers(&self, tree: &mut Node, sources: &mut Vec<Source>) {
        let mut layers: Vec<&Layer> = self.layers.iter().collect();
        layers.sort_by_key(|layer| layer.rank);
        for Layer { setting, source, .. } in layers {
            let text = source.text();
            let span = Span { source: sources.len(), start: 0, end: text.len() };
            tree.put(setting.path(), Node { value: Value::Plain(text.to_owned()), span });
            sources.push(source.clone());
        }
    }
}

fn hide_secrets(tree: &Node, problems: &mut Problems) {
    SECRETS.iter().for_each(|secret| secrets::hide_known(tree, secret.path(), problems));
}

/// A file's text, if it is not too large.
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    // Opening a pipe waits for whoever writes to it, maybe for ever. A shell's `<(command)` is one
    // that has a writer.
    if !path.starts_with("/dev") && !path.metadata()?.is_file() {
        let reason = "it is no file that can be read from beginning to end";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
    }
    let mut text = String::new();
    // One byte more than may be, so that whoever reads the text sees that there is more.
    File::open(path)?.take(MAX_BYTES as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}

/// What to do about a file that cannot be read.
pub(crate) fn unreadable(name: &str, error: &io::Error) -> Report {
    let help = match error.kind() {
        io::ErrorKind::NotFound => "check the name, or write one with \"tollgate init\"",
        io::ErrorKind::PermissionDenied => "make it readable for whoever runs tollgate",
        io::ErrorKind::InvalidData => "save it as UTF-8",
        _ => "",
    };
    Report::of(format!("failed to read {name}: {error}"), help)
}
