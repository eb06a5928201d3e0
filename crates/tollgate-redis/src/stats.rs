//! What the store counts, for metrics.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tollgate::StoreErrorKind;

use crate::tally::Tally;

/// Every kind of error, in the order it is counted.
const KINDS: [StoreErrorKind; 5] = [
    StoreErrorKind::Unavailable,
    StoreErrorKind::Timeout,
    StoreErrorKind::Overloaded,
    StoreErrorKind::ReadOnly,
    StoreErrorKind::Protocol,
];

/// Upper bounds of the classes latencies are counted in, in microseconds; above the last is one more
/// class.
const BOUNDS_MICROS: [u64; 12] =
    [50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000];

/// Numbers of a [`RedisStore`](crate::RedisStore) since its start.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Sets that Redis decided.
    pub decisions: u64,
    /// Sets refused in process because Redis had refused a moment ago.
    pub remembered: u64,
    /// Sets without an answer, by kind; one entry per kind.
    pub errors: Vec<(StoreErrorKind, u64)>,
    /// Scripts sent. Fewer than decisions where several shared one.
    pub calls: u64,
    /// Sets under way at this moment.
    pub in_flight: usize,
    /// Servers the store keeps connections to.
    pub servers: usize,
    /// Those without any connection that works: for them the breaker is open.
    pub servers_down: usize,
    /// How long answers took.
    pub latency: Latency,
}

impl Stats {
    /// Whether some server cannot be asked, so that sets are refused an answer at once.
    pub fn is_breaker_open(&self) -> bool {
        self.servers_down > 0 || self.servers == 0
    }
}

/// How many answers took how long, errors among them; a histogram.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Latency {
    /// For each class its upper bound, and how many fell into it and into none before; the last
    /// class is `Duration::MAX`.
    pub classes: Vec<(Duration, u64)>,
    /// All of them together.
    pub sum: Duration,
}

/// The numbers while they are counted.
#[derive(Default)]
pub(crate) struct Counters {
    decisions: AtomicU64,
    // Counted by many threads at once, none of which should wait for the others.
    remembered: Tally,
    errors: [AtomicU64; KINDS.len()],
    calls: AtomicU64,
    in_flight: AtomicUsize,
    classes: [AtomicU64; BOUNDS_MICROS.len() + 1],
    sum_micros: AtomicU64,
}

impl Counters {
    #[inline(always)]
    pub(crate) fn count_remembered(&self) {
        self.remembered.add_one();
    }

    pub(crate) fn count_call(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an answer, or why there was none, and how long it took.
    pub(crate) fn count_answer(&self, error: Option<StoreErrorKind>, took: Duration) {
        let counter = match error.and_then(|kind| KINDS.iter().position(|known| *known == kind)) {
            Some(kind) => &self.errors[kind],
            None => &self.decisions,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let class = BOUNDS_MICROS.partition_point(|&bound| bound < micros);
        self.classes[class].fetch_add(1, Ordering::Relaxed);
        self.sum_micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Counts `more` sets in, unless there would be more than `most`.
    pub(crate) fn enter(&self, more: usize, most: usize) -> bool {
        let before = self.in_flight.fetch_add(more, Ordering::Relaxed);
        let fits = before + more <= most;
        if !fits {
            self.leave(more);
        }
        fits
    }

    pub(crate) fn leave(&self, fewer: usize) {
        self.in_flight.fetch_sub(fewer, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self, servers: usize, servers_down: usize) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let bounds = BOUNDS_MICROS.iter().map(|&micros| Duration::from_micros(micros));
        let bounds = bounds.chain([Duration::MAX]);
        Stats {
            decisions: read(&self.decisions),
            remembered: self.remembered.sum(),
            errors: KINDS.iter().copied().zip(self.errors.iter().map(read)).collect(),
            calls: read(&self.calls),
            in_flight: self.in_flight.load(Ordering::Relaxed),
            servers,
            servers_down,
            latency: Latency {
                classes: bounds.zip(self.classes.iter().map(read)).collect(),
                sum: Duration::from_micros(read(&self.sum_micros)),
            },
        }
    }
}
