//! Time from a calibrated counter.
//!
//! Time is a straight line over the counter's ticks: `micros = origin + (ticks − start) · rate`. The
//! line is drawn anew about once a second by whoever reads the clock then. A new line starts where
//! the old one is, so time never jumps back, and leans so as to meet its guide within the next second.
//! Only when the guide is ahead by more than a second does time jump, forwards.
//!
//! There are two guides. One is the system's time, which may be set: a line leans by up to an eighth
//! after it, and jumps when the machine slept. The other is the operating system's monotonic clock. It
//! keeps the rate lines are drawn by, so a line leans after it only by what a measurement errs.
//!
//! A counter that did not tick as the monotonic clock did since the last line, because the machine
//! slept or the process goes on elsewhere, is looked at afresh: what it did before says nothing of it.

use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Mutex, PoisonError, TryLockError};
use std::time::{SystemTime, UNIX_EPOCH};

use super::{Clock, counter};
use crate::time::{Micros, Timestamp};

/// The wall clock: the system's time, read from a counter in a few nanoseconds.
///
/// Two threads that compare readings can see them out of order by a microsecond while a line is
/// being replaced; one thread never sees time go back, but by up to a second where the counter was
/// disturbed (the machine slept, the process goes on elsewhere).
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[inline(always)]
    fn now(&self) -> Timestamp {
        // Readings of the system's clock are bounded, and a line is at most seconds long.
        Timestamp::from_bounded_micros(SYSTEM.now())
    }
}

/// Microseconds since some moment, read from a counter in a few nanoseconds: as many as the operating
/// system's monotonic clock counts, but for one in 256 and a few more at either end, or up to two seconds
/// more where the counter was disturbed (the machine slept, the process goes on elsewhere). While a line
/// is being replaced they can go back by some microseconds.
#[inline(always)]
pub fn monotonic() -> Micros {
    Micros::new(MONOTONIC.now())
}

/// Shared by all: there is one time.
static SYSTEM: Calibrated = Calibrated::new(Guide::System);
static MONOTONIC: Calibrated = Calibrated::new(Guide::Monotonic);

/// Fractions of a microsecond in a rate: 2^40 of them. At 1 to 6 ticks per nanosecond a rate then
/// has 27 to 31 bits, and two seconds' worth of ticks times it fits 64.
const RATE_BITS: u32 = 40;

/// How long the first calibration takes; the second follows after it, doubling up to the last.
const FIRST_LOOK_NANOS: u64 = 200_000;
const LONGEST_LINE_NANOS: u64 = 1_000_000_000;

/// How far a counter may be from what the monotonic clock makes of it: one in so many, and so much more
/// for readings that were disturbed.
const STEADY: u64 = 256;
const DISTURBED_NANOS: u64 = 200_000;

/// A line may be read for one in so many longer than its length.
const OVERDUE: u64 = 64;

/// Beyond this the guide is jumped to instead of approached.
const JUMP_MICROS: i64 = 1_000_000;

/// What lines are drawn after.
#[derive(Clone, Copy)]
enum Guide {
    /// The system's time.
    System,
    /// The operating system's monotonic clock.
    Monotonic,
}

impl Guide {
    /// One over the steepest lean of a line.
    const fn lean(self) -> i64 {
        match self {
            Self::System => 8,
            Self::Monotonic => 512,
        }
    }

    /// What it shows, in µs, when the monotonic clock shows so many nanoseconds.
    fn micros(self, nanos: u64) -> u64 {
        let system = match self {
            Self::System => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            Self::Monotonic => return nanos / 1_000,
        };
        u64::try_from(system.as_micros()).unwrap_or(u64::MAX).min(Timestamp::MAX.as_micros())
    }
}

/// A straight line from ticks to microseconds.
#[derive(Clone, Copy, Debug)]
struct Line {
    start: u64,
    origin: u64,
    rate: u64,
    // Ticks after which a new line is due.
    length: u64,
}

impl Line {
    /// The time at `ticks`, or `None` when the line has ended.
    #[inline]
    fn at(self, ticks: u64) -> Option<u64> {
        // Another core's counter may be a few ticks behind the one that drew the line: then this
        // wraps around, and the long way is taken.
        let elapsed = ticks.wrapping_sub(self.start);
        (elapsed < self.length).then(|| self.origin + ((elapsed * self.rate) >> RATE_BITS))
    }

    /// The time at `ticks`, however long ago the line ended.
    fn extended_to(self, ticks: u64) -> u64 {
        self.after(ticks.saturating_sub(self.start))
    }

    /// How many ticks after its start it may still be read while the next one is drawn: a little longer
    /// than its length, for it leans, and what comes later is for the next line to say.
    fn most(self) -> u64 {
        self.length + self.length / OVERDUE
    }

    /// The time at `ticks`, unless the line has ended long ago.
    fn overdue_at(self, ticks: u64) -> Option<u64> {
        let elapsed = ticks.saturating_sub(self.start);
        (elapsed < self.most()).then(|| self.after(elapsed))
    }

