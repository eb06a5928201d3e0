//! Tollgate in HTTP services: how a decision looks in an answer's headers.

pub mod headers;

pub use headers::{Dialect, Policy, render};
