//! Files of [envoyproxy/ratelimit], unchanged.
//!
//! Each document names a domain and a tree of descriptors. A request brings lists of entries, and each
//! list goes down the tree level by level: at every level the exact value first, then patterns with
//! `*` in the order they were written, then the key without a value. If its last entry ends at a
//! descriptor with a limit, that one counts, in a bucket per combination of values; else nothing
//! does. A [`Policy`](tollgate::Policy) says "every rule that applies"; here the most specific one
//! wins and the depth has to be right, so the tree stays a tree and makes the charges itself.
//!
//! ```
//! use tollgate::Cost;
//! use tollgate_config::envoy::{Descriptor, Domains, Hits, Options};
//! use tollgate_config::Source;
//!
//! let file = Source::new("shop.yaml", "
//! domain: shop
//! descriptors:
//!   - key: remote_address
//!     rate_limit: { unit: minute, requests_per_unit: 60 }
//! ");
//! let domains = Domains::read([file], Options::default())?.domains;
//! let entries = [("remote_address", "192.0.2.7")];
//! let request = [Descriptor { entries: &entries, limit: None, hits: Hits::Take(Cost::ONE) }];
//! let charges = domains.resolve("shop", &request).unwrap();
//! let charge = &charges.set.charges()[0];
//! assert_eq!(charge.key.to_string(), "envoy/shop:remote_address=192.0.2.7");
//! assert_eq!(charge.meter.to_string(), "60/min fixed-window");
//! # Ok::<(), tollgate_config::Report>(())
//! ```
//!
//! What differs from the reference: a request is decided all or nothing, so that a refused one
//! charges none of its descriptors; a key at a level where it means nothing is a warning there, and
//! is passed over here as there.
//!
//! [envoyproxy/ratelimit]: https://github.com/envoyproxy/ratelimit

mod convert;
mod read;
mod resolve;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value};
use tollgate::{Algorithm, Meter, Micros, Period, Quota};

use crate::loader::{read_text, unreadable};
use crate::report::Report;
use crate::source::Source;

pub use resolve::{Charges, Descriptor, Effect, Hits, Match, Step, Via};

/// How files are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How every limit is metered: by fixed windows as in the reference, unless told otherwise.
    algorithm: Algorithm,
    /// Whether several documents may speak of one domain; the reference refuses that unless told
    /// otherwise, and so does this.
    merge_domains: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { algorithm: Algorithm::FixedWindow, merge_domains: false }
    }
}

impl Options {
    /// The same with another algorithm.
    pub fn algorithm(self, algorithm: Algorithm) -> Self {
        Self { algorithm, ..self }
    }

    /// The same, with several documents that may speak of one domain.
    pub fn merge_domains(self) -> Self {
        Self { merge_domains: true, ..self }
    }
}

/// The domains of some files.
#[derive(Clone, Debug)]
pub struct Domains {
    named: HashMap<String, Level>,
    /// In the order they were written.
    order: Vec<String>,
    options: Options,
}

/// Domains, and what is doubtful about them.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The domains.
    pub domains: Domains,
    /// Warnings only; often empty.
    pub warnings: Report,
}

/// The unit of time of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is the unit of its name")]
pub enum Unit {
    Second,
    Minute,
    Hour,
    Day,
    Week,
    /// 30 days.
    Month,
    /// 365 days.
    Year,
}

impl Unit {
    /// Every unit: its name, its number in the protocol, and its seconds.
    const ALL: [(Self, &'static str, i32, u64); 7] = [
        (Self::Second, "second", 1, 1),
        (Self::Minute, "minute", 2, 60),
        (Self::Hour, "hour", 3, 3_600),
        (Self::Day, "day", 4, 86_400),
        (Self::Week, "week", 7, 7 * 86_400),
        (Self::Month, "month", 5, 30 * 86_400),
        (Self::Year, "year", 6, 365 * 86_400),
    ];

    fn row(self) -> (Self, &'static str, i32, u64) {
        let found = Self::ALL.into_iter().find(|(unit, ..)| *unit == self);
        found.expect("every unit is in the table")
    }

    /// The name in files.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// The number in Envoy's protocol.
    pub fn number(self) -> i32 {
        self.row().2
    }

    /// The unit of a number in Envoy's protocol.
    pub fn of_number(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, _, known, _)| *known == number).map(|(unit, ..)| unit)
    }

    /// The unit of a name, in any case.
    pub fn of_name(name: &str) -> Option<Self> {
        let found = Self::ALL.into_iter().find(|(_, known, ..)| known.eq_ignore_ascii_case(name));
        found.map(|(unit, ..)| unit)
    }

    /// How long it is.
    pub fn period(self) -> Period {
        Period::new(Micros::new(self.row().3 * 1_000_000))
            .expect("no unit is longer than ten years")
    }
}