    fn after(self, elapsed: u64) -> u64 {
        self.origin + ((u128::from(elapsed) * u128::from(self.rate)) >> RATE_BITS) as u64
    }

    /// Whether `ticks` is before its start by more than counters of different cores differ.
    fn is_ahead_of(self, ticks: u64) -> bool {
        self.start.saturating_sub(ticks) > ticks_in(DISTURBED_NANOS, self.rate)
    }
}

/// The line in force, readable by many while one replaces it.
struct Calibrated {
    guide: Guide,
    // Where the line starts, marked if it may not be read in passing. No two lines start at one tick, so
    // readers that saw it change read again.
    start: AtomicU64,
    // Origin, rate and length. All zero, a line that has ended before it began, until somebody asks for
    // the time.
    rest: [AtomicU64; 3],
    // Held by whoever draws the next line; the others go on with the old one. `None` until the
    // first is drawn.
    pencil: Mutex<Option<Pencil>>,
}

// Whoever takes a marked start for a start finds itself beyond the end of the line, and goes the long way.

/// In place of a start: the line is being written.
const WRITING: u64 = 1 << 63 | 1 << 62;
/// In a start: the line is over the operating system's counter, for the quick one is not steady.
const SLOW: u64 = 1 << 63;

/// What drawing lines needs to remember.
struct Pencil {
    guide: Guide,
    // The first reading: the longer the baseline, the better the rate.
    first: Reading,
    // The one the line in force was drawn by, and the rate as it was measured then.
    last: Reading,
    rate: u64,
    length_nanos: u64,
}

/// The counter, the monotonic clock and the guide at one moment.
#[derive(Clone, Copy)]
struct Reading {
    ticks: u64,
    nanos: u64,
    guide_micros: u64,
}

impl Reading {
    /// Reads all three, preferring the least disturbed of a few tries.
    fn take(guide: Guide) -> Self {
        let tries = (0..4).map(|_| {
            let before = counter::ticks();
            let nanos = counter::monotonic_nanos();
            let guide_micros = guide.micros(nanos);
            let took = counter::ticks().saturating_sub(before);
            (took, Self { ticks: before + took / 2, nanos, guide_micros })
        });
        let least = tries.min_by_key(|(took, _)| *took);
        least.expect("an array of four readings is not empty").1
    }

    /// Microseconds per tick between two readings, in units of 2^-40.
    fn rate_since(self, first: Self) -> u64 {
        let ticks = u128::from(self.ticks.saturating_sub(first.ticks).max(1));
        let nanos = u128::from(self.nanos.saturating_sub(first.nanos).max(1));
        ((nanos << RATE_BITS) / (ticks * 1_000)) as u64
    }
}

impl Calibrated {
    const fn new(guide: Guide) -> Self {
        Self {
            guide,
            start: AtomicU64::new(0),
            rest: [const { AtomicU64::new(0) }; 3],
            pencil: Mutex::new(None),
        }
    }

    /// Microseconds as the guide counts them.
    #[inline(always)]
    fn now(&self) -> u64 {
        match self.line_as_marked().and_then(|line| line.at(counter::quick_ticks())) {
            Some(micros) => micros,
            None => self.now_beyond(),
        }
    }

    /// The time where the line has ended, is just being replaced or the counter is a slow one. Draws
    /// the next line if it is due, unless somebody else is at it.
    #[cold]
    #[inline(never)]
    fn now_beyond(&self) -> u64 {
        if let Some(micros) = self.line().and_then(|line| line.at(counter::ticks())) {
            return micros;
        }
        let mut pencil = match self.pencil.try_lock() {
            Ok(pencil) => pencil,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                match self.line().and_then(|line| line.overdue_at(counter::ticks())) {
                    Some(micros) => return micros,
                    // The very first line, the first after a pause, or the instant between two: wait
                    // for it.
                    None => self.pencil.lock().unwrap_or_else(PoisonError::into_inner),
                }
            }
        };
        let line = self.line().expect("nobody writes while we hold the pencil");
        let ticks = counter::ticks();
        // Somebody may have drawn a line before we had the pencil.
        if ticks.saturating_sub(line.start) < line.length && !line.is_ahead_of(ticks) {
            return line.extended_to(ticks);
        }
        let next = match &mut *pencil {
            Some(pencil) => pencil.next(line),
            None => {
                let (first, line) = Pencil::first(self.guide);
                *pencil = Some(first);
                line
            }
        };
        self.publish(next);
        next.extended_to(counter::ticks())
    }

    /// The line in force, or `None` if it is being replaced.
    fn line(&self) -> Option<Line> {
        let line = self.line_as_marked().filter(|line| line.start != WRITING)?;
        // Nothing but a mark where there is one: quick counters may have been set to anything.
        let mark = if counter::is_quick() { 0 } else { SLOW };
        Some(Line { start: line.start & !mark, ..line })
    }

    /// The line in force, its start marked as it is, or `None` if it was replaced meanwhile.
    #[inline(always)]
    fn line_as_marked(&self) -> Option<Line> {
        let start = self.start.load(Ordering::Acquire);
        let [origin, rate, length] =
            [0, 1, 2].map(|word: usize| self.rest[word].load(Ordering::Relaxed));
        // Keeps the loads above from drifting below the second look at the start.
        fence(Ordering::Acquire);
        let whole = self.start.load(Ordering::Relaxed) == start;
        whole.then_some(Line { start, origin, rate, length })
    }

    /// Replaces the line; only the holder of the pencil may.
    fn publish(&self, line: Line) {
        self.start.store(WRITING, Ordering::Relaxed);
        // Keeps the stores below from drifting above the mark.
        fence(Ordering::Release);
        for (word, value) in self.rest.iter().zip([line.origin, line.rate, line.length]) {
            word.store(value, Ordering::Relaxed);
        }
        let mark = if counter::is_quick() { 0 } else { SLOW };
        self.start.store(line.start | mark, Ordering::Release);
    }
}

