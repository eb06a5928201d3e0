//! Deciding one charge: read without a lock, evaluate, lock only to write.

use super::MemoryStore;
use super::fingerprint::Fingerprint;
use super::line::Words;
use super::slot::{Code, Inline};
use super::table::Home;
use crate::algorithm::bucket::{Debt, WholeDebt};
use crate::algorithm::fixed_window::Window;
use crate::algorithm::sliding_window::Windows;
use crate::algorithm::{Algorithm, Ask, Evaluation, outcome, reading};
use crate::charge::{Charge, ChargeSet, Enforcement, Op};
use crate::clock::Clock;
use crate::decision::{Decision, Provenance, Reading, Retry, Verdict};
use crate::key::KeyRef;
use crate::meter::Meter;
use crate::sync::spin_loop;
use crate::time::Timestamp;

/// One charge, borrowed, and the instant it is decided at.
#[derive(Clone, Copy)]
pub(super) struct Question<'a> {
    pub(super) key: KeyRef<'a>,
    pub(super) meter: &'a Meter,
    pub(super) op: Op,
    pub(super) enforcement: Enforcement,
    pub(super) now: Timestamp,
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
pub(super) struct Found<'t> {
    fingerprint: Fingerprint,
    home: Home<'t>,
}

impl<'a> Question<'a> {
    pub(super) fn of(charge: &'a Charge<'a>, now: Timestamp) -> Self {
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

impl<C: Clock> MemoryStore<C> {
    /// Finds the home of a key and asks for its line ahead of time.
    #[inline(always)]
    pub(super) fn fetch(&self, key: KeyRef<'_>, meter: &Meter) -> Found<'_> {
        let fingerprint = self.fingerprinter.of(key, meter);
        let home = self.table.home(fingerprint);
        home.line.prefetch();
        Found { fingerprint, home }
    }

    /// Asks for what continues a home, which has arrived by now.
    #[inline(always)]
    pub(super) fn fetch_more(&self, found: Option<Found<'_>>) {
        if let Some(Found { home, .. }) = found {
            self.table.prefetch_overflow(home);
        }
    }

    #[inline]
    pub(super) fn decide_one(&self, key: KeyRef<'_>, meter: &Meter, op: Op) -> Decision {
        // The line is on its way while the clock is read.
        let found = self.fetch(key, meter);
        let now = self.clock.now();
        let question = Question { key, meter, op, enforcement: Enforcement::Enforce, now };
        self.decide_found(question, found)
    }

    /// Decides one charge: by the short way where its state is a pair of words, else as a set.
    #[inline(always)]
    pub(super) fn decide_found(&self, question: Question<'_>, found: Found<'_>) -> Decision {
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
    pub(super) fn add(
        &self,
        home: Home<'_>,
        fingerprint: Fingerprint,
        words: Words,
        now: Timestamp,
    ) -> bool {
        let (place, added) = self.table.insert(home, fingerprint, now);
        place.set_state(words);
        added
    }
}
