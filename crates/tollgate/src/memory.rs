//! The store in this process: exact, bounded, without a thread of its own.
//!
//! States lie in a table of lines (`memory/table.rs`, `line.rs`), known by a keyed
//! fingerprint of their key (`fingerprint.rs`), packed into two words (`slot.rs`); what is too large
//! for that lies beside (`side.rs`). A decision about one bucket (`single.rs`) reads without a lock
//! and, if it has something to write, locks the line if that is still as it was read. A set
//! (`set.rs`) locks its lines in ascending order, evaluates, applies and unlocks.

use std::borrow::Borrow;
use std::future::{Future, ready};
use std::mem;

use crate::charge::{ChargeSet, Cost, Enforcement, Op};
use crate::clock::{Clock, SystemClock};
use crate::decision::Decision;
use crate::key::Key;
use crate::meter::Meter;
use crate::store::{Answers, Store, StoreError};
use crate::time::Timestamp;

mod fingerprint;
mod line;
#[cfg(all(test, loom))]
mod models;
mod overflow;
mod place;
mod question;
mod segments;
mod set;
mod side;
mod single;
mod slot;
mod table;

use fingerprint::Fingerprinter;
use question::Question;
use single::Found;
use table::Table;

/// In a batch, how many decisions ahead a line is asked for, so that it has arrived when its turn
/// comes. A power of two.
const AHEAD: usize = 16;

/// Buckets in this process.
///
/// Cheap to start (a few kilobytes), it grows as keys come and holds at most
/// [`max_keys`](MemoryStoreBuilder::max_keys) of them. Share it by reference or in an [`Arc`].
///
/// ```
/// use tollgate::{Algorithm, Cost, MemoryStore, Meter};
///
/// let store = MemoryStore::new();
/// let meter = Meter::new("2/min".parse()?, Algorithm::SlidingLog)?;
/// assert!(store.take("user:42", meter, Cost::ONE).is_allowed());
/// assert!(store.take("user:42", meter, Cost::ONE).is_allowed());
/// assert!(!store.take("user:42", meter, Cost::ONE).is_allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// [`Arc`]: std::sync::Arc
pub struct MemoryStore<C = SystemClock> {
    table: Table,
    fingerprinter: Fingerprinter,
    clock: C,
}

/// How large a [`MemoryStore`] may become.
#[derive(Clone, Copy, Debug)]
pub struct MemoryStoreBuilder {
    max_keys: usize,
    max_log_entries: usize,
}

impl Default for MemoryStoreBuilder {
    fn default() -> Self {
        Self { max_keys: 1 << 23, max_log_entries: 1 << 24 }
    }
}

impl MemoryStoreBuilder {
    /// The most buckets held, up to a billion; 8 million unless told otherwise, some 48 bytes each.
    /// When all are live the one nearest to stale gives way to a new one.
    pub fn max_keys(self, max_keys: usize) -> Self {
        Self { max_keys: max_keys.clamp(1, table::MOST_KEYS), ..self }
    }

    /// The most entries of all sliding logs together; 16 million unless told otherwise, 16 to 32
    /// bytes each. When there are more, the log nearest to stale among a few gives way; a single log
    /// may still grow to its own limit.
    pub fn max_log_entries(self, max_log_entries: usize) -> Self {
        Self { max_log_entries: max_log_entries.max(1), ..self }
    }

    /// A store on the system's clock.
    pub fn build(self) -> MemoryStore {
        self.build_with_clock(SystemClock)
    }

    /// A store on another clock, for tests and simulations.
    pub fn build_with_clock<C: Clock>(self, clock: C) -> MemoryStore<C> {
        MemoryStore {
            table: Table::new(self.max_keys, self.max_log_entries),
            fingerprinter: Fingerprinter::new(),
            clock,
        }
    }
}

impl MemoryStore {
    /// A store with the default bounds on the system's clock.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// A store with other bounds or another clock.
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder::default()
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl<C: Clock> MemoryStore<C> {
    /// A store with the default bounds on `clock`.
    pub fn with_clock(clock: C) -> Self {
        MemoryStoreBuilder::default().build_with_clock(clock)
    }

    /// The clock.
    pub fn clock(&self) -> &C {
        &self.clock
    }

    /// Buckets held, among them stale ones whose place has not been needed yet.
    pub fn keys(&self) -> usize {
        self.table.keys()
    }

    /// Entries of all sliding logs held.
    pub fn log_entries(&self) -> usize {
        self.table.side.entries()
    }

    /// Buckets that gave way to others while they still counted, since the start.
    pub fn evictions(&self) -> usize {
        self.table.evictions()
    }

    /// Takes `cost` units from one bucket.
    ///
    /// Like all verbs here it takes the meter by value or by reference; a reference saves a copy.
    // Always, so that a caller who only wants the verdict pays for no number: what is worked out for
    // nobody is left out only where it is seen that nobody looks.
    #[inline(always)]
    pub fn take<'k>(
        &self,
        key: impl Into<Key<'k>>,
        meter: impl Borrow<Meter>,
        cost: Cost,
    ) -> Decision {
        self.decide_by::<true>(key.into(), meter.borrow(), cost)
    }

