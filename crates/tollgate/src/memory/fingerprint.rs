//! Buckets are known by a keyed hash of their name, not by the name.
//!
//! Two hashes with independent random keys make 128 bits, of which 112 are kept: 64 in one word,
//! part of which also says where in the table the bucket lives, and 48 beside it. Nobody outside
//! the process knows the keys, so nobody can engineer a collision; that two of 100 million live
//! buckets share a fingerprint by accident has a chance of one in 10^18.

use std::hash::{BuildHasher, Hasher};

use ahash::RandomState;

use crate::key::Key;
use crate::meter::Meter;

/// The 112 bits a bucket is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fingerprint {
    /// Compared first, and the source of the bucket's place.
    pub(super) low: u64,
    /// 48 bits.
    pub(super) high: u64,
}

pub(super) const HIGH_BITS: u32 = 48;

/// Makes fingerprints; each store has keys of its own.
pub(super) struct Fingerprinter {
    low: RandomState,
    high: RandomState,
}

impl Fingerprinter {
    pub(super) fn new() -> Self {
        #[cfg(loom)]
        return Self {
            low: RandomState::with_seeds(1, 2, 3, 4),
            high: RandomState::with_seeds(5, 6, 7, 8),
        };
        #[cfg(not(loom))]
        Self { low: RandomState::new(), high: RandomState::new() }
    }

    /// The fingerprint of the bucket that a key, an algorithm and a period name.
    #[inline(always)]
    pub(super) fn of(&self, key: &Key<'_>, meter: &Meter) -> Fingerprint {
        let hash = |state: &RandomState| {
            let mut hasher = state.build_hasher();
            hasher.write(key.as_bytes());
            hasher.finish()
        };
        // The period has 49 bits, the algorithm 3; what is left tells a rule's key from one made by
        // hand. Spread by an odd multiplier and added to keyed hashes, it leaves them as random as
        // they were, and two kinds of one key as far apart as two keys.
        let kind = meter.period().as_micros() << 3 | meter.algorithm() as u64;
        let kind = (kind ^ (key.scope_len() << 52)).wrapping_mul(SPREAD);
        Fingerprint {
            low: hash(&self.low) ^ kind,
            high: hash(&self.high).wrapping_add(kind) >> (64 - HIGH_BITS),
        }
    }
}

/// 2^64/φ, odd.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
