//! Lines that come into being as they are needed and never move.
//!
//! The first segments double, so that a store with a few keys is small; from then on each is one huge
//! page of two megabytes, so that a large store grows in small steps.
//!
//! **Why huge pages.** A decision about one of a million keys is mostly waiting for memory, and with
//! pages of four kilobytes mostly for the address to be translated. Where the system gives huge pages
//! to those that ask, single decisions on a million keys are a third faster and batches almost twice
//! as fast. Where it does not, nothing is lost.

use std::sync::OnceLock;

use super::line::Line;

/// Lines in the first segment, as a power of two.
#[cfg(not(loom))]
const FIRST_BITS: u32 = 4;
#[cfg(loom)]
const FIRST_BITS: u32 = 0;

/// Lines there are from the start.
pub(super) const FIRST: usize = 1 << FIRST_BITS;

/// The size of a huge page, in bytes.
const PAGE: usize = 2 << 20;

/// Lines of so many bytes in a huge page.
pub(super) const fn lines_per_page(bytes: usize) -> usize {
    PAGE / bytes
}

/// A growing array of lines, `PER_PAGE` of which make a huge page.
pub(super) struct Segments<const SLOTS: usize, const UNUSED: usize, const PER_PAGE: usize> {
    // There from the start, and found at once: all that a store with a few busy keys has.
    first: Box<[Line<SLOTS, UNUSED>; FIRST]>,
    // Each as many lines as all before it, up to `PER_PAGE`.
    doubling: Box<[OnceLock<Box<[Line<SLOTS, UNUSED>]>>]>,
    // The first would hold what the doubling ones do, and is never made.
    pages: Box<[OnceLock<Box<Page<SLOTS, UNUSED, PER_PAGE>>>]>,
}

/// Lines on a huge page.
#[repr(align(2097152))]
struct Page<const SLOTS: usize, const UNUSED: usize, const PER_PAGE: usize> {
    lines: [Line<SLOTS, UNUSED>; PER_PAGE],
}

impl<const SLOTS: usize, const UNUSED: usize, const PER_PAGE: usize>
    Segments<SLOTS, UNUSED, PER_PAGE>
{
    const PAGE_BITS: u32 = PER_PAGE.ilog2();
    const FITS: () = assert!(PER_PAGE.is_power_of_two());

    /// Room for `lines` lines; the first few exist at once.
    pub(super) fn new(lines: usize) -> Self {
        const { Self::FITS };
        let doubling = Self::PAGE_BITS - FIRST_BITS;
        Self {
            first: Box::new(std::array::from_fn(|_| Line::new())),
            doubling: (0..doubling).map(|_| OnceLock::new()).collect(),
            pages: (0..=lines / PER_PAGE).map(|_| OnceLock::new()).collect(),
        }
    }

    /// The line at `index`, which must have been made.
    #[inline(always)]
    pub(super) fn get(&self, index: usize) -> &Line<SLOTS, UNUSED> {
        const MADE: &str = "lines are made before they are named";
        match index >> Self::PAGE_BITS {
            0 if index < FIRST => &self.first[index],
            0 => {
                let (segment, offset) = doubling_place(index);
                &self.doubling[segment].get().expect(MADE)[offset]
            }
            page => &self.pages[page].get().expect(MADE).lines[index % PER_PAGE],
        }
    }

    /// Makes sure the line at `index` exists.
    pub(super) fn make(&self, index: usize) {
        match index >> Self::PAGE_BITS {
            0 if index < FIRST => {}
            0 => {
                let (segment, _) = doubling_place(index);
                let lines = FIRST << segment;
                self.doubling[segment].get_or_init(|| (0..lines).map(|_| Line::new()).collect());
            }
            page => {
                self.pages[page].get_or_init(Page::new);
            }
        }
    }
}

impl<const SLOTS: usize, const UNUSED: usize, const PER_PAGE: usize> Page<SLOTS, UNUSED, PER_PAGE> {
    /// A page of empty lines, made where it lies: it is far too large to pass through a stack.
    #[expect(unsafe_code, reason = "measured: decisions on a million keys are a third faster")]
    fn new() -> Box<Self> {
        let mut page = Box::<Self>::new_uninit();
        let lines: *mut Line<SLOTS, UNUSED> = page.as_mut_ptr().cast();
        ask_for_huge_page(lines.cast());
        for index in 0..PER_PAGE {
            // SAFETY: the page begins with an array of `PER_PAGE` lines, and `index` is below that.
            unsafe { lines.add(index).write(Line::new()) };
        }
        // SAFETY: the page is nothing but its lines, and each has just been written.
        unsafe { page.assume_init() }
    }
}

/// Asks the system to back a whole page at `address`, not yet touched, with a huge one.
#[cfg(all(target_os = "linux", not(miri)))]
#[expect(unsafe_code, reason = "measured: decisions on a million keys are a third faster")]
fn ask_for_huge_page(address: *mut std::ffi::c_void) {
    use std::ffi::{c_int, c_void};

    const MADV_HUGEPAGE: c_int = 14;

    unsafe extern "C" {
        fn madvise(address: *mut c_void, length: usize, advice: c_int) -> c_int;
    }

    // SAFETY: the range is one allocation of ours, and the advice changes nothing a program can see.
    // A system without huge pages says no, and ordinary ones are as right.
    let _ = unsafe { madvise(address, PAGE, MADV_HUGEPAGE) };
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn ask_for_huge_page(_: *mut std::ffi::c_void) {}

/// The doubling segment and the offset within it of the line at `index`, which is not of the first.
#[inline(always)]
fn doubling_place(index: usize) -> (usize, usize) {
    let doubled = (index >> FIRST_BITS).ilog2();
    (doubled as usize, index - (FIRST << doubled))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_index_has_a_place_of_its_own() {
        let lines = 3 * lines_per_page(128) + 1;
        let segments = Segments::<5, 0, { lines_per_page(128) }>::new(lines);
        let mut seen = HashSet::new();
        for index in 0..=lines {
            segments.make(index);
            let line: *const Line<5, 0> = segments.get(index);
            assert!(seen.insert(line), "line {index} is also another");
            assert!(segments.get(index).slots().all(|slot| slot.state().is_empty()));
        }
    }
}
