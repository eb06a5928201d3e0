//! The service around a service.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::body::FlightBody;
use super::flights::Flights;
use super::future::{ResponseFuture, fly};
use super::layer::{Bounds, KeyOf};

/// A service whose identical requests share a call. Made by
/// [`SingleFlightLayer`](super::SingleFlightLayer).
#[derive(Clone)]
pub struct SingleFlight<T> {
    pub(super) inner: T,
    pub(super) key_of: Arc<KeyOf>,
    pub(super) flights: Arc<Flights>,
    pub(super) bounds: Bounds,
}

impl<T, B, R> Service<Request<B>> for SingleFlight<T>
where
    T: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    T::Future: Send,
    T::Error: 'static,
    B: Send + 'static,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Send,
{
    type Response = Response<FlightBody<R>>;
    type Error = T::Error;
    type Future = ResponseFuture<R, T::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), T::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The one that said it is ready must be the one that is called.
        let clone = self.clone();
        let service = mem::replace(self, clone);
        ResponseFuture::new(fly(service, request))
    }
}

impl<T: fmt::Debug> fmt::Debug for SingleFlight<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SingleFlight").field("inner", &self.inner).finish_non_exhaustive()
    }
}
