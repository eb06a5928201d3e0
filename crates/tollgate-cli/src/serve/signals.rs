//! The signals that ask a process to stop.

use std::io;

#[cfg(unix)]
pub(super) struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    /// From now on the signals are heard, and no longer end the process by themselves.
    pub(super) fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// The next SIGTERM or SIGINT.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

#[cfg(not(unix))]
pub(super) struct Signals;

#[cfg(not(unix))]
impl Signals {
    /// Nothing to prepare.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self)
    }

    /// The next Ctrl-C.
    pub(super) async fn next(&mut self) {
        // Where it cannot be heard there is nothing to wait for, and nothing to stop for either.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending().await
        }
    }
}
