//! States as the two words of a slot: one of 64 bits and one of 40.
//!
//! ```text
//! first word    bits 0–52   the instant, in µs, at which the state goes stale (of two windows but for
//!                           bits it can spare); 0: empty slot
//!               bits 53–61  a bucket's limit, by its number                ┐ of windows: more of
//!               bit 62      set: a bucket's second word has a fraction     ┘ the second word
//!               bit 63      set: the second word is a ticket, the state lies beside the table
//!
//! second word   fixed-window     units used                                ┐ 50 bits: the upper ten
//!               sliding-window   previous units (23 bits, and four that    ┘ are in the first word
//!                                the instant can spare), current units (27)
//!               buckets          µs from the charge to clear, then as many bits for the fraction
//!                                as the limit has, or none
//! ```
//!
//! The instant comes first for all, so that sweeping needs to know nothing else. From it and the
//! meter's period the rest of a window follows. A state whose numbers are larger than their fields
//! lies beside the table: twelve days of debt, or, where the limit does not divide the period, twelve
//! days divided by the limit or so; and more than eight million units in the window before the present one,
//! where the period of a sliding window is no multiple of 16 µs, as a millisecond is not, but two are.

use super::fingerprint::Fingerprint;
use super::line::{SECOND_BITS, Words};
use super::side::Ticket;
use crate::algorithm::bucket::{Debt, Owed, WholeDebt};
use crate::algorithm::fixed_window::{PresentWindow, Window};
use crate::algorithm::sliding_window::{PresentWindows, Windows};
use crate::algorithm::{Algorithm, Present, State};
use crate::meter::Meter;
use crate::meter::number::{NO_NUMBER, NUMBERS, limit_of, number_of};
use crate::time::{MAX_EXACT, Timestamp};

const BESIDE: u64 = 1 << 63;
const FRACTIONAL: u64 = 1 << 62;
const LIMIT_SHIFT: u32 = 53;
const _: () = assert!(NUMBERS == 1 << 9);
/// The tag of a limit without a number: no word has it.
const NO_TAG: u64 = !MAX_EXACT;
const _: () = assert!(tag(NO_NUMBER) == NO_TAG);
/// What windows count.
const COUNTS_BITS: u32 = SECOND_BITS + 10;
const COUNTS: u64 = (1 << COUNTS_BITS) - 1;
/// What one of two windows counts, which is no more than the largest limit.
const COUNT_BITS: u32 = 27;
const COUNT: u64 = (1 << COUNT_BITS) - 1;
/// Bits of the other's count that are left.
const CLOSE_BITS: u32 = COUNTS_BITS - COUNT_BITS;
/// The low bits of an instant, which are zero where the period is a multiple of 16 µs, as nearly all are. There
/// the upper bits of that count are kept.
const SPARE: u64 = (1 << (COUNT_BITS - CLOSE_BITS)) - 1;

const _: () = assert!(MAX_EXACT < 1 << LIMIT_SHIFT);

impl Words {
    /// When the state goes stale, in µs.
    #[inline(always)]
    pub(super) fn stale_at(self) -> u64 {
        self.0 & MAX_EXACT
    }

    /// The ticket, if the state lies beside the table.
    #[inline(always)]
    pub(super) fn ticket(self, owner: Fingerprint) -> Option<Ticket> {
        self.is_beside().then(|| Ticket::from_word(self.1, owner))
    }

    #[inline(always)]
    fn is_beside(self) -> bool {
        self.0 & BESIDE != 0
    }

    /// What a window counts, or `None` if it is too much.
    #[inline(always)]
    fn counting(stale_at: u64, counts: u64) -> Option<Self> {
        let upper = counts >> SECOND_BITS << LIMIT_SHIFT;
        let words = Self(stale_at | upper, counts & ((1 << SECOND_BITS) - 1));
        (counts >> COUNTS_BITS == 0).then_some(words)
    }

    /// What [`Words::counting`] made words of, or `None` if it lies beside the table.
    #[inline(always)]
    fn counts(self) -> Option<u64> {
        let counts = self.0 >> LIMIT_SHIFT << SECOND_BITS | self.1;
        (!self.is_beside()).then_some(counts)
    }

    /// A slot whose state lies beside the table.
    pub(super) fn beside(ticket: Ticket, stale_at: u64) -> Self {
        Self(stale_at | BESIDE, ticket.to_word())
    }
}

/// A state that usually fits a slot.
pub(super) trait Inline: Copy + Default {
    /// What it is at an instant.
    type Present: Present<State = Self>;

