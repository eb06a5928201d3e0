//! The store in this process: exact, bounded, without a thread of its own.
//!
//! States lie in a table of lines (`memory/table.rs`, `line.rs`), known by a keyed
//! fingerprint of their key (`fingerprint.rs`), packed into two words (`slot.rs`); what is too large
//! for that lies beside (`side.rs`). A decision about one bucket reads without a lock and, if it has
//! something to write, turns what it read into a lock with a single exchange. A set locks its lines
//! in ascending order, evaluates, applies and unlocks.

use std::borrow::Borrow;
use std::future::{Future, ready};
use std::mem;

use crate::algorithm::bucket::{Debt, WholeDebt};
use crate::algorithm::fixed_window::Window;
use crate::algorithm::sliding_window::Windows;
use crate::algorithm::{Algorithm, Ask, Evaluation, Standing};
use crate::charge::{Charge, ChargeSet, Cost, Enforcement, Op};
use crate::clock::{Clock, SystemClock};
use crate::decision::{Decision, Outcome, Provenance, Reading, Retry, Verdict};
use crate::key::{Key, KeyRef};
use crate::meter::Meter;
use crate::store::{Answers, Store};
use crate::sync::spin_loop;
use crate::time::{Micros, Timestamp};

mod fingerprint;
mod line;
mod segments;
mod set;
mod side;
mod slot;
mod table;

