//! One call for many that ask the same at the same time.
//!
//! When something expensive expires from a cache, everybody asks for it at once. With
//! [`SingleFlightLayer`] the first of identical requests makes the call, the *leader*; those that come
//! while it is under way wait and get a copy of its answer. Nothing is kept afterwards: this is no
//! cache, it goes well in front of one (and see [`jittered`](crate::jittered)).
//!
//! ```text
//! GET /report ──▶ leads ──▶ service ──▶ answer ─┬─▶
//! GET /report ──▶ follows ······················├─▶ copy
//! GET /report ──▶ follows ······················└─▶ copy
//! GET /report (later) ──▶ leads …
//! ```
//!
//! - A leader that goes away (its client hung up) or fails leaves the call to one of its followers, and
//!   the others follow that one. An answer of 500 or above is such a failure, unless
//!   [failures are shared](SingleFlightLayer::share_failures).
//! - An answer that sets a cookie, or whose body is longer than
//!   [`max_body`](SingleFlightLayer::max_body), takes longer than
//!   [`longest_read`](SingleFlightLayer::longest_read), breaks off, or has trailers, is the leader's
//!   alone, and its followers call for themselves.
//! - Beyond [`max_flights`](SingleFlightLayer::max_flights) different calls under way, requests are
//!   not looked at and go on.

mod body;
mod flights;
mod future;
mod layer;
mod service;

pub use body::FlightBody;
pub use future::ResponseFuture;
pub use layer::SingleFlightLayer;
pub use service::SingleFlight;
