//! States as the two words of a slot: one of 64 bits and one of 40.
//!
//! ```text
//! first word    bits 0–52   the instant, in µs, at which the state goes stale; 0: empty slot
//!               bits 53–61  a bucket's limit, by its number                ┐ of windows: more of
//!               bit 62      set: a bucket's second word has a fraction     ┘ the second word
//!               bit 63      set: the second word is a ticket, the state lies beside the table
//!
//! second word   fixed-window     units used                                ┐ 50 bits: the upper ten
//!               sliding-window   previous units (25 bits), current units   ┘ are in the first word
//!               buckets          µs from the charge to clear, then as many bits for the fraction
//!                                as the limit has, or none
//! ```
//!
//! The instant comes first for all, so that sweeping needs to know nothing else. From it and the
//! meter's period the rest of a window follows. A state whose numbers are larger than their fields
//! lies beside the table: more than 33 million units in a sliding window, twelve days of debt, or,
//! where the limit does not divide the period, twelve days divided by the limit or so.

use super::fingerprint::Fingerprint;
use super::line::{SECOND_BITS, Words};
use super::side::Ticket;
use crate::algorithm::bucket::{Debt, WholeDebt};
use crate::algorithm::fixed_window::Window;
use crate::algorithm::sliding_window::Windows;
use crate::algorithm::{Algorithm, Ask, Evaluation, Standing, State, reading};
use crate::decision::{Reading, Retry};
use crate::meter::Meter;
use crate::meter::number::{NUMBERS, limit_of, number_of};
use crate::time::{MAX_EXACT, Micros, Timestamp};

const BESIDE: u64 = 1 << 63;
const FRACTIONAL: u64 = 1 << 62;
const LIMIT_SHIFT: u32 = 53;
const _: () = assert!(NUMBERS == 1 << 9);
/// The tag of a limit without a number: no word has it.
const NO_TAG: u64 = !MAX_EXACT;
/// Bits of what windows count, and of each of two counts.
const COUNTS_BITS: u32 = SECOND_BITS + 10;
const COUNT_BITS: u32 = COUNTS_BITS / 2;

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
    /// What its reading is worked out of: as little as there can be, where the numbers may not
    /// matter to anybody.
    type Account: Copy;

    /// What it takes to read and write it; `None` if its limit has no number.
    fn code(meter: &Meter) -> Option<Code<'_>>;

    /// The state as words, or `None` if it is too large.
    fn encode(self, code: Code<'_>) -> Option<Words>;

    /// The state of words that are not empty, or `None` if they hold one this cannot be.
    fn decode(words: Words, code: Code<'_>) -> Option<Self>;

    /// What to remember if `ask` is taken at `now`, if it fits, and the account of that: once it is
    /// taken, if it `takes` what fits, or else as it stands.
    fn weigh(
        self,
        meter: &Meter,
        ask: Ask,
        now: Timestamp,
        takes: bool,
    ) -> (Option<Self>, Self::Account);

    /// What the bucket shows.
    fn reading(account: Self::Account, meter: &Meter, ask: Ask, came: Came) -> Reading;
}

/// What came of a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// It was taken.
    Taken,
    /// It fits, but was only looked at.
    Fitting,
    /// It does not fit.
    Refused,
}

/// What [`Inline::weigh`] says where it is no trouble to say all at once.
#[inline(always)]
fn weigh<T: Copy>(
    evaluation: Evaluation<T>,
    standing: impl FnOnce() -> Standing,
    meter: &Meter,
    takes: bool,
) -> (Option<T>, Reading) {
    match evaluation {
        Evaluation::Fits { units, delay, delta, after } => {
            let (standing, units) = if takes { (after, units) } else { (standing(), 0) };
            (Some(delta), reading(meter, standing, Retry::Now, delay, units))
        }
        Evaluation::Exceeds { retry, present } => {
            (None, reading(meter, present, retry, Micros::ZERO, 0))
        }
    }
}

impl Inline for Window {
    type Account = Reading;

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
    fn weigh(
        self,
        meter: &Meter,
        ask: Ask,
        now: Timestamp,
        takes: bool,
    ) -> (Option<Self>, Reading) {
        weigh(self.evaluate(meter, ask, now), || self.standing(meter, now), meter, takes)
    }

    #[inline(always)]
    fn reading(account: Reading, _: &Meter, _: Ask, _: Came) -> Reading {
        account
    }
}

