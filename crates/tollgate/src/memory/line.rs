//! A few slots and the lock over them: five in the 128 bytes of a home, two in the 64 of an overflow
//! line.
//!
//! ```text
//!  word   0 … 4                 5 … 9                                10 … 14             15
//!       ┌─────────────────────┬─────────────────┬──────────────────┬───────────────────┬────────┐
//!       │ low words of        │ high bits of    ┊ them, and second │ first words of    │ header │
//!       │ 5 fingerprints      │                 ┊ words of states  │ 5 states          │        │
//!       └─────────────────────┴─────────────────┴──────────────────┴───────────────────┴────────┘
//!       └───────── one cache line ──────────────┘└──────── the adjacent one ────────────────────┘
//!
//!  header   bit 0       locked (of a home)
//!           bits 1–30   the overflow line that continues this one, plus one; 0: none
//!           bits 31–63  version, one more after every locking
//! ```
//!
//! An overflow line is the same in half the words. A slot is empty when the first word of its state is
//! zero.
//!
//! **A slot of one's own.** Each fingerprint names one slot of its home that it should have, and three in
//! four have it: whoever is new gets it, or takes by itself from another slot, unless somebody is there
//! who should be. (What is decided as a set leaves whom it knew where they are, for all are looked up before
//! any is written; and so does what lies beside the table.)
//! That slot is looked at first. So a processor, which goes on as if a key were where it mostly is, need not
//! wait for the line to know where the state is to be written; of one that does not know where a store goes
//! many hold back every load behind it, for it might be of what is stored, and the next decision begins
//! with one. Nor has it then to keep in mind, until the line comes, how the others would be compared.
//!
//! **The protocol.** A bucket's home line and the overflow lines chained to it change only under the
//! lock in the home's header. Readers take no lock: they read the header, then what they need, then
//! the header again, and believe what they read only if it is the same unlocked header. Whoever then
//! wants to write locks the line only if the header is still the one it read: then what was read still
//! holds and nothing has to be read twice; if not, it begins anew. Every word is atomic, so a torn read is
//! a wrong number that is thrown away, never undefined behaviour.
//!
//! The 33-bit version could only deceive a reader that is held up for exactly 2^33 writes to one
//! line: over a minute of the hottest key there is, to the write.

use std::ptr;

use super::fingerprint::{Fingerprint, HIGH_SHIFT};
use super::place;
use crate::sync::{AtomicU64, Ordering, fence, spin_loop, yield_now};

/// The line a key lives in if there is room.
pub(super) type HomeLine = Line<5, 0>;

/// A line for those that found no room.
pub(super) type OverflowLine = Line<2, 1>;

#[cfg(not(loom))]
const _: () = assert!(size_of::<HomeLine>() == 128 && size_of::<OverflowLine>() == 64);

const LOCKED: u64 = 1;
const NEXT_SHIFT: u32 = 1;
const NEXT_MASK: u64 = 0x7fff_fffe;
/// Overflow lines that a header can name.
pub(super) const MOST_LINES: usize = (NEXT_MASK >> NEXT_SHIFT) as usize;
/// The largest power of two that a processor can add without having it in a register.
const VERSION: u64 = 1 << 31;

/// Rounds of spinning before a waiting thread lets others run.
const SPINS: u32 = 64;

/// Rounds of spinning for which somebody who came too late leaves a line to others.
const ASIDE: u32 = if cfg!(loom) { 1 } else { 32 };

/// The state a slot holds. The second word has [`SECOND_BITS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Words(pub(super) u64, pub(super) u64);

/// The high bits of the fingerprint share a word with the second word of the state.
pub(super) const SECOND_BITS: u32 = HIGH_SHIFT;
const SECOND_MASK: u64 = (1 << SECOND_BITS) - 1;

