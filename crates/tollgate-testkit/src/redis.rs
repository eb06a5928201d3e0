//! Real Redis servers for tests, each started by the test that uses it and gone with it.
//!
//! Nothing here touches a server it did not start. Every server listens on a free port of the
//! loopback and on a socket in a folder of its own, keeps nothing on disk, and dies when it is
//! dropped; should the test's process be killed, the kernel kills the server too.
//!
//! | what | file |
//! |---|---|
//! | [`Server`]: one server, which can be killed, paused, restarted empty | `redis/server.rs` |
//! | [`Sentinels`]: a primary with replicas, watched by three sentinels | `redis/sentinel.rs` |
//! | [`Cluster`]: three primaries, each with a replica | `redis/cluster.rs` |
//! | [`Proxy`]: a wire that delays, swallows or is cut | `redis/proxy.rs` |
//! | [`Client`], [`Reply`]: a few commands by hand, for setting up and looking | `redis/client.rs` |

mod client;
mod cluster;
mod process;
mod proxy;
mod sentinel;
mod server;
mod tls;

use std::time::{Duration, Instant};

pub use client::{Client, Reply};
pub use cluster::Cluster;
pub use process::installed;
pub use proxy::Proxy;
pub use sentinel::Sentinels;
pub use server::{Server, ServerBuilder};
pub use tls::Certificates;

/// The longest anything here may take to start or to agree, on a machine that is busy with other
/// tests. Waiting ends as soon as it is so.
const PATIENCE: Duration = Duration::from_secs(60);

/// Looks again and again until `found` finds something.
///
/// # Panics
///
/// If it has found nothing after a minute; `what` says what was waited for.
pub fn wait_for<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
