//! The service around a client.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tollgate::Store;
use tower_service::Service;

use super::error::CallError;
use super::future::{ResponseFuture, call};
use super::layer::Desk;

/// A client whose calls wait their turn. Made by [`OutgoingLayer`](super::OutgoingLayer).
pub struct Outgoing<T, S> {
    inner: T,
    desk: Arc<Desk<S>>,
}

impl<T, S> Outgoing<T, S> {
    pub(super) fn new(inner: T, desk: Arc<Desk<S>>) -> Self {
        Self { inner, desk }
    }
}

impl<T, S, B, R> Service<Request<B>> for Outgoing<T, S>
where
    T: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    T::Future: Send,
    T::Error: 'static,
    S: Store + 'static,
    B: Send + 'static,
    R: 'static,
{
    type Response = Response<R>;
    type Error = CallError<T::Error>;
    type Future = ResponseFuture<R, T::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context).map_err(CallError::Inner)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The one that said it is ready must be the one that is called.
        let clone = self.inner.clone();
        let inner = mem::replace(&mut self.inner, clone);
        ResponseFuture::new(call(Arc::clone(&self.desk), inner, request))
    }
}

impl<T: Clone, S> Clone for Outgoing<T, S> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), desk: Arc::clone(&self.desk) }
    }
}

impl<T: fmt::Debug, S> fmt::Debug for Outgoing<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outgoing").field("inner", &self.inner).finish_non_exhaustive()
    }
}
