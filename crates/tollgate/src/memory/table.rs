//! The table: linear hashing over lines.
//!
//! A bucket of the table is a home line and the overflow lines chained to it. There are `homes` of them;
//! a fingerprint lives in the one that its low word names, from the last byte on. To grow by one, the next
//! home in turn is *split*: half of what it holds moves to a new home whose number differs in one bit. So
//! the table grows by a line at a time, no one ever waits for a rehash, and nothing is copied twice.
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

use std::hint::select_unpredictable;
use std::iter;
use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, TryLockError};

use smallvec::SmallVec;

use super::fingerprint::Fingerprint;
use super::line::{HomeLine, MOST_LINES, OverflowLine, Seen, Slot, Words};
use super::overflow::Overflow;
use super::segments::{self, Segments, lines_per_page};
use super::side::Side;
use crate::sync::{AtomicU64, Ordering};
use crate::time::Timestamp;

/// Keys per 16 homes at which the table grows. Five a line would be full if hashes were even; as
/// they are, and half of the homes not yet split, one key in fifteen then lives in an overflow line, at
/// some 48 bytes per key.
const KEYS_PER_16_HOMES: usize = 48;

/// The most keys a table can be made for.
pub(super) const MOST_KEYS: usize = 1_000_000_000;

/// Overflow lines there may be beyond one for each key: homes have fewer than keys, save for a few being
/// rebuilt.
const BEING_REBUILT: usize = 1024;

const _: () = assert!(MOST_KEYS + BEING_REBUILT <= MOST_LINES);

/// Lines looked at to find a slot that gives way.
const CANDIDATES: usize = 8;

/// The most keys that give way for each key that is added.
const EVICTIONS: usize = 4;

/// Lines swept for each key that is added.
const SWEEP: usize = 2;

/// See the [module](self).
pub(super) struct Table {
    homes: Segments<5, 0, { lines_per_page(128) }>,
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

/// A home and its number, not locked.
#[derive(Clone, Copy)]
pub(super) struct Home<'t> {
    // The shape by which it was found.
    shape: Shape,
    pub(super) index: usize,
    pub(super) line: &'t HomeLine,
}

impl Table {
    pub(super) fn new(max_keys: usize, max_log_entries: usize) -> Self {
        let homes = max_keys / KEYS_PER_16_HOMES * 16 + 32;
        Self {
            homes: Segments::new(homes),
            shape: AtomicU64::new(Shape::of(segments::FIRST).0),
            overflow: Overflow::new(max_keys + BEING_REBUILT),
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

    /// The home of the fingerprints with this low word at this moment.
    #[inline(always)]
    pub(super) fn home(&self, low: u64) -> Home<'_> {
        let shape = self.shape();
        let index = shape.home(low);
        Home { shape, index, line: self.homes.get(index) }
    }

    /// Asks for the first overflow line of a home ahead of time.
    #[inline(always)]
    pub(super) fn prefetch_overflow(&self, home: &HomeLine) {
        if let Some(next) = home.link().next() {
            self.overflow.get(next).prefetch();
        }
    }

    /// The overflow line that continues a home `seen` so.
    #[inline(always)]
    pub(super) fn overflow_line(&self, seen: Seen) -> Option<&OverflowLine> {
        Some(self.overflow.get(seen.next()?))
    }

    /// The home with a number below the count.
    fn home_at(&self, index: usize) -> Home<'_> {
        Home { shape: self.shape(), index, line: self.homes.get(index) }
    }

    #[inline(always)]
    fn shape(&self) -> Shape {
        Shape(self.shape.load(Ordering::Acquire))
    }

