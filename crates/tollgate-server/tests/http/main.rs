//! The HTTP API over real sockets. Time is driven, never slept.

mod bad_input;
mod connection;
mod decisions;
mod operation;
mod policy;
mod server;
