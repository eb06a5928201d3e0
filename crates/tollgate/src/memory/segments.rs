//! Lines that come into being as they are needed and never move.
//!
//! The first segments double, so that a store with a few keys is small; from then on all have the
//! same size, so that a large one grows in small steps.

use std::sync::OnceLock;

use super::line::Line;

/// Lines in the first segment, as a power of two.
#[cfg(not(loom))]
const FIRST_BITS: u32 = 4;
#[cfg(loom)]
const FIRST_BITS: u32 = 0;

/// Lines in the last kind of segment, as a power of two: half a megabyte of homes.
const FULL_BITS: u32 = 12;

/// How many segments double before all are full-sized.
const DOUBLING: usize = (FULL_BITS - FIRST_BITS) as usize;

/// Lines there are from the start.
pub(super) const FIRST: usize = 1 << FIRST_BITS;

/// A growing array of lines.
pub(super) struct Segments<const SLOTS: usize, const WORDS: usize> {
    directory: Box<[OnceLock<Box<[Line<SLOTS, WORDS>]>>]>,
}

impl<const SLOTS: usize, const WORDS: usize> Segments<SLOTS, WORDS> {
    /// Room for `lines` lines; the first segment exists at once.
    pub(super) fn new(lines: usize) -> Self {
        let (last, _) = place(lines.max(1));
        let segments = Self { directory: (0..=last).map(|_| OnceLock::new()).collect() };
        segments.make(0);
        segments
    }

    /// The line at `index`, whose segment must exist.
    #[inline(always)]
    pub(super) fn get(&self, index: usize) -> &Line<SLOTS, WORDS> {
        let (segment, offset) = place(index);
        let lines = self.directory[segment].get().expect("lines are made before they are named");
        &lines[offset]
    }

    /// Makes sure the line at `index` exists.
    pub(super) fn make(&self, index: usize) {
        let (segment, _) = place(index);
        self.directory[segment].get_or_init(|| {
            let lines = FIRST << segment.saturating_sub(1).min(DOUBLING);
            let lines = if segment > DOUBLING { 1 << FULL_BITS } else { lines };
            (0..lines).map(|_| Line::new()).collect()
        });
    }
}

/// The segment and the offset within it of the line at `index`.
#[inline(always)]
fn place(index: usize) -> (usize, usize) {
    if index >> FULL_BITS != 0 {
        let segment = DOUBLING + (index >> FULL_BITS);
        return (segment, index & ((1 << FULL_BITS) - 1));
    }
    match index >> FIRST_BITS {
        0 => (0, index),
        high => {
            let doubled = high.ilog2();
            (doubled as usize + 1, index - (FIRST << doubled))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_index_has_a_place_of_its_own() {
        let lines = 5 << FULL_BITS;
        let segments = Segments::<4, 16>::new(lines);
        let mut last: Option<*const Line<4, 16>> = None;
        let mut seen = std::collections::HashSet::new();
        for index in 0..lines {
            segments.make(index);
            let line: *const Line<4, 16> = segments.get(index);
            assert!(seen.insert(line), "line {index} is also another");
            last = Some(line);
        }
        assert!(last.is_some());
    }
}
