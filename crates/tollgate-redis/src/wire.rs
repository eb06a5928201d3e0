//! One connection: what is sent, in order, and who waits for each reply.
//!
//! ```text
//! send ──▶ the socket, by the sender itself ─────▶ server
//!              └─ what it does not take ─▶ the wire's task, when it does
//! receiver ◀── the wire's task ◀───────────────── server
//! ```
//!
//! Whoever sends writes to the socket, so that a lone question goes out without anybody being woken.
//! A task of the wire's own reads, and hands every reply to the one whose turn it is, on the spot.
//!
//! A wire that broke stays broken; everybody who waits is told. It is closed with its last handle.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;

use crate::failure::Failure;

mod frame;

pub(crate) use frame::{Head, Values};

use frame::Scanner;

/// What is read at once at first. A batch's replies fit.
const LEAST_BUFFER: usize = 16 << 10;

/// The longest reply. The script's are thousands of times shorter.
const LONGEST_REPLY: usize = 64 << 20;

/// What bytes go over.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Who waits for a reply.
pub(crate) trait Receiver: Send {
    /// The reply, or why there will be none. Runs on the wire's task, so it must not wait.
    fn receive(self: Box<Self>, reply: Result<&[u8], Failure>);
}

/// A handle to a connection; the last one closes it.
#[derive(Clone)]
pub(crate) struct Wire(Arc<Handle>);

struct Handle {
    inner: Arc<Inner>,
    task: AbortHandle,
}

struct Inner {
    ends: Mutex<Ends>,
    // Told once when the wire breaks.
    broken: Notify,
}

struct Ends {
    stream: Box<dyn Stream>,
    // Taken from senders and not yet by the socket. Bounded by the calls that may be out.
    outgoing: Vec<u8>,
    // What the socket took may still lie in a layer of ours, as in that of TLS.
    flushed: bool,
    // One for every reply that is to come, in order.
    receivers: VecDeque<Box<dyn Receiver>>,
    // Woken when something is outgoing.
    task: Waker,
    failure: Option<Failure>,
}

impl Wire {
    /// A wire over `stream`, with a task on the runtime this is called in.
    pub(crate) fn over(stream: impl Stream + 'static) -> Self {
        let ends = Ends {
            stream: Box::new(stream),
            outgoing: Vec::new(),
            flushed: true,
            receivers: VecDeque::new(),
            task: Waker::noop().clone(),
            failure: None,
        };
        let inner = Arc::new(Inner { ends: Mutex::new(ends), broken: Notify::new() });
        let task = tokio::spawn(Reading::new(Arc::clone(&inner)));
        Self(Arc::new(Handle { inner, task: task.abort_handle() }))
    }

    /// Sends commands and says who waits for the replies, one for each. Told why not, nothing was
    /// sent and nobody is kept.
    pub(crate) fn send(
        &self,
        commands: &[u8],
        receivers: impl IntoIterator<Item = Box<dyn Receiver>>,
    ) -> Result<(), Failure> {
        let mut ends = self.0.inner.lock();
        if let Some(failure) = &ends.failure {
            return Err(failure.clone());
        }
        ends.receivers.extend(receivers);
        ends.write(commands);
        Ok(())
    }

    /// Sends a command and waits for its reply.
    pub(crate) async fn request(&self, command: &[u8]) -> Result<Vec<u8>, Failure> {
        let (sender, reply) = oneshot::channel();
        self.send(command, [Box::new(Waiting(sender)) as Box<dyn Receiver>])?;
        reply.await.unwrap_or_else(|_| Err(closed()))
    }

    /// Sends two commands with nothing between them, and waits for the reply to the second.
    pub(crate) async fn request_second(&self, commands: &[u8]) -> Result<Vec<u8>, Failure> {
        let (sender, reply) = oneshot::channel();
        self.send(commands, [Box::new(Ignoring) as Box<dyn Receiver>, Box::new(Waiting(sender))])?;
        reply.await.unwrap_or_else(|_| Err(closed()))
    }

    /// Returns when the wire has broken. For one to wait for.
    pub(crate) async fn broken(&self) {
        self.0.inner.broken.notified().await;
    }
}

/// Waits for a reply it keeps.
struct Waiting(oneshot::Sender<Result<Vec<u8>, Failure>>);

impl Receiver for Waiting {
    fn receive(self: Box<Self>, reply: Result<&[u8], Failure>) {
        // One who has left needs no reply.
        let _ = self.0.send(reply.map(<[u8]>::to_vec));
    }
}

/// Lets a reply pass that nobody needs.
struct Ignoring;

