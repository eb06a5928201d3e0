//! Which header fields a client is told its limits in.

use std::error::Error;
use std::fmt;
use std::str::FromStr;

/// The spelling of the rate-limit fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// draft-ietf-httpapi-ratelimit-headers-11, the same on the wire since 08: two structured lists
    /// with names, `RateLimit-Policy: "user";q=100;w=60` and `RateLimit: "user";r=50;t=30`.
    #[default]
    Draft11,
    /// The seventh draft: `RateLimit: limit=100, remaining=50, reset=5`.
    Draft7,
    /// The sixth draft: `RateLimit-Limit`, `RateLimit-Remaining` and `RateLimit-Reset` in seconds
    /// from now.
    Draft6,
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset` in seconds since the epoch.
    XRateLimitEpoch,
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset` in seconds from now.
    XRateLimitDelta,
    /// What Envoy calls `DRAFT_VERSION_03`: `X-RateLimit-Limit: 100, 100;w=60;name="user"`, and
    /// `-Remaining` and `-Reset` in seconds from now.
    Envoy03,
    /// No rate-limit fields. A refusal still says when to retry.
    Off,
}

impl Dialect {
    /// Every dialect, in the order the documentation names them.
    pub const ALL: [Self; 7] = [
        Self::Draft11,
        Self::Draft7,
        Self::Draft6,
        Self::XRateLimitEpoch,
        Self::XRateLimitDelta,
        Self::Envoy03,
        Self::Off,
    ];

    /// The name in configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Draft11 => "draft-11",
            Self::Draft7 => "draft-7",
            Self::Draft6 => "draft-6",
            Self::XRateLimitEpoch => "x-ratelimit",
            Self::XRateLimitDelta => "x-ratelimit-delta",
            Self::Envoy03 => "envoy-03",
            Self::Off => "off",
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Dialect {
    type Err = UnknownDialect;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|dialect| dialect.name() == name);
        found.ok_or_else(|| UnknownDialect { name: name.chars().take(80).collect() })
    }
}

/// A name that is no dialect's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownDialect {
    name: String,
}

impl fmt::Display for UnknownDialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown header dialect {:?}; write one of", self.name)?;
        for (index, dialect) in Dialect::ALL.into_iter().enumerate() {
            write!(f, "{} {dialect}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl Error for UnknownDialect {}
