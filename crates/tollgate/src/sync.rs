//! The atomics that decisions are synchronised by, exchanged for loom's when the protocol is
//! model-checked. Counters that only report are left out: they decide nothing.

#[cfg(loom)]
pub(crate) use loom::{
    hint::spin_loop,
    sync::atomic::{AtomicU64, Ordering, fence},
    thread::yield_now,
};
#[cfg(not(loom))]
pub(crate) use std::{
    hint::spin_loop,
    sync::atomic::{AtomicU64, Ordering, fence},
    thread::yield_now,
};

/// Sets a bit of a word; whether it was not set before, in which case it acquires what was released by
/// whoever cleared it.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) fn set_bit(word: &AtomicU64, bit: u64) -> bool {
    word.fetch_or(bit, Ordering::Acquire) & bit == 0
}

/// The same without writing a bit that is set: loom does not order all writes to a word, and lets one that
/// is set again outlast its clearing, which no processor does. So this is not modelled: that setting a
/// bit which is set changes nothing.
#[cfg(loom)]
pub(crate) fn set_bit(word: &AtomicU64, bit: u64) -> bool {
    let mut seen = word.load(Ordering::Relaxed);
    while seen & bit == 0 {
        match word.compare_exchange(seen, seen | bit, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(newer) => seen = newer,
        }
    }
    false
}