    /// What it takes to read and write it; `None` if its limit has no number.
    fn code(meter: &Meter) -> Option<Code<'_>>;

    /// The state as words, or `None` if it is too large.
    fn encode(self, code: Code<'_>) -> Option<Words>;

    /// The state of words that are not empty, or `None` if they hold one this cannot be.
    fn decode(words: Words, code: Code<'_>) -> Option<Self>;

    /// The state as it stands at `now`.
    fn present(self, meter: &Meter, now: Timestamp) -> Self::Present;
}

impl Inline for Window {
    type Present = PresentWindow;

    #[inline(always)]
    fn code(meter: &Meter) -> Option<Code<'_>> {
        Some(Code::new(meter))
    }

    #[inline(always)]
    fn encode(self, _: Code<'_>) -> Option<Words> {
        Words::counting(self.stale_at(), self.used())
    }

    #[inline(always)]
    fn decode(words: Words, _: Code<'_>) -> Option<Self> {
        Some(Self::new(words.stale_at(), words.counts()?))
    }

    #[inline(always)]
    fn present(self, meter: &Meter, now: Timestamp) -> PresentWindow {
        self.present(meter, now)
    }
}

impl Inline for Windows {
    type Present = PresentWindows;

    #[inline(always)]
    fn code(meter: &Meter) -> Option<Code<'_>> {
        Some(Code::new(meter))
    }

    #[inline(always)]
    fn encode(self, code: Code<'_>) -> Option<Words> {
        let (current, previous) = self.counts();
        let (stale_at, spare) = (self.stale_at(code.meter.period()), spare(code.meter));
        let above = previous >> CLOSE_BITS;
        if current >> COUNT_BITS | above & !spare | stale_at & spare != 0 {
            return None;
        }
        // As much of the previous count as there is room for beside the current one and in the first word.
        let counts = (previous << COUNT_BITS | current) & COUNTS;
        Words::counting(stale_at | above, counts)
    }

    #[inline(always)]
    fn decode(words: Words, code: Code<'_>) -> Option<Self> {
        let (counts, spare) = (words.counts()?, spare(code.meter));
        let above = words.0 & spare;
        let (current, previous) = (counts & COUNT, counts >> COUNT_BITS | above << CLOSE_BITS);
        // Torn reads may hold anything; they are thrown away, but must not panic before that.
        let start = (words.stale_at() ^ above).saturating_sub(2 * code.meter.period().as_micros());
        Some(Self::new(start, current, previous))
    }

    #[inline(always)]
    fn present(self, meter: &Meter, now: Timestamp) -> PresentWindows {
        self.present(meter, now)
    }
}

impl Inline for Debt {
    type Present = Self;

    #[inline(always)]
    fn code(meter: &Meter) -> Option<Code<'_>> {
        let code = Code::new(meter);
        (code.tag != NO_TAG).then_some(code)
    }

    #[inline(always)]
    fn encode(self, code: Code<'_>) -> Option<Words> {
        let (limit, charged, clear, fraction) = self.parts();
        let bits = fraction_bits(limit, fraction > 0);
        let lasts = clear - charged;
        if bits + u64::BITS - lasts.leading_zeros() > SECOND_BITS {
            return None;
        }
        let tag = code.tag_of(limit)? | if fraction > 0 { FRACTIONAL } else { 0 };
        Some(Words(self.stale_at() | tag, lasts << bits | fraction))
    }

    #[inline(always)]
    fn decode(words: Words, code: Code<'_>) -> Option<Self> {
        if words.is_beside() {
            return None;
        }
        let limit = code.limit_of((words.0 >> LIMIT_SHIFT) as u16 % NUMBERS as u16);
        let bits = fraction_bits(limit, words.0 & FRACTIONAL != 0);
        let fraction = words.1 & ((1 << bits) - 1);
        let clear = words.stale_at().saturating_sub(u64::from(fraction > 0));
        let charged = clear.saturating_sub(words.1 >> bits);
        (limit > 0).then(|| Self::new(limit, charged, clear, fraction))
    }

    #[inline(always)]
    fn present(self, _: &Meter, _: Timestamp) -> Self {
        self
    }
}

impl Inline for WholeDebt {
    type Present = Owed;

