//! Instants and spans, in whole microseconds.
//!
//! Everything that decides is an integer below 2^53, so that the same numbers mean the same thing in
//! Rust and in a Lua script, whose only number is the double.

use std::fmt;
use std::ops::Add;
use std::time::Duration;

/// The largest integer every store can represent exactly: 2^53 − 1.
pub const MAX_EXACT: u64 = (1 << 53) - 1;

/// An instant by a store's clock: microseconds since the Unix epoch, at most [`Timestamp::MAX`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The first instant.
    pub const EPOCH: Self = Self(0);

    /// The last instant a clock may report: 2^52 µs, in the year 2112. What lies between it and
    /// [`MAX_EXACT`] is room for the longest refill (100 years) to be written down.
    pub const MAX: Self = Self(1 << 52);

    /// An instant from microseconds since the epoch; later ones than [`Timestamp::MAX`] become it.
    pub const fn from_micros(micros: u64) -> Self {
        if micros > Self::MAX.0 { Self::MAX } else { Self(micros) }
    }

    /// An instant a clock of this crate has kept within bounds already.
    #[inline(always)]
    pub(crate) const fn from_bounded_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since the epoch.
    #[inline(always)]
    pub const fn as_micros(self) -> u64 {
        self.0
    }
}

impl Add<Micros> for Timestamp {
    type Output = Self;

    fn add(self, span: Micros) -> Self {
        Self::from_micros(self.0.saturating_add(span.0))
    }
}

/// A span of time in microseconds.
///
/// Wires speak in milliseconds or seconds; [`Micros::as_millis_ceil`] and [`Micros::as_secs_ceil`]
/// are the only roundings there are, and both go up, so that a promise is never too early.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(u64);

impl Micros {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// A span of so many microseconds.
    pub const fn new(micros: u64) -> Self {
        Self(micros)
    }

    /// A span of so many milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000))
    }

    /// A span of so many seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000))
    }

    /// The span in microseconds.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The span in milliseconds, rounded up.
    pub const fn as_millis_ceil(self) -> u64 {
        self.0.div_ceil(1_000)
    }

    /// The span in seconds, rounded up.
    pub const fn as_secs_ceil(self) -> u64 {
        self.0.div_ceil(1_000_000)
    }
}

impl From<Micros> for Duration {
    fn from(span: Micros) -> Self {
        Self::from_micros(span.0)
    }
}

impl From<Duration> for Micros {
    /// Rounds up, as everything here does; spans beyond 584,000 years become that.
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&Duration::from(*self), f)
    }
}
