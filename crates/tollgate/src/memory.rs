//! The store in this process: exact, bounded, without a thread of its own.
//!
//! States lie in a [table](table) of 128-byte [lines](line), known by a keyed
//! [fingerprint](fingerprint) of their key, packed into two words ([slot]); what is too large for
//! that lies [beside](side). A decision about one bucket reads without a lock and, if it has
//! something to write, turns what it read into a lock with a single exchange. A set locks its lines
//! in ascending order, evaluates, applies and unlocks.

use std::future::{Future, ready};

use smallvec::SmallVec;

use crate::algorithm::bucket::Debt;
use crate::algorithm::fixed_window::Window;
use crate::algorithm::sliding_window::Windows;
use crate::algorithm::{Algorithm, Ask, Evaluation, Standing};
use crate::charge::{Charge, ChargeSet, Cost, Op};
use crate::clock::{Clock, SystemClock};
use crate::decision::{Decision, Outcome, Outcomes, Provenance, Reading, Retry, Verdict};
use crate::key::Key;
use crate::meter::Meter;
use crate::store::{Answers, Store};
use crate::time::{Micros, Timestamp};

mod fingerprint;
mod line;
mod segments;
mod set;
mod side;
mod slot;
mod table;

use fingerprint::{Fingerprint, Fingerprinter};
use slot::{Inline, Limits};
use table::{Home, Table};

/// Sets decided together: their lines are asked for at once, so that they arrive together.
const BATCH: usize = 16;

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
        Self {
            max_keys: 1 << 23,
            max_log_entries: 1 << 24,
        }
    }
}

impl MemoryStoreBuilder {
    /// The most buckets held; 8 million unless told otherwise, some 45 bytes each. When all are
    /// live the one nearest to stale gives way to a new one.
    pub fn max_keys(self, max_keys: usize) -> Self {
        Self {
            max_keys: max_keys.max(1),
            ..self
        }
    }

    /// The most entries of all sliding logs together; 16 million unless told otherwise, 16 bytes
    /// each.
    pub fn max_log_entries(self, max_log_entries: usize) -> Self {
        Self {
            max_log_entries: max_log_entries.max(1),
            ..self
        }
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
    pub fn take<'k>(&self, key: impl Into<Key<'k>>, meter: Meter, cost: Cost) -> Decision {
        self.decide_charge(&Charge::take(key, meter, cost), self.clock.now())
    }