impl Words {
    pub(super) const EMPTY: Self = Self(0, 0);

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// A header as somebody saw it: unlocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen(u64);

/// See the [module](self).
#[repr(C, align(64))]
pub(super) struct Line<const SLOTS: usize, const UNUSED: usize> {
    low: [AtomicU64; SLOTS],
    mixed: [AtomicU64; SLOTS],
    unused: [AtomicU64; UNUSED],
    first: [AtomicU64; SLOTS],
    header: AtomicU64,
}

/// A slot of a line of either size.
#[derive(Clone, Copy)]
pub(super) struct Slot<'t> {
    // The low word of the fingerprint.
    low: &'t AtomicU64,
    // The high bits of the fingerprint and the second word of the state.
    mixed: &'t AtomicU64,
    // The first word of the state.
    first: &'t AtomicU64,
}

impl Slot<'_> {
    pub(super) fn fingerprint(self) -> Fingerprint {
        let high = self.mixed.load(Ordering::Relaxed) & !SECOND_MASK;
        Fingerprint { low: self.low.load(Ordering::Relaxed), high }
    }

    #[inline(always)]
    pub(super) fn state(self) -> Words {
        let second = self.mixed.load(Ordering::Relaxed) & SECOND_MASK;
        Words(self.first.load(Ordering::Relaxed), second)
    }

    /// The state, if it is that of `fingerprint`.
    #[inline(always)]
    fn state_of(self, fingerprint: Fingerprint) -> Option<Words> {
        if self.low.load(Ordering::Relaxed) != fingerprint.low {
            return None;
        }
        self.state_under(fingerprint)
    }

    /// The state, if it is that of `fingerprint`, whose low word is that of the slot.
    #[inline(always)]
    fn state_under(self, fingerprint: Fingerprint) -> Option<Words> {
        let second = self.mixed.load(Ordering::Relaxed) ^ fingerprint.high;
        let words = Words(self.first.load(Ordering::Relaxed), second);
        (second >> SECOND_BITS == 0).then_some(words)
    }

    /// Replaces the state. Only under the lock of the home.
    pub(super) fn set_state(self, words: Words) {
        self.set_state_of(self.fingerprint(), words);
    }

    /// Replaces the state of `fingerprint`, whose slot it is: nothing need be read. Only under the
    /// lock of the home.
    #[inline(always)]
    pub(super) fn set_state_of(self, fingerprint: Fingerprint, Words(first, second): Words) {
        debug_assert!(second <= SECOND_MASK, "{second:#x} is no second word");
        self.first.store(first, Ordering::Relaxed);
        self.mixed.store(fingerprint.high | second, Ordering::Relaxed);
    }

    /// Makes it nobody's. Only under the lock of the home.
    ///
    /// Whose fingerprint is zero would take it for theirs, and find it fresh; nobody lives long enough
    /// to see one.
    pub(super) fn clear(self) {
        self.set(Fingerprint { low: 0, high: 0 }, Words::EMPTY);
    }

    /// Replaces whose slot it is, and the state. Only under the lock of the home.
    pub(super) fn set(self, fingerprint: Fingerprint, words: Words) {
        self.low.store(fingerprint.low, Ordering::Relaxed);
        self.set_state_of(fingerprint, words);
    }
}

/// The header of a line of either size, as what links a chain.
#[derive(Clone, Copy)]
pub(super) struct Link<'t>(&'t AtomicU64);

impl Link<'_> {
    /// The index of the overflow line that comes next.
    pub(super) fn next(self) -> Option<usize> {
        // Whoever sees the link must also see the line it leads to, lock or not.
        next_in(self.0.load(Ordering::Acquire))
    }

    /// Links an overflow line, or none. Only under the lock of the home.
    pub(super) fn set_next(self, next: Option<usize>) {
        let next = next.map_or(0, |index| index as u64 + 1);
        let header = self.0.load(Ordering::Relaxed) & !NEXT_MASK;
        self.0.store(header | next << NEXT_SHIFT, Ordering::Release);
    }
}