    /// Where `fingerprint` is: true only as long as the home's header is as `seen`.
    pub(super) fn find<'t>(
        &'t self,
        home: Home<'t>,
        seen: Seen,
        fingerprint: Fingerprint,
    ) -> Option<Slot<'t>> {
        self.find_from(home.line, seen.next(), fingerprint)
    }

    /// Where `fingerprint` is. Only under the lock.
    pub(super) fn find_locked<'t>(
        &'t self,
        home: Home<'t>,
        fingerprint: Fingerprint,
    ) -> Option<Slot<'t>> {
        self.find_from(home.line, home.line.link().next(), fingerprint)
    }

    /// Searches a home and the chain of overflow lines that starts at `next`.
    #[inline(never)]
    fn find_from<'t>(
        &'t self,
        home: &'t HomeLine,
        next: Option<usize>,
        fingerprint: Fingerprint,
    ) -> Option<Slot<'t>> {
        let chained = || self.overflow.chain(next).find_map(|line| line.find_any(fingerprint));
        home.find_any(fingerprint).or_else(chained)
    }

    /// Adds a new key with its state. Only under the lock.
    ///
    /// Says also whether the key is one more; the caller then owes a [`Table::tend`] once it has
    /// unlocked.
    pub(super) fn insert(
        &self,
        home: Home<'_>,
        fingerprint: Fingerprint,
        words: Words,
        now: Timestamp,
    ) -> bool {
        let stale = |slot: &Slot<'_>| !slot.state().is_empty() && is_stale(slot.state(), now);
        // Its own slot first.
        let slots = || iter::once(home.line.own(fingerprint)).chain(self.slots(home));
        if let Some(slot) = slots().find(stale) {
            self.discard_side(slot);
            home.line.let_in(fingerprint, slot, words);
            return false;
        }
        let empty = slots().find(|slot| slot.state().is_empty());
        let slot = empty.unwrap_or_else(|| {
            let next = self.overflow.open();
            let last = self.overflow.chain(home.line.link().next()).last();
            last.map_or(home.line.link(), OverflowLine::link).set_next(Some(next));
            let mut slots = self.overflow.get(next).slots();
            slots.next().expect("an overflow line has slots")
        });
        home.line.let_in(fingerprint, slot, words);
        self.keys.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Forgets a key. Only under the lock.
    pub(super) fn remove(&self, slot: Slot<'_>) {
        self.discard_side(slot);
        slot.clear();
        self.keys.fetch_sub(1, Ordering::Relaxed);
    }

    /// Keeps the table in shape after a key was added to the home at `index`. Without any lock.
    pub(super) fn tend(&self, index: usize, now: Timestamp) {
        for _ in 0..SWEEP {
            self.sweep_next(now);
        }
        if self.keys() > self.max_keys {
            // Somebody else may take what we chose; what they leave over must not add up.
            for _ in 0..EVICTIONS {
                if self.keys() > self.max_keys {
                    self.evict(index, now);
                }
            }
        } else if self.keys() * 16 > self.shape().count() * KEYS_PER_16_HOMES {
            self.grow(now);
        }
    }

    /// Frees what is stale in the next home in turn, unless somebody is at it.
    fn sweep_next(&self, now: Timestamp) {
        let home = self.next_home();
        let Some(seen) = home.line.try_see() else {
            return;
        };
        if self.is_untidy(home, seen, now) && home.line.lock_unchanged(seen) {
            let _locked = home.line.locked();
            let kept = self.live(home, now);
            self.refill(home.line, &kept);
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
        let _locked = home.line.lock();
        if let Some(slot) = self.nearest(home) {
            let live = !is_stale(slot.state(), now);
            self.evictions.fetch_add(usize::from(live), Ordering::Relaxed);
            self.remove(slot);
        }
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
        let _locked = home.line.lock();
        let grown = Shape::of(count + 1);
        let live = self.live(home, now);
        let (moved, kept): (Entries, Entries) =
            live.into_iter().partition(|(fingerprint, _)| grown.home(fingerprint.low) == count);
        self.refill(home.line, &kept);
        self.refill(self.homes.get(count), &moved);
        self.shape.store(grown.0, Ordering::Release);
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
        home.line.slots().map(Slot::state).any(|words| match words.is_empty() {
            true => seen.next().is_some(),
            false => is_stale(words, now),
        })
    }

    /// The occupied slot of a home's own line that goes stale first.
    ///
    /// Chained lines are not looked at, for each would cost a cache miss; sweeping brings what they
    /// hold into the home's line as that empties.
    fn nearest<'t>(&self, home: Home<'t>) -> Option<Slot<'t>> {
        let occupied = home.line.slots().filter(|slot| !slot.state().is_empty());
        occupied.min_by_key(|slot| slot.state().stale_at())
    }

    /// All slots of a home, those chained to it last. Only under the lock.
    fn slots<'t>(&'t self, home: Home<'t>) -> impl Iterator<Item = Slot<'t>> {
        let chain = self.overflow.chain(home.line.link().next());
        home.line.slots().chain(chain.flat_map(OverflowLine::slots))
    }

    /// What is not stale in a home; the rest is forgotten. Only under the lock, and before a
    /// [`Table::refill`].
    fn live(&self, home: Home<'_>, now: Timestamp) -> Entries {
        let mut live = Entries::new();
        for slot in self.slots(home) {
            match slot.state() {
                words if words.is_empty() => {}
                words if is_stale(words, now) => self.remove(slot),
                words => live.push((slot.fingerprint(), words)),
            }
        }
        live
    }

    /// Writes `entries` into a home, as many as can be into their own slots, with as many overflow lines
    /// as they need. Only under the lock.
    fn refill(&self, home: &HomeLine, entries: &[(Fingerprint, Words)]) {
        home.slots().for_each(Slot::clear);
        let mut others = Entries::new();
        for &(fingerprint, words) in entries {
            let own = home.own(fingerprint);
            match own.state().is_empty() {
                true => own.set(fingerprint, words),
                false => others.push((fingerprint, words)),
            }
        }
        let mut entries = others.into_iter();
        fill(home.slots().filter(|slot| slot.state().is_empty()), &mut entries);
        let mut link = home.link();
        while entries.len() > 0 {
            let next = link.next().unwrap_or_else(|| self.overflow.open());
            link.set_next(Some(next));
            let line = self.overflow.get(next);
            fill(line.slots(), &mut entries);
            link = line.link();
        }
        self.overflow.close(link);
    }

    fn discard_side(&self, slot: Slot<'_>) {
        if let Some(ticket) = slot.state().ticket(slot.fingerprint()) {
            self.side.discard(ticket);
        }
    }
}

/// The contents of a home: rarely more than this.
type Entries = SmallVec<[(Fingerprint, Words); 8]>;

/// Writes entries into slots as long as there are any, and empties the other slots.
fn fill<'t>(
    slots: impl Iterator<Item = Slot<'t>>,
    entries: &mut impl Iterator<Item = (Fingerprint, Words)>,
) {
    for slot in slots {
        match entries.next() {
            Some((fingerprint, words)) => slot.set(fingerprint, words),
            None => slot.clear(),
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
pub(super) struct Shape(u64);

impl Shape {
    pub(super) fn of(count: usize) -> Self {
        let mask = count.next_power_of_two() - 1;
        Self((mask as u64) << 32 | count as u64)
    }

    #[inline(always)]
    fn count(self) -> usize {
        self.0 as u32 as usize
    }

    /// The home of a low word: as many bits as it takes, of the last byte first, for in that all have met; one
    /// fewer where that home is yet to be split off.
    #[inline(always)]
    pub(super) fn home(self, low: u64) -> usize {
        let (name, mask) = (low.swap_bytes() as usize, (self.0 >> 32) as usize);
        let exists = name & mask < self.count();
        name & select_unpredictable(exists, mask, mask >> 1)
    }
}
