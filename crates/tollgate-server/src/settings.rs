//! What a server is told before it starts.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tollgate::{Gate, Policy, Store};
use tollgate_tower::Dialect;

use crate::descriptors::Descriptors;
use crate::reloads::{Reload, Reloads};

/// How a server decides and answers.
#[derive(Clone)]
pub struct Settings<S> {
    /// What decides. Whoever keeps a clone can put another policy in force while the server runs.
    pub gate: Arc<Gate<S>>,
    /// How limits are told in headers.
    pub dialect: Dialect,
    /// What clients may hold, and for how long.
    pub limits: Limits,
    /// Who may call what changes or reveals more than a decision; nobody if there is none.
    pub admin: Option<AdminToken>,
    /// What keeps the store from answering at this moment, if anything does.
    pub trouble: Trouble,
    /// How the policy came to be, kept up to date by whoever replaces it.
    pub reloads: Reloads,
    /// Whether `GET /metrics` is answered.
    pub metrics: bool,
    /// Limits for Envoy's descriptors; without any, such requests are not answered.
    pub descriptors: Option<Descriptors>,
    /// Reads the policy again; without it there is nothing to read.
    pub reload: Option<Reload>,
}

/// Asked for what is wrong with a store.
pub type Trouble = Arc<dyn Fn() -> Option<String> + Send + Sync>;

impl<S: Store> Settings<S> {
    /// The defaults, on this store and without a policy: only charges made by hand are decided.
    pub fn new(store: S) -> Self {
        let policy = Policy::builder().build().expect("no rules are no mistake");
        Self::with_gate(Arc::new(Gate::new(policy, store)))
    }

    /// The defaults, on this gate.
    pub fn with_gate(gate: Arc<Gate<S>>) -> Self {
        Self {
            gate,
            dialect: Dialect::default(),
            limits: Limits::default(),
            admin: None,
            trouble: Arc::new(|| None),
            reloads: Reloads::default(),
            metrics: true,
            descriptors: None,
            reload: None,
        }
    }
}

/// The secret that admin calls carry as their bearer token.
#[derive(Clone)]
pub struct AdminToken(String);

impl AdminToken {
    /// The shortest secret: 16 characters are more than anybody guesses over a network.
    pub const MIN_LENGTH: usize = 16;

    /// This secret, unless it is too short to be one.
    pub fn new(secret: impl Into<String>) -> Option<Self> {
        let secret = secret.into();
        (secret.len() >= Self::MIN_LENGTH).then_some(Self(secret))
    }

    /// Whether `given` is the secret, found out in a time that depends on its length alone.
    pub(crate) fn is(&self, given: &[u8]) -> bool {
        let secret = self.0.as_bytes();
        let pairs = (0..given.len()).map(|at| (given[at], secret[at % secret.len()]));
        let differing = pairs.fold(0, |differing, (one, two)| differing | (one ^ two));
        std::hint::black_box(differing) == 0 && given.len() == secret.len()
    }
}

impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdminToken(…)")
    }
}

/// Bounds on what one client, or all together, can hold of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections open at once; further ones wait in the system's queue.
    pub connections: usize,
    /// For the whole head of a request to arrive, counted from when one may be sent: so it also
    /// bounds how long a connection may be idle.
    pub head: Duration,
    /// For the whole body of a request to arrive.
    pub body: Duration,
    /// For requests under way to finish once the server was told to stop.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            head: Duration::from_secs(30),
            body: Duration::from_secs(10),
            drain: Duration::from_secs(10),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_secret_is_the_secret() {
        let token = AdminToken::new("correct horse battery").unwrap();
        assert!(token.is(b"correct horse battery"));
        for wrong in
            ["", "c", "correct horse batter", "correct horse batteryc", "Correct horse battery"]
        {
            assert!(!token.is(wrong.as_bytes()), "{wrong:?}");
        }
        let twice = "correct horse battery".repeat(2);
        assert!(!token.is(twice.as_bytes()));
        assert!(AdminToken::new("too short").is_none());
        assert_eq!(format!("{token:?}"), "AdminToken(…)");
    }
}
