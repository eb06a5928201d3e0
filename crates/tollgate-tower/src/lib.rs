//! Tollgate in HTTP services: tower layers for axum, tonic and hyper.

mod axes;
mod behind;
mod body;
pub mod checks;
pub mod client_ip;
pub mod headers;
mod lifetime;
pub mod limit;
pub mod outgoing;
mod reception;
pub mod refusal;
pub mod single_flight;
mod waiters;

pub use axes::Axes;
pub use body::ResponseBody;
pub use checks::Check;
pub use client_ip::{ClientIp, PeerAddr, Trail};
pub use headers::{Dialect, Policy, render, render_admission};
pub use lifetime::jittered;
pub use limit::{Admitted, RateLimit, RateLimitLayer};
pub use outgoing::{CallError, Outgoing, OutgoingLayer};
pub use refusal::{Cause, Refusal};
pub use single_flight::{SingleFlight, SingleFlightLayer};
