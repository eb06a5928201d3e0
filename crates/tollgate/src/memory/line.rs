//! 128 bytes of the table: four slots and the lock over them.
//!
//! ```text
//!  word   0        1 … 4             5 … 7                    8 … 15
//!       ┌────────┬─────────────────┬────────────────────────┬──────────────────────────────────┐
//!       │ header │ low words of    │ high 48 bits of the    │ states, two words for each       │
//!       │        │ 4 fingerprints  │ fingerprints, in lanes │ of the 4 slots                   │
//!       └────────┴─────────────────┴────────────────────────┴──────────────────────────────────┘
//!       └──────────────── who: one cache line ─────────────┘└──── what: the adjacent one ──────┘
//!
//!  header   bit 0       locked
//!           bits 1–31   version, changed by every unlocking that may have changed something
//!           bits 32–63  the overflow line that continues this one, plus one; 0: none
//! ```
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

/// Slots in a line.
pub(super) const SLOTS: usize = 4;

const LOW: usize = 1;
const HIGH: usize = LOW + SLOTS;
const STATE: usize = 8;
const WORDS: usize = 16;

/// Bits of one fingerprint in one of the `HIGH` words.
const LANE: u32 = 16;

const _: () = assert!(HIGH + (HIGH_BITS / LANE) as usize == STATE);
const _: () = assert!(SLOTS as u32 * LANE == 64);
const _: () = assert!(STATE + 2 * SLOTS == WORDS);

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
#[repr(align(128))]
pub(super) struct Line {
    words: [AtomicU64; WORDS],
}

impl Line {
    pub(super) fn new() -> Self {
        Self { words: std::array::from_fn(|_| AtomicU64::new(0)) }
    }

    /// Asks for both cache lines ahead of time.
    #[inline(always)]
    #[expect(unsafe_code, reason = "measured: a batch decides three times as fast")]
    pub(super) fn prefetch(&self) {
        #[cfg(all(target_arch = "x86_64", not(loom)))]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let who: *const AtomicU64 = &self.words[0];
            let what: *const AtomicU64 = &self.words[STATE];
            // SAFETY: a prefetch reads and writes nothing a program can see, whatever the address.
            unsafe {
                _mm_prefetch(who.cast(), _MM_HINT_T0);
                _mm_prefetch(what.cast(), _MM_HINT_T0);
            }
        }
    }

    /// The slot of this line (not of those chained to it) that holds `fingerprint`.
    ///
    /// Which slot it is cannot be predicted, so all are compared before anything branches.
    #[inline(always)]
    pub(super) fn find(&self, fingerprint: Fingerprint) -> Option<usize> {
        let mut matches = (0..SLOTS).fold(0_u32, |matches, slot| {
            matches | u32::from(self.load(LOW + slot) == fingerprint.low) << slot
        });
        while matches != 0 {
            let slot = matches.trailing_zeros() as usize;
            if self.high(slot) == fingerprint.high && self.load(STATE + 2 * slot) != 0 {
                return Some(slot);
            }
            matches &= matches - 1;
        }
        None
    }

    pub(super) fn fingerprint(&self, slot: usize) -> Fingerprint {
        Fingerprint { low: self.load(LOW + slot), high: self.high(slot) }
    }

    #[inline(always)]
    pub(super) fn state(&self, slot: usize) -> Words {
        // The remainder tells the compiler what every caller knows.
        let word = STATE + 2 * (slot % SLOTS);
        Words(self.load(word), self.load(word + 1))
    }

    /// Replaces a slot's state. Only under the lock.
    #[inline(always)]
    pub(super) fn set_state(&self, slot: usize, Words(first, second): Words) {
        let word = STATE + 2 * (slot % SLOTS);
        self.store(word, first);
        self.store(word + 1, second);
    }

    /// Replaces whose slot it is. Only under the lock.
    pub(super) fn set_fingerprint(&self, slot: usize, fingerprint: Fingerprint) {
        self.store(LOW + slot, fingerprint.low);
        let shift = slot as u32 * LANE;
        for lane in 0..HIGH_BITS / LANE {
            let word = HIGH + lane as usize;
            let part = (fingerprint.high >> (lane * LANE)) & 0xffff;
            self.store(word, self.load(word) & !(0xffff << shift) | part << shift);
        }
    }

    /// The index of the overflow line that continues this one.
    #[inline(always)]
    pub(super) fn next(&self) -> Option<usize> {
        next_in(self.load(0))
    }

    /// Links an overflow line, or none. Only under the lock of the home.
    pub(super) fn set_next(&self, next: Option<usize>) {
        let next = next.map_or(0, |index| index as u64 + 1);
        let header = self.load(0) & ((1 << NEXT_SHIFT) - 1);
        self.store(0, header | next << NEXT_SHIFT);
    }

    /// The header, once it is unlocked. For homes.
    #[inline(always)]
    pub(super) fn see(&self) -> Seen {
        let header = self.words[0].load(Ordering::Acquire);
        if header & LOCKED == 0 { Seen(header) } else { self.see_unlocked() }
    }

    #[cold]
    #[inline(never)]
    fn see_unlocked(&self) -> Seen {
        for spins in 1.. {
            let header = self.words[0].load(Ordering::Acquire);
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
        self.load(0) == header
    }

    /// Locks the line, if nothing has changed since `seen`.
    #[inline(always)]
    pub(super) fn lock_unchanged(&self, Seen(header): Seen) -> bool {
        let locked = header | LOCKED;
        let exchange =
            self.words[0].compare_exchange(header, locked, Ordering::Acquire, Ordering::Relaxed);
        if exchange.is_ok() {
            // Keeps the writes to come from being seen before the lock is: a reader that sees one
            // of them must find the header changed.
            fence(Ordering::Release);
        }
        exchange.is_ok()
    }

    /// Locks the line, waiting for it.
    pub(super) fn lock(&self) {
        while !self.lock_unchanged(self.see()) {
            spin_loop();
        }
    }

    /// Unlocks the line after changes.
    pub(super) fn unlock_changed(&self) {
        self.unlock_changed_since(Seen(self.load(0)));
    }

    /// Unlocks the line after changes that left its chain as it was `seen`: the header just
    /// exchanged need not be read again.
    #[inline(always)]
    pub(super) fn unlock_changed_since(&self, Seen(header): Seen) {
        let version = header.wrapping_add(VERSION) & VERSION_MASK;
        let next = header >> NEXT_SHIFT << NEXT_SHIFT;
        self.words[0].store(next | version, Ordering::Release);
    }

    /// Unlocks the line as it was.
    pub(super) fn unlock_unchanged(&self) {
        self.words[0].store(self.load(0) & !LOCKED, Ordering::Release);
    }

    #[inline(always)]
    fn high(&self, slot: usize) -> u64 {
        let shift = slot as u32 * LANE;
        let lane = |lane: usize| (self.load(HIGH + lane) >> shift & 0xffff) << (lane as u32 * LANE);
        lane(0) | lane(1) | lane(2)
    }

    #[inline(always)]
    fn load(&self, word: usize) -> u64 {
        self.words[word].load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn store(&self, word: usize, value: u64) {
        self.words[word].store(value, Ordering::Relaxed);
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
