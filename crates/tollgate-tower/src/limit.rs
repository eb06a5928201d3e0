//! Limits on requests that come in.
//!
//! [`RateLimitLayer`] wraps a service so that every request asks a [`Gate`](tollgate::Gate) first.
//! Those that are admitted go on with an [`Admitted`] in their extensions; those that are not are
//! answered in the service's place. Both answers tell the limits in their headers.

mod admitted;
mod future;
mod guard;
mod layer;
mod service;

pub use admitted::Admitted;
pub use future::ResponseFuture;
pub use layer::RateLimitLayer;
pub use service::RateLimit;