/// So many requests per unit of time; zero for none at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    /// The requests.
    pub requests_per_unit: u32,
    /// The unit.
    pub unit: Unit,
}

impl Rate {
    /// Metered by an algorithm; `None` for a rate of nothing, or one that does not fit.
    fn meter(self, algorithm: Algorithm) -> Option<Meter> {
        let quota = Quota::new(self.requests_per_unit.into(), self.unit.period())?;
        Meter::new(quota, algorithm).ok()
    }
}

/// A limit of a file, or of a request.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Limit {
    /// The way to it, as the reference names it: `domain.key_value.key`.
    pub path: String,
    /// Its own name; empty if it has none.
    pub name: String,
    /// How much it allows; `None` if it is unlimited.
    pub rate: Option<Rate>,
    /// Names of the limits it stands in for.
    pub replaces: Vec<String>,
    /// It counts and tells, and refuses nobody.
    pub shadow_mode: bool,
    /// It refuses only together with all others of the request that say so.
    pub quota_mode: bool,
    /// Metrics name every value.
    pub detailed_metric: bool,
    /// What goes along with answers while it has room.
    pub metadata: Option<Map<String, Value>>,
}

/// The descriptors that may come next.
#[derive(Clone, Debug, Default)]
struct Level {
    /// In the order they were written.
    nodes: Vec<DescriptorNode>,
    /// By key, or by key and value joined with an underscore, as the reference has it.
    named: HashMap<String, usize>,
    /// Those with a star: what stands between the stars.
    wildcards: Vec<(Vec<String>, usize)>,
}

/// A descriptor of a file.
#[derive(Clone, Debug)]
struct DescriptorNode {
    key: String,
    /// Empty for any.
    value: String,
    limit: Option<Arc<Limit>>,
    /// Whether all values that match a pattern share a bucket.
    share_threshold: bool,
    /// Whether metrics name the value.
    value_to_metric: bool,
    level: Level,
}

impl DescriptorNode {
    /// What it is known by among its siblings.
    fn name(&self) -> String {
        match self.value.is_empty() {
            true => self.key.clone(),
            false => format!("{}_{}", self.key, self.value),
        }
    }
}

impl Domains {
    /// Reads documents from several texts; refuses what the reference refuses.
    pub fn read(
        sources: impl IntoIterator<Item = Source>,
        options: Options,
    ) -> Result<Loaded, Report> {
        read::read(sources.into_iter().collect(), options)
    }

    /// Reads a file, or all files of a directory whose names end in `.yaml` or `.yml` and do not start
    /// with a dot.
    pub fn load(path: &Path, options: Options) -> Result<Loaded, Report> {
        let name = path.display().to_string();
        let files = files(path).map_err(|error| unreadable(&name, &error))?;
        if files.is_empty() {
            let message = format!("there are no files in {name}");
            return Err(Report::of(message, "put files there that end in .yaml or .yml"));
        }
        let mut sources = Vec::with_capacity(files.len());
        for file in files {
            let name = file.display().to_string();
            let text = read_text(&file).map_err(|error| unreadable(&name, &error))?;
            sources.push(Source::new(name, text));
        }
        Self::read(sources, options)
    }

    /// The names of the domains, in the order they were written.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.order.iter().map(String::as_str)
    }

    /// Every limit of every domain, in the order they were written.
    pub fn limits(&self) -> Vec<Arc<Limit>> {
        let mut limits = Vec::new();
        let mut levels: Vec<&Level> =
            self.order.iter().rev().map(|name| &self.named[name]).collect();
        while let Some(level) = levels.pop() {
            limits.extend(level.nodes.iter().filter_map(|node| node.limit.clone()));
            levels.extend(level.nodes.iter().rev().map(|node| &node.level));
        }
        limits
    }
}

/// The files to read.
fn files(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_yaml = name.ends_with(".yaml") || name.ends_with(".yml");
        if is_yaml && !name.starts_with('.') && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
