//! Where in a line a low word is, of a key that is not in its own slot.
//!
//! Which it is cannot be predicted, so it is computed, not branched on: a processor that guessed wrong
//! here would have to begin the next decision anew, whose line it has asked for while this one was on
//! its way.

use std::hint::select_unpredictable;

use crate::sync::{AtomicU64, Ordering};

/// Where `low` is among the low words of a line. If it is there twice, one of the places.
#[inline(always)]
pub(super) fn of<const SLOTS: usize>(words: &[AtomicU64; SLOTS], low: u64) -> Option<usize> {
    #[cfg(all(target_arch = "x86_64", target_pointer_width = "64", not(loom), not(miri)))]
    if let Ok(words) = words.as_slice().try_into() {
        return of_five(words, low);
    }
    one_by_one(words, low)
}

#[inline(always)]
fn one_by_one<const SLOTS: usize>(words: &[AtomicU64; SLOTS], low: u64) -> Option<usize> {
    let mut found = 0;
    for (place, word) in words.iter().enumerate().skip(1) {
        // A compiler would branch in a loop unless told.
        let is_here = word.load(Ordering::Relaxed) == low;
        found = select_unpredictable(is_here, place, found);
    }
    (words[found].load(Ordering::Relaxed) == low).then_some(found)
}

/// The same for the five words of a home, all at once and by the units that no other part of a decision
/// needs: fewer instructions that wait for the line are in the way of the next decision.
#[cfg(all(target_arch = "x86_64", target_pointer_width = "64", not(loom), not(miri)))]
#[inline(always)]
#[expect(unsafe_code, reason = "measured: decisions on a million keys are 5 to 10 % faster")]
fn of_five(words: &[AtomicU64; 5], low: u64) -> Option<usize> {
    use std::arch::asm;
    use std::arch::x86_64::{_mm_set_epi16, _mm_set1_epi64x};
    use std::hint::assert_unchecked;

    let places: u32;
    // SAFETY: every x86-64 has these instructions, and they read the five words and nothing else. Others
    // may write the words meanwhile, as with relaxed loads; should a word be seen in part, that is one
    // more torn read that the header's check throws away.
    unsafe {
        asm!(
            "movdqu {a}, [{words}]",
            "movdqu {b}, [{words} + 16]",
            "movq {c}, [{words} + 32]",
            // 32 bits of ones for each half of a word that is the same, and all halves in one register.
            "pcmpeqd {a}, {low}",
            "pcmpeqd {b}, {low}",
            "pcmpeqd {c}, {low}",
            "packssdw {a}, {b}",
            "packssdw {c}, {c}",
            "packsswb {a}, {c}",
            // Eight bits of ones for each word of which both halves are, and the first bit of each.
            "pcmpeqw {a}, {both}",
            "packsswb {a}, {a}",
            "pmovmskb {places:e}, {a}",
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            low = in(xmm_reg) _mm_set1_epi64x(low.cast_signed()),
            // There are five words; what comes after them is nothing that a half could be.
            both = in(xmm_reg) _mm_set_epi16(1, 1, 1, -1, -1, -1, -1, -1),
            words = in(reg) words,
            places = lateout(reg) places,
            options(nostack, readonly, preserves_flags)
        );
    }
    (places != 0).then(|| {
        let place = places.trailing_zeros() as usize;
        // SAFETY: the lowest eight bits are repeated in the next eight, and only five can be set.
        unsafe { assert_unchecked(place < 5) };
        place
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Words that differ from the one looked for in one half only, or in one bit, are not it.
    #[test]
    fn a_word_is_found_where_it_is_and_nowhere_else() {
        let low = 0x0123_4567_89ab_cdef_u64;
        let others = [0, !0, low ^ 1, low ^ 1 << 63, low << 32 >> 32, low >> 32 << 32];
        let others = others.into_iter().chain([low.rotate_left(32), low ^ 1 << 31, low ^ 1 << 32]);
        for other in others {
            let line = |place: usize| -> [AtomicU64; 5] {
                std::array::from_fn(|here| AtomicU64::new(if here == place { low } else { other }))
            };
            for place in 0..5 {
                assert_eq!(of(&line(place), low), Some(place), "among {other:#x}");
                assert_eq!(one_by_one(&line(place), low), Some(place), "among {other:#x}");
            }
            assert_eq!(of(&line(5), low), None, "among {other:#x}");
            assert_eq!(one_by_one(&line(5), low), None, "among {other:#x}");
        }
    }

    #[test]
    fn a_word_that_is_there_twice_is_found_in_one_of_its_places() {
        let line: [AtomicU64; 5] = [7, 8, 9, 8, 7].map(AtomicU64::new);
        for word in [7, 8, 9] {
            let place = of(&line, word).unwrap();
            assert_eq!(line[place].load(Ordering::Relaxed), word);
        }
        assert_eq!(of(&line, 0), None, "what follows the words is none of them");
    }
}
