//! The service around a service.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tollgate::Store;
use tower_service::Service;

use super::future::ResponseFuture;
use super::guard::Guard;
use crate::body::AnswerBody;

/// A service whose requests have to be admitted. Made by [`RateLimitLayer`](super::RateLimitLayer).
pub struct RateLimit<T, S> {
    inner: T,
    guard: Arc<Guard<S>>,
}

impl<T, S> RateLimit<T, S> {
    pub(super) fn new(inner: T, guard: Arc<Guard<S>>) -> Self {
        Self { inner, guard }
    }

    /// The service behind.
    pub fn inner(&self) -> &T {
        &self.inner
    }
}

impl<T, S, B, R> Service<Request<B>> for RateLimit<T, S>
where
    T: Service<Request<B>, Response = Response<R>> + Clone,
    S: Store + 'static,
    R: AnswerBody,
{
    type Response = Response<R>;
    type Error = T::Error;
    type Future = ResponseFuture<T, S, B>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), T::Error>> {
        self.inner.poll_ready(context)
    }

    // Apart, so that the future is made where the caller wants it: as part of axum's caller its 400 bytes
    // are copied once more. What that costs was less than the noise where it was measured.
    #[inline(never)]
    fn call(&mut self, request: Request<B>) -> Self::Future {
        ResponseFuture::new(&self.guard, &mut self.inner, request)
    }
}

impl<T: Clone, S> Clone for RateLimit<T, S> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), guard: Arc::clone(&self.guard) }
    }
}

impl<T: fmt::Debug, S> fmt::Debug for RateLimit<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").field("inner", &self.inner).finish_non_exhaustive()
    }
}
