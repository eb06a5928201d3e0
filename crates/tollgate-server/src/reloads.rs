//! How the policy in force came to be, for those who look at the server from outside.

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
    // What is wrong with what is written down, where it is not in force.
    trouble: Mutex<Option<String>>,
    version: Gauge,
    results: Family<Labels, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    result: &'static str,
}

impl Reloads {
    /// A policy of this version is in force from now on.
    pub fn succeeded(&self, version: u64) {
        self.in_force(version);
        self.inner.results.get_or_create(&Labels { result: "success" }).inc();
        *self.trouble_mut() = None;
    }

    /// What was read is wrong, and the policy stays as it was.
    pub fn failed(&self, detail: impl Into<String>) {
        self.inner.results.get_or_create(&Labels { result: "failure" }).inc();
        *self.trouble_mut() = Some(detail.into());
    }

    /// The server starts with a policy of this version.
    pub fn in_force(&self, version: u64) {
        self.inner.version.set(i64::try_from(version).unwrap_or(i64::MAX));
    }

    pub(crate) fn trouble(&self) -> Option<String> {
        self.trouble_mut().clone()
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        let version = self.inner.version.clone();
        registry.register("policy_version", "The version of the policy in force", version);
        let results = self.inner.results.clone();
        registry.register("policy_reloads", "Policies read while the server ran", results);
    }

    fn trouble_mut(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.inner.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Reloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloads").field("trouble", &self.trouble()).finish_non_exhaustive()
    }
}
