//! The table: linear hashing over lines.
//!
//! A bucket of the table is a home line and the overflow lines chained to it. There are `homes` of
//! them; a fingerprint lives in the one its low bits name. To grow by one, the next home in turn is
//! *split*: half of what it holds moves to a new home whose number differs in one bit. So the table
//! grows by a line at a time, no one ever waits for a rehash, and nothing is copied twice.
//!
//! ```text
//! homes = 6:   0  1 │ 2  3 │ 4  5        4 and 5 came out of 0 and 1; 2 is next, giving 6
//!              split│  not │ new
//! ```
//!
//! **Order of locks.** Homes in ascending order; a home before anything else. A split holds the home
//! it splits; the new one cannot be named by anybody before `homes` says so.
//!
//! **Bound.** Inserting beyond `max_keys` evicts: among a few homes next to the new key's, the slot
//! nearest to stale. Stale slots met on the way are free.

use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, PoisonError, TryLockError};

use smallvec::SmallVec;

use super::fingerprint::Fingerprint;
use super::line::{Line, SLOTS, Seen, Words};
use super::segments::{self, Segments};
use super::side::Side;
use crate::sync::{AtomicU64, Ordering};
use crate::time::Timestamp;

/// Keys per 16 homes at which the table grows. Four a line would be full if hashes were even; as
/// they are, about one line in three then has an overflow line, at some 45 bytes per key.
const KEYS_PER_16_HOMES: usize = 60;

/// Lines looked at to find a slot that gives way.
const CANDIDATES: usize = 8;

/// Lines swept for each key that is added.
const SWEEP: usize = 2;

/// See the [module](self).
pub(super) struct Table {
    homes: Segments,
    // How many homes there are and the mask that names them: see [`Shape`].
    shape: AtomicU64,
    overflow: Overflow,
    keys: AtomicUsize,
    max_keys: usize,
    evictions: AtomicUsize,
    // Held by whoever splits a home; the others leave it to them.
    growing: Mutex<()>,
    // The home at which sweeping goes on.
    hand: AtomicUsize,
    pub(super) side: Side,
}

/// Overflow lines, in use or spare.
struct Overflow {
    lines: Segments,
    unused: Mutex<Unused>,
}

/// Overflow lines that were given back, and the first that never was in use.
struct Unused {
    spare: Vec<usize>,
    first: usize,
}

/// A home and its number, not locked.
#[derive(Clone, Copy)]
pub(super) struct Home<'t> {
    // The shape by which it was found.
    shape: Shape,
    pub(super) index: usize,
    pub(super) line: &'t Line,
}

/// A slot.
#[derive(Clone, Copy)]
pub(super) struct Place<'t> {
    line: &'t Line,
    slot: usize,
}

/// A key's slot and what was read there.
pub(super) type Entry<'t> = (Place<'t>, Words);

impl Place<'_> {
    #[inline(always)]
    pub(super) fn state(&self) -> Words {
        self.line.state(self.slot)
    }

    /// Replaces the state. Only under the lock of the home.
    #[inline(always)]
    pub(super) fn set_state(&self, words: Words) {
        self.line.set_state(self.slot, words);
    }
}

impl Table {
    pub(super) fn new(max_keys: usize, max_log_entries: usize) -> Self {
        let homes = max_keys / KEYS_PER_16_HOMES * 16 + 32;
        Self {
            homes: Segments::new(homes),
            shape: AtomicU64::new(Shape::of(segments::FIRST).0),
            // Every overflow line in use holds at least a key, save for a few being rebuilt.
            overflow: Overflow::new(max_keys + 1024),
            keys: AtomicUsize::new(0),
            max_keys,
            evictions: AtomicUsize::new(0),
            growing: Mutex::new(()),
            hand: AtomicUsize::new(0),
            side: Side::new(max_log_entries),
        }
    }

    /// Keys held, stale ones that have not been swept among them.
    pub(super) fn keys(&self) -> usize {
        self.keys.load(Ordering::Relaxed)
    }

    /// Live states that gave way.
    pub(super) fn evictions(&self) -> usize {
        self.evictions.load(Ordering::Relaxed) + self.side.evictions()
    }

