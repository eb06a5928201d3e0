//! The way of a request through a layer.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use pin_project_lite::pin_project;
use tollgate::Store;
use tower_service::Service;

use super::admitted::Admitted;
use super::guard::{After, Guard, Pending, Settled};
use crate::body::AnswerBody;
use crate::headers::Told;
use crate::reception::{Asked, Passage, Patience, Prompt};
use crate::refusal::Protocol;

pin_project! {
    /// The answer to a request, once it is there.
    ///
    /// With a store in this process and nothing to wait for, nothing is put on the heap for it.
    pub struct ResponseFuture<T, S, B>
    where
        T: Service<Request<B>>,
    {
        #[pin]
        stage: Stage<T::Future, T::Response, Onward<T, S, B>, S>,
    }
}

pin_project! {
    #[project = StageProjection]
    #[project_replace = StageReplaced]
    enum Stage<F, R, O, S> {
        // The store, a function or a turn is waited for. What the request goes on to is boxed, so that
        // futures of those that need not wait are not moved about with room for it.
        Asking { passage: Pin<Box<dyn Future<Output = (Parts, Passage)> + Send>>, onward: Box<O> },
        // The service is at it.
        Running { #[pin] answer: F, after: After<S> },
        // The answer is there and its cost is being settled.
        Settling { told: Pending, response: R },
        // The answer is a refusal.
        Refused { response: Response<Bytes> },
        // Everything has been said.
        Done,
    }
}

/// What a request that has to wait goes on to.
struct Onward<T, S, B> {
    guard: Arc<Guard<S>>,
    // The one that said it is ready, which must be the one that is called.
    inner: T,
    body: B,
}

impl<T, S, B> ResponseFuture<T, S, B>
where
    T: Service<Request<B>> + Clone,
    S: Store + 'static,
{
    /// The way of a request to `inner`, which has said that it is ready.
    #[inline]
    pub(super) fn new(guard: &Arc<Guard<S>>, inner: &mut T, mut request: Request<B>) -> Self {
        if !S::IMMEDIATE {
            return Self { stage: wait(guard, inner, request, None) };
        }
        if guard.reception.wants_parts() {
            return Self::new_of_parts(guard, inner, request.into_parts());
        }
        let mut admitted = guard.open();
        let prompt = guard.reception.ask_now(&request, &mut admitted.admission);
        // Spelled out, for whatever a request is handed to by value it is moved to.
        if let Prompt::Pass = prompt {
            let after = guard.after(&admitted.admission);
            guard.mark(request.extensions_mut(), admitted);
            return Self { stage: Stage::Running { answer: inner.call(request), after } };
        }
        Self::stopped(guard, inner, request, (prompt, admitted))
    }

    /// The same for those who want to see requests without their bodies.
    #[inline(never)]
    fn new_of_parts(guard: &Arc<Guard<S>>, inner: &mut T, (parts, body): (Parts, B)) -> Self {
        let mut admitted = guard.open();
        let prompt = guard.reception.ask_now(&parts, &mut admitted.admission);
        let request = Request::from_parts(parts, body);
        match prompt {
            Prompt::Pass => Self { stage: run(guard, inner, request, admitted) },
            prompt => Self::stopped(guard, inner, request, (prompt, admitted)),
        }
    }

    /// The way of a request that does not go on at once.
    #[inline(never)]
    fn stopped(
        guard: &Arc<Guard<S>>,
        inner: &mut T,
        request: Request<B>,
        (prompt, admitted): (Prompt, Admitted),
    ) -> Self {
        let admission = admitted.admission;
        let stage = match prompt {
            Prompt::Pass => unreachable!("it goes on at once"),
            Prompt::Refuse(cause) => {
                let protocol = Protocol::of(request.headers());
                Stage::Refused { response: guard.refuse(&admission, cause, protocol) }
            }
            Prompt::Hold(deferred) => wait(guard, inner, request, Some((admission, deferred))),
            Prompt::Ask => wait(guard, inner, request, None),
        };
        Self { stage }
    }
}

/// What a future of ours may be at.
type StageOf<T, S, B> = Stage<
    <T as Service<Request<B>>>::Future,
    <T as Service<Request<B>>>::Response,
    Onward<T, S, B>,
    S,
>;

/// Asks about a request for as long as it takes.
fn wait<T, S, B>(
    guard: &Arc<Guard<S>>,
    inner: &mut T,
    request: Request<B>,
    first: Option<Asked>,
) -> StageOf<T, S, B>
where
    T: Service<Request<B>> + Clone,
    S: Store + 'static,
{
    let (parts, body) = request.into_parts();
    let clone = inner.clone();
    let inner = mem::replace(inner, clone);
    let onward = Box::new(Onward { guard: Arc::clone(guard), inner, body });
    let guard = Arc::clone(guard);
    let passage = Box::pin(async move {
        let passage = guard.reception.ask(&parts, first, Patience::OfRules).await;
        (parts, passage)
    });
    Stage::Asking { passage, onward }
}

/// Lets a request go on to the service.
fn run<T, S, B>(
    guard: &Arc<Guard<S>>,
    inner: &mut T,
    mut request: Request<B>,
    admitted: Admitted,
) -> StageOf<T, S, B>
where
    T: Service<Request<B>>,
    S: Store + 'static,
{
    let after = guard.after(&admitted.admission);
    guard.mark(request.extensions_mut(), admitted);
    Stage::Running { answer: inner.call(request), after }
}

/// What follows for a request that has waited.
fn go_on<T, S, B>(onward: Onward<T, S, B>, parts: Parts, passage: Passage) -> StageOf<T, S, B>
where
    T: Service<Request<B>>,
    S: Store + 'static,
{
    let Onward { guard, mut inner, body } = onward;
    match passage {
        Passage::Pass(admission) => {
            let admitted = guard.admitted(admission);
            run(&guard, &mut inner, Request::from_parts(parts, body), admitted)
        }
        Passage::Refuse(admission, cause) => {
            let protocol = Protocol::of(&parts.headers);
            Stage::Refused { response: guard.refuse(&admission, cause, protocol) }
        }
    }
}

impl<T, S, B, R> Future for ResponseFuture<T, S, B>
where
    T: Service<Request<B>, Response = Response<R>>,
    S: Store + 'static,
    R: AnswerBody,
{
    type Output = Result<Response<R>, T::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut stage = self.project().stage;
        loop {
            let next = match stage.as_mut().project() {
                StageProjection::Asking { passage, .. } => {
                    let (parts, passage) = ready!(passage.as_mut().poll(context));
                    let StageReplaced::Asking { onward, .. } =
                        stage.as_mut().project_replace(Stage::Done)
                    else {
                        unreachable!("the stage was just matched")
                    };
                    go_on(*onward, parts, passage)
                }
                StageProjection::Running { answer, after } => {
                    let response = match ready!(answer.poll(context)) {
                        Ok(response) => response,
                        Err(error) => return Poll::Ready(Err(error)),
                    };
                    match after {
                        After::Tell(told) => {
                            return Poll::Ready(Ok(tell(mem::take(told), response)));
                        }
                        After::Settle(unsettled) => match unsettled.settle(response) {
                            Settled::Now(told, response) => {
                                return Poll::Ready(Ok(tell(told, response)));
                            }
                            Settled::Later(told, response) => Stage::Settling { told, response },
                        },
                    }
                }
                StageProjection::Settling { told, .. } => {
                    let told = ready!(told.as_mut().poll(context));
                    let StageReplaced::Settling { response, .. } =
                        stage.as_mut().project_replace(Stage::Done)
                    else {
                        unreachable!("the stage was just matched")
                    };
                    return Poll::Ready(Ok(tell(told, response)));
                }
                StageProjection::Refused { .. } => {
                    let StageReplaced::Refused { response } =
                        stage.as_mut().project_replace(Stage::Done)
                    else {
                        unreachable!("the stage was just matched")
                    };
                    return Poll::Ready(Ok(response.map(R::of_refusal)));
                }
                StageProjection::Done => panic!("polled after the answer was given"),
            };
            stage.set(next);
        }
    }
}

/// Tells the limits in the headers of an answer.
#[inline(always)]
fn tell<R>(told: Told, mut response: Response<R>) -> Response<R> {
    told.put(response.headers_mut());
    response
}