impl<const SLOTS: usize, const UNUSED: usize> Line<SLOTS, UNUSED> {
    pub(super) fn new() -> Self {
        Self {
            low: std::array::from_fn(|_| AtomicU64::new(0)),
            mixed: std::array::from_fn(|_| AtomicU64::new(0)),
            unused: std::array::from_fn(|_| AtomicU64::new(0)),
            first: std::array::from_fn(|_| AtomicU64::new(0)),
            header: AtomicU64::new(0),
        }
    }

    /// Asks for both halves ahead of time.
    #[inline(always)]
    #[cfg_attr(
        all(target_arch = "x86_64", not(loom)),
        expect(unsafe_code, reason = "measured: a batch decides three times as fast")
    )]
    pub(super) fn prefetch(&self) {
        #[cfg(all(target_arch = "x86_64", not(loom)))]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let who: *const AtomicU64 = &self.low[0];
            let what: *const AtomicU64 = &self.header;
            // SAFETY: a prefetch reads and writes nothing a program can see, whatever the address.
            unsafe {
                _mm_prefetch(who.cast(), _MM_HINT_T0);
                _mm_prefetch(what.cast(), _MM_HINT_T0);
            }
        }
    }

    /// Which slot of this line (not of those chained to it) holds `fingerprint`, and its state.
    ///
    /// Looks at its own slot before the others. Of two slots with the same low word only one is looked at,
    /// so `None` is not the last word: [`Line::find_any`] has that.
    #[inline(always)]
    pub(super) fn find(&self, fingerprint: Fingerprint) -> Option<(usize, Words)> {
        let own = Self::own_place(fingerprint.low);
        let has_its_own = self.low[own].load(Ordering::Relaxed) == fingerprint.low;
        let place = if has_its_own { own } else { place::of(&self.low, fingerprint.low)? };
        Some((place, self.slot(place).state_under(fingerprint)?))
    }

    /// The slot of this line (not of those chained to it) that holds `fingerprint`.
    pub(super) fn find_any(&self, fingerprint: Fingerprint) -> Option<Slot<'_>> {
        self.slots().find(|slot| slot.state_of(fingerprint).is_some())
    }

    /// The slots of this line, the last first.
    pub(super) fn slots(&self) -> impl Iterator<Item = Slot<'_>> {
        (0..SLOTS).rev().map(|slot| self.slot(slot))
    }

    /// The slot that `fingerprint` should have in its home.
    #[inline(always)]
    pub(super) fn own(&self, fingerprint: Fingerprint) -> Slot<'_> {
        self.slot(Self::own_place(fingerprint.low))
    }

    #[inline(always)]
    fn own_place(low: u64) -> usize {
        // By the half that does not choose the home, or not before there are many millions.
        ((u64::from(low as u32) * SLOTS as u64) >> 32) as usize
    }

    /// Whether the slot that `fingerprint` should have is held by somebody else who should have it.
    #[inline(always)]
    fn is_taken(&self, fingerprint: Fingerprint) -> bool {
        let place = Self::own_place(fingerprint.low);
        let is_theirs = Self::own_place(self.low[place].load(Ordering::Relaxed)) == place;
        is_theirs && self.first[place].load(Ordering::Relaxed) != 0
    }

    /// Which slot of this line it is; `None` for one of a line chained to it.
    fn place(&self, slot: Slot<'_>) -> Option<usize> {
        let offset = ptr::from_ref(slot.low).addr().wrapping_sub(ptr::from_ref(self).addr());
        let place = offset / size_of::<AtomicU64>();
        (place < SLOTS).then_some(place)
    }

    /// Lets in `fingerprint`, which is new to this home and what continues it: into its own slot, unless
    /// that is taken, and else into `slot`, which is free. Only under the lock.
    pub(super) fn let_in(&self, fingerprint: Fingerprint, slot: Slot<'_>, words: Words) {
        let here = if self.is_taken(fingerprint) { slot } else { self.own(fingerprint) };
        slot.set(here.fingerprint(), here.state());
        here.set(fingerprint, words);
    }

    /// Replaces the state of `fingerprint`, which was found in `slot`, of this home or of what continues it.
    /// Only under the lock.
    pub(super) fn set_state_of(&self, fingerprint: Fingerprint, slot: Slot<'_>, words: Words) {
        match self.place(slot) {
            Some(place) => self.set_state_at(place, fingerprint, words),
            None => self.move_in(fingerprint, slot, words),
        }
    }

    /// The same of one that was found in this home, at `place`.
    #[inline(always)]
    pub(super) fn set_state_at(&self, place: usize, fingerprint: Fingerprint, words: Words) {
        if place == Self::own_place(fingerprint.low) || self.is_taken(fingerprint) {
            self.slot(place).set_state_of(fingerprint, words);
        } else {
            self.move_from(place, fingerprint, words);
        }
    }

    /// [`Line::move_in`] from where it costs its callers nothing to say where.
    #[cold]
    #[inline(never)]
    fn move_from(&self, place: usize, fingerprint: Fingerprint, words: Words) {
        self.move_in(fingerprint, self.slot(place), words);
    }

    /// The same of one that gets its own slot, and leaves whoever had it the other; or, where that is
    /// taken, comes home all the same.
    #[cold]
    fn move_in(&self, fingerprint: Fingerprint, slot: Slot<'_>, words: Words) {
        let here = match self.is_taken(fingerprint) {
            false => self.own(fingerprint),
            true => self.slots().find(|slot| slot.state().is_empty()).unwrap_or(self.who_goes()),
        };
        slot.set(here.fingerprint(), here.state());
        here.set(fingerprint, words);
    }

    /// The slot of a full home that has to be left to somebody who comes: each time another one, so that two
    /// who name the same slot, and are both asked for often, do not send each other away for ever. Not one
    /// after the other, for requests that come in turn would fall into step.
    fn who_goes(&self) -> Slot<'_> {
        let version = (self.header.load(Ordering::Relaxed) / VERSION) as u32;
        let mixed = version.wrapping_mul(0x9e37_79b9);
        self.slot(((u64::from(mixed) * SLOTS as u64) >> 32) as usize)
    }

    #[inline(always)]
    pub(super) fn slot(&self, slot: usize) -> Slot<'_> {
        Slot { low: &self.low[slot], mixed: &self.mixed[slot], first: &self.first[slot] }
    }

    pub(super) fn link(&self) -> Link<'_> {
        Link(&self.header)
    }

    /// The header, once it is unlocked. For homes.
    #[inline(always)]
    pub(super) fn see(&self) -> Seen {
        let header = self.header.load(Ordering::Acquire);
        if header & LOCKED == 0 { Seen(header) } else { self.see_unlocked() }
    }

    /// The header, if it is unlocked now. For homes.
    pub(super) fn try_see(&self) -> Option<Seen> {
        let header = self.header.load(Ordering::Acquire);
        (header & LOCKED == 0).then_some(Seen(header))
    }

    #[cold]
    #[inline(never)]
    fn see_unlocked(&self) -> Seen {
        for spins in 1.. {
            let header = self.header.load(Ordering::Acquire);
            if header & LOCKED == 0 {
                return Seen(header);
            }
            // A holder that lost its core gets it back only if somebody steps aside.
            if spins % SPINS == 0 { yield_now() } else { spin_loop() }
        }
        unreachable!("waiting has no end but an unlocked header")
    }

    /// Whether nothing has changed since `seen`, so that what was read in between is true.
    #[inline(always)]
    pub(super) fn unchanged(&self, Seen(header): Seen) -> bool {
        // Keeps the reads before from drifting below the second look at the header.
        fence(Ordering::Acquire);
        self.header.load(Ordering::Relaxed) == header
    }

    /// Locks the line, if nothing has changed since `seen`; or else leaves it to whoever was faster for a
    /// while.
    #[inline(always)]
    pub(super) fn lock_unchanged(&self, seen: Seen) -> bool {
        let is_ours = self.try_lock(seen);
        if !is_ours {
            step_aside();
        }
        is_ours
    }

    /// Locks the line, waiting for it, until the guard is dropped.
    pub(super) fn lock(&self) -> Locked<'_, SLOTS, UNUSED> {
        while !self.try_lock(self.see()) {}
        Locked(self)
    }

    #[inline(always)]
    fn try_lock(&self, Seen(header): Seen) -> bool {
        let locked = header | LOCKED;
        let (ours, others) = (Ordering::Acquire, Ordering::Relaxed);
        let is_ours = self.header.compare_exchange(header, locked, ours, others).is_ok();
        // Keeps the writes to come from being seen before the lock is: a reader that sees one of them must
        // find the header changed.
        fence(Ordering::Release);
        is_ours
    }

    /// A guard over a line that was locked by [`Line::lock_unchanged`].
    pub(super) fn locked(&self) -> Locked<'_, SLOTS, UNUSED> {
        Locked(self)
    }

    /// Unlocks the line after changes that left its chain as it was `seen`: the header need not be read
    /// again.
    #[inline(always)]
    pub(super) fn unlock_seen(&self, seen: Seen) {
        self.header.store(seen.0.wrapping_add(VERSION), Ordering::Release);
    }
}

