//! Where a store in this process gets the time from. Nobody else asks.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::time::{Micros, Timestamp};

mod counter;
mod system;

pub use system::{SystemClock, monotonic};

/// A source of instants.
///
/// Clocks may step back; the algorithms then grant nothing and deny for no longer than the step.
pub trait Clock: Send + Sync {
    /// The present instant.
    fn now(&self) -> Timestamp;
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }
}

/// A clock that stands still until it is told to move; clones move together.
///
/// ```
/// use tollgate::{Clock, ManualClock, Micros};
///
/// let clock = ManualClock::at_secs(1_000);
/// let same = clock.clone();
/// clock.advance(Micros::from_millis(1_500));
/// assert_eq!(same.now().as_micros(), 1_001_500_000);
/// ```
#[derive(Clone, Default)]
pub struct ManualClock {
    micros: Arc<AtomicU64>,
}

impl ManualClock {
    /// A clock that shows `now`.
    pub fn at(now: Timestamp) -> Self {
        Self { micros: Arc::new(AtomicU64::new(now.as_micros())) }
    }

    /// A clock that shows so many seconds since the epoch.
    pub fn at_secs(secs: u64) -> Self {
        Self::at(Timestamp::from_micros(secs.saturating_mul(1_000_000)))
    }

    /// Moves forward by `span`.
    pub fn advance(&self, span: Micros) {
        let later = |now: u64| Some(now.saturating_add(span.get()));
        // Without a condition the update cannot fail.
        let _ = self.micros.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
    }

    /// Moves to `now`, which may lie in the past.
    pub fn set(&self, now: Timestamp) {
        self.micros.store(now.as_micros(), Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.micros.load(Ordering::Relaxed))
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ManualClock({} µs)", self.now().as_micros())
    }
}
