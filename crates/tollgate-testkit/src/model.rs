//! One slow, obvious model per algorithm, written from the definitions.
//!
//! A definition answers two questions by counting: does a cost fit at an instant, and does anything
//! still count. Everything else a limiter says (what remains, when to come back, when it is as
//! fresh) is searched for, by asking those two questions again and again. No answer is computed the
//! way the library computes it.
//!
//! Instants are plain microseconds here, and sums are 128 bits wide, so that nothing can overflow
//! and no thought has to be given to it.

use tollgate::{Algorithm, Ask, Cost, Micros, Quota, Reading, Retry};

mod bucket;
mod fixed_window;
mod sliding_log;
mod sliding_window;

use bucket::Bucket;
use fixed_window::FixedWindow;
use sliding_log::SlidingLog;
use sliding_window::SlidingWindow;

/// What one bucket has been through, under one algorithm.
#[derive(Clone, Debug)]
pub struct Model {
    algorithm: Algorithm,
    history: History,
}

#[derive(Clone, Debug)]
enum History {
    FixedWindow(FixedWindow),
    SlidingLog(SlidingLog),
    SlidingWindow(SlidingWindow),
    Bucket(Bucket),
}

/// What an algorithm's definition says, and nothing that follows from it.
trait Definition {
    /// Whether `cost` units fit at `now`. Once they do they go on fitting.
    fn fits(&self, quota: Quota, cost: u64, now: u64) -> bool;
    /// Whether nothing taken so far counts at `now`.
    fn is_clear(&self, quota: Quota, now: u64) -> bool;
    /// An instant at and after which nothing taken so far counts, whatever the quota.
    fn stale_at(&self, quota: Quota) -> u64;
    /// Remembers that `units` were taken at `now`.
    fn take(&mut self, quota: Quota, units: u64, now: u64);
    /// Gives back up to `units`; says how many.
    fn refund(&mut self, quota: Quota, units: u64, instants: Instants) -> u64;
}

/// When something was taken, and when it is given back.
#[derive(Clone, Copy, Debug)]
pub struct Instants {
    /// When the units were taken.
    pub taken: u64,
    /// When they are given back.
    pub now: u64,
}

impl Model {
    /// A bucket nobody has charged.
    pub fn fresh(algorithm: Algorithm) -> Self {
        let history = match algorithm {
            Algorithm::FixedWindow => History::FixedWindow(FixedWindow::default()),
            Algorithm::SlidingLog => History::SlidingLog(SlidingLog::default()),
            Algorithm::SlidingWindow => History::SlidingWindow(SlidingWindow::default()),
            Algorithm::TokenBucket | Algorithm::LeakyBucket => History::Bucket(Bucket::default()),
        };
        Self { algorithm, history }
    }

    /// Takes what `ask` wants if it fits at `now`; says how many units, or `None` for a refusal.
    pub fn admit(&mut self, quota: Quota, ask: Ask, now: u64) -> Option<u64> {
        let units = self.grant(quota, ask, now)?;
        self.definition_mut().take(quota, units, now);
        Some(units)
    }

    /// The units `ask` would get at `now`, or `None` if not even its least would fit.
    pub fn grant(&self, quota: Quota, ask: Ask, now: u64) -> Option<u64> {
        let units = ask.max.get().min(self.remaining(quota, now));
        (units >= ask.min.get()).then_some(units)
    }

    /// The most units that fit at `now`.
    pub fn remaining(&self, quota: Quota, now: u64) -> u64 {
        let exceeds = |cost: u64| !self.definition().fits(quota, cost, now);
        first(1, quota.burst() + 1, exceeds) - 1
    }

    /// The instant from which `cost` fits if nobody else comes; `None` if there is none.
    pub fn fits_at(&self, quota: Quota, cost: Cost, now: u64) -> Option<u64> {
        if cost.get() > quota.burst() {
            return None;
        }
        let definition = self.definition();
        let latest = definition.stale_at(quota).max(now);
        Some(first(now, latest, |instant| definition.fits(quota, cost.get(), instant)))
    }

    /// The instant from which nothing counts any more.
    pub fn clear_at(&self, quota: Quota, now: u64) -> u64 {
        let definition = self.definition();
        let latest = definition.stale_at(quota).max(now);
        first(now, latest, |instant| definition.is_clear(quota, instant))
    }

    /// Whether the bucket is as good as one nobody has charged, whatever quota comes next.
    pub fn is_stale(&self, quota: Quota, now: u64) -> bool {
        now >= self.stale_at(quota)
    }

    /// The instant from which that is so.
    pub fn stale_at(&self, quota: Quota) -> u64 {
        self.definition().stale_at(quota)
    }

    /// How long a request admitted at `now` would be held: the queue before it, paid off.
    pub fn delay(&self, quota: Quota, now: u64) -> u64 {
        match (&self.history, self.algorithm) {
            (History::Bucket(bucket), Algorithm::LeakyBucket) => bucket.drains_in(quota, now),
            _ => 0,
        }
    }

    /// Gives back up to `cost` units; says how many.
    pub fn refund(&mut self, quota: Quota, cost: Cost, instants: Instants) -> u64 {
        if self.algorithm == Algorithm::LeakyBucket {
            // The slots behind it were promised.
            return 0;
        }
        self.definition_mut().refund(quota, cost.get(), instants)
    }

    /// What a store should say of this bucket at `now`, apart from retry, delay and units.
    pub fn reading(&self, quota: Quota, now: u64) -> Reading {
        Reading {
            capacity: quota.burst(),
            remaining: self.remaining(quota, now),
            reset: Micros::new(self.clear_at(quota, now) - now),
            retry: Retry::Now,
            delay: Micros::ZERO,
            units: 0,
        }
    }

    fn definition(&self) -> &dyn Definition {
        match &self.history {
            History::FixedWindow(history) => history,
            History::SlidingLog(history) => history,
            History::SlidingWindow(history) => history,
            History::Bucket(history) => history,
        }
    }

    fn definition_mut(&mut self) -> &mut dyn Definition {
        match &mut self.history {
            History::FixedWindow(history) => history,
            History::SlidingLog(history) => history,
            History::SlidingWindow(history) => history,
            History::Bucket(history) => history,
        }
    }
}

/// The first number in `low..=high` of which `holds` is true, given that it stays true from there
/// on; `high` if there is none before it.
fn first(low: u64, high: u64, holds: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (low, high);
    while low < high {
        let middle = low + (high - low) / 2;
        match holds(middle) {
            true => high = middle,
            false => low = middle + 1,
        }
    }
    low
}

/// Units taken at an instant, in µs.
#[derive(Clone, Copy, Debug)]
struct Taken {
    at: u64,
    units: u64,
}

/// Gives back up to `units` out of those entries that `chosen` picks; says how many.
fn give_back(entries: &mut [Taken], units: u64, chosen: impl Fn(u64) -> bool) -> u64 {
    let mut left = units;
    for entry in entries.iter_mut().filter(|entry| chosen(entry.at)) {
        let back = left.min(entry.units);
        entry.units -= back;
        left -= back;
    }
    units - left
}

/// The units of those entries that `chosen` picks.
fn sum(entries: &[Taken], chosen: impl Fn(u64) -> bool) -> u128 {
    let chosen = entries.iter().filter(|entry| chosen(entry.at));
    chosen.map(|entry| u128::from(entry.units)).sum()
}