    /// Whether `home`, found a moment ago, is still the home it was, and its header.
    ///
    /// The header is read first: a split changes it after the shape, so whoever has seen a header
    /// from after a split sees the shape from after it as well.
    #[inline(always)]
    pub(super) fn see(&self, home: Home<'_>) -> Option<Seen> {
        let seen = home.line.see();
        (self.shape() == home.shape).then_some(seen)
    }

    /// The home of a fingerprint at this moment.
    #[inline(always)]
    pub(super) fn home(&self, fingerprint: Fingerprint) -> Home<'_> {
        let shape = self.shape();
        let index = shape.home(fingerprint);
        Home { shape, index, line: self.homes.get(index) }
    }

    /// The home with a number below the count.
    fn home_at(&self, index: usize) -> Home<'_> {
        Home { shape: self.shape(), index, line: self.homes.get(index) }
    }

    #[inline(always)]
    fn shape(&self) -> Shape {
        Shape(self.shape.load(Ordering::Acquire))
    }

    /// The slot that holds `fingerprint`: true only as long as the home's header is as `seen`.
    #[inline(always)]
    pub(super) fn find<'t>(
        &'t self,
        home: Home<'t>,
        seen: Seen,
        fingerprint: Fingerprint,
    ) -> Option<Entry<'t>> {
        match home.line.find(fingerprint) {
            Some((slot, words)) => Some((Place { line: home.line, slot }, words)),
            None => {
                let place = self.find_from(seen.next()?, fingerprint)?;
                Some((place, place.state()))
            }
        }
    }

    /// The slot that holds `fingerprint`. Only under the lock.
    pub(super) fn find_locked<'t>(
        &'t self,
        home: Home<'t>,
        fingerprint: Fingerprint,
    ) -> Option<Place<'t>> {
        match home.line.find(fingerprint) {
            Some((slot, _)) => Some(Place { line: home.line, slot }),
            None => self.find_from(home.line.next()?, fingerprint),
        }
    }

    /// Searches the chain of overflow lines that starts at `first`.
    #[inline(never)]
    fn find_from(&self, first: usize, fingerprint: Fingerprint) -> Option<Place<'_>> {
        let mut next = Some(first);
        // A reader without the lock may be led in a circle; a chain this long is none.
        for _ in 0..64 {
            let line = self.overflow.lines.get(next?);
            if let Some((slot, _)) = line.find(fingerprint) {
                return Some(Place { line, slot });
            }
            next = line.next();
        }
        None
    }

    /// A slot for a new key, its state still to be set. Only under the lock.
    ///
    /// Says also whether the key is one more; the caller then owes a [`Table::tend`] once it has
    /// unlocked.
    pub(super) fn insert(
        &self,
        home: Home<'_>,
        fingerprint: Fingerprint,
        now: Timestamp,
    ) -> (Place<'_>, bool) {
        let mut line = self.homes.get(home.index);
        let mut empty = None;
        loop {
            for slot in 0..SLOTS {
                let words = line.state(slot);
                if words.is_empty() {
                    empty = empty.or(Some(Place { line, slot }));
                } else if is_stale(words, now) {
                    self.discard_side(words);
                    line.set_fingerprint(slot, fingerprint);
                    return (Place { line, slot }, false);
                }
            }
            match line.next() {
                Some(next) => line = self.overflow.lines.get(next),
                None => break,
            }
        }
        let place = empty.unwrap_or_else(|| {
            let next = self.overflow.open();
            line.set_next(Some(next));
            Place { line: self.overflow.lines.get(next), slot: 0 }
        });
        place.line.set_fingerprint(place.slot, fingerprint);
        self.keys.fetch_add(1, Ordering::Relaxed);
        (place, true)
    }

    /// Forgets a key. Only under the lock.
    pub(super) fn remove(&self, place: Place<'_>) {
        self.discard_side(place.state());
        place.set_state(Words::EMPTY);
        self.keys.fetch_sub(1, Ordering::Relaxed);
    }

    /// Keeps the table in shape after a key was added to the home at `index`. Without any lock.
    pub(super) fn tend(&self, index: usize, now: Timestamp) {
        for _ in 0..SWEEP {
            self.sweep_next(now);
        }
        if self.keys() > self.max_keys {
            self.evict(index, now);
        } else if self.keys() * 16 > self.shape().count() * KEYS_PER_16_HOMES {
            self.grow(now);
        }
    }

    /// Frees what is stale in the next home in turn, unless somebody is at it.
    fn sweep_next(&self, now: Timestamp) {
        let home = self.next_home();
        let seen = home.line.see();
        if self.is_untidy(home, seen, now) && home.line.lock_unchanged(seen) {
            let kept = self.live(home, now);
            self.refill(home.line, &kept);
            home.line.unlock_changed();
        }
    }

    /// Makes the slot nearest to stale give way, among the few homes on both sides of the one at
    /// `index`, which got one key too many.
    ///
    /// Homes that are yet to be split get twice the keys of the others. Taking from around where one
    /// was added keeps what leaves in step with what comes, everywhere; taking from each home in
    /// turn would empty the split ones and fill the rest without bound. The home itself comes
    /// last, lest the new key be the one to go.
    fn evict(&self, index: usize, now: Timestamp) {
        let count = self.shape().count();
        let nearest_of_few = |first: usize| {
            let turns = first..first + CANDIDATES;
            let homes = turns.map(|turn| self.home_beside(index, turn, count));
            // All at once rather than one after another: nobody has visited them lately.
            homes.clone().for_each(|home| home.line.prefetch());
            homes
                .filter_map(|home| Some((self.nearest(home)?.state().stale_at(), home)))
                .min_by_key(|(stale_at, _)| *stale_at)
        };
        // A small table may have many empty homes in a row. Twice round, so that the home itself
        // comes last.
        let mut few = (0..2 * count).step_by(CANDIDATES);
        let Some((_, home)) = few.find_map(nearest_of_few) else {
            return;
        };
        home.line.lock();
        if let Some(place) = self.nearest(home) {
            let live = !is_stale(place.state(), now);
            self.evictions.fetch_add(usize::from(live), Ordering::Relaxed);
            self.remove(place);
        }
        home.line.unlock_changed();
    }

    /// Splits the home whose turn it is, unless somebody is splitting one.
    fn grow(&self, now: Timestamp) {
        let _growing = match self.growing.try_lock() {
            Ok(growing) => growing,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let count = self.shape().count();
        // The size of the table when it was last a power of two.
        let round = 1 << count.ilog2();
        let index = count - round;
        let home = self.home_at(index);
        self.homes.make(count);
        home.line.lock();
        let grown = Shape::of(count + 1);
        let live = self.live(home, now);
        let (moved, kept): (Entries, Entries) =
            live.into_iter().partition(|(fingerprint, _)| grown.home(*fingerprint) == count);
        self.refill(home.line, &kept);
        self.refill(self.homes.get(count), &moved);
        self.shape.store(grown.0, Ordering::Release);
        home.line.unlock_changed();
    }

    /// The next home in the round of the hand.
    fn next_home(&self) -> Home<'_> {
        let turn = self.hand.fetch_add(1, Ordering::Relaxed);
        self.home_at(turn % self.shape().count())
    }

    /// The homes around the one at `index`, turn by turn: one after, one before, two after …
    fn home_beside(&self, index: usize, turn: usize, count: usize) -> Home<'_> {
        let distance = (turn / 2 + 1) % count;
        match turn % 2 {
            0 => self.home_at((index + distance) % count),
            _ => self.home_at((index + count - distance) % count),
        }
    }

    /// Whether sweeping a home, seen as it is, would free a slot or an overflow line: something in
    /// its own line is stale, or there is room in it for what is chained to it.
    fn is_untidy(&self, home: Home<'_>, seen: Seen, now: Timestamp) -> bool {
        (0..SLOTS).map(|slot| home.line.state(slot)).any(|words| match words.is_empty() {
            true => seen.next().is_some(),
            false => is_stale(words, now),
        })
    }

    /// The occupied slot of a home's own line that goes stale first.
    ///
    /// Chained lines are not looked at, for each would cost a cache miss; sweeping brings what they
    /// hold into the home's line as that empties.
    fn nearest<'t>(&self, home: Home<'t>) -> Option<Place<'t>> {
        let line = home.line;
        (0..SLOTS)
            .map(|slot| Place { line, slot })
            .filter(|place| !place.state().is_empty())
            .min_by_key(|place| place.state().stale_at())
    }

    /// What is not stale in a home; the rest is forgotten. Only under the lock, and before a
    /// [`Table::refill`].
    fn live(&self, home: Home<'_>, now: Timestamp) -> Entries {
        let mut live = Entries::new();
        let mut line = home.line;
        loop {
            for slot in 0..SLOTS {
                let words = line.state(slot);
                if words.is_empty() {
                    continue;
                }
                if is_stale(words, now) {
                    self.remove(Place { line, slot });
                } else {
                    live.push((line.fingerprint(slot), words));
                }
            }
            match line.next() {
                Some(next) => line = self.overflow.lines.get(next),
                None => return live,
            }
        }
    }

    /// Writes `entries` into a home, with as many overflow lines as they need. Only under the lock.
    fn refill(&self, home: &Line, entries: &[(Fingerprint, Words)]) {
        let mut line = home;
        let mut chunks = entries.chunks(SLOTS);
        loop {
            let chunk = chunks.next().unwrap_or_default();
            for slot in 0..SLOTS {
                match chunk.get(slot) {
                    Some(&(fingerprint, words)) => {
                        line.set_fingerprint(slot, fingerprint);
                        line.set_state(slot, words);
                    }
                    None => line.set_state(slot, Words::EMPTY),
                }
            }
            match (chunks.len(), line.next()) {
                (0, next) => {
                    line.set_next(None);
                    return self.overflow.close(next);
                }
                (_, Some(next)) => line = self.overflow.lines.get(next),
                (_, None) => {
                    let next = self.overflow.open();
                    line.set_next(Some(next));
                    line = self.overflow.lines.get(next);
                }
            }
        }
    }

    fn discard_side(&self, words: Words) {
        if let Some(ticket) = words.ticket() {
            self.side.discard(ticket);
        }
    }
}

