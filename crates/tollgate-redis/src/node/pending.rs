//! Answers that are on their way.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use tokio::sync::oneshot;
use tokio::time::timeout_at;

use super::call::Call;
use super::pump::Place;
use super::{Asked, Link, Reply};
use crate::failure::Failure;
use crate::shared::Shared;

/// An answer that is on its way.
pub(crate) enum Pending {
    /// This caller's own call.
    Own(Own),
    /// The call of whoever takes the question along.
    Joined(oneshot::Receiver<Reply>),
    /// There will be none.
    Failed(Failure),
}

impl Pending {
    /// The answer, or none before `deadline`.
    pub(crate) async fn reply(self, deadline: Instant) -> Reply {
        match self {
            // It ends by itself then.
            Self::Own(call) if call.lost <= deadline => call.await,
            Self::Own(call) => {
                let reply = timeout_at(deadline.into(), call).await;
                reply.unwrap_or_else(|_| Err(Failure::timeout()))
            }
            Self::Failed(failure) => Err(failure),
            Self::Joined(answer) => match timeout_at(deadline.into(), answer).await {
                Ok(Ok(reply)) => reply,
                // Dropped without an answer: the runtime is shutting down.
                Ok(Err(_)) => Err(Failure::unavailable("the store is shutting down")),
                Err(_) => Err(Failure::timeout()),
            },
        }
    }
}

type OwnCall = Pin<Box<dyn Future<Output = Reply> + Send>>;

/// A caller's own call. It is finished even if the caller leaves, for until then it is out.
pub(crate) struct Own {
    call: Option<OwnCall>,
    lost: Instant,
    shared: Arc<Shared>,
}

impl Own {
    pub(super) fn new(place: Place, link: Link, asked: Asked, lost: Instant) -> Self {
        let shared = Arc::clone(&place.node.shared);
        let Asked { question, permit, .. } = asked;
        let call = async move {
            let questions = std::slice::from_ref(&question);
            let mut replies = Call { questions, deadline: lost }.run(&place.node, link).await;
            drop((permit, place));
            replies.pop().unwrap_or_else(|| Err(Failure::protocol("no answer to a question")))
        };
        Self { call: Some(Box::pin(call)), lost, shared }
    }
}

impl Future for Own {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Reply> {
        let Some(call) = self.call.as_mut() else {
            return Poll::Ready(Err(Failure::protocol("asked for an answer twice")));
        };
        let reply = ready!(call.as_mut().poll(cx));
        self.call = None;
        Poll::Ready(reply)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            self.shared.runtime.spawn(call);
        }
    }
}
