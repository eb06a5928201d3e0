//! Deciding one charge: read without a lock, evaluate, lock only to write.

use std::mem;

use super::fingerprint::Fingerprint;
use super::line::{HomeLine, Seen, Slot, Words};
use super::slot::{Code, Inline};
use super::table::Home;
use super::{AHEAD, MemoryStore};
use crate::algorithm::bucket::{Debt, WholeDebt};
use crate::algorithm::fixed_window::Window;
use crate::algorithm::sliding_window::Windows;
use crate::algorithm::{Algorithm, Ask, Evaluation, outcome, reading};
use crate::charge::{Charge, ChargeSet, Cost, Enforcement, Op};
use crate::clock::Clock;
use crate::decision::{Decision, Provenance, Reading, Retry, Verdict};
use crate::key::{Key, KeyRef};
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

/// The kinds of state that fit a slot.
#[derive(Clone, Copy)]
enum Kind {
    WholeDebt,
    Debt,
    Window,
    Windows,
}

impl Kind {
    /// The kind that answers `ask` of `meter`; `None` for logs, which do not fit.
    #[inline(always)]
    fn of(meter: &Meter, ask: Ask) -> Option<Self> {
        // First, for most are.
        if WholeDebt::suits(meter, ask) {
            return Some(Self::WholeDebt);
        }
        match meter.algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => Some(Self::Debt),
            Algorithm::FixedWindow => Some(Self::Window),
            Algorithm::SlidingWindow => Some(Self::Windows),
            Algorithm::SlidingLog => None,
        }
    }
}

/// To take `cost` units, or to look.
#[inline(always)]
fn ask<const TAKES: bool>(cost: Cost) -> Op {
    if TAKES { Op::Take(Ask::exactly(cost)) } else { Op::Peek(cost) }
}

/// Why an attempt at a decision came to nothing.
enum Miss {
    /// Somebody changed the line in between.
    Overtaken,
    /// The state is elsewhere, or will be.
    NotInline,
}

/// A home as somebody saw it.
#[derive(Clone, Copy)]
struct Sight<'t> {
    line: &'t HomeLine,
    seen: Seen,
}

/// A fingerprint and the line it lived in a moment ago, if anywhere.
#[derive(Clone, Copy)]
pub(super) struct Found<'t> {
    fingerprint: Fingerprint,
    line: &'t HomeLine,
}

