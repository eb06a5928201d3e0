//! Places for requests that are held, of which there are so many.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many requests may be held at once.
#[derive(Clone, Debug)]
pub(crate) struct Waiters {
    held: Arc<AtomicUsize>,
    most: usize,
}

/// A place among those held; free again when dropped, however the request ends.
#[derive(Debug)]
pub(crate) struct Place {
    held: Arc<AtomicUsize>,
}

impl Waiters {
    pub(crate) fn new(most: usize) -> Self {
        Self { held: Arc::default(), most }
    }

    /// The same places, but so many.
    pub(crate) fn set_most(&mut self, most: usize) {
        self.most = most;
    }

    /// Requests held at present.
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.held() >= self.most
    }

    /// A place, if there is one.
    ///
    /// The count guards nothing but itself, hence relaxed.
    pub(crate) fn enter(&self) -> Option<Place> {
        let one_more = |held: usize| (held < self.most).then(|| held + 1);
        let entered = self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        entered.ok().map(|_| Place { held: Arc::clone(&self.held) })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.held.fetch_sub(1, Ordering::Relaxed);
    }
}
