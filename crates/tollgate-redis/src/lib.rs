//! The store of [Tollgate](tollgate) in Redis: one atomic script, one round trip.
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use tollgate::{Algorithm, Cost, Limiter, Meter};
//! use tollgate_redis::RedisStore;
//!
//! let store = RedisStore::builder("redis://127.0.0.1:6379")?.build()?;
//! let limiter = Limiter::new(store);
//! let meter = Meter::new("100/min".parse()?, Algorithm::TokenBucket)?;
//! let decision = limiter.take("user:42", meter, Cost::ONE).await?;
//! println!("{}", decision.verdict());
//! # Ok(()) }
//! ```
//!
//! # Never the reason for an outage
//!
//! A decision is there within the [deadline](RedisStoreBuilder::deadline), or an error is: a rule's
//! fallback then decides ([`Gate`](tollgate::Gate)). While a server is known to be down the error
//! comes at once, and the server is looked for in the background. What was sent and not answered is
//! never sent again, for it may have been charged. Nothing has to be up when the store is built.
//!
//! # Refused again without asking
//!
//! A charge Redis has just refused is refused in process until it could fit, for a second at most, so
//! that whoever keeps asking costs Redis next to nothing. Such decisions carry
//! [`Provenance::DenyCache`](tollgate::Provenance::DenyCache).
//!
//! # Cluster
//!
//! A set whose charges share a slot is decided by one script, atomically. Charges that should be
//! decided together belong to rules that `colocate` by the same axis. A set that spans slots is taken
//! slot by slot and given back if one refuses: it never admits too much, but while it is under way it
//! may make others be refused. Its refunds go by one instant, though its parts were decided at
//! different ones, so a sliding log in another slot than the last may give nothing back.
//!
//! `docs/redis.md` says more, and what was observed when Redis failed.

mod answer;
mod connect;
mod decimal;
mod denials;
mod failure;
mod node;
mod question;
mod script;
mod shared;
mod slot;
mod spread;
mod stats;
mod store;
mod tally;
mod topology;
mod url;
mod wire;

#[doc(hidden)]
pub mod bare;

pub use stats::{Latency, Stats};
pub use store::{BuildError, RedisStore, RedisStoreBuilder};
pub use url::{RedisUrl, UrlError};

/// The code in the guide, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/redis.md")]
struct Guide;