impl Pencil {
    /// Looks at the clocks for a moment and draws a first, short line.
    fn first(guide: Guide) -> (Self, Line) {
        let first = Reading::take(guide);
        let mut second = Reading::take(guide);
        while second.nanos - first.nanos < FIRST_LOOK_NANOS {
            second = Reading::take(guide);
        }
        let rate = second.rate_since(first);
        let length = ticks_in(FIRST_LOOK_NANOS, rate);
        let line = Line { start: second.ticks, origin: second.guide_micros, rate, length };
        (Self { guide, first, last: second, rate, length_nanos: FIRST_LOOK_NANOS }, line)
    }

    /// The line that goes on from `line`.
    fn next(&mut self, line: Line) -> Line {
        let reading = Reading::take(self.guide);
        if self.is_steady(reading) {
            return self.draw(line, reading);
        }
        let here = self.latest(line, reading);
        let (pencil, next) = Self::first(self.guide);
        *self = pencil;
        Line { origin: next.origin.max(here), ..next }
    }

    /// Whether the counter ticked as before since the line in force was drawn.
    fn is_steady(&self, reading: Reading) -> bool {
        let nanos = reading.nanos.saturating_sub(self.last.nanos);
        let most = ticks_in(nanos / STEADY + DISTURBED_NANOS, self.rate);
        let ticks = reading.ticks.wrapping_sub(self.last.ticks);
        ticks.abs_diff(ticks_in(nanos, self.rate)) <= most
    }

    /// The time at `reading`, whatever the counter did: what the monotonic clock makes of it. Who remembers
    /// instants of that clock relies on them to pass, so it goes past all that anybody can have read.
    fn latest(&self, line: Line, reading: Reading) -> u64 {
        let nanos = reading.nanos.saturating_sub(self.last.nanos);
        // Rounded up, lest somebody who has just read the line see less.
        let passed = line.origin + nanos.div_ceil(1_000);
        match self.guide {
            Guide::System => passed,
            Guide::Monotonic => passed.max(line.after(line.most())),
        }
    }

    /// The time at `reading`: by the line as long as somebody may have read it, and from its end on by the
    /// monotonic clock. A line leans, and the first ones are drawn after a short look: extended over a
    /// pause of an hour, either may be seconds astray.
    fn here(&self, line: Line, reading: Reading) -> u64 {
        if let Some(micros) = line.overdue_at(reading.ticks) {
            return micros;
        }
        let since_end = reading.nanos.saturating_sub(self.last.nanos + self.length_nanos) / 1_000;
        (line.after(line.length) + since_end).max(line.after(line.most()))
    }

    /// The line that goes on from `line` at `reading` and meets the guide at its end.
    fn draw(&mut self, line: Line, reading: Reading) -> Line {
        let here = self.here(line, reading);
        self.length_nanos = (self.length_nanos * 2).min(LONGEST_LINE_NANOS);
        let rate = reading.rate_since(self.first);
        (self.last, self.rate) = (reading, rate);
        let length = ticks_in(self.length_nanos, rate);
        let behind = reading.guide_micros as i64 - here as i64;
        if behind > JUMP_MICROS {
            return Line { start: reading.ticks, origin: reading.guide_micros, rate, length };
        }
        let (span, lean) = ((self.length_nanos / 1_000) as i64, self.guide.lean());
        let behind = behind.clamp(-span / lean, span / lean);
        let lean = i128::from(rate) * i128::from(behind) / i128::from(span);
        let rate = (i128::from(rate) + lean) as u64;
        Line { start: reading.ticks, origin: here, rate, length }
    }
}

/// How many ticks of `rate` pass in so many nanoseconds.
fn ticks_in(nanos: u64, rate: u64) -> u64 {
    ((u128::from(nanos) << RATE_BITS) / (u128::from(rate.max(1)) * 1_000)) as u64
}

#[cfg(test)]
mod tests;
