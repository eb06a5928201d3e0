//! A quota together with the algorithm that meters it, checked to be exact.

use std::error::Error;
use std::fmt;
use std::num::NonZeroU64;

use crate::algorithm::Algorithm;
use crate::algorithm::bucket::{Stretch, WholeDebt};
use crate::divisor::Divisor;
use crate::quota::{Period, Quota};
use crate::time::{MAX_EXACT, Micros};

pub(crate) mod number;

use number::{NO_NUMBER, number_of};

/// The longest a bucket may take to refill: 100 years. With [`Timestamp::MAX`] it keeps every
/// instant a state can hold below 2^53.
///
/// [`Timestamp::MAX`]: crate::Timestamp::MAX
const MAX_REFILL_MICROS: u64 = 36_525 * 86_400_000_000;

/// The largest limit of a sliding log, for it remembers up to one entry per unit.
const MAX_LOG_LIMIT: u64 = 100_000;

/// The largest number whose square stays within 2^53: the largest limit of a sliding window, and of
/// a bucket whose burst equals its limit.
const MAX_SQUARE_LIMIT: u64 = 94_906_265;

const _: () = assert!(MAX_SQUARE_LIMIT * MAX_SQUARE_LIMIT <= 1 << 53);
const _: () = assert!((MAX_SQUARE_LIMIT + 1) * (MAX_SQUARE_LIMIT + 1) > 1 << 53);
const _: () = assert!(crate::Timestamp::MAX.as_micros() + MAX_REFILL_MICROS <= MAX_EXACT);
const _: () = assert!(crate::Timestamp::MAX.as_micros() + 2 * Period::MAX.as_micros() <= MAX_EXACT);

/// A quota metered by an algorithm, known to fit exact arithmetic.
///
/// Building one is where all divisions happen that do not depend on a request, so keep it and copy
/// it rather than parse a quota per request.
///
/// ```
/// use tollgate::{Algorithm, Meter};
///
/// let meter = Meter::new("10/s burst 50".parse()?, Algorithm::TokenBucket)?;
/// assert_eq!(meter.capacity(), 50);
///
/// let error = Meter::new("10/s burst 50".parse()?, Algorithm::FixedWindow).unwrap_err();
/// assert!(error.to_string().contains("write \"10/s\""));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Meter {
    quota: Quota,
    algorithm: Algorithm,
    // How long one unit lasts, and a whole capacity of them, at the quota's rate.
    unit: Stretch,
    full: Stretch,
    // What tells its buckets from those of another algorithm or period.
    kind: u64,
    // The number of its limit, if it has buckets and there was one left, or else [`NO_NUMBER`].
    number: u16,
    // Whether a [`WholeDebt`] can say what its buckets owe.
    whole: bool,
    // What is divided by to say how many units are left: how many microseconds one lasts, of whole debts;
    // of everything else the period.
    divisor: Divisor,
}

impl Meter {
    /// Meters `quota` by `algorithm`, or says what would fit.
    pub fn new(quota: Quota, algorithm: Algorithm) -> Result<Self, MeterError> {
        fits(quota, algorithm).map_err(|misfit| MeterError { quota, algorithm, misfit })?;
        let unit = Stretch::of_unit(quota);
        let full = match algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                unit.times(quota.burst(), quota.limit(), 0)
            }
            Algorithm::FixedWindow | Algorithm::SlidingLog | Algorithm::SlidingWindow => {
                Stretch { micros: quota.period().as_micros(), fraction: 0 }
            }
        };
        // A period's number has 49 bits.
        let kind = quota.period().id() << 3 | algorithm as u64;
        let buckets = matches!(algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket);
        let number = if buckets { number_of(quota.limit()) } else { None };
        let number = number.unwrap_or(NO_NUMBER);
        let whole = number != NO_NUMBER
            && unit.fraction == 0
            && unit.micros > 0
            && full.micros <= WholeDebt::LONGEST;
        let divisor = if whole { unit.micros } else { quota.period().as_micros() };
        let divisor = Divisor::new(NonZeroU64::new(divisor).unwrap_or(NonZeroU64::MIN));
        Ok(Self { quota, algorithm, unit, full, kind, number, whole, divisor })
    }

    /// The quota.
    pub const fn quota(&self) -> Quota {
        self.quota
    }

    /// The algorithm.
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Units per period.
    pub const fn limit(&self) -> u64 {
        self.quota.limit()
    }

    /// The most units one request can ever take: the burst of a bucket, the limit of a window.
    pub const fn capacity(&self) -> u64 {
        // Windows were refused any burst but their limit.
        self.quota.burst()
    }

    /// The period.
    pub const fn period(&self) -> Period {
        self.quota.period()
    }

    /// The time a spent capacity takes to come back, rounded up: a window's period, a bucket's
    /// whole refill.
    pub const fn refill(&self) -> Micros {
        Micros::new(self.full.ceil())
    }

    /// The algorithm and the period, in 52 bits: with the key they name a bucket.
    #[doc(hidden)]
    pub const fn kind(&self) -> u64 {
        self.kind
    }

    /// The number its buckets remember its limit by, or [`NO_NUMBER`] if there was none left.
    pub(crate) const fn number(&self) -> u16 {
        self.number
    }

    /// Whether it has buckets that owe a whole number of microseconds after each charge, and not too many,
    /// and its limit has a number.
    #[inline(always)]
    pub(crate) const fn has_whole_debts(&self) -> bool {
        self.whole
    }

    /// How many microseconds a unit lasts, if it [has whole debts](Meter::has_whole_debts); else the period.
    #[inline(always)]
    pub(crate) const fn divisor(&self) -> Divisor {
        self.divisor
    }

    /// How long one unit lasts.
    pub(crate) const fn unit(&self) -> Stretch {
        self.unit
    }

    /// How long a full bucket lasts.
    pub(crate) const fn full(&self) -> Stretch {
        self.full
    }
}

