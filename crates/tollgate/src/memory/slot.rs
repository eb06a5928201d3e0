//! States as the two words of a slot.
//!
//! ```text
//! first word    bits 0–52   the instant, in µs, at which the state goes stale; 0: empty slot
//!               bits 53–62  a bucket's limit, by its number in [`Limits`]
//!               bit 63      set: the second word is a ticket, the state lies beside the table
//!
//! second word   fixed-window     units used
//!               sliding-window   current units (32 bits), previous units (32 bits)
//!               buckets          fraction (24 bits), µs from the charge to clear (40 bits)
//! ```
//!
//! The instant comes first for all, so that sweeping needs to know nothing else. From it and the
//! meter's period the rest of a window follows. A bucket whose numbers are larger than their fields
//! (more than 16 million units per period, or twelve days of debt) lies beside the table.

use std::sync::atomic::{AtomicU64, Ordering};

use super::line::Words;
use super::side::Ticket;
use crate::algorithm::bucket::{Debt, WholeDebt};
use crate::algorithm::fixed_window::Window;
use crate::algorithm::sliding_window::Windows;
use crate::algorithm::{Algorithm, Ask, Evaluation, Standing, State};
use crate::meter::Meter;
use crate::time::{MAX_EXACT, Timestamp};

const BESIDE: u64 = 1 << 63;
const LIMIT_SHIFT: u32 = 53;
const LIMIT_IDS: usize = 1 << 10;
/// The tag of a limit without a number: no word has it.
const NO_TAG: u64 = !MAX_EXACT;
const FRACTION_BITS: u32 = 24;
const COUNT_BITS: u32 = 32;

const _: () = assert!(MAX_EXACT < 1 << LIMIT_SHIFT);

impl Words {
    /// When the state goes stale, in µs.
    #[inline(always)]
    pub(super) fn stale_at(self) -> u64 {
        self.0 & MAX_EXACT
    }

    /// The ticket, if the state lies beside the table.
    #[inline(always)]
    pub(super) fn ticket(self) -> Option<Ticket> {
        (self.0 & BESIDE != 0).then(|| Ticket::from_word(self.1))
    }

    /// A slot whose state lies beside the table.
    pub(super) fn beside(ticket: Ticket, stale_at: u64) -> Self {
        Self(stale_at | BESIDE, ticket.to_word())
    }
}

/// A state that usually fits a slot.
pub(super) trait Inline: Copy + Default {
    /// The state as words, or `None` if it is too large.
    fn encode(self, code: Code<'_>) -> Option<Words>;

    /// The state of words that are not empty, or `None` if they hold one this cannot be.
    fn decode(words: Words, code: Code<'_>) -> Option<Self>;

    /// See [`State::evaluate`].
    fn evaluate(&self, meter: &Meter, ask: Ask, now: Timestamp) -> Evaluation<Self>;

    /// See [`State::standing`].
    fn standing(&self, meter: &Meter, now: Timestamp) -> Standing;
}

impl Inline for Window {
    #[inline(always)]
    fn encode(self, _: Code<'_>) -> Option<Words> {
        Some(Words(self.stale_at(), self.used()))
    }

    #[inline(always)]
    fn decode(words: Words, _: Code<'_>) -> Option<Self> {
        (words.0 <= MAX_EXACT).then(|| Self::new(words.0, words.1))
    }

    #[inline(always)]
    fn evaluate(&self, meter: &Meter, ask: Ask, now: Timestamp) -> Evaluation<Self> {
        self.evaluate(meter, ask, now)
    }

    #[inline(always)]
    fn standing(&self, meter: &Meter, now: Timestamp) -> Standing {
        self.standing(meter, now)
    }
}

impl Inline for Windows {
    #[inline(always)]
    fn encode(self, code: Code<'_>) -> Option<Words> {
        let (current, previous) = self.counts();
        // A sliding window's limit has 27 bits.
        Some(Words(self.stale_at(code.meter.period()), previous << COUNT_BITS | current))
    }

    #[inline(always)]
    fn decode(words: Words, code: Code<'_>) -> Option<Self> {
        // Torn reads may hold anything; they are thrown away, but must not panic before that.
        let start = words.stale_at().saturating_sub(2 * code.meter.period().as_micros());
        let (current, previous) = (words.1 & u64::from(u32::MAX), words.1 >> COUNT_BITS);
        (words.0 <= MAX_EXACT).then(|| Self::new(start, current, previous))
    }

    #[inline(always)]
    fn evaluate(&self, meter: &Meter, ask: Ask, now: Timestamp) -> Evaluation<Self> {
        self.evaluate(meter, ask, now)
    }

    #[inline(always)]
    fn standing(&self, meter: &Meter, now: Timestamp) -> Standing {
        self.standing(meter, now)
    }
}

impl Inline for Debt {
    #[inline(always)]
    fn encode(self, code: Code<'_>) -> Option<Words> {
        let (limit, charged, clear, fraction) = self.parts();
        let lasts = clear - charged;
        if limit >> FRACTION_BITS != 0 || lasts >> (64 - FRACTION_BITS) != 0 {
            return None;
        }
        let tag = code.tag_of(limit);
        let words = Words(self.stale_at() | tag, lasts << FRACTION_BITS | fraction);
        (tag != NO_TAG).then_some(words)
    }

    #[inline(always)]
    fn decode(words: Words, code: Code<'_>) -> Option<Self> {
        if words.ticket().is_some() {
            return None;
        }
        let fraction = words.1 & ((1 << FRACTION_BITS) - 1);
        let clear = words.stale_at().saturating_sub(u64::from(fraction > 0));
        let charged = clear.saturating_sub(words.1 >> FRACTION_BITS);
        let limit = code.limit_of(words.0 >> LIMIT_SHIFT);
        (limit > 0).then(|| Self::new(limit, charged, clear, fraction))
    }

    #[inline(always)]
    fn evaluate(&self, meter: &Meter, ask: Ask, now: Timestamp) -> Evaluation<Self> {
        self.evaluate(meter, ask, now)
    }

    #[inline(always)]
    fn standing(&self, meter: &Meter, now: Timestamp) -> Standing {
        self.standing(meter, now)
    }
}

impl Inline for WholeDebt {
    #[inline(always)]
    fn encode(self, code: Code<'_>) -> Option<Words> {
        let fits = self.lasts >> (64 - FRACTION_BITS) == 0 && code.tag != NO_TAG;
        fits.then_some(Words(self.clear | code.tag, self.lasts << FRACTION_BITS))
    }

    /// `None` for a state that lies beside the table, has a fraction or another limit.
    #[inline(always)]
    fn decode(words: Words, code: Code<'_>) -> Option<Self> {
        let clear = words.0 ^ code.tag;
        let whole = words.1 << (64 - FRACTION_BITS) == 0;
        (clear <= MAX_EXACT && whole).then_some(Self { clear, lasts: words.1 >> FRACTION_BITS })
    }

    #[inline(always)]
    fn evaluate(&self, meter: &Meter, ask: Ask, now: Timestamp) -> Evaluation<Self> {
        self.evaluate(meter, ask, now)
    }

    #[inline(always)]
    fn standing(&self, meter: &Meter, now: Timestamp) -> Standing {
        self.standing(meter, now)
    }
}

/// The state as words, or `None` if it is too large for a slot.
pub(super) fn encode(state: &State, code: Code<'_>) -> Option<Words> {
    match state {
        State::FixedWindow(window) => window.encode(code),
        State::SlidingWindow(windows) => windows.encode(code),
        State::Bucket(debt) => debt.encode(code),
        State::SlidingLog(_) => None,
    }
}

/// The state of words that are not empty, or `None` if it lies beside the table.
pub(super) fn decode(words: Words, code: Code<'_>) -> Option<State> {
    if words.ticket().is_some() {
        return None;
    }
    match code.meter.algorithm() {
        Algorithm::FixedWindow => Window::decode(words, code).map(State::FixedWindow),
        Algorithm::SlidingWindow => Windows::decode(words, code).map(State::SlidingWindow),
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            Debt::decode(words, code).map(State::Bucket)
        }
        Algorithm::SlidingLog => None,
    }
}

/// What it takes to read and write the states of a meter.
#[derive(Clone, Copy)]
pub(super) struct Code<'a> {
    meter: &'a Meter,
    limits: &'a Limits,
    // What the upper bits of the first word are for a bucket under the meter's own limit, looked up
    // once: nearly every state is under it.
    tag: u64,
}

