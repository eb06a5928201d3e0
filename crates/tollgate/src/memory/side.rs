//! States too large for a slot: logs, and buckets with extreme numbers.
//!
//! A slot then holds a ticket. The states lie in a few slabs, each behind a mutex that is held only
//! while one of its states is looked at. What a state says is guarded by the lock of the line whose
//! slot holds the ticket, so the mutex never decides anything.
//!
//! The number of log entries is bounded. When it is reached the log nearest to stale, among a
//! handful looked at, gives way; its slot keeps a ticket that no longer fits and counts as fresh.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::fingerprint::Fingerprint;
use crate::algorithm::State;
use crate::time::Timestamp;

/// Slabs; a power of two.
const SLABS: usize = 16;

/// Logs looked at to find one that gives way.
const CANDIDATES: usize = 16;

/// Names a state: where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    index: u32,
    // By its low word, which nobody can forge: what lies there may be another's by now.
    owner: u64,
}

impl Ticket {
    /// The ticket of `owner` in a word.
    pub(super) fn from_word(word: u64, owner: Fingerprint) -> Self {
        Self { index: word as u32, owner: owner.low }
    }

    pub(super) fn to_word(self) -> u64 {
        self.index.into()
    }

    fn slab(self) -> usize {
        self.index as usize % SLABS
    }

    fn offset(self) -> usize {
        self.index as usize / SLABS
    }
}

/// A state and when it goes stale, in µs.
struct Held {
    state: State,
    stale_at: u64,
}

#[derive(Default)]
struct Shelf {
    // Whose it is, also while the state is taken out; `None` if it is free.
    owner: Option<u64>,
    held: Option<Held>,
}

#[derive(Default)]
struct Slab {
    shelves: Vec<Shelf>,
    free: Vec<u32>,
    // Where the search for a log to give way goes on.
    hand: usize,
}

/// See the [module](self).
pub(super) struct Side {
    slabs: [Mutex<Slab>; SLABS],
    // Spreads new states over the slabs.
    turn: AtomicUsize,
    entries: AtomicUsize,
    max_entries: usize,
    evictions: AtomicUsize,
}

impl Side {
    pub(super) fn new(max_entries: usize) -> Self {
        Self {
            slabs: Default::default(),
            turn: AtomicUsize::new(0),
            entries: AtomicUsize::new(0),
            max_entries,
            evictions: AtomicUsize::new(0),
        }
    }

    /// Log entries held.
    pub(super) fn entries(&self) -> usize {
        self.entries.load(Ordering::Relaxed)
    }

    /// Logs that gave way while they still counted.
    pub(super) fn evictions(&self) -> usize {
        self.evictions.load(Ordering::Relaxed)
    }

    /// Takes the state out, to be put back; `None` if it gave way.
    pub(super) fn take(&self, ticket: Ticket) -> Option<State> {
        let mut slab = self.slab(ticket.slab());
        let shelf = slab.shelves.get_mut(ticket.offset())?;
        let held = shelf.held.take_if(|_| shelf.owner == Some(ticket.owner))?;
        self.entries.fetch_sub(weight(&held.state), Ordering::Relaxed);
        Some(held.state)
    }

    /// Puts a state where its ticket says, or in a new place if there is no ticket or it is void.
    pub(super) fn put(
        &self,
        ticket: Option<Ticket>,
        owner: Fingerprint,
        state: State,
        stale_at: u64,
        now: Timestamp,
    ) -> Ticket {
        let weight = weight(&state);
        let total = self.entries.fetch_add(weight, Ordering::Relaxed) + weight;
        let index =
            ticket.map_or_else(|| self.turn.fetch_add(1, Ordering::Relaxed) % SLABS, Ticket::slab);
        if total > self.max_entries {
            self.make_room(index, now);
        }
        let mut slab = self.slab(index);
        let ticket =
            ticket.filter(|ticket| slab.fits(*ticket)).unwrap_or_else(|| slab.open(index, owner));
        slab.shelves[ticket.offset()].held = Some(Held { state, stale_at });
        ticket
    }

    /// Forgets a state.
    pub(super) fn discard(&self, ticket: Ticket) {
        let mut slab = self.slab(ticket.slab());
        if slab.fits(ticket) {
            let held = slab.close(ticket.offset());
            let weight = held.map_or(0, |held| weight(&held.state));
            self.entries.fetch_sub(weight, Ordering::Relaxed);
        }
    }

    /// Makes one log give way: of the slab at `first`, or of the next that has any.
    fn make_room(&self, first: usize, now: Timestamp) {
        let mut slabs = (first..first + SLABS).map(|index| self.slab(index % SLABS));
        let _ = slabs.any(|mut slab| self.evict(&mut slab, now));
    }

    /// Makes the log of this slab that is nearest to stale give way; false if there was none.
    fn evict(&self, slab: &mut Slab, now: Timestamp) -> bool {
        let shelves = slab.shelves.len();
        let candidates = (0..CANDIDATES.min(shelves)).map(|step| (slab.hand + step) % shelves);
        let nearest = candidates
            .filter_map(|offset| Some((slab.shelves[offset].held.as_ref()?, offset)))
            .filter(|(held, _)| weight(&held.state) > 0)
            .map(|(held, offset)| (held.stale_at, offset))
            .min();
        slab.hand = (slab.hand + CANDIDATES) % shelves.max(1);
        let Some(held) = nearest.and_then(|(_, offset)| slab.close(offset)) else {
            return false;
        };
        self.entries.fetch_sub(weight(&held.state), Ordering::Relaxed);
        let live = held.stale_at > now.as_micros();
        self.evictions.fetch_add(usize::from(live), Ordering::Relaxed);
        true
    }

    fn slab(&self, index: usize) -> MutexGuard<'_, Slab> {
        // Nothing under the mutex panics half-way through a change.
        self.slabs[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slab {
    /// Whether a ticket is for what lies on its shelf now.
    fn fits(&self, ticket: Ticket) -> bool {
        let shelf = self.shelves.get(ticket.offset());
        shelf.is_some_and(|shelf| shelf.owner == Some(ticket.owner))
    }

    /// A ticket for an empty shelf.
    fn open(&mut self, slab: usize, Fingerprint { low: owner, .. }: Fingerprint) -> Ticket {
        let offset = self.free.pop().unwrap_or_else(|| {
            self.shelves.push(Shelf::default());
            self.shelves.len() as u32 - 1
        });
        self.shelves[offset as usize].owner = Some(owner);
        Ticket { index: offset * SLABS as u32 + slab as u32, owner }
    }

    /// Empties a shelf and voids its ticket.
    fn close(&mut self, offset: usize) -> Option<Held> {
        let shelf = &mut self.shelves[offset];
        shelf.owner = None;
        self.free.push(offset as u32);
        shelf.held.take()
    }
}

/// What a state counts towards the bound: its log entries. Others are bounded by the keys.
fn weight(state: &State) -> usize {
    match state {
        State::SlidingLog(log) => log.len(),
        State::FixedWindow(_) | State::SlidingWindow(_) | State::Bucket(_) => 0,
    }
}