    #[inline(always)]
    fn code(meter: &Meter) -> Option<Code<'_>> {
        // Those that suit have a number.
        Some(Code::new(meter))
    }

    #[inline(always)]
    fn encode(self, code: Code<'_>) -> Option<Words> {
        // No meter that a whole debt suits takes longer to refill than fits.
        const { assert!(WholeDebt::LONGEST >> SECOND_BITS == 0) };
        Some(Words(self.clear | code.tag, self.lasts))
    }

    /// `None` for a state that lies beside the table, has a fraction or another limit.
    #[inline(always)]
    fn decode(words: Words, code: Code<'_>) -> Option<Self> {
        let clear = words.0 ^ code.tag;
        (clear <= MAX_EXACT).then_some(Self { clear, lasts: words.1 })
    }

    #[inline(always)]
    fn present(self, _: &Meter, now: Timestamp) -> Owed {
        self.owed(now)
    }
}

/// The low bits of the instant at which two windows go stale that are zero, and can count: all of
/// [`SPARE`] or none. Whoever reads them as part of the instant takes it to be a few microseconds later.
#[inline(always)]
fn spare(meter: &Meter) -> u64 {
    if meter.period().as_micros() & SPARE == 0 { SPARE } else { 0 }
}

/// How many bits of a bucket's second word are for its fraction of a microsecond, which is below the
/// limit.
#[inline(always)]
fn fraction_bits(limit: u64, fractional: bool) -> u32 {
    if fractional { u64::BITS - limit.leading_zeros() } else { 0 }
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
    // What the upper bits of the first word are for a bucket under the meter's own limit: nearly
    // every state is under it.
    tag: u64,
}

impl<'a> Code<'a> {
    /// What it takes for the states of a meter's algorithm. A bucket whose limit has no number can be
    /// read, for it may have been written under another limit, but not written.
    #[inline(always)]
    pub(super) fn new(meter: &'a Meter) -> Self {
        Self { meter, tag: tag(meter.number()) }
    }

    #[inline(always)]
    fn tag_of(self, limit: u64) -> Option<u64> {
        match limit == self.meter.limit() {
            true => (self.tag != NO_TAG).then_some(self.tag),
            false => number_of(limit).map(tag),
        }
    }

    #[inline(always)]
    fn limit_of(self, number: u16) -> u64 {
        match self.meter.number() == number {
            true => self.meter.limit(),
            false => limit_of(number),
        }
    }
}

