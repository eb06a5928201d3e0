//! A few slots and the lock over them: four in the 128 bytes of a home, two in the 64 of an overflow
//! line.
//!
//! ```text
//!  word   0      1 … 4            5, 6             7          8        9 … 15
//!       ┌──────┬────────────────┬────────────────┬────────┐ ┌────────┬─────────────────────────┐
//!       │ 4th  │ low words of   │ high halves    │ unused │ │ header │ states, two words each; │
//!       │ slot │ 4 fingerprints │ of them        │        │ │        │ the last one's second   │
//!       │      │                │                │        │ │        │ word is word 0          │
//!       └──────┴────────────────┴────────────────┴────────┘ └────────┴─────────────────────────┘
//!       └─────────── who: one cache line ─────────────────┘ └── what: the adjacent one ────────┘
//!
//!  header   bit 0       locked (of a home)
//!           bits 1–31   version, changed by every unlocking that may have changed something
//!           bits 32–63  the overflow line that continues this one, plus one; 0: none
//! ```
//!
//! An overflow line is the same in half the words. Deciding about a key that is in a home writes only
//! the second cache line (unless the key has the fourth slot), so that cores which share a busy key
//! pass one line to and fro, not two.
//!
//! A slot is empty when the first word of its state is zero.
//!
//! **The protocol.** A bucket's home line and the overflow lines chained to it change only under the
//! lock in the home's header. Readers take no lock: they read the header, then what they need, then
//! the header again, and believe what they read only if it is the same unlocked header. Whoever then
//! wants to write exchanges that very header for its locked form; success proves that what was read
//! still holds, so nothing has to be read twice. Every word is atomic, so a torn read is a wrong
//! number that is thrown away, never undefined behaviour.
//!
//! The 31-bit version could only deceive a reader that is held up for exactly 2^31 writes to one
//! line: some 20 seconds of the hottest key there is, to the write.

use super::fingerprint::{Fingerprint, HIGH_BITS};
use crate::sync::{AtomicU64, Ordering, fence, spin_loop, yield_now};

/// The line a key lives in if there is room.
pub(super) type HomeLine = Line<4, 16>;

/// A line for those that found no room.
pub(super) type OverflowLine = Line<2, 8>;

const LOW: usize = 1;

/// Fingerprints whose high halves share a word.
const LANES: usize = (64 / HIGH_BITS) as usize;

const LOCKED: u64 = 1;
const VERSION: u64 = 2;
const VERSION_MASK: u64 = 0xffff_fffe;
const NEXT_SHIFT: u32 = 32;

/// Rounds of spinning before a waiting thread lets others run.
const SPINS: u32 = 64;

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Words(pub(super) u64, pub(super) u64);

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
#[repr(align(64))]
pub(super) struct Line<const SLOTS: usize, const WORDS: usize> {
    words: [AtomicU64; WORDS],
}

/// Where a key's state is.
#[derive(Clone, Copy)]
pub(super) struct Place<'t> {
    first: &'t AtomicU64,
    second: &'t AtomicU64,
}

impl Place<'_> {
    #[inline(always)]
    pub(super) fn state(self) -> Words {
        Words(self.first.load(Ordering::Relaxed), self.second.load(Ordering::Relaxed))
    }

    /// Replaces the state. Only under the lock of the home.
    #[inline(always)]
    pub(super) fn set_state(self, Words(first, second): Words) {
        self.first.store(first, Ordering::Relaxed);
        self.second.store(second, Ordering::Relaxed);
    }
}

/// A slot of a line of either size.
#[derive(Clone, Copy)]
pub(super) struct Slot<'t> {
    pub(super) place: Place<'t>,
    low: &'t AtomicU64,
    // Shared with the neighbour, whose half is shifted by other than `shift`.
    high: &'t AtomicU64,
    shift: u32,
}

impl Slot<'_> {
    pub(super) fn fingerprint(self) -> Fingerprint {
        let high = (self.high.load(Ordering::Relaxed) >> self.shift) as u32;
        Fingerprint { low: self.low.load(Ordering::Relaxed), high }
    }

    /// Replaces whose slot it is. Only under the lock of the home.
    pub(super) fn set_fingerprint(self, fingerprint: Fingerprint) {
        self.low.store(fingerprint.low, Ordering::Relaxed);
        let others = self.high.load(Ordering::Relaxed) & !(u64::from(u32::MAX) << self.shift);
        let high = u64::from(fingerprint.high) << self.shift;
        self.high.store(others | high, Ordering::Relaxed);
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
        let header = self.0.load(Ordering::Relaxed) & ((1 << NEXT_SHIFT) - 1);
        self.0.store(header | next << NEXT_SHIFT, Ordering::Release);
    }
}

impl<const SLOTS: usize, const WORDS: usize> Line<SLOTS, WORDS> {
    const HIGH: usize = LOW + SLOTS;
    const HEADER: usize = WORDS / 2;
    const STATE: usize = Self::HEADER + 1;

    const FITS: () = {
        assert!(WORDS.is_power_of_two() && Self::HIGH + SLOTS / LANES <= Self::HEADER);
        // All states but the last half of the last lie behind the header; that half is word 0.
        assert!((Self::STATE + 2 * SLOTS - 1).is_multiple_of(WORDS));
    };

