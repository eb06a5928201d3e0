//! Limits on calls that go out, to stay within a vendor's cap.
//!
//! [`OutgoingLayer`] wraps an HTTP client. A call that does not fit waits its turn, up to a bound; it
//! is not made at all if its turn would come later. And it listens: after a `Retry-After`, or a
//! `RateLimit` field that says nothing remains, no call goes to that host before it said so.
//!
//! # Who goes first
//!
//! A leaky bucket is a queue: a call is told at once when its turn comes, or that this is too far away,
//! and turns come in the order calls were made in, evenly spaced. So are the calls under
//! [`per_host`](OutgoingLayer::per_host) with one quota. Under every other algorithm a call that does
//! not fit is told when there may be room, and then asks again, along with all who were told the same:
//! one of them goes, older or younger, and whoever is still there when its time is up goes not. In
//! return those let as many calls go at once as fit.
//!
//! A pause is the host's, whatever a call's key, method or path, and an hour at most. Calls whose turns
//! fall into one that the vendor asked for meanwhile ask for others at its end, behind those that have
//! one.

mod error;
mod future;
mod layer;
mod pause;
mod service;
mod turn;
mod vendor;

pub use error::CallError;
pub use future::ResponseFuture;
pub use layer::OutgoingLayer;
pub use service::Outgoing;
