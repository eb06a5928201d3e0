//! The script on a real server: one guarantee after the other, and the same decisions as in memory.

mod calendar;
mod composites;
mod conformance;
mod defects;
mod differential;
mod long_logs;
mod server;
mod short_way;
mod stored;
