//! Why an answer did not come, in a form many callers can share.

use std::fmt;
use std::sync::Arc;

use redis::{RedisError, ServerError, ServerErrorKind};
use tollgate::{StoreError, StoreErrorKind};

/// One reason for every caller of a call that failed.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) kind: StoreErrorKind,
    reason: Arc<str>,
    /// Nothing was charged, and a little later there may be an answer.
    pub(crate) passing: bool,
}

impl Failure {
    pub(crate) fn new(kind: StoreErrorKind, reason: impl fmt::Display) -> Self {
        Self { kind, reason: reason.to_string().into(), passing: false }
    }

    /// No answer before the deadline; nobody knows whether the charge was made.
    pub(crate) fn timeout() -> Self {
        Self::new(StoreErrorKind::Timeout, "no answer before the deadline")
    }

    /// More decisions are under way than may be.
    pub(crate) fn overloaded() -> Self {
        Self::new(StoreErrorKind::Overloaded, "too many decisions are under way")
    }

    /// Redis cannot be reached.
    pub(crate) fn unavailable(reason: impl fmt::Display) -> Self {
        Self::new(StoreErrorKind::Unavailable, reason)
    }

    /// The keys of one set are partly here and partly there, and it cannot be decided until the
    /// others have followed.
    pub(crate) fn divided() -> Self {
        Self { passing: true, ..Self::unavailable("the keys are moving between servers") }
    }

    /// The reason for those who come after: they were not even asked for, so nothing of theirs is
    /// late or in doubt.
    pub(crate) fn lasting(&self) -> Self {
        let kind = match self.kind {
            StoreErrorKind::ReadOnly => StoreErrorKind::ReadOnly,
            _ => StoreErrorKind::Unavailable,
        };
        Self { kind, reason: Arc::clone(&self.reason), passing: false }
    }

    /// The same, of a server among several.
    pub(crate) fn of(self, server: &dyn fmt::Display) -> Self {
        Self { reason: format!("{server}: {self}").into(), ..self }
    }

    /// Whether another is told in the same words.
    pub(crate) fn has_reason_of(&self, other: &Self) -> bool {
        self.reason == other.reason
    }

    /// Redis answered with something that is no answer.
    pub(crate) fn protocol(reason: impl fmt::Display) -> Self {
        Self::new(StoreErrorKind::Protocol, reason)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        Self::caused_by(failure.kind, failure.reason.to_string())
    }
}

impl From<&RedisError> for Failure {
    /// A connection that failed. Whether what was sent on it was carried out is not known.
    fn from(error: &RedisError) -> Self {
        match error.is_timeout() {
            true => Self::new(StoreErrorKind::Timeout, error),
            false => Self::unavailable(error),
        }
    }
}

/// What an error a server answered with means. In none of these cases was anything charged.
pub(crate) enum Refusal {
    /// The script is not known there; its text has to be sent.
    NoScript,
    /// The slot belongs to the server at this address.
    Moved(String),
    /// The slot is on its way to the server at this address, and so are these keys.
    Ask(String),
    /// The keys are on their way, some here and some there.
    TryAgain,
    /// Nobody has the slot at present, as far as that server knows.
    Unowned(Failure),
    /// The server cannot do its work at present, whoever asks: it is a replica, or loading.
    Unfit(Failure),
    /// This question cannot be answered.
    Failed(Failure),
}

impl From<&ServerError> for Refusal {
    fn from(error: &ServerError) -> Self {
        // `MOVED 1234 10.0.0.1:6379`; the code is not among the details.
        let address =
            || error.details().and_then(|text| text.rsplit(' ').next()).unwrap_or("").to_owned();
        let failure = |kind| Failure::new(kind, plain(error));
        let tells = |code| error.details().is_some_and(|text| text.contains(code));
        match error.kind() {
            Some(ServerErrorKind::NoScript) => Self::NoScript,
            Some(ServerErrorKind::Moved) => Self::Moved(address()),
            Some(ServerErrorKind::Ask) => Self::Ask(address()),
            Some(ServerErrorKind::TryAgain) => Self::TryAgain,
            Some(ServerErrorKind::ReadOnly) => Self::Unfit(failure(StoreErrorKind::ReadOnly)),
            Some(ServerErrorKind::BusyLoading | ServerErrorKind::MasterDown) => {
                Self::Unfit(failure(StoreErrorKind::Unavailable))
            }
            Some(ServerErrorKind::ClusterDown) => {
                Self::Unowned(failure(StoreErrorKind::Unavailable))
            }
            Some(ServerErrorKind::NoPerm) => Self::Failed(failure(StoreErrorKind::Unavailable)),
            // Before Redis 7 what a script was told stands within what the script tells.
            _ if tells("-READONLY ") => Self::Unfit(failure(StoreErrorKind::ReadOnly)),
            _ if tells("-OOM ") => Self::Failed(failure(StoreErrorKind::ReadOnly)),
            // Of a command that the user is not permitted inside scripts, in 7.0 and since 7.2.
            _ if tells("can't run this command") || tells("ACL failure in script") => {
                Self::Failed(failure(StoreErrorKind::Unavailable))
            }
            _ => Self::Failed(failure(match error.code() {
                // Out of memory, unable to persist, too few replicas: it could, but must not write.
                "OOM" | "MISCONF" | "NOREPLICAS" => StoreErrorKind::ReadOnly,
                "BUSY" | "NOAUTH" | "WRONGPASS" => StoreErrorKind::Unavailable,
                _ => StoreErrorKind::Protocol,
            })),
        }
    }
}

/// A server's error as the server wrote it.
pub(crate) fn plain(error: &ServerError) -> String {
    match error.details() {
        Some(details) => format!("{} {details}", error.code()),
        None => error.code().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use redis::{Value, parse_redis_value};

    use super::*;

    #[test]
    fn errors_within_those_of_scripts_are_understood() {
        let refusal = |text: &str| match parse_redis_value(format!("-{text}\r\n").as_bytes()) {
            Ok(Value::ServerError(error)) => Refusal::from(&error),
            other => panic!("{other:?}"),
        };
        let script = "ERR Error running script (call to f_1): @user_script:40:";
        assert!(matches!(
            refusal(&format!("{script} -READONLY You can't write against a read only replica.")),
            Refusal::Unfit(failure) if failure.kind == StoreErrorKind::ReadOnly
        ));
        assert!(matches!(
            refusal(&format!("{script} -OOM command not allowed when used memory > 'maxmemory'.")),
            Refusal::Failed(failure) if failure.kind == StoreErrorKind::ReadOnly
        ));
        for text in [
            "ERR The user executing the script can't run this command or subcommand script: 1",
            "ERR ACL failure in script: User tollgate has no permissions to run the 'decrby' command",
        ] {
            assert!(matches!(
                refusal(text),
                Refusal::Failed(failure) if failure.kind == StoreErrorKind::Unavailable
            ));
        }
        assert!(matches!(
            refusal(&format!("{script} attempt to index a nil value")),
            Refusal::Failed(failure) if failure.kind == StoreErrorKind::Protocol
        ));
    }
}
