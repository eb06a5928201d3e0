//! The way of a request through a layer.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tollgate::{Admission, Store};
use tower_service::Service;

use super::guard::{Guard, Pending};
use crate::body::ResponseBody;
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
        guard: Arc<Guard<S>>,
        // What a request that has to wait goes on to, until it does. Boxed, so that futures of those
        // that need not wait are not moved about with room for it.
        onward: Option<Box<(T, B)>>,
        #[pin]
        stage: Stage<T::Future, T::Response>,
    }
}

pin_project! {
    #[project = StageProjection]
    #[project_replace = StageReplaced]
    enum Stage<F, R> {
        // The store, a function or a turn is waited for.
        Asking { passage: Pin<Box<dyn Future<Output = (Parts, Passage)> + Send>> },
        // The service is at it.
        Running { #[pin] answer: F, admission: Arc<Admission> },
        // The answer is there and its cost is being settled.
        Settling { admission: Pending, response: R },
        // The answer is a refusal.
        Refused { response: Response<Bytes> },
        // Everything has been said.
        Done,
    }
}

impl<T, S, B> ResponseFuture<T, S, B>
where
    T: Service<Request<B>> + Clone,
    S: Store + 'static,
{
    /// The way of a request to `inner`, which has said that it is ready.
    #[inline]
    pub(super) fn new(guard: &Arc<Guard<S>>, inner: &mut T, mut request: Request<B>) -> Self {
        if guard.reception.wants_parts() {
            return Self::new_of_parts(guard, inner, request.into_parts());
        }
        // Spelled out, for whatever a request is handed to by value it is moved to.
        match guard.reception.ask_now(&request) {
            Prompt::Clear(Passage::Pass(admission)) => {
                guard.mark(request.extensions_mut(), &admission);
                let answer = inner.call(request);
                Self {
                    stage: Stage::Running { answer, admission },
                    guard: Arc::clone(guard),
                    onward: None,
                }
            }
            Prompt::Clear(passage) => Self::clear(guard, inner, request, passage),
            Prompt::Wait(first) => Self::waiting(guard, inner, request.into_parts(), first),
        }
    }

    /// The same for those who want to see requests without their bodies.
    #[inline(never)]
    fn new_of_parts(guard: &Arc<Guard<S>>, inner: &mut T, (parts, body): (Parts, B)) -> Self {
        match guard.reception.ask_now(&parts) {
            Prompt::Clear(passage) => {
                Self::clear(guard, inner, Request::from_parts(parts, body), passage)
            }
            Prompt::Wait(first) => Self::waiting(guard, inner, (parts, body), first),
        }
    }

    #[inline(never)]
    fn clear(guard: &Arc<Guard<S>>, inner: &mut T, request: Request<B>, passage: Passage) -> Self {
        Self {
            stage: enter(guard, inner, request, passage),
            guard: Arc::clone(guard),
            onward: None,
        }
    }

    #[inline(never)]
    fn waiting(
        guard: &Arc<Guard<S>>,
        inner: &mut T,
        (parts, body): (Parts, B),
        first: Option<Asked>,
    ) -> Self {
        // The one that said it is ready must be the one that is called.
        let clone = inner.clone();
        let ready = mem::replace(inner, clone);
        Self {
            stage: Stage::Asking { passage: ask(guard, parts, first) },
            guard: Arc::clone(guard),
            onward: Some(Box::new((ready, body))),
        }
    }
}

/// Asks about a request for as long as it takes.
fn ask<S: Store + 'static>(
    guard: &Arc<Guard<S>>,
    parts: Parts,
    first: Option<Asked>,
) -> Pin<Box<dyn Future<Output = (Parts, Passage)> + Send>> {
    let guard = Arc::clone(guard);
    Box::pin(async move {
        let passage = guard.reception.ask(&parts, first, Patience::OfRules).await;
        (parts, passage)
    })
}

/// The stage that follows from a passage. Inlined, for a future is large, and moved out of every
/// function that returns it.
#[inline(always)]
fn enter<T, S, B>(
    guard: &Arc<Guard<S>>,
    inner: &mut T,
    mut request: Request<B>,
    passage: Passage,
) -> Stage<T::Future, T::Response>
where
    T: Service<Request<B>>,
    S: Store + 'static,
{
    match passage {
        Passage::Pass(admission) => {
            guard.mark(request.extensions_mut(), &admission);
            let answer = inner.call(request);
            Stage::Running { answer, admission }
        }
        Passage::Refuse(admission, cause) => {
            let protocol = Protocol::of(request.headers());
            Stage::Refused { response: guard.refuse(&admission, cause, protocol) }
        }
    }
}

impl<T, S, B, R> Future for ResponseFuture<T, S, B>
where
    T: Service<Request<B>, Response = Response<R>>,
    S: Store + 'static,
    R: Body<Data = Bytes>,
{
    type Output = Result<Response<ResponseBody<R>>, T::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.stage.as_mut().project() {
                StageProjection::Asking { passage } => {
                    let (parts, passage) = ready!(passage.as_mut().poll(context));
                    let (mut inner, body) = *this.onward.take().expect("a request goes on once");
                    enter(this.guard, &mut inner, Request::from_parts(parts, body), passage)
                }
                StageProjection::Running { answer, admission } => {
                    let response = match ready!(answer.poll(context)) {
                        Ok(response) => response,
                        Err(error) => return Poll::Ready(Err(error)),
                    };
                    match settle(this.guard, admission, response) {
                        Settled::Now(response) => return Poll::Ready(Ok(response)),
                        Settled::Later(admission, response) => {
                            Stage::Settling { admission, response }
                        }
                    }
                }
                StageProjection::Settling { admission, .. } => {
                    let admission = ready!(admission.as_mut().poll(context));
                    let StageReplaced::Settling { response, .. } =
                        this.stage.as_mut().project_replace(Stage::Done)
                    else {
                        unreachable!("the stage was just matched")
                    };
                    return Poll::Ready(Ok(told(this.guard, &admission, response)));
                }
                StageProjection::Refused { .. } => {
                    let StageReplaced::Refused { response } =
                        this.stage.as_mut().project_replace(Stage::Done)
                    else {
                        unreachable!("the stage was just matched")
                    };
                    return Poll::Ready(Ok(response.map(ResponseBody::own)));
                }
                StageProjection::Done => panic!("polled after the answer was given"),
            };
            this.stage.set(next);
        }
    }
}

/// An answer whose cost was looked at.
enum Settled<R> {
    /// Its limits are told.
    Now(Response<ResponseBody<R>>),
    /// The store has to be waited for first.
    Later(Pending, Response<R>),
}

/// Settles what an answer says it cost.
fn settle<S: Store + 'static, R>(
    guard: &Arc<Guard<S>>,
    admission: &Arc<Admission>,
    response: Response<R>,
) -> Settled<R> {
    if !guard.settles() {
        return Settled::Now(told(guard, admission, response));
    }
    let (parts, body) = response.into_parts();
    let actual = guard.actual(&parts);
    let response = Response::from_parts(parts, body);
    match actual.map(|actual| guard.settle(admission, actual)) {
        None => Settled::Now(told(guard, admission, response)),
        Some(Ok(settled)) => Settled::Now(told(guard, &settled, response)),
        Some(Err(pending)) => Settled::Later(pending, response),
    }
}

fn told<S: Store + 'static, R>(
    guard: &Guard<S>,
    admission: &Admission,
    mut response: Response<R>,
) -> Response<ResponseBody<R>> {
    guard.tell(response.headers_mut(), admission);
    response.map(ResponseBody::inner)
}
