//! The keyed hash that buckets are known by, here and in stores elsewhere. No part of the public
//! interface.
//!
//! It multiplies two words, one of them mixed with the state and one with a secret, into 128 bits and
//! folds the halves together: the scheme of wyhash and ahash. Nobody outside the process knows the
//! secrets, so nobody can look for texts that share a hash.

/// What keys one hash: where its state starts, and what meets every block.
#[derive(Clone, Copy)]
pub struct Secrets {
    /// Where the state starts.
    pub start: u64,
    /// What meets every block.
    pub block: u64,
}

impl Secrets {
    /// The hash of `text`; whoever needs the length to tell mixes it in.
    #[inline(always)]
    pub fn hash(&self, text: &[u8]) -> u64 {
        let mut state = self.start;
        let mut take = |(first, last): (u64, u64)| {
            state = fold(first ^ state, last ^ self.block);
        };
        // Most keys have one block or two, and no loop for them.
        if let Some((block, mut rest)) = text.split_first_chunk().filter(|_| text.len() > BLOCK) {
            take(words(block));
            while let Some((block, more)) = rest.split_first_chunk().filter(|_| rest.len() > BLOCK)
            {
                take(words(block));
                rest = more;
            }
        }
        // The last block overlaps the one before, so that no length needs a shorter read.
        take(text.last_chunk().map_or_else(|| short_words(text), words));
        state
    }
}

/// Bytes that are hashed at once.
pub const BLOCK: usize = 16;

/// The words of a block.
#[inline(always)]
pub fn words(block: &[u8; BLOCK]) -> (u64, u64) {
    let both = u128::from_le_bytes(*block);
    (both as u64, (both >> 64) as u64)
}

/// The bytes of a text shorter than a block, each at least once; the length is mixed in elsewhere.
#[inline(always)]
pub fn short_words(text: &[u8]) -> (u64, u64) {
    if let (Some(first), Some(last)) = (text.first_chunk::<8>(), text.last_chunk::<8>()) {
        return (u64::from_le_bytes(*first), u64::from_le_bytes(*last));
    }
    if let (Some(first), Some(last)) = (text.first_chunk::<4>(), text.last_chunk::<4>()) {
        return (u32::from_le_bytes(*first).into(), u32::from_le_bytes(*last).into());
    }
    match text {
        [] => (0, 0),
        [only] => ((*only).into(), 0),
        [first, .., last] => (u64::from(*first) << 8 | u64::from(text[1]), (*last).into()),
    }
}

/// The product of two words, its halves folded together.
#[inline(always)]
pub fn fold(one: u64, two: u64) -> u64 {
    let product = u128::from(one) * u128::from(two);
    product as u64 ^ (product >> 64) as u64
}