impl<'a> Code<'a> {
    #[inline(always)]
    pub(super) fn new(meter: &'a Meter, limits: &'a Limits) -> Self {
        let tag = match meter.algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => limits.tag(meter.limit()),
            Algorithm::FixedWindow | Algorithm::SlidingLog | Algorithm::SlidingWindow => 0,
        };
        Self { meter, limits, tag }
    }

    #[inline(always)]
    fn tag_of(self, limit: u64) -> u64 {
        match limit == self.meter.limit() {
            true => self.tag,
            false => self.limits.tag(limit),
        }
    }

    #[inline(always)]
    fn limit_of(self, id: u64) -> u64 {
        match self.tag >> LIMIT_SHIFT == id {
            true => self.meter.limit(),
            false => self.limits.limit(id as usize),
        }
    }
}

/// Numbers for limits: buckets remember which limit they were written under, and there are far fewer
/// limits than buckets.
///
/// The first thousand get a number each, for good; buckets with other limits lie beside the table.
pub(super) struct Limits {
    // Where a limit may stand is given by its low bits; 0: free.
    known: Box<[AtomicU64; LIMIT_IDS]>,
}

/// Places looked at for a limit.
const PROBES: usize = 8;

impl Limits {
    pub(super) fn new() -> Self {
        Self { known: Box::new(std::array::from_fn(|_| AtomicU64::new(0))) }
    }

    /// The number of `limit` where it stands in a word, or [`NO_TAG`] if there is none left for it.
    #[inline(always)]
    fn tag(&self, limit: u64) -> u64 {
        // People's limits differ in their low bits well enough.
        let first = limit % LIMIT_IDS as u64;
        match self.limit(first as usize) == limit {
            true => first << LIMIT_SHIFT,
            false => self.probe(first, limit).map_or(NO_TAG, |id| id << LIMIT_SHIFT),
        }
    }

    /// Looks for `limit` from its first place on, and gives it the first that is free.
    #[cold]
    #[inline(never)]
    fn probe(&self, first: u64, limit: u64) -> Option<u64> {
        (first..first + PROBES as u64).map(|id| id % LIMIT_IDS as u64).find(|&id| {
            let known = &self.known[id as usize];
            match known.compare_exchange(0, limit, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => true,
                Err(other) => other == limit,
            }
        })
    }

    /// The limit with this number; zero if there is none.
    #[inline(always)]
    fn limit(&self, id: usize) -> u64 {
        self.known[id % LIMIT_IDS].load(Ordering::Relaxed)
    }
}