/// A number where it stands in a word.
#[inline(always)]
const fn tag(number: u16) -> u64 {
    (number as u64) << LIMIT_SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::Ask;
    use crate::charge::Cost;
    use crate::time::Micros;

    /// Numbers of every size up to `most`, round and odd.
    fn numbers(most: u64) -> impl Iterator<Item = u64> + Clone {
        let powers = (0..54).map(|bit| 1 << bit);
        let around = powers.flat_map(|power: u64| [power - 1, power, power + 1, power * 3 / 2]);
        around.filter(move |number| *number <= most)
    }

    fn meter(limit: u64, algorithm: Algorithm) -> Option<Meter> {
        let period = crate::Period::new(Micros::new(86_400_000_000))?;
        Meter::new(crate::Quota::new(limit, period)?, algorithm).ok()
    }

    /// Checks that a state which fits comes back as it went in; says whether it fits.
    fn comes_back<T: Inline + std::fmt::Debug + PartialEq>(state: T, meter: &Meter) -> bool {
        let code = T::code(meter).unwrap();
        let words = state.encode(code);
        if let Some(words) = words {
            assert!(!words.is_empty() && words.1 >> SECOND_BITS == 0, "{words:x?}");
            assert_eq!(T::decode(words, code), Some(state), "{words:x?} of {meter}");
        }
        words.is_some()
    }

    const NOW: u64 = 1_700_000_000_000_000;

    #[test]
    fn debts_come_back_whatever_their_limit_and_fraction() {
        let mut fitting = 0;
        for limit in numbers(94_906_265).filter(|limit| *limit > 0) {
            let meter = meter(limit, Algorithm::TokenBucket).unwrap();
            for lasts in numbers(1 << 45) {
                for fraction in [0, 1, limit / 2, limit - 1].map(|fraction| fraction % limit) {
                    let debt = Debt::new(limit, NOW, NOW + lasts, fraction);
                    let fits = comes_back(debt, &meter);
                    fitting += usize::from(fits);
                    let whole = fraction == 0 && lasts >> SECOND_BITS == 0;
                    assert!(fits || !whole, "twelve whole days of debt fit: {debt:?}");
                }
            }
        }
        assert!(fitting > 10_000, "{fitting}");
    }

    #[test]
    fn whole_debts_are_read_alike_by_both() {
        let meter = meter(1_000, Algorithm::TokenBucket).unwrap();
        for lasts in numbers(WholeDebt::LONGEST) {
            let whole = WholeDebt { clear: NOW + lasts, lasts };
            assert!(comes_back(whole, &meter));
            let code = Code::new(&meter);
            let debt = Debt::decode(whole.encode(code).unwrap(), code).unwrap();
            assert_eq!(debt.parts(), (1_000, NOW, NOW + lasts, 0));
            assert_eq!(debt.encode(code), whole.encode(code));
        }
    }

    #[test]
    fn a_fraction_is_no_whole_debt() {
        let meter = meter(7, Algorithm::TokenBucket).unwrap();
        let code = Code::new(&meter);
        let words = Debt::new(7, NOW, NOW + 5, 3).encode(code).unwrap();
        assert_eq!(WholeDebt::decode(words, code), None);
    }

    #[test]
    fn windows_come_back_as_long_as_their_counts_fit() {
        let meter = meter(1 << 52, Algorithm::FixedWindow).unwrap();
        for count in numbers(1 << 53) {
            let fits = comes_back(Window::new(NOW, count), &meter);
            assert_eq!(fits, count >> COUNTS_BITS == 0, "{count}");
        }
    }

    #[test]
    fn two_windows_come_back_whatever_their_limit_if_their_period_spares_bits() {
        const MOST: u64 = 94_906_265;
        for (micros, most) in [(2_000, MOST), (86_400_000_000, MOST), (1_000, (1 << 23) - 1)] {
            let period = crate::Period::new(Micros::new(micros)).unwrap();
            let quota = crate::Quota::new(MOST, period).unwrap();
            let meter = Meter::new(quota, Algorithm::SlidingWindow).unwrap();
            let start = NOW / micros * micros;
            for count in numbers(MOST).chain([MOST]) {
                for previous in [0, 1, 8_388_607, 8_388_608, MOST] {
                    let windows = Windows::new(start, count, previous);
                    assert_eq!(comes_back(windows, &meter), previous <= most);
                    let windows = Windows::new(start, previous, count);
                    assert_eq!(comes_back(windows, &meter), count <= most);
                    let words = windows.encode(Code::new(&meter));
                    let stale_at = words.map_or(start + 2 * micros, Words::stale_at);
                    let late = stale_at - (start + 2 * micros);
                    assert!(late < 16, "{late} µs late, of {micros}");
                }
            }
            // Made up: no window begins between two multiples of its period.
            assert_eq!(comes_back(Windows::new(start + 1, 1, 1), &meter), most != MOST);
        }
    }

    /// Numbers that follow no rule, the same in every run.
    fn unruly(state: &mut u64) -> u64 {
        *state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *state ^ *state >> 29
    }

    fn look_at_torn<T: Inline>(words: Words, meter: &Meter, now: Timestamp) {
        let Some(code) = T::code(meter) else { return };
        let Some(state) = T::decode(words, code) else { return };
        let after = state.present(meter, now).evaluate(meter, Ask::exactly(Cost::ONE), now).delta();
        std::hint::black_box(after.map(|after| after.encode(code)));
    }

    /// A reader may find the words of two states before it finds that they belong to none.
    #[test]
    fn torn_words_are_only_wrong_numbers() {
        let mut state = 42;
        for quota in ["1/ms", "7/s", "1000/min", "90000000/h", "1000/400d"] {
            for algorithm in Algorithm::ALL {
                let Ok(meter) = Meter::new(quota.parse().unwrap(), algorithm) else { continue };
                for turn in 0..20_000 {
                    let now = [unruly(&mut state) % 1_000, 1 << 52, NOW][turn % 3];
                    let now = Timestamp::from_micros(now);
                    let few = unruly(&mut state) % 64;
                    let words = Words(
                        unruly(&mut state) >> few,
                        unruly(&mut state) & ((1 << SECOND_BITS) - 1),
                    );
                    match algorithm {
                        Algorithm::FixedWindow => look_at_torn::<Window>(words, &meter, now),
                        Algorithm::SlidingWindow => look_at_torn::<Windows>(words, &meter, now),
                        Algorithm::SlidingLog => {}
                        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                            look_at_torn::<Debt>(words, &meter, now);
                            if meter.has_whole_debts() {
                                look_at_torn::<WholeDebt>(words, &meter, now);
                            }
                        }
                    }
                }
            }
        }
    }
}
