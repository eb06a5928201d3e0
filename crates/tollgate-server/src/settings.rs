//! What a server is told before it starts.

use std::time::Duration;

use tollgate_tower::Dialect;

/// How a server decides and answers.
#[derive(Clone, Debug)]
pub struct Settings<S> {
    /// Where the buckets are.
    pub store: S,
    /// How limits are told in headers.
    pub dialect: Dialect,
    /// What clients may hold, and for how long.
    pub limits: Limits,
}

impl<S> Settings<S> {
    /// The defaults, on this store.
    pub fn new(store: S) -> Self {
        Self { store, dialect: Dialect::default(), limits: Limits::default() }
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