impl<'a> Question<'a> {
    #[inline(always)]
    fn new(key: KeyRef<'a>, meter: &'a Meter, op: Op, now: Timestamp) -> Self {
        Self { key, meter, op, enforcement: Enforcement::Enforce, now }
    }

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
        let (low, line) = self.fetch_line(key, meter);
        Found { fingerprint: Fingerprint { low, high: self.fingerprinter.high(key) }, line }
    }

    /// The low word of a key's fingerprint and the line of its home, which is asked for.
    #[inline(always)]
    fn fetch_line(&self, key: KeyRef<'_>, meter: &Meter) -> (u64, &HomeLine) {
        let low = self.fingerprinter.low(key, meter);
        let line = self.table.home(low).line;
        line.prefetch();
        (low, line)
    }

    /// Asks for what continues a home, which has arrived by now.
    #[inline(always)]
    pub(super) fn fetch_more(&self, found: Option<Found<'_>>) {
        if let Some(Found { line, .. }) = found {
            self.table.prefetch_overflow(line);
        }
    }

    /// Takes `cost` units from one bucket, or if `TAKES` is false only looks.
    #[inline(always)]
    pub(super) fn decide_one<const TAKES: bool>(
        &self,
        KeyRef { text, scope }: KeyRef<'_>,
        meter: &Meter,
        cost: Cost,
    ) -> Decision {
        match Kind::of(meter, Ask::exactly(cost)) {
            Some(Kind::WholeDebt) => self.decide_as::<WholeDebt, TAKES>(text, scope, meter, cost),
            Some(Kind::Debt) => self.decide_as::<Debt, TAKES>(text, scope, meter, cost),
            Some(Kind::Window) => self.decide_as::<Window, TAKES>(text, scope, meter, cost),
            Some(Kind::Windows) => self.decide_as::<Windows, TAKES>(text, scope, meter, cost),
            None => {
                let op = ask::<TAKES>(cost);
                self.decide_rarely(KeyRef { text, scope }, meter, op)
            }
        }
    }

    /// Decides one charge on states of one kind.
    ///
    /// A function for each kind, and scalars for arguments: a few hundred instructions are all that
    /// a processor looks ahead, and the next decision had better begin within them.
    #[inline(never)]
    fn decide_as<T: Inline, const TAKES: bool>(
        &self,
        text: &[u8],
        scope: u16,
        meter: &Meter,
        cost: Cost,
    ) -> Decision {
        let key = KeyRef { text, scope };
        let (low, line) = self.fetch_line(key, meter);
        // While the line is on its way.
        let now = self.clock.now();
        let fingerprint = Fingerprint { low, high: self.fingerprinter.high(key) };
        let found = Found { fingerprint, line };
        let question = Question::new(key, meter, ask::<TAKES>(cost), now);
        self.decide_inline::<T>(question, Ask::exactly(cost), found)
    }

    /// Takes `cost` units from the bucket of each key, and hands over the decisions.
    #[inline(always)]
    pub(super) fn decide_many<'k, K: Into<Key<'k>>>(
        &self,
        keys: impl Iterator<Item = K> + Clone,
        meter: &Meter,
        cost: Cost,
        each: impl FnMut(Decision),
    ) {
        match Kind::of(meter, Ask::exactly(cost)) {
            Some(Kind::WholeDebt) => self.decide_many_as::<WholeDebt, K>(keys, meter, cost, each),
            Some(Kind::Debt) => self.decide_many_as::<Debt, K>(keys, meter, cost, each),
            Some(Kind::Window) => self.decide_many_as::<Window, K>(keys, meter, cost, each),
            Some(Kind::Windows) => self.decide_many_as::<Windows, K>(keys, meter, cost, each),
            None => {
                let now = self.clock.now();
                let op = ask::<true>(cost);
                keys.map(K::into)
                    .map(|key| self.decide_alone(Question::new(key.as_ref(), meter, op, now)))
                    .for_each(each);
            }
        }
    }

    /// The same on states of one kind: the lines are fetched some keys ahead of their turn.
    fn decide_many_as<'k, T: Inline, K: Into<Key<'k>>>(
        &self,
        keys: impl Iterator<Item = K> + Clone,
        meter: &Meter,
        cost: Cost,
        mut each: impl FnMut(Decision),
    ) {
        let now = self.clock.now();
        let mut ahead = keys.clone();
        let mut fetch = || ahead.next().map(|key| self.fetch(key.into().as_ref(), meter));
        let mut on_their_way: [Option<Found<'_>>; AHEAD] = std::array::from_fn(|_| fetch());
        for (turn, key) in keys.enumerate() {
            let found = mem::replace(&mut on_their_way[turn % AHEAD], fetch());
            self.fetch_more(on_their_way[(turn + AHEAD / 2) % AHEAD]);
            let key: Key<'_> = key.into();
            // An iterator whose clone ends sooner than itself costs time, not correctness.
            let found = found.unwrap_or_else(|| self.fetch(key.as_ref(), meter));
            let question = Question::new(key.as_ref(), meter, ask::<true>(cost), now);
            each(self.decide_inline::<T>(question, Ask::exactly(cost), found));
        }
    }

    /// Decides one charge whose op or algorithm is a rare one.
    #[cold]
    #[inline(never)]
    pub(super) fn decide_rarely(&self, key: KeyRef<'_>, meter: &Meter, op: Op) -> Decision {
        self.decide_alone(Question::new(key, meter, op, self.clock.now()))
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
        match Kind::of(question.meter, ask) {
            Some(Kind::WholeDebt) => self.decide_inline::<WholeDebt>(question, ask, found),
            Some(Kind::Debt) => self.decide_inline::<Debt>(question, ask, found),
            Some(Kind::Window) => self.decide_inline::<Window>(question, ask, found),
            Some(Kind::Windows) => self.decide_inline::<Windows>(question, ask, found),
            None => out_of_line(move || self.decide_alone(question)),
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
        let Found { fingerprint, line } = found;
        // All that can be done before the line has arrived is done before it is looked at.
        let Some(code) = T::code(question.meter, &self.limits) else {
            return out_of_line(move || self.decide_alone(question));
        };
        // What is found in a home is right, however the table has grown since: a split that moved it
        // would have changed the header.
        let seen = line.see();
        let Some((slot, words)) = line.find(fingerprint) else {
            return out_of_line(move || self.decide_chained::<T>(question, ask, found, seen, code));
        };
        let write = |words| {
            slot.set_state_of(fingerprint, words);
            line.unlock_seen(seen);
        };
        match attempt::<T>(question, ask, code, Sight { line, seen }, Some(words), write) {
            Ok(decision) => decision,
            Err(_) => out_of_line(move || self.decide_anywhere::<T>(question, ask, fingerprint)),
        }
    }

    /// Decides one charge on a state in the first overflow line of the key's home, where most are
    /// that are not at home, or wherever else it is.
    fn decide_chained<T: Inline>(
        &self,
        question: Question<'_>,
        ask: Ask,
        Found { fingerprint, line }: Found<'_>,
        seen: Seen,
        code: Code<'_>,
    ) -> Decision {
        let found = self.table.overflow_line(seen).and_then(|line| line.find(fingerprint));
        let attempt = found.map(|(slot, words)| {
            let write = |words| {
                slot.set_state_of(fingerprint, words);
                line.unlock_seen(seen);
            };
            attempt::<T>(question, ask, code, Sight { line, seen }, Some(words), write)
        });
        match attempt {
            Some(Ok(decision)) => decision,
            _ => self.decide_anywhere::<T>(question, ask, fingerprint),
        }
    }

    /// Decides one charge wherever its state is, attempting it until nobody else is faster.
    #[inline(never)]
    fn decide_anywhere<T: Inline>(
        &self,
        question: Question<'_>,
        ask: Ask,
        fingerprint: Fingerprint,
    ) -> Decision {
        let Some(code) = T::code(question.meter, &self.limits) else {
            return self.decide_alone(question);
        };
        loop {
            let home = self.table.home(fingerprint.low);
            let attempt = self.table.see(home).ok_or(Miss::Overtaken).and_then(|seen| {
                let slot = self.table.find(home, seen, fingerprint);
                let words = slot.map(Slot::state);
                let write = |words| self.write(home, slot, fingerprint, words, question.now);
                let sight = Sight { line: home.line, seen };
                attempt::<T>(question, ask, code, sight, words, write)
            });
            match attempt {
                Ok(decision) => return decision,
                Err(Miss::Overtaken) => spin_loop(),
                Err(Miss::NotInline) => return self.decide_alone(question),
            }
        }
    }

    /// Writes a state to a locked home, in its slot or as a new key's, and unlocks it.
    fn write(
        &self,
        home: Home<'_>,
        slot: Option<Slot<'_>>,
        fingerprint: Fingerprint,
        words: Words,
        now: Timestamp,
    ) {
        let locked = home.line.locked();
        let added = match slot {
            Some(slot) => {
                slot.set_state_of(fingerprint, words);
                false
            }
            None => self.table.insert(home, fingerprint, words, now),
        };
        drop(locked);
        if added {
            self.table.tend(home.index, now);
        }
    }
}

/// Tries to decide one charge on the state in `words`, which were read from a home `seen` so.
///
/// Evaluates without a lock, and locks only to write: by exchanging the very header that was
/// read, so that success means nothing has changed since. `write` replaces the state and
/// unlocks.
#[inline(always)]
fn attempt<T: Inline>(
    question: Question<'_>,
    ask: Ask,
    code: Code<'_>,
    Sight { line, seen }: Sight<'_>,
    words: Option<Words>,
    write: impl FnOnce(Words),
) -> Result<Decision, Miss> {
    let Question { meter, now, .. } = question;
    let state = match words {
        None => T::default(),
        Some(words) => T::decode(words, code).ok_or(Miss::NotInline)?,
    };
    match state.evaluate(meter, ask, now) {
        Evaluation::Fits { units, delay, delta, after } if question.takes() => {
            let words = delta.encode(code).ok_or(Miss::NotInline)?;
            if !line.lock_unchanged(seen) {
                return Err(Miss::Overtaken);
            }
            write(words);
            let reading = reading(meter, after, Retry::Now, delay, units);
            Ok(question.decision(Verdict::Allow, reading))
        }
        evaluation => {
            let (verdict, retry, delay) = evaluation.verdict();
            let standing = match evaluation {
                Evaluation::Fits { .. } => state.standing(meter, now),
                Evaluation::Exceeds { present, .. } => present,
            };
            if !line.unchanged(seen) {
                return Err(Miss::Overtaken);
            }
            Ok(question.decision(verdict, reading(meter, standing, retry, delay, 0)))
        }
    }
}
