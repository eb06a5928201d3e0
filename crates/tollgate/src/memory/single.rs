//! Deciding one charge: read without a lock, evaluate, lock only to write.

use std::mem::ManuallyDrop;

use super::fingerprint::{Fingerprint, kind};
use super::line::{HomeLine, Seen, Slot, Words};
use super::question::{Asked, Brief, Kind, Question, Shown};
use super::slot::{Code, Inline};
use super::table::Home;
use super::{AHEAD, MemoryStore};
use crate::algorithm::Present;
use crate::algorithm::bucket::{Debt, WholeDebt};
use crate::algorithm::fixed_window::Window;
use crate::algorithm::sliding_window::Windows;
use crate::charge::{Charge, ChargeSet, Cost, Enforcement, Op};
use crate::clock::Clock;
use crate::decision::{Decision, Verdict};
use crate::hash::Ends;
use crate::key::{Key, KeyRef};
use crate::meter::Meter;
use crate::sync::spin_loop;
use crate::time::Timestamp;

/// How often a decision is attempted without a lock.
const ATTEMPTS: usize = 16;

/// Does what is rarely done, and keeps it from costing anything where it is not: what `rare` needs
/// is copied only here.
#[cold]
#[inline(never)]
fn out_of_line<T>(rare: impl FnOnce() -> T) -> T {
    rare()
}