impl Receiver for Ignoring {
    fn receive(self: Box<Self>, _: Result<&[u8], Failure>) {}
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Inner {
    /// Nothing panics while holding the lock but where memory is exhausted.
    fn lock(&self) -> MutexGuard<'_, Ends> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Breaks the wire, and tells everybody who waits.
    fn fail(&self, failure: &Failure) {
        let stranded = {
            let mut ends = self.lock();
            ends.failure.get_or_insert_with(|| failure.clone());
            std::mem::take(&mut ends.receivers)
        };
        self.broken.notify_one();
        for receiver in stranded {
            receiver.receive(Err(failure.clone()));
        }
    }
}

impl Ends {
    /// Writes what the socket takes, and leaves the rest to the task.
    fn write(&mut self, mut bytes: &[u8]) {
        if self.outgoing.is_empty() && self.flushed {
            // Nobody is to be woken for it: if anything is left, the task is, and asks for itself.
            let mut cx = Context::from_waker(Waker::noop());
            while !bytes.is_empty() {
                match Pin::new(&mut self.stream).poll_write(&mut cx, bytes) {
                    Poll::Ready(Ok(written)) if written > 0 => bytes = &bytes[written..],
                    // The task meets the error too, and tells.
                    _ => break,
                }
            }
            let flushed = Pin::new(&mut self.stream).poll_flush(&mut cx);
            self.flushed = matches!(flushed, Poll::Ready(Ok(())));
        }
        self.outgoing.extend_from_slice(bytes);
        if !self.outgoing.is_empty() || !self.flushed {
            self.task.wake_by_ref();
        }
    }

    /// Goes on with what was left, and asks to be woken when it can again.
    fn drain(&mut self, cx: &mut Context<'_>) -> std::io::Result<()> {
        while !self.outgoing.is_empty() {
            match Pin::new(&mut self.stream).poll_write(cx, &self.outgoing)? {
                Poll::Ready(0) => return Err(ErrorKind::WriteZero.into()),
                Poll::Ready(written) => drop(self.outgoing.drain(..written)),
                Poll::Pending => return Ok(()),
            }
            self.flushed = false;
        }
        if !self.flushed {
            self.flushed = Pin::new(&mut self.stream).poll_flush(cx)?.is_ready();
        }
        Ok(())
    }
}

/// The wire's task.
struct Reading {
    inner: Arc<Inner>,
    buffer: Vec<u8>,
    // Of the buffer, the bytes of replies that are given out, and all that were read.
    given: usize,
    filled: usize,
    scanner: Scanner,
}

impl Reading {
    fn new(inner: Arc<Inner>) -> Self {
        Self { inner, buffer: vec![0; LEAST_BUFFER], given: 0, filled: 0, scanner: Scanner::new() }
    }

    /// Reads once; whether there was anything to read.
    fn read(&mut self, cx: &mut Context<'_>) -> Result<Poll<()>, Failure> {
        let mut ends = self.inner.lock();
        if !ends.task.will_wake(cx.waker()) {
            ends.task = cx.waker().clone();
        }
        ends.drain(cx).map_err(Failure::unavailable)?;
        let mut room = ReadBuf::new(&mut self.buffer[self.filled..]);
        match Pin::new(&mut ends.stream).poll_read(cx, &mut room) {
            Poll::Pending => return Ok(Poll::Pending),
            // One that speaks TLS should have said so.
            Poll::Ready(Err(error)) if error.kind() == ErrorKind::UnexpectedEof => {
                return Err(closed());
            }
            Poll::Ready(Err(error)) => return Err(Failure::unavailable(error)),
            Poll::Ready(Ok(())) if room.filled().is_empty() => return Err(closed()),
            Poll::Ready(Ok(())) => self.filled += room.filled().len(),
        }
        Ok(Poll::Ready(()))
    }

    /// Gives out the replies that are whole.
    fn give_out(&mut self) -> Result<(), Failure> {
        let garbled = |_| Failure::protocol("a reply that is none");
        loop {
            let bytes = &self.buffer[self.given..self.filled];
            let Some(end) = self.scanner.end(bytes).map_err(garbled)? else { break };
            let receiver = self.inner.lock().receivers.pop_front();
            let receiver = receiver.ok_or_else(|| Failure::protocol("a reply to nothing"))?;
            receiver.receive(Ok(&bytes[..end]));
            self.given += end;
            self.scanner = Scanner::new();
        }
        self.make_room()
    }

    /// Makes room for more to be read.
    fn make_room(&mut self) -> Result<(), Failure> {
        self.buffer.copy_within(self.given..self.filled, 0);
        self.filled -= self.given;
        self.given = 0;
        if self.filled == self.buffer.len() {
            if self.filled >= LONGEST_REPLY {
                return Err(Failure::protocol("a reply without an end"));
            }
            self.buffer.resize(2 * self.filled, 0);
        }
        Ok(())
    }
}

impl Future for Reading {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let read = match self.read(cx) {
                Ok(Poll::Pending) => return Poll::Pending,
                Ok(Poll::Ready(())) => self.give_out(),
                Err(failure) => Err(failure),
            };
            if let Err(failure) = read {
                self.inner.fail(&failure);
                return Poll::Ready(());
            }
        }
    }
}

impl Drop for Reading {
    /// Nobody is left to read: the last handle is gone, or the runtime is shutting down.
    fn drop(&mut self) {
        self.inner.fail(&closed());
    }
}

fn closed() -> Failure {
    Failure::unavailable("the connection was closed")
}

#[cfg(test)]
mod tests;