use fingerprint::{Fingerprint, Fingerprinter};
use line::Words;
use slot::{Code, Inline, Limits};
use table::{Home, Table};

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
    limits: Limits,
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
    /// The most buckets held; 8 million unless told otherwise, some 48 bytes each. When all are
    /// live the one nearest to stale gives way to a new one.
    pub fn max_keys(self, max_keys: usize) -> Self {
        // Lines are numbered in 32 bits.
        Self { max_keys: max_keys.clamp(1, 1 << 31), ..self }
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
            limits: Limits::new(),
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
    #[inline]
    pub fn take<'k>(
        &self,
        key: impl Into<Key<'k>>,
        meter: impl Borrow<Meter>,
        cost: Cost,
    ) -> Decision {
        self.decide_one(key.into().as_ref(), meter.borrow(), Op::Take(Ask::exactly(cost)))
    }

    /// Says what taking `cost` units would do, and takes none.
    #[inline]
    pub fn peek<'k>(
        &self,
        key: impl Into<Key<'k>>,
        meter: impl Borrow<Meter>,
        cost: Cost,
    ) -> Decision {
        self.decide_one(key.into().as_ref(), meter.borrow(), Op::Peek(cost))
    }

    /// Gives back `cost` units that the decision made at `at` took.
    pub fn refund<'k>(
        &self,
        key: impl Into<Key<'k>>,
        meter: impl Borrow<Meter>,
        cost: Cost,
        at: Timestamp,
    ) -> Decision {
        self.decide_one(key.into().as_ref(), meter.borrow(), Op::Refund { cost, at })
    }

    /// Forgets one bucket.
    pub fn reset<'k>(&self, key: impl Into<Key<'k>>, meter: impl Borrow<Meter>) -> Decision {
        self.decide_one(key.into().as_ref(), meter.borrow(), Op::Reset)
    }

    /// Decides one set, all or nothing, whatever its ops.
    pub fn take_set(&self, set: &ChargeSet<'_>) -> Decision {
        self.decide_at(set, self.clock.now())
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
        let meter = meter.borrow();
        let (op, enforcement) = (Op::Take(Ask::exactly(cost)), Enforcement::Enforce);
        let now = self.clock.now();
        let keys = keys.into_iter();
        let mut ahead = keys.clone();
        let mut fetch = || ahead.next().map(|key| self.fetch(key.into().as_ref(), meter));
        let mut on_their_way: [Option<Found<'_>>; AHEAD] = std::array::from_fn(|_| fetch());
        let mut decisions = Vec::with_capacity(keys.size_hint().0);
        for (turn, key) in keys.enumerate() {
            let found = mem::replace(&mut on_their_way[turn % AHEAD], fetch());
            self.fetch_more(on_their_way[(turn + AHEAD / 2) % AHEAD]);
            let key: Key<'_> = key.into();
            // An iterator whose clone ends sooner than itself costs time, not correctness.
            let found = found.unwrap_or_else(|| self.fetch(key.as_ref(), meter));
            let question = Question { key: key.as_ref(), meter, op, enforcement, now };
            decisions.push(self.decide_found(question, found));
        }
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

    fn decide_at(&self, set: &ChargeSet<'_>, now: Timestamp) -> Decision {
        self.decide_maybe_found(set, self.fetch_only(set), now)
    }

    /// Decides a set: by the short way if it has one charge, whose home was found.
    fn decide_maybe_found(
        &self,
        set: &ChargeSet<'_>,
        found: Option<Found<'_>>,
        now: Timestamp,
    ) -> Decision {
        match (set.charges(), found) {
            ([charge], Some(found)) => self.decide_found(Question::of(charge, now), found),
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

    /// Finds the home of a key and asks for its line ahead of time.
    #[inline(always)]
    fn fetch(&self, key: KeyRef<'_>, meter: &Meter) -> Found<'_> {
        let fingerprint = self.fingerprinter.of(key, meter);
        let home = self.table.home(fingerprint);
        home.line.prefetch();
        Found { fingerprint, home }
    }

    /// Asks for what continues a home, which has arrived by now.
    #[inline(always)]
    fn fetch_more(&self, found: Option<Found<'_>>) {
        if let Some(Found { home, .. }) = found {
            self.table.prefetch_overflow(home);
        }
    }

    #[inline]
    fn decide_one(&self, key: KeyRef<'_>, meter: &Meter, op: Op) -> Decision {
        // The line is on its way while the clock is read.
        let found = self.fetch(key, meter);
        let now = self.clock.now();
        let question = Question { key, meter, op, enforcement: Enforcement::Enforce, now };
        self.decide_found(question, found)
    }

    /// Decides one charge: by the short way where its state is a pair of words, else as a set.
    #[inline(always)]
    fn decide_found(&self, question: Question<'_>, found: Found<'_>) -> Decision {
        let ask = match question.op {
            Op::Take(ask) => ask,
            Op::Peek(cost) => Ask::exactly(cost),
            Op::Refund { .. } | Op::Reset => {
                return out_of_line(move || self.decide_alone(question));
            }
        };
        match question.meter.algorithm() {
            // Token and leaky bucket apart, so that each is compiled for itself.
            Algorithm::TokenBucket if WholeDebt::suits(question.meter, ask) => {
                self.decide_inline::<WholeDebt>(question, ask, found)
            }
            Algorithm::LeakyBucket if WholeDebt::suits(question.meter, ask) => {
                self.decide_inline::<WholeDebt>(question, ask, found)
            }
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                self.decide_inline::<Debt>(question, ask, found)
            }
            Algorithm::FixedWindow => self.decide_inline::<Window>(question, ask, found),
            Algorithm::SlidingWindow => self.decide_inline::<Windows>(question, ask, found),
            Algorithm::SlidingLog => out_of_line(move || self.decide_alone(question)),
        }
    }

    /// Decides one charge as a set.
    fn decide_alone(&self, question: Question<'_>) -> Decision {
        self.decide_set(&ChargeSet::of(question.to_charge()), question.now)
    }

    /// Decides one charge on a state that fits a slot, or as a set if it does not.
    #[inline(always)]
    fn decide_inline<T: Inline>(
        &self,
        question: Question<'_>,
        ask: Ask,
        found: Found<'_>,
    ) -> Decision {
        match self.attempt::<T>(question, ask, found) {
            Ok(decision) => decision,
            Err(Miss::Overtaken) => {
                let fingerprint = found.fingerprint;
                out_of_line(move || self.decide_contended::<T>(question, ask, fingerprint))
            }
            Err(Miss::NotInline) => out_of_line(move || self.decide_alone(question)),
        }
    }

    /// Attempts until nobody else is faster.
    #[inline(never)]
    fn decide_contended<T: Inline>(
        &self,
        question: Question<'_>,
        ask: Ask,
        fingerprint: Fingerprint,
    ) -> Decision {
        loop {
            let found = Found { fingerprint, home: self.table.home(fingerprint) };
            match self.attempt::<T>(question, ask, found) {
                Ok(decision) => return decision,
                Err(Miss::Overtaken) => spin_loop(),
                Err(Miss::NotInline) => return self.decide_alone(question),
            }
        }
    }

    /// Tries to decide one charge.
    ///
    /// Reads without a lock, evaluates, and locks only to write: by exchanging the very header it
    /// read, so that success means nothing has changed since.
    #[inline(always)]
    fn attempt<T: Inline>(
        &self,
        question: Question<'_>,
        ask: Ask,
        found: Found<'_>,
    ) -> Result<Decision, Miss> {
        let Question { meter, now, .. } = question;
        let home = found.home;
        let seen = self.table.see(home).ok_or(Miss::Overtaken)?;
        let entry = self.table.find(home, seen, found.fingerprint);
        let code = Code::new(meter, &self.limits);
        let state = match entry {
            None => T::default(),
            Some((_, words)) => T::decode(words, code).ok_or(Miss::NotInline)?,
        };
        match state.evaluate(meter, ask, now) {
            Evaluation::Fits { units, delay, delta, after } if question.takes() => {
                let words = delta.encode(code).ok_or(Miss::NotInline)?;
                if !home.line.lock_unchanged(seen) {
                    return Err(Miss::Overtaken);
                }
                match entry {
                    Some((place, _)) => {
                        place.set_state(words);
                        home.line.unlock_changed_since(seen);
                    }
                    None => out_of_line(move || self.add_and_unlock(found, words, now)),
                }
                let reading = reading(meter, after, Retry::Now, delay, units);
                Ok(question.decision(Verdict::Allow, reading))
            }
            evaluation => {
                let (verdict, retry, delay) = evaluation.verdict();
                let standing = match evaluation {
                    Evaluation::Fits { .. } => state.standing(meter, now),
                    Evaluation::Exceeds { present, .. } => present,
                };
                if !home.line.unchanged(seen) {
                    return Err(Miss::Overtaken);
                }
                Ok(question.decision(verdict, reading(meter, standing, retry, delay, 0)))
            }
        }
    }

    /// Adds a key with its state to a locked home, and unlocks it.
    fn add_and_unlock(&self, Found { fingerprint, home }: Found<'_>, words: Words, now: Timestamp) {
        let locked = home.line.locked();
        let added = self.add(home, fingerprint, words, now);
        drop(locked);
        if added {
            self.table.tend(home.index, now);
        }
    }

    /// Adds a key with its state; true if there is one more key. Only under the lock.
    fn add(&self, home: Home<'_>, fingerprint: Fingerprint, words: Words, now: Timestamp) -> bool {
        let (place, added) = self.table.insert(home, fingerprint, now);
        place.set_state(words);
        added
    }
}

impl<C: Clock> Store for MemoryStore<C> {
    /// Ready at once: nothing here waits.
    fn decide(&self, sets: &[ChargeSet<'_>]) -> impl Future<Output = Answers> + Send {
        let mut answers = Answers::new();
        self.decide_each(sets, |decision| answers.push(Ok(decision)));
        ready(answers)
    }
}

impl<C> std::fmt::Debug for MemoryStore<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryStore").field("keys", &self.table.keys()).finish_non_exhaustive()
    }
}

/// One charge, borrowed, and the instant it is decided at.
#[derive(Clone, Copy)]
struct Question<'a> {
    key: KeyRef<'a>,
    meter: &'a Meter,
    op: Op,
    enforcement: Enforcement,
    now: Timestamp,
}

/// Does what is rarely done, and keeps it from costing anything where it is not: what `rare` needs
/// is copied only here.
#[cold]
#[inline(never)]
fn out_of_line<T>(rare: impl FnOnce() -> T) -> T {
    rare()
}

/// Why an attempt at a decision came to nothing.
enum Miss {
    /// Somebody changed the line in between.
    Overtaken,
    /// The state lies beside the table, or will, or the op is a rare one.
    NotInline,
}

/// A fingerprint and where it was found to live.
#[derive(Clone, Copy)]
struct Found<'t> {
    fingerprint: Fingerprint,
    home: Home<'t>,
}

