//! Windows as the calendar has them: days, months, billing periods, in somebody's time zone.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use super::Period;
use crate::digest::{Digest, Digester};
use crate::time::{Micros, Timestamp};

/// A partition of time into windows that are not all equally long.
///
/// It is a list of instants at which one window ends and the next begins. Where they come from (time
/// zones, leap years, a billing day) is for others to know: here they are numbers, so that every store
/// decides by the same ones. Before the first boundary and after the last, windows are as long as the
/// first and the last that are known.
///
/// A calendar lives as long as the program: quotas that speak of it are copied on every request.
/// There are only as many as an operator writes, so whoever makes them keeps them and hands out the
/// same one for the same words.
///
/// ```
/// use tollgate::quota::{Calendar, Period, Quota};
/// use tollgate::{Algorithm, Cost, ManualClock, MemoryStore, Meter, Timestamp};
///
/// let day = |hours: u64| Timestamp::from_micros(hours * 3_600_000_000);
/// // The second day has 23 hours: the clocks are put forward.
/// let days = Calendar::new("calendar-day@Nowhere", vec![day(0), day(24), day(47), day(71)]).unwrap();
/// let days: &'static Calendar = Box::leak(Box::new(days));
/// let meter = Meter::new(Quota::new(1, Period::calendar(days)).unwrap(), Algorithm::FixedWindow)?;
///
/// let clock = ManualClock::at_secs(30 * 3_600);
/// let store = MemoryStore::with_clock(clock.clone());
/// let decision = store.take("user:42", meter, Cost::ONE);
/// assert_eq!(decision.outcomes()[0].reading.unwrap().reset.as_secs_ceil(), 17 * 3_600);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Calendar {
    name: String,
    // Ascending, at least two.
    boundaries: Vec<Timestamp>,
    // What tells it from every other period where only a number fits.
    id: u64,
    // The longest window, in µs.
    longest: u64,
}

/// One window of a [`Calendar`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CalendarWindow {
    /// The first instant in it.
    pub start: Timestamp,
    /// The first instant after it.
    pub end: Timestamp,
}

impl Calendar {
    /// The calendar of this name whose windows end and begin at `boundaries`; `None` if these are
    /// fewer than two, not ascending, or further apart than the longest period.
    ///
    /// The name is how it is written and what names its buckets in a store, so two calendars of one
    /// name have to have the same boundaries.
    pub fn new(name: impl Into<String>, boundaries: Vec<Timestamp>) -> Option<Self> {
        let lengths = || {
            let pairs = boundaries.windows(2);
            pairs.map(|pair| (pair[1].as_micros()).checked_sub(pair[0].as_micros()))
        };
        let fits = |length: Option<u64>| {
            length.is_some_and(|length| (1..=Period::MAX.as_micros()).contains(&length))
        };
        if boundaries.len() < 2 || !lengths().all(fits) {
            return None;
        }
        let name = name.into();
        let longest = lengths().flatten().max()?;
        // Above every fixed period, within the 49 bits they have.
        let floor = Period::MAX.as_micros() + 1;
        let id = floor + number(&Digester::default().digest(&name)) % ((1 << 49) - floor);
        Some(Self { name, boundaries, id, longest })
    }

    /// How it is written.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The length of the longest window.
    pub const fn longest(&self) -> Micros {
        Micros::new(self.longest)
    }

    /// The window that holds `now`.
    pub fn window(&self, now: Timestamp) -> CalendarWindow {
        let after = self.boundaries.partition_point(|boundary| *boundary <= now);
        let (first, last) = (self.length(1), self.length(self.boundaries.len() - 1));
        let known = |index: usize| self.boundaries[index].as_micros();
        let (start, end) = match after {
            0 => {
                // Counted back from the first boundary, and never before the epoch.
                let back = (known(0) - now.as_micros()).div_ceil(first) * first;
                (known(0).saturating_sub(back), known(0) - (back - first))
            }
            _ if after < self.boundaries.len() => (known(after - 1), known(after)),
            _ => {
                let since = now.as_micros() - known(after - 1);
                let start = known(after - 1) + since / last * last;
                (start, start + last)
            }
        };
        let instant = Timestamp::from_micros;
        CalendarWindow { start: instant(start), end: instant(end) }
    }

    /// The window that ends at `end`.
    pub(crate) fn window_ending(&self, end: u64) -> CalendarWindow {
        self.window(Timestamp::from_micros(end.saturating_sub(1)))
    }

    pub(crate) const fn id(&self) -> u64 {
        self.id
    }

    /// The length of the window that ends at the boundary of this number.
    fn length(&self, boundary: usize) -> u64 {
        let ends = &self.boundaries;
        ends[boundary].as_micros() - ends[boundary - 1].as_micros()
    }
}

/// The first 64 bits of a digest.
fn number(digest: &Digest) -> u64 {
    let (first, _) = digest.as_bytes().split_first_chunk().expect("a digest has 16 bytes");
    u64::from_be_bytes(*first)
}

impl fmt::Debug for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Calendar({})", self.name)
    }
}

// By name: the boundaries follow from it.
impl PartialEq for Calendar {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id && self.name == other.name
    }
}

impl Eq for Calendar {}

impl PartialOrd for Calendar {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Calendar {
    fn cmp(&self, other: &Self) -> Ordering {
        self.name.cmp(&other.name)
    }
}

impl Hash for Calendar {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    fn calendar(boundaries: &[u64]) -> Option<Calendar> {
        Calendar::new("c", boundaries.iter().map(|micros| at(*micros)).collect())
    }

    #[test]
    fn boundaries_ascend() {
        assert!(calendar(&[]).is_none());
        assert!(calendar(&[5]).is_none());
        assert!(calendar(&[5, 5]).is_none());
        assert!(calendar(&[5, 4]).is_none());
        assert!(calendar(&[0, Period::MAX.as_micros() + 1]).is_none());
        assert!(calendar(&[5, 6]).is_some());
    }

    #[test]
    fn every_instant_is_in_one_window_and_windows_meet() {
        let calendar = calendar(&[100, 110, 140, 160]).unwrap();
        assert_eq!(calendar.longest().get(), 30);
        let mut expected_start = calendar.window(at(0)).start;
        assert_eq!(expected_start, at(0));
        let mut now = 0;
        let mut lengths = Vec::new();
        while now < 300 {
            let window = calendar.window(at(now));
            assert_eq!(window.start, expected_start);
            assert_eq!(calendar.window_ending(window.end.as_micros()), window);
            for inside in now..window.end.as_micros() {
                assert_eq!(calendar.window(at(inside)), window);
            }
            lengths.push(window.end.as_micros() - window.start.as_micros());
            (now, expected_start) = (window.end.as_micros(), window.end);
        }
        assert_eq!(
            lengths[..13],
            [10; 10].iter().chain(&[10, 30, 20]).copied().collect::<Vec<_>>()
        );
        assert!(lengths[13..].iter().all(|length| *length == 20));
    }

    #[test]
    fn calendars_are_told_apart_by_name() {
        let other = Calendar::new("d", vec![at(0), at(1)]).unwrap();
        let one = calendar(&[0, 1]).unwrap();
        assert!(one != other && one.id() != other.id());
        assert!(one.id() > Period::MAX.as_micros() && one.id() < 1 << 49);
    }
}
