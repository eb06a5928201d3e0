//! How much, how often: the numbers of a limit and the way people write them.

use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};
use std::str::FromStr;

use crate::time::{MAX_EXACT, Micros, Timestamp};

mod calendar;
mod parse;

pub use calendar::{Calendar, CalendarWindow};
pub use parse::{ParseQuotaError, parse_list};

/// The length of time a limit speaks of, from one millisecond to ten years; or the windows of a
/// [`Calendar`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Period {
    // Of a calendar, the length of its longest window.
    micros: u64,
    calendar: Option<&'static Calendar>,
}

/// The units a period is written in, longest first: the name of one, the name of several, and the
/// length in microseconds.
const UNITS: [(&str, &str, u64); 6] = [
    ("day", "d", 86_400_000_000),
    ("h", "h", 3_600_000_000),
    ("min", "min", 60_000_000),
    ("s", "s", 1_000_000),
    ("ms", "ms", 1_000),
    ("us", "us", 1),
];

impl Period {
    /// The shortest period: one millisecond.
    pub const MIN: Self = Self::fixed(1_000);
    /// The longest period: ten years of 365.25 days, rounded up to whole days.
    pub const MAX: Self = Self::fixed(3_653 * 86_400_000_000);
    /// One second.
    pub const SECOND: Self = Self::fixed(1_000_000);
    /// One minute.
    pub const MINUTE: Self = Self::fixed(60_000_000);
    /// One hour.
    pub const HOUR: Self = Self::fixed(3_600_000_000);
    /// One day of 24 hours.
    pub const DAY: Self = Self::fixed(86_400_000_000);

    /// A period of this length, or `None` outside [`Period::MIN`]..=[`Period::MAX`].
    pub const fn new(span: Micros) -> Option<Self> {
        let micros = span.get();
        if micros < Self::MIN.micros || micros > Self::MAX.micros {
            return None;
        }
        Some(Self::fixed(micros))
    }

    /// The windows of a calendar. Only a fixed window can be metered by them.
    pub const fn calendar(calendar: &'static Calendar) -> Self {
        Self { micros: calendar.longest().get(), calendar: Some(calendar) }
    }

    const fn fixed(micros: u64) -> Self {
        Self { micros, calendar: None }
    }

    /// The calendar whose windows these are; `None` where all are equally long.
    pub const fn as_calendar(self) -> Option<&'static Calendar> {
        self.calendar
    }

    /// The length in microseconds; of a calendar, that of its longest window.
    #[inline(always)]
    pub const fn as_micros(self) -> u64 {
        self.micros
    }

    /// The length as a span.
    pub const fn span(self) -> Micros {
        Micros::new(self.micros)
    }

    /// What tells it from every other period, in 49 bits.
    #[inline(always)]
    pub(crate) const fn id(self) -> u64 {
        match self.calendar {
            None => self.micros,
            Some(calendar) => calendar.id(),
        }
    }

    /// The end of the window that holds `now`, exclusive. Windows that are all equally long begin at
    /// multiples of their length.
    #[inline(always)]
    pub(crate) fn window_end(self, now: Timestamp) -> u64 {
        match self.calendar {
            None => (now.as_micros() / self.micros + 1) * self.micros,
            Some(calendar) => calendar.window(now).end.as_micros(),
        }
    }

    /// The start of the window that ends at `end`.
    pub(crate) fn window_start(self, end: u64) -> u64 {
        match self.calendar {
            None => end.saturating_sub(self.micros),
            Some(calendar) => calendar.window_ending(end).start.as_micros(),
        }
    }
}

impl fmt::Display for Period {
    /// The shortest spelling the quota grammar reads back: `min`, `15min`, `250ms`; or the
    /// calendar's name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(calendar) = self.calendar {
            return f.write_str(calendar.name());
        }
        for (one, several, micros) in UNITS {
            if self.micros.is_multiple_of(micros) {
                return match self.micros / micros {
                    1 => f.write_str(one),
                    count => write!(f, "{count}{several}"),
                };
            }
        }
        unreachable!("every period is a whole number of microseconds")
    }
}

