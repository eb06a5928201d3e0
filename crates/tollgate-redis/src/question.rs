//! What is asked of the script: the names buckets lie under, and the shapes of charges.

use smallvec::SmallVec;
use tollgate::quota::{Calendar, CalendarWindow};
use tollgate::{Algorithm, Charge, ChargeSet, Enforcement, MAX_EXACT, Op, Prefix, Timestamp};

use crate::slot::slot;

/// Numbers in a packed [`Shape`].
const NUMBERS: usize = 8;

/// The bytes of each: integers up to 2^53 as doubles, which is what the script calculates in and
/// reads in half the time of integers.
const NUMBER: usize = 8;

/// The length of a packed [`Shape`]: four bytes and the numbers.
pub(crate) const SHAPE: usize = 4 + NUMBER * NUMBERS;

/// The last two numbers: where a window of a calendar begins and ends.
const WINDOW: usize = SHAPE - 2 * NUMBER;

/// What a charge asks apart from its key, packed as the script's `shape_of` reads it. Charges of
/// different sets often have the same, which is then sent once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape([u8; SHAPE]);

/// One set as the script is asked it. Owned, so that sets of several callers can share a call.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    charges: SmallVec<[(Vec<u8>, Shape); 1]>,
    // For each charge that goes by one, its number and the calendar.
    calendars: SmallVec<[(usize, &'static Calendar); 0]>,
}

impl Question {
    /// The question whether `set` is admitted, of buckets whose names begin with `prefix`; windows
    /// of a calendar are those around `now`, as far as anybody here knows.
    pub(crate) fn new(prefix: &Prefix, set: &ChargeSet<'_>, now: Timestamp) -> Self {
        let charges = set.charges().iter();
        let charges =
            charges.map(|charge| (prefix.name(&charge.key, &charge.meter), Shape::of(charge)));
        let calendars = set.charges().iter().enumerate();
        let calendars = calendars
            .filter_map(|(index, charge)| Some((index, charge.meter.period().as_calendar()?)));
        let mut question = Self { charges: charges.collect(), calendars: calendars.collect() };
        question.aim(now);
        question
    }

    /// The same question, asked at `now` by the server's clock.
    pub(crate) fn at(&self, now: Timestamp) -> Self {
        let mut question = self.clone();
        question.aim(now);
        question
    }

    fn aim(&mut self, now: Timestamp) {
        for (index, calendar) in &self.calendars {
            let window = calendar.window(now);
            self.charges[*index].1.set_window(window);
        }
    }

    /// How many charges it has.
    pub(crate) fn len(&self) -> usize {
        self.charges.len()
    }

    /// The name each charge's bucket lies under, and what is asked of it.
    pub(crate) fn charges(&self) -> impl ExactSizeIterator<Item = (&[u8], &Shape)> {
        self.charges.iter().map(|(name, shape)| (name.as_slice(), shape))
    }

    /// The cluster slot of each charge's bucket.
    pub(crate) fn slots(&self) -> impl ExactSizeIterator<Item = u16> {
        self.charges().map(|(name, _)| slot(name))
    }
}

impl Shape {
    fn of(charge: &Charge<'_>) -> Self {
        let Charge { meter, op, enforcement, .. } = charge;
        let (op, least, most, at) = match *op {
            Op::Take(ask) => (1, ask.min.get(), ask.max.get(), 0),
            Op::Peek(cost) => (2, cost.get(), cost.get(), 0),
            Op::Refund { cost, at } => (3, 0, cost.get(), at.as_micros()),
            Op::Reset => (4, 0, 0, 0),
        };
        let (enforcement, group) = match *enforcement {
            Enforcement::Enforce => (1, 0),
            Enforcement::Shadow => (2, 0),
            Enforcement::AnyOf(group) => (3, group),
        };
        let mut shape = [0; SHAPE];
        shape[..4].copy_from_slice(&[code(meter.algorithm()), op, enforcement, group]);
        // No capacity reaches 2^53, so a cost beyond it may as well be it.
        let cost = |units: u64| units.min(MAX_EXACT + 1);
        let numbers = [
            meter.limit(),
            meter.period().as_micros(),
            meter.capacity(),
            cost(least),
            cost(most),
            at,
        ];
        pack(&numbers, &mut shape[4..]);
        Self(shape)
    }

    fn set_window(&mut self, window: CalendarWindow) {
        pack(&[window.start.as_micros(), window.end.as_micros()], &mut self.0[WINDOW..]);
    }

    /// The packed shape.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Writes integers one after the other.
fn pack(numbers: &[u64], into: &mut [u8]) {
    for (bytes, &number) in into.chunks_exact_mut(NUMBER).zip(numbers) {
        bytes.copy_from_slice(&(number as f64).to_le_bytes());
    }
}

/// The number of an algorithm in the script.
const fn code(algorithm: Algorithm) -> u8 {
    match algorithm {
        Algorithm::FixedWindow => 1,
        Algorithm::SlidingLog => 2,
        Algorithm::SlidingWindow => 3,
        Algorithm::TokenBucket => 4,
        Algorithm::LeakyBucket => 5,
    }
}
