//! Lines for keys that found no room at home: chained to a home while it needs them, spare otherwise.

use std::sync::{Mutex, PoisonError};

use super::line::{Link, OverflowLine, Slot};
use super::segments::{Segments, lines_per_page};

/// Overflow lines, in use or spare.
pub(super) struct Overflow {
    lines: Segments<2, 1, { lines_per_page(64) }>,
    unused: Mutex<Unused>,
}

/// Overflow lines that were given back, and the first that never was in use.
struct Unused {
    spare: Vec<usize>,
    first: usize,
}

impl Overflow {
    /// Room for `lines` lines.
    pub(super) fn new(lines: usize) -> Self {
        let unused = Mutex::new(Unused { spare: Vec::new(), first: 0 });
        Self { lines: Segments::new(lines), unused }
    }

    /// The line at `index`, which is part of a chain, or was.
    #[inline(always)]
    pub(super) fn get(&self, index: usize) -> &OverflowLine {
        self.lines.get(index)
    }

    /// The lines of a chain, from the one at `first` on.
    pub(super) fn chain(&self, first: Option<usize>) -> impl Iterator<Item = &OverflowLine> {
        // A reader without the lock may be led in a circle; a chain this long is none. Far beyond what any
        // chain can be, for of a longer one the rest would be lost.
        const LONGEST: usize = 1 << 16;
        let first = first.map(|index| self.get(index));
        let next = |line: &&OverflowLine| Some(self.get(line.link().next()?));
        std::iter::successors(first, next).take(LONGEST)
    }

    /// An overflow line for somebody's chain; empty.
    pub(super) fn open(&self) -> usize {
        let mut unused = self.unused.lock().unwrap_or_else(PoisonError::into_inner);
        unused.spare.pop().unwrap_or_else(|| {
            let first = unused.first;
            self.lines.make(first);
            unused.first += 1;
            first
        })
    }

    /// Ends a chain at `link`: what came after is emptied and spare.
    pub(super) fn close(&self, link: Link<'_>) {
        let mut next = link.next();
        link.set_next(None);
        while let Some(index) = next {
            let line = self.get(index);
            next = line.link().next();
            line.link().set_next(None);
            line.slots().for_each(Slot::clear);
            self.unused.lock().unwrap_or_else(PoisonError::into_inner).spare.push(index);
        }
    }
}