/// A decision that somebody else has made, kept apart from one that is made here: where the two share
/// a place in memory, a compiler makes the second one whole even for a caller who reads a part. Without
/// this `take(…).is_allowed()` divides and writes eleven words that nobody reads: a quarter more time on a
/// hot key, which no test notices.
#[inline(always)]
fn apart(decision: Decision) -> Decision {
    ManuallyDrop::into_inner(ManuallyDrop::new(decision))
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

impl<C: Clock> MemoryStore<C> {
    /// Finds the home of a key and asks for its line ahead of time.
    #[inline(always)]
    pub(super) fn fetch(&self, key: KeyRef<'_>, meter: &Meter) -> Found<'_> {
        let (ends, low, line) = self.fetch_line(key.text, kind(key, meter));
        Found { fingerprint: Fingerprint { low, high: self.fingerprinter.high(ends) }, line }
    }

    /// Half of a fingerprint, what the other half is made of, and the line of its home, which is
    /// asked for.
    #[inline(always)]
    fn fetch_line(&self, text: &[u8], kind: u64) -> (Ends, u64, &HomeLine) {
        let ends = self.fingerprinter.ends(text);
        let low = self.fingerprinter.low(ends, text.len(), kind);
        let line = self.table.home(low).line;
        line.prefetch();
        (ends, low, line)
    }

    /// Finds the home of the next key of a batch.
    // Part of its callers: a home that is handed over in memory is written by words and read by pairs of
    // them, for which a processor waits longer than all this takes.
    #[inline(always)]
    fn fetch_next<'k, K: Into<Key<'k>>>(
        &self,
        keys: &mut impl Iterator<Item = K>,
        meter: &Meter,
    ) -> Option<Found<'_>> {
        let key: Key<'_> = keys.next()?.into();
        Some(self.fetch(key.as_ref(), meter))
    }

    /// Asks for what continues a home, which has arrived by now.
    #[inline(always)]
    pub(super) fn fetch_more(&self, found: Option<Found<'_>>) {
        if let Some(Found { line, .. }) = found {
            self.table.prefetch_overflow(line);
        }
    }

    /// Takes `cost` units from the bucket of a key, or if `TAKES` is false only looks.
    ///
    /// Most keys own nothing. One that may do has to be in memory while it is decided by, if only to be
    /// dropped should that panic, and writing it there is work that others need not have.
    #[inline(always)]
    pub(super) fn decide_by<const TAKES: bool>(
        &self,
        key: Key<'_>,
        meter: &Meter,
        cost: Cost,
    ) -> Decision {
        match key.into_ref() {
            Ok(key) => self.decide_one::<TAKES>(key, meter, cost),
            Err(key) => apart(self.decide_by_owned::<TAKES>(key, meter, cost)),
        }
    }

    /// The same by a key that owns its text.
    #[inline(never)]
    fn decide_by_owned<const TAKES: bool>(
        &self,
        key: Key<'_>,
        meter: &Meter,
        cost: Cost,
    ) -> Decision {
        self.decide_one::<TAKES>(key.as_ref(), meter, cost)
    }

    /// Takes `cost` units from one bucket, or if `TAKES` is false only looks.
    ///
    /// Whole debts, which most are, are decided in the caller; others are decided in short elsewhere.
    /// Either way the caller, who mostly wants the verdict and none of the numbers, works out what it
    /// looks at.
    #[inline(always)]
    fn decide_one<const TAKES: bool>(
        &self,
        key: KeyRef<'_>,
        meter: &Meter,
        cost: Cost,
    ) -> Decision {
        let asked = Asked::exactly::<TAKES>(meter, cost);
        if WholeDebt::suits(meter, asked.ask) {
            let (found, now) = self.look(key, meter);
            if let Some(brief) = self.decide_at_home::<WholeDebt>(asked, now, found) {
                return brief.decision(asked);
            }
            // Each for itself, for a brief that may be either is put together in memory.
            if let Some(brief) = self.decide_beside::<WholeDebt>(asked, now, found) {
                return brief.decision(asked);
            }
            let seen = (found.fingerprint, now);
            return apart(self.decide_again::<TAKES>(key.text, key.scope, meter, cost, seen));
        }
        match self.decide_otherwise::<TAKES>(key, meter, cost) {
            Some(brief) => brief.decision(asked),
            None => apart(self.decide_anyhow::<TAKES>(key.text, key.scope, meter, cost)),
        }
    }

    /// Decides one charge in short on another state than a whole debt; `None` if that lies beside the table,
    /// is neither at home nor in the line after, or somebody was faster.
    #[inline(always)]
    fn decide_otherwise<const TAKES: bool>(
        &self,
        KeyRef { text, scope }: KeyRef<'_>,
        meter: &Meter,
        cost: Cost,
    ) -> Option<Brief<Shown>> {
        match Kind::of(Asked::exactly::<TAKES>(meter, cost))? {
            Kind::Window => self.decide_briefly::<Window, TAKES>(text, scope, meter, cost),
            Kind::Windows => self.decide_briefly::<Windows, TAKES>(text, scope, meter, cost),
            Kind::Debt | Kind::WholeDebt => {
                self.decide_briefly::<Debt, TAKES>(text, scope, meter, cost)
            }
        }
    }

    /// Decides one charge that was not decided in short: on a state that lies beside the table, or is neither
    /// at home nor in the line after, or that somebody else was faster with.
    #[cold]
    #[inline(never)]
    fn decide_anyhow<const TAKES: bool>(
        &self,
        text: &[u8],
        scope: u16,
        meter: &Meter,
        cost: Cost,
    ) -> Decision {
        let (key, asked) = (KeyRef { text, scope }, Asked::exactly::<TAKES>(meter, cost));
        let (found, now) = (self.fetch(key, meter), self.clock.now());
        let question = Question { key, asked, now };
        match Kind::of(asked) {
            Some(Kind::Window) => self.decide_elsewhere::<Window>(question, found),
            Some(Kind::Windows) => self.decide_elsewhere::<Windows>(question, found),
            Some(Kind::Debt | Kind::WholeDebt) => self.decide_elsewhere::<Debt>(question, found),
            None => self.decide_alone(question),
        }
    }

    /// Finds the home of a key, asks for its line, and reads the clock while that is on its way.
    ///
    /// In as few instructions as there can be: a processor looks ahead no further than it has room for
    /// them, and the next decision had better ask for its line while this one waits for its own.
    #[inline(always)]
    fn look(&self, key: KeyRef<'_>, meter: &Meter) -> (Found<'_>, Timestamp) {
        let (ends, low, line) = self.fetch_line(key.text, kind(key, meter));
        let now = self.clock.now();
        let fingerprint = Fingerprint { low, high: self.fingerprinter.high(ends) };
        (Found { fingerprint, line }, now)
    }

    /// Decides one charge in short, in whichever slot of its home or of the line after that it is.
    ///
    /// One function for each kind, so that none of them pays for what another needs to remember.
    #[inline(never)]
    fn decide_briefly<T: Inline<Present: Into<Shown>>, const TAKES: bool>(
        &self,
        text: &[u8],
        scope: u16,
        meter: &Meter,
        cost: Cost,
    ) -> Option<Brief<Shown>> {
        let asked = Asked::exactly::<TAKES>(meter, cost);
        let (found, now) = self.look(KeyRef { text, scope }, meter);
        let brief = match self.decide_at_home::<T>(asked, now, found) {
            Some(brief) => brief,
            None => self.decide_beside::<T>(asked, now, found)?,
        };
        Some(brief.shown())
    }

    /// Decides one charge on a whole debt that is neither at home nor in the line after, or that somebody
    /// else was faster with.
    #[cold]
    #[inline(never)]
    fn decide_again<const TAKES: bool>(
        &self,
        text: &[u8],
        scope: u16,
        meter: &Meter,
        cost: Cost,
        (fingerprint, now): (Fingerprint, Timestamp),
    ) -> Decision {
        let (key, asked) = (KeyRef { text, scope }, Asked::exactly::<TAKES>(meter, cost));
        self.decide_anywhere::<WholeDebt>(Question { key, asked, now }, fingerprint)
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
        let asked = Asked::exactly::<true>(meter, cost);
        match Kind::of(asked) {
            Some(Kind::WholeDebt) => self.decide_many_as::<WholeDebt, K>(keys, asked, each),
            Some(Kind::Debt) => self.decide_many_as::<Debt, K>(keys, asked, each),
            Some(Kind::Window) => self.decide_many_as::<Window, K>(keys, asked, each),
            Some(Kind::Windows) => self.decide_many_as::<Windows, K>(keys, asked, each),
            None => {
                let now = self.clock.now();
                keys.map(K::into)
                    .map(|key| self.decide_alone(Question { key: key.as_ref(), asked, now }))
                    .for_each(each);
            }
        }
    }

    /// The same on states of one kind: the lines are fetched some keys ahead of their turn.
    fn decide_many_as<'k, T: Inline, K: Into<Key<'k>>>(
        &self,
        keys: impl Iterator<Item = K> + Clone,
        asked: Asked<'_>,
        mut each: impl FnMut(Decision),
    ) {
        let (now, meter) = (self.clock.now(), asked.meter);
        let mut ahead = keys.clone();
        let mut on_their_way = [None; AHEAD];
        for place in &mut on_their_way {
            *place = self.fetch_next(&mut ahead, meter);
        }
        for (turn, key) in keys.enumerate() {
            let found = on_their_way[turn % AHEAD];
            on_their_way[turn % AHEAD] = self.fetch_next(&mut ahead, meter);
            self.fetch_more(on_their_way[(turn + AHEAD / 2) % AHEAD]);
            let key: Key<'_> = key.into();
            // An iterator whose clone ends sooner than itself costs time, not correctness.
            let found = found.unwrap_or_else(|| self.fetch(key.as_ref(), meter));
            let question = Question { key: key.as_ref(), asked, now };
            each(self.decide_inline::<T>(question, found));
        }
    }

    /// Decides one charge whose op is a rare one.
    #[cold]
    #[inline(never)]
    pub(super) fn decide_rarely(&self, key: KeyRef<'_>, meter: &Meter, op: Op) -> Decision {
        self.decide_set(&ChargeSet::of(Charge::new(key, *meter, op)), self.clock.now())
    }

    /// Takes one unit from one bucket.
    pub(super) fn take_one(
        &self,
        key: KeyRef<'_>,
        meter: &Meter,
        enforcement: Enforcement,
    ) -> Decision {
        let found = self.fetch(key, meter);
        let asked = Asked { enforcement, ..Asked::exactly::<true>(meter, Cost::ONE) };
        self.decide_found(Question { key, asked, now: self.clock.now() }, found)
    }

    /// Decides one charge: by the short way where its state is a pair of words, else as a set.
    #[inline(always)]
    pub(super) fn decide_found(&self, question: Question<'_>, found: Found<'_>) -> Decision {
        match Kind::of(question.asked) {
            Some(Kind::WholeDebt) => self.decide_inline::<WholeDebt>(question, found),
            Some(Kind::Debt) => self.decide_inline::<Debt>(question, found),
            Some(Kind::Window) => self.decide_inline::<Window>(question, found),
            Some(Kind::Windows) => self.decide_inline::<Windows>(question, found),
            None => out_of_line(move || self.decide_alone(question)),
        }
    }

    /// Decides one charge as a set.
    fn decide_alone(&self, question: Question<'_>) -> Decision {
        self.decide_set(&ChargeSet::of(question.to_charge()), question.now)
    }

    /// Decides one charge on a state that fits a slot, or as a set if it does not.
    #[inline(always)]
    fn decide_inline<T: Inline>(&self, question: Question<'_>, found: Found<'_>) -> Decision {
        match self.decide_at_home::<T>(question.asked, question.now, found) {
            Some(brief) => brief.decision(question.asked),
            None => apart(out_of_line(move || self.decide_elsewhere::<T>(question, found))),
        }
    }

    /// Decides one charge on a state in its home's own line; `None` if it is not there, or somebody was
    /// faster.
    ///
    /// What is found is right, however the table has grown since: a split that moved it would have
    /// changed the header.
    #[inline(always)]
    fn decide_at_home<T: Inline>(
        &self,
        asked: Asked<'_>,
        now: Timestamp,
        found: Found<'_>,
    ) -> Option<Brief<T::Present>> {
        let Found { fingerprint, line } = found;
        // All that can be done before the line has arrived is done before it is looked at.
        let code = T::code(asked.meter)?;
        let seen = line.try_see()?;
        let (place, words) = line.find(fingerprint)?;
        let sight = Sight { line, seen };
        let (brief, words) = attempt::<T>(asked, now, code, sight, Some(words)).ok()?;
        if let Some(words) = words {
            line.set_state_at(place, fingerprint, words);
            line.unlock_seen(seen);
        }
        Some(brief)
    }

    /// Decides one charge on a state in the first overflow line of the key's home, where most are that are
    /// not at home, if it is there.
    #[inline(never)]
    fn decide_beside<T: Inline>(
        &self,
        asked: Asked<'_>,
        now: Timestamp,
        found: Found<'_>,
    ) -> Option<Brief<T::Present>> {
        let Found { fingerprint, line } = found;
        let code = T::code(asked.meter)?;
        let seen = line.try_see()?;
        let overflow = self.table.overflow_line(seen)?;
        let (place, words) = overflow.find(fingerprint)?;
        let sight = Sight { line, seen };
        let (brief, words) = attempt::<T>(asked, now, code, sight, Some(words)).ok()?;
        if let Some(words) = words {
            line.set_state_of(fingerprint, overflow.slot(place), words);
            line.unlock_seen(seen);
        }
        Some(brief)
    }

    /// Decides one charge on a state in the first overflow line of the key's home, where most are
    /// that are not at home, or wherever else it is.
    fn decide_elsewhere<T: Inline>(&self, question: Question<'_>, found: Found<'_>) -> Decision {
        let Question { asked, now, .. } = question;
        match self.decide_beside::<T>(asked, now, found) {
            Some(brief) => brief.decision(asked),
            None => self.decide_anywhere::<T>(question, found.fingerprint),
        }
    }

    /// Decides one charge wherever its state is: without a lock, if in a few attempts nobody else is
    /// faster, for who is gets ahead of us again and again.
    #[inline(never)]
    fn decide_anywhere<T: Inline>(
        &self,
        question: Question<'_>,
        fingerprint: Fingerprint,
    ) -> Decision {
        let Question { asked, now, .. } = question;
        let Some(code) = T::code(asked.meter) else {
            return self.decide_alone(question);
        };
        for _ in 0..ATTEMPTS {
            let home = self.table.home(fingerprint.low);
            let attempt = self.table.see(home).ok_or(Miss::Overtaken).and_then(|seen| {
                let slot = self.table.find(home, seen, fingerprint);
                let words = slot.map(Slot::state);
                let sight = Sight { line: home.line, seen };
                let (brief, words) = attempt::<T>(asked, now, code, sight, words)?;
                if let Some(words) = words {
                    self.write(home, slot, fingerprint, words, now);
                }
                Ok(brief)
            });
            match attempt {
                Ok(brief) => return brief.decision(asked),
                Err(Miss::Overtaken) => spin_loop(),
                Err(Miss::NotInline) => break,
            }
        }
        self.decide_alone(question)
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
                home.line.set_state_of(fingerprint, slot, words);
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
/// Evaluates without a lock, and locks only to write, and only if the header is still the very one that
/// was read, so that nothing has changed since. If there are words in the answer, the home is locked: who
/// asked writes them and unlocks it.
#[inline(always)]
fn attempt<T: Inline>(
    Asked { meter, ask, takes, .. }: Asked<'_>,
    now: Timestamp,
    code: Code<'_>,
    Sight { line, seen }: Sight<'_>,
    words: Option<Words>,
) -> Result<(Brief<T::Present>, Option<Words>), Miss> {
    let state = match words {
        None => T::default(),
        Some(words) => T::decode(words, code).ok_or(Miss::NotInline)?,
    };
    let present = state.present(meter, now);
    let after = present.evaluate(meter, ask, now).delta();
    if let Some(after) = after.filter(|_| takes) {
        let words = after.encode(code).ok_or(Miss::NotInline)?;
        if !line.lock_unchanged(seen) {
            return Err(Miss::Overtaken);
        }
        return Ok((Brief { verdict: Verdict::Allow, at: now, present }, Some(words)));
    }
    if !line.unchanged(seen) {
        return Err(Miss::Overtaken);
    }
    let verdict = if after.is_some() { Verdict::Allow } else { Verdict::Deny };
    Ok((Brief { verdict, at: now, present }, None))
}

#[cfg(test)]
mod tests;
