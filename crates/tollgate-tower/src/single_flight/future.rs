//! The way of a request that may share its call.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, SET_COOKIE, VARY};
use http::response::Parts;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::body::{FlightBody, Read, read};
use super::flights::{Landed, Leader, Role, landing};
use super::layer::{Bounds, NEGOTIATED};
use super::service::SingleFlight;

/// The answer to a request, once it is there.
pub struct ResponseFuture<R: Body, E> {
    // On the heap: whoever waits for an expensive call does not notice.
    answer: Pin<Box<dyn Future<Output = Answer<R, E>> + Send>>,
}

type Answer<R, E> = Result<Response<FlightBody<R>>, E>;

impl<R: Body, E> ResponseFuture<R, E> {
    pub(super) fn new(answer: impl Future<Output = Answer<R, E>> + Send + 'static) -> Self {
        Self { answer: Box::pin(answer) }
    }
}

impl<R: Body, E> Future for ResponseFuture<R, E> {
    type Output = Answer<R, E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.answer.as_mut().poll(context)
    }
}

impl<R: Body, E> fmt::Debug for ResponseFuture<R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}

/// Follows a flight, or leads one, or does neither.
pub(super) async fn fly<T, B, R>(
    mut service: SingleFlight<T>,
    request: Request<B>,
) -> Result<Response<FlightBody<R>>, T::Error>
where
    T: Service<Request<B>, Response = Response<R>>,
    R: Body<Data = Bytes>,
{
    let (parts, body) = request.into_parts();
    let key = (service.key_of)(&parts);
    let request = Request::from_parts(parts, body);
    let Some(key) = key else {
        return alone(&mut service.inner, request).await;
    };
    loop {
        match service.flights.join(&key) {
            Role::Pass => return alone(&mut service.inner, request).await,
            Role::Lead(leader) => {
                let answer = service.inner.call(request).await?;
                return Ok(land(leader, answer, service.bounds).await);
            }
            Role::Follow(flight) => match landing(flight).await {
                Some(Landed::Shared(shared)) => {
                    let (parts, bytes) = Arc::unwrap_or_clone(shared);
                    return Ok(Response::from_parts(parts, FlightBody::whole(bytes)));
                }
                Some(Landed::Alone) => return alone(&mut service.inner, request).await,
                // The leader went away or failed: somebody has to make the call.
                None => {}
            },
        }
    }
}

async fn alone<T, B, R>(
    inner: &mut T,
    request: Request<B>,
) -> Result<Response<FlightBody<R>>, T::Error>
where
    T: Service<Request<B>, Response = Response<R>>,
    R: Body<Data = Bytes>,
{
    Ok(inner.call(request).await?.map(FlightBody::unread))
}

/// Whether an answer says nothing against being given to others: it sets no cookie, is not private,
/// depends on nothing that does not tell requests apart, and has an end.
fn is_for_all(answer: &Parts) -> bool {
    let texts = |name: HeaderName| {
        let values = answer.headers.get_all(name).into_iter();
        values.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','))
    };
    let personal = texts(CACHE_CONTROL).any(|directive| {
        let name = directive.split('=').next().unwrap_or_default().trim();
        ["private", "no-store"].iter().any(|own| name.eq_ignore_ascii_case(own))
    });
    let varies = texts(VARY)
        .any(|name| !NEGOTIATED.iter().any(|known| name.trim().eq_ignore_ascii_case(known)));
    // Others show only when their time is up (see `body.rs`).
    let endless = texts(CONTENT_TYPE).any(|kind| {
        let name = kind.split(';').next().unwrap_or_default().trim();
        name.eq_ignore_ascii_case("text/event-stream")
    });
    let is_own = answer.headers.contains_key(SET_COOKIE) || answer.status.is_informational();
    !(personal || varies || endless || is_own)
}

/// Reads the leader's answer and shares it, if it can be.
async fn land<R: Body<Data = Bytes>>(
    leader: Leader,
    answer: Response<R>,
    bounds: Bounds,
) -> Response<FlightBody<R>> {
    let (parts, body) = answer.into_parts();
    if parts.status.is_server_error() && !bounds.failures {
        // As if it had not answered: one of the others makes the call, and the rest wait for that one.
        // If they all made it at once, whoever fails for having too much to do would get all of it.
        drop(leader);
        return Response::from_parts(parts, FlightBody::unread(body));
    }
    if !is_for_all(&parts) {
        leader.land(Landed::Alone);
        return Response::from_parts(parts, FlightBody::unread(body));
    }
    match read(body, bounds.max_body, bounds.longest_read).await {
        Read::Whole(bytes) => {
            leader.land(Landed::Shared(Arc::new((parts.clone(), bytes.clone()))));
            Response::from_parts(parts, FlightBody::whole(bytes))
        }
        Read::Partly(body) => {
            leader.land(Landed::Alone);
            Response::from_parts(parts, body)
        }
    }
}
