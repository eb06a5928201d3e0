//! 128 bytes of the table: four slots and the lock over them.
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
//!  header   bit 0       locked
//!           bits 1–31   version, changed by every unlocking that may have changed something
//!           bits 32–63  the overflow line that continues this one, plus one; 0: none
//! ```
//!
//! Deciding about a key that is there writes only the second cache line (unless the key has the
//! fourth slot), so that cores which share a busy key pass one line to and fro, not two.
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
const HEADER: usize = 8;
const STATE: usize = HEADER + 1;
const WORDS: usize = 16;

/// Fingerprints whose high halves share a word.
const LANES: usize = (64 / HIGH_BITS) as usize;

const _: () = assert!(HIGH + SLOTS / LANES <= HEADER);
// All states but the last half of the last lie behind the header; that half is word 0.
const _: () = assert!((STATE + 2 * SLOTS - 1).is_multiple_of(WORDS));

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
    #[cfg_attr(
        all(target_arch = "x86_64", not(loom)),
        expect(unsafe_code, reason = "measured: a batch decides three times as fast")
    )]
    pub(super) fn prefetch(&self) {
        #[cfg(all(target_arch = "x86_64", not(loom)))]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let who: *const AtomicU64 = &self.words[0];
            let what: *const AtomicU64 = &self.words[HEADER];
            // SAFETY: a prefetch reads and writes nothing a program can see, whatever the address.
            unsafe {
                _mm_prefetch(who.cast(), _MM_HINT_T0);
                _mm_prefetch(what.cast(), _MM_HINT_T0);
            }
        }
    }

    /// The slot of this line (not of those chained to it) that holds `fingerprint`, and its state.
    ///
    /// Which slot it is cannot be predicted, so all are compared before anything branches.
    #[inline(always)]
    pub(super) fn find(&self, fingerprint: Fingerprint) -> Option<(usize, Words)> {
        let mut matches = (0..SLOTS).fold(0_u32, |matches, slot| {
            matches | u32::from(self.load(LOW + slot) == fingerprint.low) << slot
        });
        while matches != 0 {
            let slot = matches.trailing_zeros() as usize;
            let words = self.state(slot);
            if self.high(slot) == fingerprint.high && !words.is_empty() {
                return Some((slot, words));
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
        let word = STATE + 2 * slot;
        Words(self.load(word), self.load(word + 1))
    }

    /// Replaces a slot's state. Only under the lock.
    #[inline(always)]
    pub(super) fn set_state(&self, slot: usize, Words(first, second): Words) {
        let word = STATE + 2 * slot;
        self.store(word, first);
        self.store(word + 1, second);
    }

    /// Replaces whose slot it is. Only under the lock.
    pub(super) fn set_fingerprint(&self, slot: usize, fingerprint: Fingerprint) {
        self.store(LOW + slot, fingerprint.low);
        let (word, shift) = high_place(slot);
        let others = self.load(word) & !(u64::from(u32::MAX) << shift);
        self.store(word, others | u64::from(fingerprint.high) << shift);
    }

    /// The index of the overflow line that continues this one.
    #[inline(always)]
    pub(super) fn next(&self) -> Option<usize> {
        next_in(self.load(HEADER))
    }

    /// Links an overflow line, or none. Only under the lock of the home.
    pub(super) fn set_next(&self, next: Option<usize>) {
        let next = next.map_or(0, |index| index as u64 + 1);
        let header = self.load(HEADER) & ((1 << NEXT_SHIFT) - 1);
        self.store(HEADER, header | next << NEXT_SHIFT);
    }

    /// The header, once it is unlocked. For homes.
    #[inline(always)]
    pub(super) fn see(&self) -> Seen {
        let header = self.words[HEADER].load(Ordering::Acquire);
        if header & LOCKED == 0 { Seen(header) } else { self.see_unlocked() }
    }

    #[cold]
    #[inline(never)]
    fn see_unlocked(&self) -> Seen {
        for spins in 1.. {
            let header = self.words[HEADER].load(Ordering::Acquire);
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
        self.load(HEADER) == header
    }

    /// Locks the line, if nothing has changed since `seen`.
    #[inline(always)]
    pub(super) fn lock_unchanged(&self, Seen(header): Seen) -> bool {
        let locked = header | LOCKED;
        let exchange = self.words[HEADER].compare_exchange(
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

    /// Locks the line, waiting for it.
    pub(super) fn lock(&self) {
        while !self.lock_unchanged(self.see()) {
            spin_loop();
        }
    }

    /// Unlocks the line after changes.
    pub(super) fn unlock_changed(&self) {
        self.unlock_changed_since(Seen(self.load(HEADER)));
    }

    /// Unlocks the line after changes that left its chain as it was `seen`: the header just
    /// exchanged need not be read again.
    #[inline(always)]
    pub(super) fn unlock_changed_since(&self, Seen(header): Seen) {
        let version = header.wrapping_add(VERSION) & VERSION_MASK;
        let next = header >> NEXT_SHIFT << NEXT_SHIFT;
        self.words[HEADER].store(next | version, Ordering::Release);
    }

    /// Unlocks the line as it was.
    pub(super) fn unlock_unchanged(&self) {
        self.words[HEADER].store(self.load(HEADER) & !LOCKED, Ordering::Release);
    }

    #[inline(always)]
    fn high(&self, slot: usize) -> u32 {
        let (word, shift) = high_place(slot);
        (self.load(word) >> shift) as u32
    }

    #[inline(always)]
    fn load(&self, word: usize) -> u64 {
        self.words[word % WORDS].load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn store(&self, word: usize, value: u64) {
        self.words[word % WORDS].store(value, Ordering::Relaxed);
    }
}

/// The word that holds the high half of a slot's fingerprint, and by how much it is shifted there.
#[inline(always)]
fn high_place(slot: usize) -> (usize, u32) {
    (HIGH + slot / LANES, (slot % LANES) as u32 * HIGH_BITS)
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
