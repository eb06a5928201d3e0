//! Why a call was not answered.

use std::error::Error;
use std::fmt;

use tollgate::{Micros, Retry};

/// Why a call was not answered.
#[derive(Debug)]
#[non_exhaustive]
pub enum CallError<E> {
    /// It was not made: its turn would not have come within the longest wait.
    TooFarAway {
        /// When its turn would come, counted from the answer.
        retry: Retry,
    },
    /// It was not made: as many as may be are waiting already.
    Crowded,
    /// It was made, and the client failed.
    Inner(E),
}

impl<E> CallError<E> {
    /// Whether the call was made, for all that is known: then it may have had its effect.
    pub fn was_made(&self) -> bool {
        matches!(self, Self::Inner(_))
    }

    pub(super) fn too_far_away(wait: Micros) -> Self {
        Self::TooFarAway { retry: Retry::After(wait) }
    }
}

impl<E: fmt::Display> fmt::Display for CallError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooFarAway { retry: Retry::After(wait) } => {
                write!(f, "get a turn to call in time: it would come only in {wait}")
            }
            Self::TooFarAway { retry: Retry::Never } => {
                f.write_str("get a turn to call: it costs more than is ever allowed at once")
            }
            Self::TooFarAway { retry: Retry::Now } => {
                f.write_str("get a turn to call: the policy refuses it")
            }
            Self::Crowded => f.write_str("get a turn to call: too many are waiting"),
            Self::Inner(error) => error.fmt(f),
        }
    }
}

impl<E: Error + 'static> Error for CallError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Inner(error) => error.source(),
            Self::TooFarAway { .. } | Self::Crowded => None,
        }
    }
}
