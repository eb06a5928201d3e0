//! What is asked of the script: the names of buckets, and the shapes of charges.

use smallvec::SmallVec;
use tollgate::{Algorithm, Charge, ChargeSet, Enforcement, MAX_EXACT, Meter, Op, Prefix};

use crate::slot::slot;

/// The least and the most a key outlives its state, in µs. A lifetime is only written anew when less
/// than a second of it would be left, so this is also how seldom that is for a busy bucket.
const LEAST_SLACK: u64 = 10_000_000;
const MOST_SLACK: u64 = 60_000_000;

/// The length of a packed [`Shape`]: four bytes and seven integers of seven.
const SHAPE: usize = 4 + 7 * 7;

/// What a charge asks apart from its key, packed as the script's `shape_of` reads it. Charges of
/// different sets often have the same, which is then sent once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape([u8; SHAPE]);

/// One set as the script is asked it. Owned, so that sets of several callers can share a call.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    charges: SmallVec<[(Vec<u8>, Shape); 1]>,
}

impl Question {
    /// The question whether `set` is admitted, of buckets whose names begin with `prefix`.
    pub(crate) fn new(prefix: &Prefix, set: &ChargeSet<'_>) -> Self {
        let charges = set.charges().iter();
        let charges =
            charges.map(|charge| (prefix.name(&charge.key, &charge.meter), Shape::of(charge)));
        Self { charges: charges.collect() }
    }

    /// How many charges it has.
    pub(crate) fn len(&self) -> usize {
        self.charges.len()
    }

    /// The name of each charge's bucket, and what is asked of it.
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
            slack(meter),
            cost(least),
            cost(most),
            at,
        ];
        for (bytes, number) in shape[4..].chunks_exact_mut(7).zip(numbers) {
            bytes.copy_from_slice(&number.to_le_bytes()[..7]);
        }
        Self(shape)
    }

    /// The packed shape.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
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

/// How long a bucket's key outlives its state, in µs: as long as the state itself may last, within
/// bounds.
fn slack(meter: &Meter) -> u64 {
    meter.refill().get().clamp(LEAST_SLACK, MOST_SLACK)
}
