//! A server, and the script on it.

use std::sync::Arc;

use tollgate::{Prefix, Timestamp};
use tollgate_redis::bare::Bare;
use tollgate_testkit::conformance::{Bench, Driven};
use tollgate_testkit::redis::Server;

/// A connection of its own that knows the script.
pub(crate) fn bare(server: &Server) -> Bare {
    let client = redis::Client::open(server.url()).expect("a URL");
    let connection = client.get_connection().expect("a connection");
    Bare::new(connection, Prefix::default()).expect("a script that loads")
}

/// The script's clock, driven. It keeps the server, which is gone with it.
pub(crate) struct Clock {
    bare: Arc<Bare>,
    _server: Server,
}

impl Driven for Clock {
    fn set(&self, now: Timestamp) {
        self.bare.set_clock(Some(now));
    }
}

/// The script as a store, on a driven clock and a server of its own.
pub(crate) fn bench() -> Bench<Arc<Bare>, Clock> {
    let server = Server::start();
    let bare = Arc::new(bare(&server));
    Bench::new(bare.clone(), Clock { bare, _server: server }, "")
}
