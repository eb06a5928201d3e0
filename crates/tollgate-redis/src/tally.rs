//! A count that threads add to without waiting for each other.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// How many threads have a place of their own: the first ones of the process that count anything.
const OWN: usize = 32;

/// The number of a thread that has none yet.
const UNKNOWN: usize = usize::MAX;

/// The number of the next thread that counts. None is given twice.
static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static NUMBER: Cell<usize> = const { Cell::new(UNKNOWN) };
}

/// A count, exact whoever adds to it.
///
/// One number that all add to costs each of them a locked instruction, and more where several threads
/// do at once. A place that only one thread writes to is read and written as any other number.
#[derive(Default)]
pub(crate) struct Tally {
    own: [Place; OWN],
    // What threads add that came later.
    others: AtomicU64,
}

/// On a cache line of its own, so that no thread waits for its neighbour's.
#[derive(Default)]
#[repr(align(64))]
struct Place(AtomicU64);

impl Tally {
    /// Adds one.
    #[inline(always)]
    pub(crate) fn add_one(&self) {
        match self.own.get(NUMBER.get()) {
            Some(Place(count)) => count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed),
            None => self.add_one_more(),
        }
    }

    /// The same for a thread that has no place, or does not know it yet.
    #[cold]
    fn add_one_more(&self) {
        if NUMBER.get() != UNKNOWN {
            self.others.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        NUMBER.set(number.min(OWN));
        self.add_one();
    }

    /// All that was added.
    pub(crate) fn sum(&self) -> u64 {
        let all = self.own.iter().map(|Place(count)| count).chain([&self.others]);
        all.map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_however_many_threads_count() {
        let tallies = [Tally::default(), Tally::default()];
        std::thread::scope(|scope| {
            for _ in 0..2 * OWN {
                scope.spawn(|| {
                    for round in 0..1_000 {
                        tallies[round % 2].add_one();
                    }
                });
            }
        });
        assert_eq!(tallies.map(|tally| tally.sum()), [OWN as u64 * 1_000; 2]);
    }
}
