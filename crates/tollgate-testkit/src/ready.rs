//! Futures that are ready at once, without a runtime.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// The output of a future that never waits, as those of a memory store.
///
/// # Panics
///
/// If the future waits: then it needs a runtime, and this is none.
pub fn ready<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("a future that should have been ready at once is waiting"),
    }
}
