//! What the tests of every crate share: slow, obvious models of the algorithms, traces to walk them
//! along, the conformance suite every store must pass, and real Redis servers.
//!
//! Not published. Nothing here calls the arithmetic it is there to judge.

pub mod conformance;
pub mod model;
pub mod ready;
pub mod redis;
pub mod trace;
pub mod walk;