    /// Says what taking `cost` units would do, and takes none.
    pub fn peek<'k>(&self, key: impl Into<Key<'k>>, meter: Meter, cost: Cost) -> Decision {
        self.decide_charge(&Charge::peek(key, meter, cost), self.clock.now())
    }

    /// Gives back `cost` units that the decision made at `at` took.
    pub fn refund<'k>(
        &self,
        key: impl Into<Key<'k>>,
        meter: Meter,
        cost: Cost,
        at: Timestamp,
    ) -> Decision {
        self.decide_charge(
            &Charge::new(key, meter, Op::Refund { cost, at }),
            self.clock.now(),
        )
    }

    /// Forgets one bucket.
    pub fn reset<'k>(&self, key: impl Into<Key<'k>>, meter: Meter) -> Decision {
        self.decide_charge(&Charge::new(key, meter, Op::Reset), self.clock.now())
    }

    /// Decides one set, all or nothing, whatever its ops.
    pub fn take_set(&self, set: &ChargeSet<'_>) -> Decision {
        self.decide_at(set, self.clock.now())
    }

    /// Decides independent sets, all at one reading of the clock.
    ///
    /// Much faster than one after another when there are many keys: the lines they live in are
    /// fetched together.
    pub fn take_many(&self, sets: &[ChargeSet<'_>]) -> Vec<Decision> {
        let mut decisions = Vec::with_capacity(sets.len());
        self.decide_each(sets, |decision| decisions.push(decision));
        decisions
    }

    /// Decides each set in order and hands over the decisions.
    fn decide_each(&self, sets: &[ChargeSet<'_>], mut each: impl FnMut(Decision)) {
        let now = self.clock.now();
        for batch in sets.chunks(BATCH) {
            let mut fingerprints = SmallVec::<[Fingerprint; BATCH]>::new();
            for set in batch {
                if let [charge] = set.charges() {
                    let fingerprint = self.fingerprinter.of(charge);
                    self.table.home(fingerprint).line.prefetch();
                    fingerprints.push(fingerprint);
                }
            }
            let mut fingerprints = fingerprints.into_iter();
            for set in batch {
                each(match (set.charges(), set.len()) {
                    ([charge], 1) => {
                        let fingerprint = fingerprints.next().expect("one was made per charge");
                        self.decide_fingerprint(charge, fingerprint, now)
                    }
                    _ => self.decide_set(set, now),
                });
            }
        }
    }

    fn decide_at(&self, set: &ChargeSet<'_>, now: Timestamp) -> Decision {
        match set.charges() {
            [charge] => self.decide_charge(charge, now),
            _ => self.decide_set(set, now),
        }
    }

    fn decide_charge(&self, charge: &Charge<'_>, now: Timestamp) -> Decision {
        self.decide_fingerprint(charge, self.fingerprinter.of(charge), now)
    }

    /// Decides one charge: by the short way where its state is a pair of words, else as a set.
    #[inline]
    fn decide_fingerprint(
        &self,
        charge: &Charge<'_>,
        fingerprint: Fingerprint,
        now: Timestamp,
    ) -> Decision {
        let (ask, take) = match charge.op {
            Op::Take(ask) => (ask, true),
            Op::Peek(cost) => (Ask::exactly(cost), false),
            Op::Refund { .. } | Op::Reset => return self.decide_set_of(charge, now),
        };
        let question = Question {
            charge,
            fingerprint,
            ask,
            take,
            now,
        };
        let outcome = match charge.meter.algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                self.decide_inline::<Debt>(&question)
            }
            Algorithm::FixedWindow => self.decide_inline::<Window>(&question),
            Algorithm::SlidingWindow => self.decide_inline::<Windows>(&question),
            Algorithm::SlidingLog => None,
        };
        match outcome {
            Some(outcome) => decision(smallvec::smallvec![outcome], now),
            None => self.decide_set_of(charge, now),
        }
    }

    fn decide_set_of(&self, charge: &Charge<'_>, now: Timestamp) -> Decision {
        self.decide_set(&ChargeSet::of(charge.clone()), now)
    }

    /// Decides one charge on a state that fits a slot; `None` if it does not.
    ///
    /// Reads without a lock, evaluates, and locks only to write: by exchanging the very header it
    /// read, so that success means nothing has changed since.
    #[inline]
    fn decide_inline<T: Inline>(&self, question: &Question<'_>) -> Option<Outcome> {
        let Question {
            charge,
            fingerprint,
            ask,
            take,
            now,
        } = *question;
        let meter = &charge.meter;
        loop {
            let (home, seen) = self.table.see(fingerprint);
            let place = self.table.find(home, seen, fingerprint);
            let state = match place.map(|place| place.state()) {
                None => T::default(),
                Some(words) if words.ticket().is_some() => return None,
                Some(words) => T::decode(words, meter, &self.limits),
            };
            let (units, delay, next) = match state.evaluate(meter, ask, now) {
                Evaluation::Fits {
                    units,
                    delay,
                    delta,
                } if take => (units, delay, delta),
                evaluation => {
                    if !home.line.unchanged(seen) {
                        continue;
                    }
                    return Some(present(&state, evaluation, charge, now));
                }
            };
            let words = next.encode(meter, &self.limits)?;
            if !home.line.lock_unchanged(seen) {
                continue;
            }
            let added = match place {
                Some(place) => {
                    place.set_state(words);
                    false
                }
                None => self.add(home, fingerprint, words, now),
            };
            home.line.unlock_changed();
            if added {
                self.table.tend(home.index, now);
            }
            let reading = reading(meter, next.standing(meter, now), Retry::Now, delay, units);
            return Some(outcome(charge, Verdict::Allow, reading));
        }
    }

    /// Adds a key with its state; true if there is one more key. Only under the lock.
    #[cold]
    fn add(
        &self,
        home: Home<'_>,
        fingerprint: Fingerprint,
        words: line::Words,
        now: Timestamp,
    ) -> bool {
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
        f.debug_struct("MemoryStore")
            .field("keys", &self.table.keys())
            .finish_non_exhaustive()
    }
}

/// One charge to be decided by the short way.
#[derive(Clone, Copy)]
struct Question<'a> {
    charge: &'a Charge<'a>,
    fingerprint: Fingerprint,
    ask: Ask,
    // Or only look.
    take: bool,
    now: Timestamp,
}

/// The outcome of a charge that changes nothing: the state as it stands.
#[inline]
fn present<T: Inline>(
    state: &T,
    evaluation: Evaluation<T>,
    charge: &Charge<'_>,
    now: Timestamp,
) -> Outcome {
    let standing = state.standing(&charge.meter, now);
    match evaluation {
        Evaluation::Fits { delay, .. } => {
            let reading = reading(&charge.meter, standing, Retry::Now, delay, 0);
            outcome(charge, Verdict::Allow, reading)
        }
        Evaluation::Exceeds { retry } => {
            let reading = reading(&charge.meter, standing, retry, Micros::ZERO, 0);
            outcome(charge, Verdict::Deny, reading)
        }
    }
}

#[inline]
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

#[inline]
fn outcome(charge: &Charge<'_>, verdict: Verdict, reading: Reading) -> Outcome {
    Outcome {
        verdict,
        enforcement: charge.enforcement,
        reading: Some(reading),
    }
}

#[inline]
fn decision(outcomes: Outcomes, now: Timestamp) -> Decision {
    Decision::new(outcomes, now, Provenance::Store)
}