/// Leaves a line to whoever was faster for a while.
///
/// Mostly they decide about the same key again and again, and do so the faster the longer the line stays at
/// hand; where two cores take turns, most of their time goes into passing it.
#[cold]
#[inline(never)]
fn step_aside() {
    (0..ASIDE).for_each(|_| spin_loop());
}

/// Unlocks a line when it is dropped, also by a panic: a line that stayed locked would stop everybody
/// who comes to it.
pub(super) struct Locked<'t, const SLOTS: usize, const UNUSED: usize>(&'t Line<SLOTS, UNUSED>);

impl<const SLOTS: usize, const UNUSED: usize> Drop for Locked<'_, SLOTS, UNUSED> {
    fn drop(&mut self) {
        let unlocked = self.0.header.load(Ordering::Relaxed) & !LOCKED;
        self.0.header.store(unlocked.wrapping_add(VERSION), Ordering::Release);
    }
}

impl Seen {
    /// The overflow line that continues the home.
    #[inline(always)]
    pub(super) fn next(self) -> Option<usize> {
        next_in(self.0)
    }
}

#[inline(always)]
fn next_in(header: u64) -> Option<usize> {
    (((header & NEXT_MASK) >> NEXT_SHIFT) as usize).checked_sub(1)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const WORDS: Words = Words(1_000, 7);

    fn fingerprint(low: u64, high: u64) -> Fingerprint {
        Fingerprint { low, high: high << SECOND_BITS }
    }

    #[test]
    fn a_key_is_found_in_any_slot() {
        for place in 0..5 {
            for low in [0x1234_5678, 0x7fff_ffff, 0xffff_ffff] {
                let line = HomeLine::new();
                line.slot(place).set(fingerprint(low, 3), WORDS);
                assert_eq!(line.find(fingerprint(low, 3)), Some((place, WORDS)));
                assert_eq!(line.find(fingerprint(low + 1, 3)), None);
            }
        }
    }

    #[test]
    fn keys_that_differ_only_in_the_high_bits_are_two() {
        let (one, other) = (fingerprint(77, 1), fingerprint(77, 2));
        let line = HomeLine::new();
        line.own(one).set(one, WORDS);
        assert_eq!(line.find(other), None);
        assert!(line.find_any(other).is_none());
        let free = line.slots().find(|slot| slot.state().is_empty()).unwrap();
        let others = Words(2_000, 8);
        line.let_in(other, free, others);
        // The first is found as ever; the second at the second look at the latest, and never as the first.
        assert_eq!(line.find(one).map(|(_, words)| words), Some(WORDS));
        assert!(line.find(other).is_none_or(|(_, words)| words == others));
        assert_eq!(line.find_any(other).unwrap().state(), others);
        let slot = line.find_any(other).unwrap();
        line.set_state_of(other, slot, Words(3_000, 9));
        assert_eq!(line.find_any(one).unwrap().state(), WORDS);
        assert_eq!(line.find_any(other).unwrap().state(), Words(3_000, 9));
    }
}
