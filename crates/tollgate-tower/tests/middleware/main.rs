//! The layers in real servers over loopback, and on time that the tests drive.

mod answers;
mod checks;
mod client_ip;
mod holding;
mod outgoing;
mod redis;
mod scene;
mod servers;
mod settling;
mod single_flight;
mod tonic;