impl fmt::Display for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.quota, self.algorithm)
    }
}

/// Why an algorithm cannot meter a quota exactly, and the nearest quota it could.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeterError {
    quota: Quota,
    algorithm: Algorithm,
    misfit: Misfit,
}

/// What does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Misfit {
    Calendar,
    WindowWithBurst,
    Limit { most: u64 },
    Burst { most: u64 },
    Refill { most: u64 },
}

impl fmt::Display for MeterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { quota, algorithm, misfit } = self;
        write!(f, "quota \"{quota}\" does not fit {algorithm}: ")?;
        match misfit {
            Misfit::Calendar => f.write_str(
                "only fixed windows follow a calendar; write algorithm \"fixed-window\"",
            ),
            Misfit::WindowWithBurst => {
                let (limit, period) = (quota.limit(), quota.period());
                let remedy = format_args!("\"{limit}/{period}\", or choose token-bucket");
                write!(f, "only buckets have a burst; write {remedy}")
            }
            Misfit::Limit { most } => write!(f, "the largest limit that fits is {most}"),
            Misfit::Burst { most } => {
                write!(f, "with this limit the largest burst that fits is {most}")
            }
            Misfit::Refill { most } => {
                write!(f, "a bucket must refill within 100 years, so the burst may be {most}")
            }
        }
    }
}

impl Error for MeterError {}

/// Checks every product the algorithms form against 2^53.
fn fits(quota: Quota, algorithm: Algorithm) -> Result<(), Misfit> {
    let (limit, burst) = (quota.limit(), quota.burst());
    if quota.period().as_calendar().is_some() && algorithm != Algorithm::FixedWindow {
        return Err(Misfit::Calendar);
    }
    let window = |most| match () {
        () if limit > most => Err(Misfit::Limit { most }),
        () if burst != limit => Err(Misfit::WindowWithBurst),
        () => Ok(()),
    };
    match algorithm {
        Algorithm::FixedWindow => window(Quota::MAX_LIMIT),
        Algorithm::SlidingLog => window(MAX_LOG_LIMIT),
        Algorithm::SlidingWindow => window(MAX_SQUARE_LIMIT),
        Algorithm::TokenBucket | Algorithm::LeakyBucket => bucket_fits(quota),
    }
}

/// Burst × limit within 2^53, and a full refill within 100 years.
fn bucket_fits(quota: Quota) -> Result<(), Misfit> {
    let (limit, burst) = (quota.limit(), quota.burst());
    if u128::from(limit) * u128::from(burst) > 1 << 53 {
        return Err(match burst == limit {
            true => Misfit::Limit { most: MAX_SQUARE_LIMIT },
            false => Misfit::Burst { most: (1 << 53) / limit },
        });
    }
    let period = u128::from(quota.period().as_micros());
    let longest = u128::from(MAX_REFILL_MICROS) * u128::from(limit);
    if u128::from(burst) * period > longest {
        // Smaller than the burst that was just refused, so it fits 64 bits.
        return Err(Misfit::Refill { most: (longest / period) as u64 });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use Algorithm::{FixedWindow, LeakyBucket, SlidingLog, SlidingWindow, TokenBucket};

    fn meter(quota: &str, algorithm: Algorithm) -> Result<Meter, String> {
        let quota = quota.parse().map_err(|error: crate::ParseQuotaError| error.to_string())?;
        Meter::new(quota, algorithm).map_err(|error| error.to_string())
    }

    #[test]
    fn every_algorithm_takes_nine_million_per_millisecond_and_per_400_days_but_the_log() {
        for algorithm in [FixedWindow, SlidingWindow, TokenBucket, LeakyBucket] {
            assert!(meter("9000000/ms", algorithm).is_ok());
            assert!(meter("9000000/400d", algorithm).is_ok());
            assert!(meter("1/3653d", algorithm).is_ok());
        }
        assert!(meter("100000/400d", SlidingLog).is_ok());
    }

    #[test]
    fn what_does_not_fit_names_the_largest_that_would() {
        for (quota, algorithm, most) in [
            ("100001/s", SlidingLog, "largest limit that fits is 100000"),
            ("94906266/s", SlidingWindow, "largest limit that fits is 94906265"),
            ("94906266/s", TokenBucket, "largest limit that fits is 94906265"),
            ("94906266/s", LeakyBucket, "largest limit that fits is 94906265"),
            (
                "10/s burst 900719925474100",
                TokenBucket,
                "largest burst that fits is 900719925474099",
            ),
            ("1/400d burst 92", TokenBucket, "the burst may be 91"),
            ("10/s burst 50", SlidingWindow, "write \"10/s\", or choose token-bucket"),
        ] {
            let error = meter(quota, algorithm).unwrap_err();
            assert!(error.contains(most), "{error}");
            assert!(error.contains(quota), "{error}");
        }
        assert!(meter("9007199254740991/s", FixedWindow).is_ok());
        assert!(meter("94906265/s", TokenBucket).is_ok());
        assert!(meter("9007199254740991/s burst 1", TokenBucket).is_ok());
        assert!(meter("1/400d burst 91", TokenBucket).is_ok());
    }
}
