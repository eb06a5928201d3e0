//! From sockets to requests, and how that ends.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tollgate::Store;

use crate::http;
use crate::settings::{Limits, Settings};

/// About the most memory a connection may use to buffer what was read and not yet understood, and so
/// about the largest head of a request; a read may go beyond it once.
const MAX_BUFFER: usize = 64 * 1024;

/// How long to wait before accepting again when the system has nothing left to accept with.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The sockets a server answers on, bound by whoever starts it.
#[derive(Debug)]
pub struct Listeners {
    /// For the HTTP API.
    pub http: TcpListener,
}

/// How a server came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Every request under way was answered.
    Drained,
    /// So many connections were still busy when [`Limits::drain`] was over, and were cut.
    Cut(usize),
}

/// Answers on `listeners` until `shutdown` completes, then finishes what is under way.
///
/// From then on nobody is accepted and no connection is kept alive. Dropping the future cuts
/// everything at once.
pub async fn run<S: Store + 'static>(
    listeners: Listeners,
    settings: Settings<S>,
    shutdown: impl Future<Output = ()>,
) -> Stop {
    let limits = settings.limits;
    let mut server = Server::new(http::router(settings), limits);
    server.accept_until(listeners.http, shutdown).await;
    server.drain(limits.drain).await
}

/// The connections of one listener.
struct Server {
    protocol: http1::Builder,
    service: TowerToHyperService<Router>,
    permits: Arc<Semaphore>,
    graceful: GracefulShutdown,
    // Owned, not detached, so that none outlives the server.
    connections: JoinSet<()>,
}

impl Server {
    fn new(router: Router, limits: Limits) -> Self {
        let mut protocol = http1::Builder::new();
        protocol.timer(TokioTimer::new()).header_read_timeout(limits.head).max_buf_size(MAX_BUFFER);
        Self {
            protocol,
            service: TowerToHyperService::new(router),
            permits: Arc::new(Semaphore::new(limits.connections)),
            graceful: GracefulShutdown::new(),
            connections: JoinSet::new(),
        }
    }

    /// Serves whoever comes, until `shutdown`; the listener is closed then.
    async fn accept_until(&mut self, listener: TcpListener, shutdown: impl Future<Output = ()>) {
        let mut shutdown = pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => return,
                (stream, permit) = accept(&listener, &self.permits) => self.serve(stream, permit),
                // Finished connections are forgotten as they end, lest they pile up.
                Some(_) = self.connections.join_next() => {}
            }
        }
    }

    fn serve(&mut self, stream: TcpStream, permit: OwnedSemaphorePermit) {
        // Answers are small and whole; waiting to fill a packet only delays them. If it cannot be
        // set the peer is gone, and serving it finds out.
        let _ = stream.set_nodelay(true);
        let connection = self.protocol.serve_connection(TokioIo::new(stream), self.service.clone());
        let connection = self.graceful.watch(connection);
        self.connections.spawn(async move {
            // What goes wrong here is the peer's doing: it hung up, was too slow, or spoke no HTTP.
            let _ = connection.await;
            drop(permit);
        });
    }

    /// Lets requests under way finish, for so long.
    async fn drain(mut self, limit: Duration) -> Stop {
        let drained = timeout(limit, self.graceful.shutdown()).await;
        while self.connections.try_join_next().is_some() {}
        match (drained, self.connections.len()) {
            // A task may still be ending though its connection has.
            (Ok(()), _) | (Err(_), 0) => Stop::Drained,
            (Err(_), left) => Stop::Cut(left),
        }
    }
}

/// The next connection, once there is room for one more.
async fn accept(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
) -> (TcpStream, OwnedSemaphorePermit) {
    let permit = Arc::clone(permits).acquire_owned().await;
    let permit = permit.expect("the semaphore is never closed");
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return (stream, permit),
            Err(error) if is_of_peer(&error) => {}
            // Out of file descriptors or memory: both come back as connections end.
            Err(_) => sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// Whether a connection failed before it was accepted, which says nothing about the next one.
fn is_of_peer(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
    )
}
