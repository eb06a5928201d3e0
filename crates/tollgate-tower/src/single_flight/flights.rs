//! Calls under way, by what they ask.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::response::Parts;
use tokio::sync::watch;

/// How a flight ended.
#[derive(Clone, Debug)]
pub(super) enum Landed {
    /// With an answer for everybody.
    Shared(Arc<(Parts, Bytes)>),
    /// With one that is the leader's alone.
    Alone,
}

/// Everything under way.
#[derive(Debug)]
pub(super) struct Flights {
    flying: Mutex<HashMap<String, watch::Receiver<Option<Landed>>>>,
    most: usize,
}

/// What a request has to do with a flight.
pub(super) enum Role {
    /// Make the call.
    Lead(Leader),
    /// Wait for whoever makes it.
    Follow(watch::Receiver<Option<Landed>>),
    /// Nothing: there is no room for another flight.
    Pass,
}

/// Whoever makes the call. Dropped before it [lands](Leader::land), the flight is over without an
/// answer, and one of those who wait leads another.
pub(super) struct Leader {
    flights: Arc<Flights>,
    key: String,
    landed: watch::Sender<Option<Landed>>,
}

impl Flights {
    pub(super) fn new(most: usize) -> Self {
        Self { flying: Mutex::default(), most }
    }

    /// The part of a request that asks for `key`.
    pub(super) fn join(self: &Arc<Self>, key: &str) -> Role {
        let mut flying = self.lock();
        let room = flying.len() < self.most;
        match flying.entry(key.to_owned()) {
            Entry::Occupied(flight) => Role::Follow(flight.get().clone()),
            Entry::Vacant(vacant) if room => {
                let (landed, follow) = watch::channel(None);
                let key = vacant.key().clone();
                vacant.insert(follow);
                Role::Lead(Leader { flights: Arc::clone(self), key, landed })
            }
            Entry::Vacant(_) => Role::Pass,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, watch::Receiver<Option<Landed>>>> {
        // Nothing panics while holding the lock.
        self.flying.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Leader {
    /// Hands the answer to whoever waits for it.
    pub(super) fn land(self, landed: Landed) {
        self.landed.send_replace(Some(landed));
    }
}

impl Drop for Leader {
    /// From here on a request for the same leads a flight of its own; only then do followers wake.
    fn drop(&mut self) {
        self.flights.lock().remove(&self.key);
    }
}

/// The end of a flight; `None` where its leader went away.
pub(super) async fn landing(mut follow: watch::Receiver<Option<Landed>>) -> Option<Landed> {
    let landed = follow.wait_for(Option::is_some).await;
    landed.ok()?.clone()
}
