//! The Tollgate server: decisions over the network.
//!
//! ```text
//! socket → serve.rs      accepts, bounds what a connection may hold, stops cleanly
//!        → http.rs       routes, one handler for every verb
//!          http/body     bytes, so many and no more
//!          http/wire     JSON as clients write it
//!          http/question JSON → Subject, ChargeSet  one conversion in
//!        → tollgate      Gate decides
//!          http/answer   Decision → JSON, headers   one conversion out
//!          http/problem  what is wrong with a request
//!          http/envoy    the same for Envoy's descriptors, as JSON
//!        → alarm.rs, metrics.rs, reloads.rs         what the operator hears of it
//! ```

mod alarm;
mod descriptors;
mod http;
mod metrics;
mod reloads;
mod serve;
mod settings;
mod store;

pub use descriptors::Descriptors;
pub use http::decision_json;
pub use reloads::{Reload, Reloads};
pub use serve::{Listeners, Stop, run};
pub use settings::{AdminToken, Limits, Settings, Trouble};
pub use store::AnyStore;
