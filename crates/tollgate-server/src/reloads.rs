//! How the policy in force came to be, for those who look at the server from outside.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Reads the policy again, and says what is wrong with it if it stays as it was. May block.
pub type Reload = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// Whether the policy in force is the one that is written down. Clones share what they know.
#[derive(Clone, Default)]
pub struct Reloads {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    // What is wrong with what is written down, where it is not in force, by what it is.
    trouble: Mutex<BTreeMap<&'static str, String>>,
    version: Gauge,
    results: Family<Labels, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    result: &'static str,
}

impl Reloads {
    /// `what` was read again and is in force.
    pub fn mended(&self, what: &'static str) {
        self.inner.results.get_or_create(&Labels { result: "success" }).inc();
        self.trouble_mut().remove(what);
    }

    /// `what` was read again and is wrong, so what was in force stays.
    pub fn failed(&self, what: &'static str, detail: impl Into<String>) {
        self.inner.results.get_or_create(&Labels { result: "failure" }).inc();
        self.trouble_mut().insert(what, detail.into());
    }

    /// A policy of this version is in force from now on.
    pub fn in_force(&self, version: u64) {
        self.inner.version.set(i64::try_from(version).unwrap_or(i64::MAX));
    }

    /// What is not in force though it is written down, and why.
    pub(crate) fn trouble(&self) -> Vec<String> {
        let trouble = self.trouble_mut();
        let told = |(what, detail): (&&str, &String)| {
            format!("the {what} in force is an old one: {detail}")
        };
        trouble.iter().map(told).collect()
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        let version = self.inner.version.clone();
        registry.register("policy_version", "The version of the policy in force", version);
        let results = self.inner.results.clone();
        registry.register("policy_reloads", "Policies read while the server ran", results);
    }

    fn trouble_mut(&self) -> std::sync::MutexGuard<'_, BTreeMap<&'static str, String>> {
        self.inner.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Reloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloads").field("trouble", &self.trouble()).finish_non_exhaustive()
    }
}
