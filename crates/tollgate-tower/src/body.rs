//! The body of an answer: the service's own, or a refusal's.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::{BoxBody, UnsyncBoxBody};
use http_body_util::{BodyExt, Full};
use pin_project_lite::pin_project;

/// Bodies that can be a service's and a refusal's alike, so that answers keep their type.
///
/// That matters: axum puts every body on the heap whose type is not its own. Those of axum and tonic
/// (with the feature of that name), and `Full`, `BoxBody` and `UnsyncBoxBody` of `http-body-util` are
/// there already, and a type of your own can be made one. Whatever else a service answers (hyper's
/// `Incoming` in a proxy, what layers such as tower-http's make of a body) becomes one as a
/// [`ResponseBody`]:
///
/// ```
/// use http::{Request, Response};
/// use tollgate_tower::{RateLimitLayer, ResponseBody};
/// use tower::ServiceBuilder;
///
/// let service = ServiceBuilder::new()
///     .layer(RateLimitLayer::per_ip("100/min")?)
///     .map_response(|response: Response<_>| response.map(ResponseBody::new))
///     .service_fn(async |_: Request<()>| Ok::<_, ()>(Response::new("hello".to_owned())));
/// # fn is_service<T: tower::Service<Request<()>>>(_: T) {}
/// # is_service(service);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// In an axum router that is spared by handing each layer to a `.layer` of its own: between them all
/// bodies are axum's.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the body of a refusal",
    note = "axum's and tonic's bodies can with the feature `axum` or `tonic` of `tollgate-tower`",
    note = "any other can as a `ResponseBody`: behind the layer add `.map_response(|response: \
            http::Response<_>| response.map(tollgate_tower::ResponseBody::new))`"
)]
pub trait AnswerBody: Body<Data = Bytes> {
    /// The body of a refusal.
    fn of_refusal(text: Bytes) -> Self;
}

#[cfg(feature = "axum")]
impl AnswerBody for axum::body::Body {
    fn of_refusal(text: Bytes) -> Self {
        text.into()
    }
}

#[cfg(feature = "tonic")]
impl AnswerBody for tonic::body::Body {
    fn of_refusal(text: Bytes) -> Self {
        Self::new(Full::new(text))
    }
}

impl AnswerBody for Full<Bytes> {
    fn of_refusal(text: Bytes) -> Self {
        text.into()
    }
}

impl<E: 'static> AnswerBody for BoxBody<Bytes, E> {
    fn of_refusal(text: Bytes) -> Self {
        Full::new(text).map_err(|never| match never {}).boxed()
    }
}

impl<E: 'static> AnswerBody for UnsyncBoxBody<Bytes, E> {
    fn of_refusal(text: Bytes) -> Self {
        Full::new(text).map_err(|never| match never {}).boxed_unsync()
    }
}

impl<B: Body<Data = Bytes>> AnswerBody for ResponseBody<B> {
    fn of_refusal(text: Bytes) -> Self {
        Self { kind: Kind::Own { body: Full::new(text) } }
    }
}

pin_project! {
    /// Any body as an [`AnswerBody`]: what the service answered, or what a layer did in its place.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    #[project = KindProjection]
    #[derive(Debug)]
    enum Kind<B> {
        Inner { #[pin] body: B },
        Own { #[pin] body: Full<Bytes> },
    }
}

impl<B> ResponseBody<B> {
    /// What a service answered.
    pub fn new(body: B) -> Self {
        Self { kind: Kind::Inner { body } }
    }
}

impl<B: Body<Data = Bytes>> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().kind.project() {
            KindProjection::Inner { body } => body.poll_frame(context),
            KindProjection::Own { body } => {
                body.poll_frame(context).map_err(|never| match never {})
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Inner { body } => body.is_end_stream(),
            Kind::Own { body } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Inner { body } => body.size_hint(),
            Kind::Own { body } => body.size_hint(),
        }
    }
}
