//! What happens when Redis fails, on real servers that are killed, paused, demoted, filled and cut
//! off while decisions are being made.
//!
//! In every case: each decision returns within its deadline, errors are of the right kind, nothing
//! piles up, and service resumes by itself. `docs/redis.md` has a table of what was observed.

mod cluster;
mod gate;
mod load;
mod network;
mod sentinel;
mod server;
mod spread;