/// The contents of a home: rarely more than two lines of them.
type Entries = SmallVec<[(Fingerprint, Words); 2 * SLOTS]>;

impl Overflow {
    fn new(lines: usize) -> Self {
        let unused = Mutex::new(Unused { spare: Vec::new(), first: 0 });
        Self { lines: Segments::new(lines), unused }
    }

    /// An overflow line for somebody's chain; empty.
    fn open(&self) -> usize {
        let mut unused = self.unused.lock().unwrap_or_else(PoisonError::into_inner);
        unused.spare.pop().unwrap_or_else(|| {
            let first = unused.first;
            self.lines.make(first);
            unused.first += 1;
            first
        })
    }

    /// Gives back a chain of overflow lines, emptying them.
    fn close(&self, first: Option<usize>) {
        let mut next = first;
        while let Some(index) = next {
            let line = self.lines.get(index);
            next = line.next();
            line.set_next(None);
            for slot in 0..SLOTS {
                line.set_state(slot, Words::EMPTY);
            }
            let mut unused = self.unused.lock().unwrap_or_else(PoisonError::into_inner);
            unused.spare.push(index);
        }
    }
}

#[inline(always)]
fn is_stale(words: Words, now: Timestamp) -> bool {
    words.stale_at() <= now.as_micros()
}

/// How many homes there are (32 bits), and one less than the next power of two (32 bits): all it
/// takes to find a home.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Shape(u64);

impl Shape {
    fn of(count: usize) -> Self {
        let mask = count.next_power_of_two() - 1;
        Self((mask as u64) << 32 | count as u64)
    }

    #[inline(always)]
    fn count(self) -> usize {
        self.0 as u32 as usize
    }

    /// The home of a fingerprint: its low bits, one fewer where that home is yet to be split off.
    #[inline(always)]
    fn home(self, fingerprint: Fingerprint) -> usize {
        let mask = (self.0 >> 32) as usize;
        let index = fingerprint.low as usize & mask;
        if index < self.count() { index } else { index & (mask >> 1) }
    }
}
