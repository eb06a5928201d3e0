//! Limits on calls that go out, to stay within a vendor's cap.
//!
//! [`OutgoingLayer`] wraps an HTTP client. A call that does not fit waits its turn, up to a bound; it
//! is not made at all if its turn would come later. And it listens: after a `Retry-After`, or a
//! `RateLimit` field that says nothing remains, no call goes to that host before it said so.

mod error;
mod future;
mod host;
mod layer;
mod pause;
mod service;
mod vendor;

pub use error::CallError;
pub use future::ResponseFuture;
pub use layer::OutgoingLayer;
pub use service::Outgoing;
