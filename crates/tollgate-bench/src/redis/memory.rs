//! What a key costs Redis.

use std::io;

use tollgate_testkit::redis::Server;

use super::contender::{Contender, Kind};
use super::report::Weight;

/// Keys that are weighed together, and requests on each: a log remembers every one.
const KEYS: usize = 20_000;
const LOGS: usize = 500;
const LOGGED: usize = 100;

/// Fills keys and weighs what Redis holds more than before, names and expiries included.
pub(crate) async fn weigh(server: &Server, kind: Kind) -> io::Result<Weight> {
    let (keys, requests) = match kind.algorithm() {
        "sliding-log" => (LOGS, LOGGED),
        _ => (KEYS, 1),
    };
    let contender = Contender::new(kind, server).await?;
    // Keys the races have not made.
    let first = super::contender::KEYS;
    let before = used_memory(server)?;
    for request in 0..requests {
        for key in first..first + keys {
            let granted = match &contender {
                Contender::Plain(plain) => plain.take(key, request).await?,
                Contender::Tollgate(tollgate) => tollgate.take(key).await?,
            };
            assert!(granted, "{kind} refused while it was filled");
        }
    }
    let bytes = used_memory(server)?.saturating_sub(before) as f64;
    Ok(Weight {
        section: "memory",
        contender: kind.contender(),
        algorithm: kind.algorithm(),
        keys,
        bytes_per_key: crate::report::tenth(bytes / keys as f64),
        bytes_per_request: crate::report::tenth(bytes / (keys * requests) as f64),
    })
}

/// Bytes the server has allocated.
fn used_memory(server: &Server) -> io::Result<u64> {
    let used = server.info("used_memory").and_then(|value| value.parse().ok());
    used.ok_or_else(|| io::Error::other("no memory in INFO"))
}
