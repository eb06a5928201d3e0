//! What a key costs Redis.

use std::io;

use futures_util::future::try_join_all;
use tollgate_testkit::redis::Server;

use super::contender::{Contender, Kind};
use super::report::Weight;

/// Keys that are weighed together, and requests on each: a log remembers every one.
const KEYS: usize = 20_000;
const LOGS: usize = 1_000;
const LOGGED: usize = 100;

/// Requests made at a time: of different keys, so that a log's all have instants of their own.
const AT_ONCE: usize = 50;

/// Fills keys of a server of its own and weighs what Redis holds more than before, names and expiries
/// included.
pub(crate) async fn weigh(kind: Kind) -> io::Result<Weight> {
    let server = &Server::start();
    let (keys, requests) = match kind.algorithm() {
        "sliding-log" => (LOGS, LOGGED),
        _ => (KEYS, 1),
    };
    let contender = Contender::new(kind, server).await?;
    let take = |key: usize, request: usize| {
        let contender = &contender;
        async move {
            match contender {
                Contender::Plain(plain) => plain.take_of(key, request).await,
                Contender::Tollgate(tollgate) => tollgate.take_of(key).await,
            }
        }
    };
    // Connections, their buffers and the script are there before anything is weighed.
    try_join_all((0..AT_ONCE).map(|key| take(keys + key, 0))).await?;
    let before = used_memory(server)?;
    for request in 0..requests {
        for first in (0..keys).step_by(AT_ONCE) {
            let granted = try_join_all((first..first + AT_ONCE).map(|key| take(key, request)));
            let granted = granted.await?;
            assert!(granted.into_iter().all(|one| one), "{kind} refused while it was filled");
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
