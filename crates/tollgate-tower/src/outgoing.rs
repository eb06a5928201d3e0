//! Limits on calls that go out, to stay within a vendor's cap.
//!
//! [`OutgoingLayer`] wraps an HTTP client. A call that does not fit waits its turn, up to a bound; it
//! is not made at all if its turn would come later. And it listens: after a `Retry-After`, or a
//! `RateLimit` field that says nothing remains, no call goes to that host before it said so.
//!
//! # Who goes first
//!
//! Calls go in the order they were made in, those that are alike in all that the policy asks for: they stand
//! in a line, and only the first of it asks the gate, waits until it fits, and makes place for the next. Who
//! comes when more stand there than can go in time is told so at once.
//!
//! A leaky bucket is such a line by itself, for all who share it, whoever they are: a call is told at once
//! when its turn comes, or that this is too far away, and turns are evenly spaced.
//!
//! A pause is the host's, whatever a call's key, method or path, and an hour at most. Calls whose turns
//! fall into one that the vendor asked for meanwhile ask for others at its end, behind those that have
//! one.

mod error;
mod future;
mod layer;
mod line;
mod pause;
mod service;
mod turn;
mod vendor;

pub use error::CallError;
pub use future::ResponseFuture;
pub use layer::OutgoingLayer;
pub use service::Outgoing;