    /// Says what taking `cost` units would do, and takes none.
    #[inline(always)]
    pub fn peek<'k>(
        &self,
        key: impl Into<Key<'k>>,
        meter: impl Borrow<Meter>,
        cost: Cost,
    ) -> Decision {
        self.decide_by::<false>(key.into(), meter.borrow(), cost)
    }

    /// Gives back `cost` units that the decision made at `at` took.
    pub fn refund<'k>(
        &self,
        key: impl Into<Key<'k>>,
        meter: impl Borrow<Meter>,
        cost: Cost,
        at: Timestamp,
    ) -> Decision {
        self.decide_rarely(key.into().as_ref(), meter.borrow(), Op::Refund { cost, at })
    }

    /// Forgets one bucket.
    pub fn reset<'k>(&self, key: impl Into<Key<'k>>, meter: impl Borrow<Meter>) -> Decision {
        self.decide_rarely(key.into().as_ref(), meter.borrow(), Op::Reset)
    }

    /// Decides one set, all or nothing, whatever its ops.
    pub fn take_set(&self, set: &ChargeSet<'_>) -> Decision {
        let found = self.fetch_only(set);
        // While the line is on its way.
        let now = self.clock.now();
        self.decide_maybe_found(set, found, now)
    }

    /// Takes `cost` units from the bucket of each key, independently, all at one reading of the
    /// clock: one decision per key, in order.
    ///
    /// Much faster than one after another when there are many keys: the lines they live in are
    /// fetched together.
    ///
    /// ```
    /// use tollgate::{Algorithm, Cost, MemoryStore, Meter};
    ///
    /// let store = MemoryStore::new();
    /// let meter = Meter::new("1/min".parse()?, Algorithm::TokenBucket)?;
    /// let decisions = store.take_many(["ann", "bob", "ann"], meter, Cost::ONE);
    /// let allowed: Vec<bool> = decisions.iter().map(|decision| decision.is_allowed()).collect();
    /// assert_eq!(allowed, [true, true, false]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn take_many<'k, K: Into<Key<'k>>>(
        &self,
        keys: impl IntoIterator<Item = K, IntoIter: Clone>,
        meter: impl Borrow<Meter>,
        cost: Cost,
    ) -> Vec<Decision> {
        let keys = keys.into_iter();
        let mut decisions = Vec::with_capacity(keys.size_hint().0);
        self.decide_many(keys, meter.borrow(), cost, |decision| decisions.push(decision));
        decisions
    }

    /// Decides independent sets, all at one reading of the clock: one decision per set, in order.
    pub fn take_sets(&self, sets: &[ChargeSet<'_>]) -> Vec<Decision> {
        let mut decisions = Vec::with_capacity(sets.len());
        self.decide_each(sets, |decision| decisions.push(decision));
        decisions
    }

    /// Decides each set in order and hands over the decisions.
    fn decide_each(&self, sets: &[ChargeSet<'_>], mut each: impl FnMut(Decision)) {
        if let [set] = sets {
            return each(self.take_set(set));
        }
        let now = self.clock.now();
        let mut ahead = sets.iter();
        let mut fetch = || ahead.next().and_then(|set| self.fetch_only(set));
        let mut on_their_way: [Option<Found<'_>>; AHEAD] = std::array::from_fn(|_| fetch());
        for (turn, set) in sets.iter().enumerate() {
            let found = mem::replace(&mut on_their_way[turn % AHEAD], fetch());
            self.fetch_more(on_their_way[(turn + AHEAD / 2) % AHEAD]);
            each(self.decide_maybe_found(set, found, now));
        }
    }

    /// Decides a set: by the short way if it has one charge, whose home was found.
    fn decide_maybe_found(
        &self,
        set: &ChargeSet<'_>,
        found: Option<Found<'_>>,
        now: Timestamp,
    ) -> Decision {
        let question = match set.charges() {
            [charge] => Question::of(charge, now),
            _ => None,
        };
        match (question, found) {
            (Some(question), Some(found)) => self.decide_found(question, found),
            _ => self.decide_set(set, now),
        }
    }

    /// Finds the home of a set's only charge.
    fn fetch_only(&self, set: &ChargeSet<'_>) -> Option<Found<'_>> {
        match set.charges() {
            [charge] => Some(self.fetch(charge.key.as_ref(), &charge.meter)),
            _ => None,
        }
    }
}

impl<C: Clock> Store for MemoryStore<C> {
    const IMMEDIATE: bool = true;

    /// Ready at once: nothing here waits.
    fn decide(&self, sets: &[ChargeSet<'_>]) -> impl Future<Output = Answers> + Send {
        let mut answers = Answers::new();
        self.decide_each(sets, |decision| answers.push(Ok(decision)));
        ready(answers)
    }

    fn decide_now(&self, set: &ChargeSet<'_>) -> Option<Result<Decision, StoreError>> {
        Some(Ok(self.take_set(set)))
    }

    #[inline(always)]
    fn take_now(
        &self,
        key: &Key<'_>,
        meter: &Meter,
        enforcement: Enforcement,
    ) -> Option<Result<Decision, StoreError>> {
        Some(Ok(self.take_one(key.as_ref(), meter, enforcement)))
    }
}

impl<C> std::fmt::Debug for MemoryStore<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryStore").field("keys", &self.table.keys()).finish_non_exhaustive()
    }
}
