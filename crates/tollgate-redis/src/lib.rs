//! The store of [Tollgate](tollgate) in Redis: one atomic script, one round trip.

mod answer;
mod question;
mod script;
mod slot;

#[doc(hidden)]
pub mod bare;
