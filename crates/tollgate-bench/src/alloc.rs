//! An allocator that counts the bytes held, when asked to.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering};

/// The system's allocator with a tally.
///
/// The tally is one word shared by all threads, and would slow down those contenders that allocate
/// per decision. So it is kept only inside [`held_by`]; while decisions are timed an allocation pays
/// for reading a flag that nobody writes.
pub(crate) struct Tally;

static COUNTING: AtomicBool = AtomicBool::new(false);
static HELD: AtomicIsize = AtomicIsize::new(0);

/// What `make` returns, and the bytes asked of the allocator and not given back while it ran.
///
/// Bytes as requested: what the allocator adds by rounding up is its own affair. Nothing else may
/// allocate meanwhile.
pub(crate) fn held_by<T>(make: impl FnOnce() -> T) -> (T, usize) {
    HELD.store(0, Ordering::Relaxed);
    COUNTING.store(true, Ordering::Relaxed);
    let made = make();
    COUNTING.store(false, Ordering::Relaxed);
    let held = usize::try_from(HELD.load(Ordering::Relaxed));
    (made, held.unwrap_or(0))
}

/// Adds to the tally. A layout's size always fits an `isize`.
#[inline]
fn count(bytes: isize) {
    if COUNTING.load(Ordering::Relaxed) {
        HELD.fetch_add(bytes, Ordering::Relaxed);
    }
}

#[expect(unsafe_code, reason = "counting bytes per key takes an allocator")]
// SAFETY: every call goes to the system's allocator unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Tally {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps the same promises to us.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps the same promises to us.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: the caller keeps the same promises to us.
        unsafe { System.realloc(place, layout, size) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller keeps the same promises to us.
        unsafe { System.dealloc(place, layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_counted_and_what_was_given_back_is_not() {
        let (kept, held) = held_by(|| {
            drop(vec![0u8; 1 << 20]);
            vec![0u8; 1 << 16]
        });
        // Tests run on several threads, and the others may allocate a little too.
        assert!(held.abs_diff(kept.len()) < 1 << 14, "{held}");
    }
}