    pub(super) fn new() -> Self {
        const { Self::FITS };
        Self { words: std::array::from_fn(|_| AtomicU64::new(0)) }
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
            let who: *const AtomicU64 = &self.words[0];
            let what: *const AtomicU64 = &self.words[Self::HEADER];
            // SAFETY: a prefetch reads and writes nothing a program can see, whatever the address.
            unsafe {
                _mm_prefetch(who.cast(), _MM_HINT_T0);
                _mm_prefetch(what.cast(), _MM_HINT_T0);
            }
        }
    }

    /// Where this line (not those chained to it) holds `fingerprint`, and the state there.
    ///
    /// Which slot it is cannot be predicted, so all are compared before anything branches.
    #[inline(always)]
    pub(super) fn find(&self, fingerprint: Fingerprint) -> Option<(Place<'_>, Words)> {
        let mut matches = (0..SLOTS).fold(0_u32, |matches, slot| {
            matches | u32::from(self.load(LOW + slot) == fingerprint.low) << slot
        });
        while matches != 0 {
            let slot = self.slot(matches.trailing_zeros() as usize);
            let words = slot.place.state();
            let high = (slot.high.load(Ordering::Relaxed) >> slot.shift) as u32;
            if high == fingerprint.high && !words.is_empty() {
                return Some((slot.place, words));
            }
            matches &= matches - 1;
        }
        None
    }

    /// The slots of this line.
    pub(super) fn slots(&self) -> impl Iterator<Item = Slot<'_>> {
        (0..SLOTS).map(|slot| self.slot(slot))
    }

    #[inline(always)]
    fn slot(&self, slot: usize) -> Slot<'_> {
        let first = Self::STATE + 2 * slot;
        Slot {
            place: Place { first: self.word(first), second: self.word(first + 1) },
            low: self.word(LOW + slot),
            high: self.word(Self::HIGH + slot / LANES),
            shift: (slot % LANES) as u32 * HIGH_BITS,
        }
    }

    pub(super) fn link(&self) -> Link<'_> {
        Link(&self.words[Self::HEADER])
    }

    /// The header, once it is unlocked. For homes.
    #[inline(always)]
    pub(super) fn see(&self) -> Seen {
        let header = self.words[Self::HEADER].load(Ordering::Acquire);
        if header & LOCKED == 0 { Seen(header) } else { self.see_unlocked() }
    }

    /// The header, if it is unlocked now. For homes.
    pub(super) fn try_see(&self) -> Option<Seen> {
        let header = self.words[Self::HEADER].load(Ordering::Acquire);
        (header & LOCKED == 0).then_some(Seen(header))
    }

    #[cold]
    #[inline(never)]
    fn see_unlocked(&self) -> Seen {
        for spins in 1.. {
            let header = self.words[Self::HEADER].load(Ordering::Acquire);
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
        self.load(Self::HEADER) == header
    }

    /// Locks the line, if nothing has changed since `seen`.
    #[inline(always)]
    pub(super) fn lock_unchanged(&self, Seen(header): Seen) -> bool {
        let locked = header | LOCKED;
        let exchange = self.words[Self::HEADER].compare_exchange(
            header,
            locked,
            Ordering::Acquire,
            Ordering::Relaxed,
        );
        if exchange.is_ok() {
            // Keeps the writes to come from being seen before the lock is: a reader that sees one
            // of them must find the header changed.
            fence(Ordering::Release);
        }
        exchange.is_ok()
    }

    /// Locks the line, waiting for it, until the guard is dropped.
    pub(super) fn lock(&self) -> Locked<'_, SLOTS, WORDS> {
        while !self.lock_unchanged(self.see()) {
            spin_loop();
        }
        Locked(self)
    }

    /// A guard over a line that was locked by [`Line::lock_unchanged`].
    pub(super) fn locked(&self) -> Locked<'_, SLOTS, WORDS> {
        Locked(self)
    }

    /// Unlocks the line after changes that left its chain as it was `seen`: the header just
    /// exchanged need not be read again.
    #[inline(always)]
    pub(super) fn unlock_changed_since(&self, Seen(header): Seen) {
        let version = header.wrapping_add(VERSION) & VERSION_MASK;
        let next = header >> NEXT_SHIFT << NEXT_SHIFT;
        self.words[Self::HEADER].store(next | version, Ordering::Release);
    }

    #[inline(always)]
    fn load(&self, word: usize) -> u64 {
        self.word(word).load(Ordering::Relaxed)
    }

    /// A word, counted round the line; the remainder also spares a check.
    #[inline(always)]
    fn word(&self, word: usize) -> &AtomicU64 {
        &self.words[word % WORDS]
    }
}

/// Unlocks a line when it is dropped, also by a panic: a line that stayed locked would stop everybody
/// who comes to it.
pub(super) struct Locked<'t, const SLOTS: usize, const WORDS: usize>(&'t Line<SLOTS, WORDS>);

impl<const SLOTS: usize, const WORDS: usize> Drop for Locked<'_, SLOTS, WORDS> {
    fn drop(&mut self) {
        self.0.unlock_changed_since(Seen(self.0.load(Line::<SLOTS, WORDS>::HEADER)));
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
    ((header >> NEXT_SHIFT) as usize).checked_sub(1)
}