impl<'a> Question<'a> {
    fn of(charge: &'a Charge<'a>, now: Timestamp) -> Self {
        let Charge { key, meter, op, enforcement } = charge;
        Self { key: key.as_ref(), meter, op: *op, enforcement: *enforcement, now }
    }

    /// Whether it takes what fits, or only looks.
    #[inline(always)]
    fn takes(&self) -> bool {
        matches!(self.op, Op::Take(_))
    }

    /// The decision that this charge alone makes.
    #[inline(always)]
    fn decision(self, verdict: Verdict, reading: Reading) -> Decision {
        let outcome = outcome(self.enforcement, verdict, reading);
        Decision::of_one(outcome, self.now, Provenance::Store)
    }

    fn to_charge(self) -> Charge<'a> {
        Charge::new(self.key, *self.meter, self.op).enforced(self.enforcement)
    }
}

#[inline(always)]
fn reading(meter: &Meter, standing: Standing, retry: Retry, delay: Micros, units: u64) -> Reading {
    Reading {
        capacity: meter.capacity(),
        remaining: standing.remaining,
        reset: standing.reset,
        retry,
        delay,
        units,
    }
}

#[inline(always)]
fn outcome(enforcement: Enforcement, verdict: Verdict, reading: Reading) -> Outcome {
    Outcome { verdict, enforcement, reading: Some(reading) }
}
