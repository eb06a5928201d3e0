//! The way of a call.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use tokio::time::{Instant, sleep};
use tollgate::{Micros, Store};
use tower_service::Service;

use super::error::CallError;
use super::layer::Desk;
use super::vendor;
use crate::axes::spell_host;
use crate::reception::{Passage, Patience};
use crate::refusal::Cause;

/// The answer to a call, once it is there.
pub struct ResponseFuture<R, E> {
    // On the heap, which is nothing beside a call over a network.
    answer: Pin<Box<dyn Future<Output = Answer<R, E>> + Send>>,
}

type Answer<R, E> = Result<Response<R>, CallError<E>>;

impl<R, E> ResponseFuture<R, E> {
    pub(super) fn new(answer: impl Future<Output = Answer<R, E>> + Send + 'static) -> Self {
        Self { answer: Box::pin(answer) }
    }
}

impl<R, E> Future for ResponseFuture<R, E> {
    type Output = Answer<R, E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.answer.as_mut().poll(context)
    }
}

impl<R, E> fmt::Debug for ResponseFuture<R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}

/// Makes a call when its turn comes, and remembers what the vendor says.
pub(super) async fn call<T, S, B, R>(
    desk: Arc<Desk<S>>,
    mut inner: T,
    request: Request<B>,
) -> Result<Response<R>, CallError<T::Error>>
where
    T: Service<Request<B>, Response = Response<R>>,
    S: Store + 'static,
{
    let (parts, body) = request.into_parts();
    let host = spell_host(&parts).unwrap_or_default();
    let start = Instant::now();
    loop {
        // Before its turn, so that a pause is no queue of calls that all go at its end.
        desk.sit_out(&host, start).await.map_err(TurnedAway::into_error)?;
        let turn = desk.line_up(&parts, start).await.map_err(TurnedAway::into_error)?;
        let patience = Patience::UpTo(desk.time_left(start));
        let admission = match desk.reception.ask(&parts, None, patience, turn.place).await {
            Passage::Pass(admission) => admission,
            Passage::Refuse(_, Cause::Crowded) => return Err(CallError::Crowded),
            Passage::Refuse(admission, _) => {
                return Err(CallError::TooFarAway { retry: admission.retry() });
            }
        };
        drop(turn.first);
        if desk.pauses.left(&host).is_none() {
            break;
        }
        // The vendor has asked for one meanwhile. All whose turns fall into it need others, or they
        // would go at its end at once.
        desk.reception.give_back(&parts, &admission).await;
    }
    let answer = inner.call(Request::from_parts(parts, body)).await;
    let response = answer.map_err(CallError::Inner)?;
    if let Some(pause) = vendor::pause(response.status(), response.headers()) {
        desk.pauses.set(&host, pause);
    }
    Ok(response)
}

/// Why a call does not wait.
pub(super) enum TurnedAway {
    /// The end of a pause, or its turn, comes too late, in so long.
    Until(Duration),
    /// Too many wait already.
    Crowded,
}

impl TurnedAway {
    fn into_error<E>(self) -> CallError<E> {
        match self {
            Self::Until(pause) => CallError::too_far_away(pause.into()),
            Self::Crowded => CallError::Crowded,
        }
    }
}

impl<S: Store + 'static> Desk<S> {
    pub(super) fn time_left(&self, start: Instant) -> Micros {
        let waited = Micros::from(start.elapsed());
        Micros::new(self.longest_wait.get().saturating_sub(waited.get()))
    }

    /// Waits for the end of a pause, if it comes in time. Pauses that begin meanwhile are waited for
    /// too.
    async fn sit_out(&self, host: &str, start: Instant) -> Result<(), TurnedAway> {
        let mut place = None;
        while let Some(pause) = self.pauses.left(host) {
            if pause > Duration::from(self.time_left(start)) {
                return Err(TurnedAway::Until(pause));
            }
            if place.is_none() {
                place = Some(self.reception.waiters.enter().ok_or(TurnedAway::Crowded)?);
            }
            sleep(pause).await;
        }
        Ok(())
    }
}