/// A limit per period, plus the burst a bucket may take at once.
///
/// A quota that exists is valid in itself; whether exact arithmetic can meter it by a given
/// algorithm is settled by [`Meter::new`](crate::Meter::new).
///
/// ```
/// use tollgate::Quota;
///
/// let quota: Quota = "100/min".parse()?;
/// assert_eq!((quota.limit(), quota.burst()), (100, 100));
/// assert_eq!(Quota::per_second(10).unwrap().with_burst(50).unwrap().to_string(), "10/s burst 50");
/// # Ok::<(), tollgate::ParseQuotaError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quota {
    // Non-zero, so that dividing a period by a limit is total.
    limit: NonZeroU64,
    // Equal to the limit unless somebody said otherwise: windows accept no other value.
    burst: NonZeroU64,
    period: Period,
}

impl Quota {
    /// The largest limit or burst any algorithm can take: 2^53 − 1.
    pub const MAX_LIMIT: u64 = MAX_EXACT;

    /// `limit` units per `period`, burst equal to the limit; `None` when `limit` is zero or beyond
    /// [`Quota::MAX_LIMIT`].
    pub const fn new(limit: u64, period: Period) -> Option<Self> {
        match NonZeroU64::new(limit) {
            Some(limit) if limit.get() <= Self::MAX_LIMIT => {
                Some(Self { limit, burst: limit, period })
            }
            _ => None,
        }
    }

    /// `limit` units per second.
    pub const fn per_second(limit: u64) -> Option<Self> {
        Self::new(limit, Period::SECOND)
    }

    /// `limit` units per minute.
    pub const fn per_minute(limit: u64) -> Option<Self> {
        Self::new(limit, Period::MINUTE)
    }

    /// `limit` units per hour.
    pub const fn per_hour(limit: u64) -> Option<Self> {
        Self::new(limit, Period::HOUR)
    }

    /// `limit` units per day of 24 hours.
    pub const fn per_day(limit: u64) -> Option<Self> {
        Self::new(limit, Period::DAY)
    }

    /// The same rate with another burst; `None` when it is zero or beyond [`Quota::MAX_LIMIT`].
    pub const fn with_burst(self, burst: u64) -> Option<Self> {
        match NonZeroU64::new(burst) {
            Some(burst) if burst.get() <= Self::MAX_LIMIT => Some(Self { burst, ..self }),
            _ => None,
        }
    }

    /// Units per period.
    pub const fn limit(self) -> u64 {
        self.limit.get()
    }

    /// Units a full bucket holds.
    pub const fn burst(self) -> u64 {
        self.burst.get()
    }

    /// The period the limit speaks of.
    pub const fn period(self) -> Period {
        self.period
    }

    /// This quota with limit and burst lowered by `per_cent`, rounded down, never below one unit.
    ///
    /// A safety margin: a vendor's cap of 1,000 kept at 950 by `lowered_by(5)`.
    pub const fn lowered_by(self, per_cent: u8) -> Self {
        let limit = lower(self.limit, per_cent);
        Self { limit, burst: lower(self.burst, per_cent), period: self.period }
    }

    /// This quota with limit and burst divided by `parts`, rounded down, never below one unit.
    ///
    /// What each of several may grant so that together they grant no more than the whole.
    pub const fn divided_by(self, parts: NonZeroU32) -> Self {
        let limit = divide(self.limit, parts);
        Self { limit, burst: divide(self.burst, parts), period: self.period }
    }
}

/// `units` divided by `parts`, rounded down, at least one.
const fn divide(units: NonZeroU64, parts: NonZeroU32) -> NonZeroU64 {
    match NonZeroU64::new(units.get() / parts.get() as u64) {
        Some(units) => units,
        None => NonZeroU64::MIN,
    }
}

/// `units` less `per_cent`, rounded down, at least one.
const fn lower(units: NonZeroU64, per_cent: u8) -> NonZeroU64 {
    let kept = 100_u128.saturating_sub(per_cent as u128);
    match NonZeroU64::new((units.get() as u128 * kept / 100) as u64) {
        Some(units) => units,
        None => NonZeroU64::MIN,
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.limit, self.period)?;
        if self.burst != self.limit {
            write!(f, " burst {}", self.burst)?;
        }
        Ok(())
    }
}

impl FromStr for Quota {
    type Err = ParseQuotaError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse::quota(text)
    }
}
