//! Deciding a set: lock, evaluate, apply, read off, unlock.

use smallvec::SmallVec;

use super::fingerprint::Fingerprint;
use super::line::{Locked, Place, Words};
use super::slot::{self, Code};
use super::table::Home;
use super::{MemoryStore, outcome, reading};
use crate::algorithm::{Ask, Delta, Evaluation, State};
use crate::charge::{Charge, ChargeSet, Op};
use crate::clock::Clock;
use crate::decision::{Decision, Outcome, Outcomes, Provenance, Retry, Verdict, refuses};
use crate::time::{Micros, Timestamp};

/// One charge of a set while its lines are locked.
struct Entry<'t, 'a> {
    charge: &'a Charge<'a>,
    fingerprint: Fingerprint,
    home: Home<'t>,
    // Absent if the key is not in the table.
    place: Option<Place<'t>>,
    state: State,
    // Absent for refunds and resets, which always fit.
    evaluation: Option<Evaluation<Delta>>,
    // Units taken or given back.
    units: u64,
    // Whether the state must be written.
    changed: bool,
}

type Entries<'t, 'a> = SmallVec<[Entry<'t, 'a>; 4]>;

impl<C: Clock> MemoryStore<C> {
    /// Decides a set of any size, with any ops and algorithms.
    pub(super) fn decide_set(&self, set: &ChargeSet<'_>, now: Timestamp) -> Decision {
        let fingerprints: SmallVec<[Fingerprint; 4]> = set
            .charges()
            .iter()
            .map(|charge| self.fingerprinter.of(charge.key.as_ref(), &charge.meter))
            .collect();
        let locked = self.lock_all(&fingerprints);
        let mut entries: Entries<'_, '_> = set
            .charges()
            .iter()
            .zip(&fingerprints)
            .map(|(charge, fingerprint)| self.enter(charge, *fingerprint, now))
            .collect();

        let verdicts: Outcomes = entries.iter().map(|entry| entry.outcome(now)).collect();
        let admitted = !(0..entries.len()).any(|index| refuses(&verdicts, index));
        for entry in &mut entries {
            entry.carry_out(admitted, now);
        }
        let outcomes: Outcomes = entries.iter().map(|entry| entry.outcome(now)).collect();

        // Keys that are there first: a new one may be given a stale slot, and until it is written
        // the slot of a key of this very set may look stale.
        entries.sort_by_key(|entry| entry.place.is_none());
        // Where there is one more key.
        let mut added = SmallVec::<[usize; 4]>::new();
        for entry in entries {
            let home = entry.home.index;
            if self.leave(entry, now) {
                added.push(home);
            }
        }
        drop(locked);
        for home in added {
            self.table.tend(home, now);
        }
        Decision::new(outcomes, now, Provenance::Store)
    }

    /// Locks the homes of all fingerprints, in ascending order, each once, until they are dropped.
    fn lock_all(&self, fingerprints: &[Fingerprint]) -> SmallVec<[Locked<'_, 4, 16>; 4]> {
        loop {
            let mut homes: SmallVec<[Home<'_>; 4]> =
                fingerprints.iter().map(|fingerprint| self.table.home(*fingerprint)).collect();
            homes.sort_unstable_by_key(|home| home.index);
            homes.dedup_by_key(|home| home.index);
            let locked = homes.iter().map(|home| home.line.lock()).collect();
            // A split before we had the lock may have moved one of them.
            let home = |fingerprint: &Fingerprint| self.table.home(*fingerprint).index;
            let known = |index| homes.iter().any(|home| home.index == index);
            if fingerprints.iter().map(home).all(known) {
                return locked;
            }
        }
    }

    /// Looks a charge's state up and evaluates it.
    fn enter<'t, 'a>(
        &'t self,
        charge: &'a Charge<'a>,
        fingerprint: Fingerprint,
        now: Timestamp,
    ) -> Entry<'t, 'a> {
        let meter = &charge.meter;
        let home = self.table.home(fingerprint);
        let place = self.table.find_locked(home, fingerprint);
        let state = place.map(|place| place.state()).and_then(|words| match words.ticket() {
            Some(ticket) => self.table.side.take(ticket),
            None => slot::decode(words, Code::new(meter, &self.limits)),
        });
        let state = state.unwrap_or_else(|| State::fresh(meter.algorithm()));
        let ask = match charge.op {
            Op::Take(ask) => Some(ask),
            Op::Peek(cost) => Some(Ask::exactly(cost)),
            Op::Refund { .. } | Op::Reset => None,
        };
        let evaluation = ask.map(|ask| state.evaluate(meter, ask, now));
        let (units, changed) = (0, false);
        Entry { charge, fingerprint, home, place, state, evaluation, units, changed }
    }

    /// Puts a charge's state back; true if there is one more key.
    fn leave(&self, entry: Entry<'_, '_>, now: Timestamp) -> bool {
        let Entry { charge, fingerprint, home, place, state, changed, .. } = entry;
        let meter = &charge.meter;
        let stale_at = state.stale_at(meter);
        let ticket = place.and_then(|place| place.state().ticket());
        if !changed && ticket.is_none() {
            return false;
        }
        // What was only looked at is put back, stale or not: the clock may step back.
        let forgotten = charge.op == Op::Reset || stale_at <= now.as_micros();
        if changed && forgotten {
            if let Some(place) = place {
                self.table.remove(place);
            }
            return false;
        }
        let words = match slot::encode(&state, Code::new(meter, &self.limits)) {
            Some(words) => {
                if let Some(ticket) = ticket {
                    self.table.side.discard(ticket);
                }
                words
            }
            None => Words::beside(self.table.side.put(ticket, state, stale_at, now), stale_at),
        };
        match place {
            Some(place) => {
                place.set_state(words);
                false
            }
            None => self.add(home, fingerprint, words, now),
        }
    }
}

impl Entry<'_, '_> {
    /// Makes the change a charge asks for, if it is to be made.
    fn carry_out(&mut self, admitted: bool, now: Timestamp) {
        let meter = &self.charge.meter;
        match (self.charge.op, self.evaluation) {
            (Op::Take(_), Some(Evaluation::Fits { units, delta, .. })) if admitted => {
                self.state.apply(delta);
                self.units = units;
                self.changed = true;
            }
            (Op::Take(_) | Op::Peek(_), _) => {}
            (Op::Refund { cost, at }, _) => {
                self.units = self.state.refund(meter, cost, at, now);
                self.changed = self.units > 0;
            }
            (Op::Reset, _) => {
                self.state = State::fresh(meter.algorithm());
                self.changed = true;
            }
        }
    }

    /// The outcome as things stand.
    fn outcome(&self, now: Timestamp) -> Outcome {
        let (verdict, retry, delay) = match self.evaluation {
            Some(evaluation) => evaluation.verdict(),
            None => (Verdict::Allow, Retry::Now, Micros::ZERO),
        };
        let standing = self.state.standing(&self.charge.meter, now);
        let reading = reading(&self.charge.meter, standing, retry, delay, self.units);
        outcome(self.charge.enforcement, verdict, reading)
    }
}
