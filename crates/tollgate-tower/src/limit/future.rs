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
use tollgate::gate::Brief;
use tollgate::{Admission, Micros, Store};
use tower_service::Service;

use super::admitted::Admitted;
use super::guard::{After, Guard, Pending, Settled};
use crate::body::AnswerBody;
use crate::headers::{OneLimit, Told};
use crate::reception::{Asked, Passage, Patience, Prompt};

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
        // The service is at it. Apart from those that follow, for most answers are told no more than this.
        Running { #[pin] answer: F, told: Option<OneLimit> },
        // The same, and more is to be told or to be done.
        Owing { #[pin] answer: F, after: After<S> },
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
        let mut admitted = Admitted::open();
        if !guard.only_tells() || !guard.reception.ask_briefly(&request, &mut admitted.brief) {
            return Self::new_of_all(guard, inner, request);
        }
        let decision = admitted.brief.decision();
        if !decision.is_allowed() || decision.delay() != Micros::ZERO {
            return Self::asked(guard, inner, request, &admitted.brief);
        }
        // Spelled out, for whatever a request is handed to by value it is moved to.
        let Some(told) = guard.told_of(&admitted.brief) else {
            return Self::told_more(guard, inner, request, &admitted.brief);
        };
        admitted.settler = Some(Arc::<Guard<S>>::clone(guard));
        guard.mark(request.extensions_mut(), admitted);
        Self { stage: Stage::Running { answer: inner.call(request), told } }
    }

    /// The way of a request of which more than one value counts.
    #[inline(never)]
    fn new_of_all(guard: &Arc<Guard<S>>, inner: &mut T, request: Request<B>) -> Self {
        let mut admission = guard.reception.gate.open();
        match guard.reception.ask_now(&request, &mut admission) {
            Prompt::Pass => Self { stage: run(guard, inner, request, admission) },
            prompt => Self::stopped(guard, inner, request, (prompt, admission)),
        }
    }

    /// The way of a request that goes on and whose answer is told more than one limit.
    #[inline(never)]
    fn told_more(guard: &Arc<Guard<S>>, inner: &mut T, request: Request<B>, brief: &Brief) -> Self {
        let admission = Box::new(guard.reception.gate.whole(brief));
        Self { stage: run(guard, inner, request, admission) }
    }

    /// The way of a request that was asked about and does not go on at once.
    #[cold]
    #[inline(never)]
    fn asked(guard: &Arc<Guard<S>>, inner: &mut T, request: Request<B>, brief: &Brief) -> Self {
        let admission = Box::new(guard.reception.gate.whole(brief));
        let prompt = guard.reception.follow(&admission, None);
        Self::stopped(guard, inner, request, (prompt, admission))
    }

    /// The same for those who want to see requests without their bodies.
    #[inline(never)]
    fn new_of_parts(guard: &Arc<Guard<S>>, inner: &mut T, (parts, body): (Parts, B)) -> Self {
        let mut admission = guard.reception.gate.open();
        let prompt = guard.reception.ask_now(&parts, &mut admission);
        let request = Request::from_parts(parts, body);
        match prompt {
            Prompt::Pass => Self { stage: run(guard, inner, request, admission) },
            prompt => Self::stopped(guard, inner, request, (prompt, admission)),
        }
    }

    /// The way of a request that does not go on at once.
    #[inline(never)]
    fn stopped(
        guard: &Arc<Guard<S>>,
        inner: &mut T,
        request: Request<B>,
        (prompt, admission): (Prompt, Box<Admission>),
    ) -> Self {
        let stage = match prompt {
            Prompt::Pass => unreachable!("it goes on at once"),
            Prompt::Refuse(cause) => {
                Stage::Refused { response: guard.refuse(&admission, cause, &request) }
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
        let passage = guard.reception.ask(&parts, first, Patience::OfRules, None).await;
        (parts, passage)
    });
    Stage::Asking { passage, onward }
}

/// Lets a request go on to the service.
fn run<T, S, B>(
    guard: &Arc<Guard<S>>,
    inner: &mut T,
    mut request: Request<B>,
    admission: Box<Admission>,
) -> StageOf<T, S, B>
where
    T: Service<Request<B>>,
    S: Store + 'static,
{
    let after = guard.after(&admission);
    guard.mark(request.extensions_mut(), guard.admitted(admission));
    Stage::Owing { answer: inner.call(request), after }
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
            run(&guard, &mut inner, Request::from_parts(parts, body), admission)
        }
        Passage::Refuse(admission, cause) => {
            Stage::Refused { response: guard.refuse(&admission, cause, &parts) }
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
        if let StageProjection::Running { answer, told } = stage.as_mut().project() {
            // Told where it lies, for an answer that is handed about is copied each time.
            let mut polled = answer.poll(context);
            if let (Poll::Ready(Ok(response)), Some(told)) = (&mut polled, told) {
                told.put(response.headers_mut());
            }
            return polled;
        }
        Self::poll_others(stage, context)
    }
}

impl<T, S, B, R> ResponseFuture<T, S, B>
where
    T: Service<Request<B>, Response = Response<R>>,
    S: Store + 'static,
    R: AnswerBody,
{
    /// Polls what is not just told.
    #[inline(never)]
    fn poll_others(
        mut stage: Pin<&mut StageOf<T, S, B>>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Response<R>, T::Error>> {
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
                StageProjection::Running { .. } => unreachable!("it was polled"),
                StageProjection::Owing { answer, after } => {
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
