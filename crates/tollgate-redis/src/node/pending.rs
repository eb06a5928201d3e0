//! Answers that are on their way.

use std::time::Instant;

use tokio::sync::oneshot;
use tokio::sync::oneshot::error::RecvError;
use tokio::time::timeout_at;

use super::Reply;
use crate::failure::Failure;

/// An answer that is on its way.
pub(crate) enum Pending {
    /// Somebody sees to it that it is there in time.
    Watched(oneshot::Receiver<Reply>),
    /// Its caller has to, by this instant.
    Hurried(oneshot::Receiver<Reply>, Instant),
    /// There will be none.
    Failed(Failure),
}

impl Pending {
    /// The answer, or that it is too late for one.
    pub(crate) async fn reply(self) -> Reply {
        match self {
            Self::Watched(answer) => answer.await.unwrap_or_else(abandoned),
            // A timer is large, and few need one.
            Self::Hurried(answer, end) => match Box::pin(timeout_at(end.into(), answer)).await {
                Ok(reply) => reply.unwrap_or_else(abandoned),
                Err(_) => Err(Failure::timeout()),
            },
            Self::Failed(failure) => Err(failure),
        }
    }
}

/// Dropped without an answer: the runtime is shutting down.
fn abandoned(_: RecvError) -> Reply {
    Err(Failure::unavailable("the store is shutting down"))
}
