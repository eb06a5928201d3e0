//! The limits of files of envoyproxy/ratelimit, in force and replaceable.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use tollgate_config::envoy::Domains;

/// What descriptors are looked up in. Clones share it.
#[derive(Clone)]
pub struct Descriptors {
    // Replaced whole; a reader holds the lock only to copy the pointer.
    domains: Arc<RwLock<Arc<Domains>>>,
}

impl Descriptors {
    /// These limits, until others are put in force.
    pub fn new(domains: Domains) -> Self {
        Self { domains: Arc::new(RwLock::new(Arc::new(domains))) }
    }

    /// Puts other limits in force. Usage is kept wherever a limit keeps its place and its unit.
    pub fn replace(&self, domains: Domains) {
        *self.domains.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(domains);
    }

    pub(crate) fn domains(&self) -> Arc<Domains> {
        Arc::clone(&self.domains.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for Descriptors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let domains = self.domains();
        f.debug_list().entries(domains.names()).finish()
    }
}
