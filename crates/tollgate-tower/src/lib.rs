//! Tollgate in HTTP services: tower layers for axum, tonic and hyper.
//!
//! | layer | |
//! |---|---|
//! | [`RateLimitLayer`] | requests that come in have to be admitted by a [`Gate`](tollgate::Gate) |
//! | [`OutgoingLayer`] | calls that go out wait their turn, and do as the vendor says |
//! | [`SingleFlightLayer`] | identical requests in flight share one call |
//!
//! One line limits a service by client address, in memory:
//!
//! ```
//! use tollgate_tower::RateLimitLayer;
//!
//! # async fn hello() -> &'static str { "hello" }
//! let app: axum::Router = axum::Router::new()
//!     .route("/", axum::routing::get(hello))
//!     .layer(RateLimitLayer::per_ip("100/min")?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Everything else is a policy: see [`RateLimitLayer`] for the long form, [`Axes`] for what rules can
//! go by, [`ClientIp`] for services behind proxies, [`Dialect`] for the header fields, [`Refusal`] for
//! what clients are told, [`Admitted`] for what handlers are, and [`Check`] for what the layer finds
//! out about its own wiring. The guide is `docs/middleware.md` in the repository.
//!
//! # The way of a request
//!
//! ```text
//! request ──▶ RateLimit ──▶ axes, client address, costs ──▶ Gate::admit
//!                               │ allowed                     │ refused
//!                               ▼                             ▼
//!                 held for its delay, if any        held until it fits, if it may wait
//!                               ▼                             ▼
//!                 Admitted in its extensions        429, 503 or a gRPC status
//!                 the service answers
//!                 its cost is settled, if it says
//!                               └────────▶ headers ◀──────────┘
//! ```
//!
//! With a store in this process none of this is put on the heap but the admission, and nothing is
//! waited for.
//!
//! # Features
//!
//! `axum` (on) finds peers and matched routes where axum leaves them, `tonic` finds peers where tonic
//! does; and each lets the bodies of its own answers be refusals. Neither changes anything else.

mod axes;
mod behind;
mod body;
pub mod checks;
pub mod client_ip;
mod head;
pub mod headers;
mod lifetime;
pub mod limit;
pub mod outgoing;
mod quoted;
mod reception;
pub mod refusal;
pub mod single_flight;
mod waiters;

pub use axes::Axes;
pub use body::{AnswerBody, ResponseBody};
pub use checks::Check;
pub use client_ip::{ClientIp, PeerAddr, Trail};
pub use headers::{Dialect, NamedMeter, render, render_admission};
pub use lifetime::jittered;
pub use limit::{Admitted, RateLimit, RateLimitLayer};
pub use outgoing::{CallError, Outgoing, OutgoingLayer};
pub use refusal::{Cause, Refusal};
pub use single_flight::{SingleFlight, SingleFlightLayer};

/// The code in the guide, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/middleware.md")]
struct Guide;
