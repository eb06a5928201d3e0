//! The signals that tell a process something.

use std::io;

/// What a signal asks for.
pub(super) enum Signal {
    /// To finish and end.
    Stop,
    /// To read its files again.
    #[cfg_attr(not(unix), expect(dead_code, reason = "there is no such signal"))]
    Hangup,
}

#[cfg(unix)]
pub(super) struct Signals {
    hangup: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    /// From now on the signals are heard, and no longer end the process by themselves.
    pub(super) fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// The next SIGTERM, SIGINT or SIGHUP.
    pub(super) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.terminate.recv() => Signal::Stop,
            _ = self.interrupt.recv() => Signal::Stop,
            _ = self.hangup.recv() => Signal::Hangup,
        }
    }

    /// The next that asks to stop.
    pub(super) async fn stop(&mut self) {
        while !matches!(self.next().await, Signal::Stop) {}
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
    pub(super) async fn next(&mut self) -> Signal {
        // Where it cannot be heard there is nothing to wait for, and nothing to stop for either.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        Signal::Stop
    }

    /// The next that asks to stop.
    pub(super) async fn stop(&mut self) {
        let _ = self.next().await;
    }
}
