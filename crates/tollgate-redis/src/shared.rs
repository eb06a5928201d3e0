//! What all parts of one store have in common.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tollgate::Timestamp;

use crate::connect::Connector;
use crate::failure::Failure;
use crate::stats::Counters;

/// Settings and counters.
pub(crate) struct Shared {
    /// How long a decision may take, everything included.
    pub(crate) deadline: Duration,
    /// Links per server.
    pub(crate) connections: usize,
    /// The most sets under way.
    pub(crate) max_in_flight: usize,
    pub(crate) connector: Connector,
    pub(crate) counters: Counters,
    pub(crate) logbook: Logbook,
    // Calls outlive their callers, and are finished here.
    pub(crate) runtime: Handle,
    // The last instant a server told, in µs. Only a guess at the next: windows of calendars are
    // chosen by it, and the script says if they are not the right ones.
    pub(crate) seen: AtomicU64,
}

impl Shared {
    /// A server said what time it is.
    pub(crate) fn saw(&self, now: Timestamp) {
        self.seen.store(now.as_micros(), Ordering::Relaxed);
    }

    /// About what time it is, by the servers' clocks.
    pub(crate) fn about(&self) -> Timestamp {
        Timestamp::from_micros(self.seen.load(Ordering::Relaxed))
    }

    /// Room for one more set, or none.
    pub(crate) fn permit(self: &Arc<Self>) -> Option<Permit> {
        let fits = self.counters.enter(1, self.max_in_flight);
        fits.then(|| Permit::Whole(Arc::clone(self)))
    }
}

/// One set under way, or a part of one.
pub(crate) enum Permit {
    Whole(Arc<Shared>),
    /// The whole is over with the last of its parts.
    Part(#[expect(dead_code, reason = "kept only to be dropped")] Arc<Permit>),
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Self::Whole(shared) = self {
            shared.counters.leave(1);
        }
    }
}

/// Says when servers come and go, at most about once a second of each.
pub(crate) struct Logbook {
    begun: Instant,
    // Milliseconds since the beginning, plus one; zero is never.
    lost: AtomicU64,
    reached: AtomicU64,
}

impl Logbook {
    pub(crate) fn new() -> Self {
        Self { begun: Instant::now(), lost: AtomicU64::new(0), reached: AtomicU64::new(0) }
    }

    pub(crate) fn reached(&self, server: &dyn fmt::Display) {
        if self.may_write(&self.reached) {
            tracing::info!(%server, "redis is back");
        }
    }

    fn may_write(&self, last: &AtomicU64) -> bool {
        let now = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX) + 1;
        let before = last.load(Ordering::Relaxed);
        let due = before == 0 || now >= before + 1_000;
        due && last.compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// What was last told of a server that is down, so that it is told again only with another reason.
#[derive(Default)]
pub(crate) struct Told(Option<(Failure, Instant)>);

/// So long one reason after another is not told: a server may have two in turn.
const TOLD_FOR: Duration = Duration::from_secs(5);

impl Told {
    /// Tells why a server cannot be used, unless that was told.
    pub(crate) fn tell(&mut self, logbook: &Logbook, server: &dyn fmt::Display, failure: &Failure) {
        let is_new = match &self.0 {
            None => true,
            Some((told, at)) => !told.has_reason_of(failure) && at.elapsed() >= TOLD_FOR,
        };
        if is_new && logbook.may_write(&logbook.lost) {
            let kind = failure.kind.name();
            tracing::warn!(%server, kind, reason = %failure, "cannot use redis; fallbacks decide");
            self.0 = Some((failure.clone(), Instant::now()));
        }
    }
}
