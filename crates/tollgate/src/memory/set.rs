//! Deciding a set: lock, evaluate, apply, read off, unlock.

use smallvec::SmallVec;

use super::MemoryStore;
use super::fingerprint::Fingerprint;
use super::line::{Locked, Slot, Words};
use super::slot::{self as state, Code};
use super::table::Home;
use crate::algorithm::{Member, State, carry_out};
use crate::charge::{Charge, ChargeSet, Op};
use crate::clock::Clock;
use crate::decision::{Decision, Provenance};
use crate::time::Timestamp;

/// Where a charge's bucket is while its line is locked.
struct Spot<'t> {
    fingerprint: Fingerprint,
    home: Home<'t>,
    // Absent if the key is not in the table.
    slot: Option<Slot<'t>>,
}

impl<C: Clock> MemoryStore<C> {
    /// Decides a set of any size, with any ops and algorithms.
    pub(super) fn decide_set(&self, set: &ChargeSet<'_>, now: Timestamp) -> Decision {
        let fingerprints: SmallVec<[Fingerprint; 4]> = set
            .charges()
            .iter()
            .map(|charge| self.fingerprinter.of(charge.key.as_ref(), &charge.meter))
            .collect();
        let locked = self.lock_all(&fingerprints);
        let spots: SmallVec<[Spot<'_>; 4]> =
            fingerprints.iter().map(|fingerprint| self.spot(*fingerprint)).collect();
        let charges = set.charges().iter().zip(&spots);
        let mut members: SmallVec<[Member<'_>; 4]> = charges
            .map(|(charge, spot)| Member::new(charge, self.state(charge, spot), now))
            .collect();
        let outcomes = carry_out(&mut members, now);

        // Keys that are there first: a new one may be given a stale slot, and until it is written
        // the slot of a key of this very set may look stale.
        let mut entries: SmallVec<[_; 4]> = spots.into_iter().zip(members).collect();
        entries.sort_by_key(|(spot, _)| spot.slot.is_none());
        // Where there is one more key.
        let mut added = SmallVec::<[usize; 4]>::new();
        for (spot, member) in entries {
            let home = spot.home.index;
            if self.leave(spot, member, now) {
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
    fn lock_all(&self, fingerprints: &[Fingerprint]) -> SmallVec<[Locked<'_, 5, 0>; 4]> {
        loop {
            let mut homes: SmallVec<[Home<'_>; 4]> =
                fingerprints.iter().map(|fingerprint| self.table.home(fingerprint.low)).collect();
            homes.sort_unstable_by_key(|home| home.index);
            homes.dedup_by_key(|home| home.index);
            let locked = homes.iter().map(|home| home.line.lock()).collect();
            // A split before we had the lock may have moved one of them.
            let home = |fingerprint: &Fingerprint| self.table.home(fingerprint.low).index;
            let known = |index| homes.iter().any(|home| home.index == index);
            if fingerprints.iter().map(home).all(known) {
                return locked;
            }
        }
    }

    fn spot(&self, fingerprint: Fingerprint) -> Spot<'_> {
        let home = self.table.home(fingerprint.low);
        Spot { fingerprint, home, slot: self.table.find_locked(home, fingerprint) }
    }

    /// Looks a charge's state up.
    fn state(&self, charge: &Charge<'_>, spot: &Spot<'_>) -> State {
        let meter = &charge.meter;
        let state =
            spot.slot.map(Slot::state).and_then(|words| match words.ticket(spot.fingerprint) {
                Some(ticket) => self.table.side.take(ticket),
                None => state::decode(words, Code::new(meter)),
            });
        state.unwrap_or_else(|| State::fresh(meter.algorithm()))
    }

    /// Puts a charge's state back; true if there is one more key.
    fn leave(&self, spot: Spot<'_>, member: Member<'_>, now: Timestamp) -> bool {
        let Spot { fingerprint, home, slot } = spot;
        let Member { charge, state, changed, .. } = member;
        let meter = &charge.meter;
        let stale_at = state.stale_at(meter);
        let ticket = slot.and_then(|slot| slot.state().ticket(fingerprint));
        if !changed && ticket.is_none() {
            return false;
        }
        // What was only looked at is put back, stale or not: the clock may step back.
        let forgotten = charge.op == Op::Reset || stale_at <= now.as_micros();
        if changed && forgotten {
            if let Some(slot) = slot {
                self.table.remove(slot);
            }
            return false;
        }
        let words = match state::encode(&state, Code::new(meter)) {
            Some(words) => {
                if let Some(ticket) = ticket {
                    self.table.side.discard(ticket);
                }
                words
            }
            None => {
                let side = &self.table.side;
                Words::beside(side.put(ticket, fingerprint, state, stale_at, now), stale_at)
            }
        };
        match slot {
            Some(slot) => {
                slot.set_state(words);
                false
            }
            None => self.table.insert(home, fingerprint, words, now),
        }
    }
}