impl Inline for Windows {
    type Account = Reading;

    #[inline(always)]
    fn code(meter: &Meter) -> Option<Code<'_>> {
        Some(Code::new(meter))
    }

    #[inline(always)]
    fn encode(self, code: Code<'_>) -> Option<Words> {
        let (current, previous) = self.counts();
        if (current | previous) >> COUNT_BITS != 0 {
            return None;
        }
        Words::counting(self.stale_at(code.meter.period()), previous << COUNT_BITS | current)
    }

    #[inline(always)]
    fn decode(words: Words, code: Code<'_>) -> Option<Self> {
        // Torn reads may hold anything; they are thrown away, but must not panic before that.
        let start = words.stale_at().saturating_sub(2 * code.meter.period().as_micros());
        let counts = words.counts()?;
        Some(Self::new(start, counts & ((1 << COUNT_BITS) - 1), counts >> COUNT_BITS))
    }

    #[inline(always)]
    fn weigh(
        self,
        meter: &Meter,
        ask: Ask,
        now: Timestamp,
        takes: bool,
    ) -> (Option<Self>, Reading) {
        weigh(self.evaluate(meter, ask, now), || self.standing(meter, now), meter, takes)
    }

    #[inline(always)]
    fn reading(account: Reading, _: &Meter, _: Ask, _: Came) -> Reading {
        account
    }
}

impl Inline for Debt {
    type Account = Reading;

    #[inline(always)]
    fn code(meter: &Meter) -> Option<Code<'_>> {
        meter.number().map(|_| Code::new(meter))
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
    fn weigh(
        self,
        meter: &Meter,
        ask: Ask,
        now: Timestamp,
        takes: bool,
    ) -> (Option<Self>, Reading) {
        weigh(self.evaluate(meter, ask, now), || self.standing(meter, now), meter, takes)
    }

    #[inline(always)]
    fn reading(account: Reading, _: &Meter, _: Ask, _: Came) -> Reading {
        account
    }
}

impl Inline for WholeDebt {
    // What is owed before the charge.
    type Account = u64;

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
    fn weigh(self, meter: &Meter, ask: Ask, now: Timestamp, _: bool) -> (Option<Self>, u64) {
        let owed = self.owed(now);
        (Self::charged(owed, meter, ask.max.get(), now), owed)
    }

    #[inline(always)]
    fn reading(owed: u64, meter: &Meter, ask: Ask, came: Came) -> Reading {
        let units = ask.max.get();
        let delay = Self::delay(owed, meter);
        match came {
            Came::Taken => {
                let after = Self::standing(Self::with(owed, meter, units), meter);
                reading(meter, after, Retry::Now, delay, units)
            }
            Came::Fitting => reading(meter, Self::standing(owed, meter), Retry::Now, delay, 0),
            Came::Refused => {
                let retry = Self::retry(owed, meter, units);
                reading(meter, Self::standing(owed, meter), retry, Micros::ZERO, 0)
            }
        }
    }
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
        Self { meter, tag: tag(meter.number()).unwrap_or(NO_TAG) }
    }

    #[inline(always)]
    fn tag_of(self, limit: u64) -> Option<u64> {
        match limit == self.meter.limit() {
            true => (self.tag != NO_TAG).then_some(self.tag),
            false => tag(number_of(limit)),
        }
    }

    #[inline(always)]
    fn limit_of(self, number: u16) -> u64 {
        match self.meter.number() == Some(number) {
            true => self.meter.limit(),
            false => limit_of(number),
        }
    }
}

/// A number where it stands in a word.
#[inline(always)]
fn tag(number: Option<u16>) -> Option<u64> {
    number.map(|number| u64::from(number) << LIMIT_SHIFT)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let window = meter(1 << 52, Algorithm::FixedWindow).unwrap();
        let windows = meter(94_906_265, Algorithm::SlidingWindow).unwrap();
        for count in numbers(1 << 53) {
            let fits = comes_back(Window::new(NOW, count), &window);
            assert_eq!(fits, count >> COUNTS_BITS == 0, "{count}");
            for other in [0, 1, 33_554_431, 33_554_432] {
                let most = count.max(other) >> COUNT_BITS == 0;
                assert_eq!(comes_back(Windows::new(NOW, count, other), &windows), most, "{count}");
                assert_eq!(comes_back(Windows::new(NOW, other, count), &windows), most, "{count}");
            }
        }
    }
}
