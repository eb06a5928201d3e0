//! Buckets are known by a keyed hash of their name, not by the name.
//!
//! Two hashes with independent random keys make 128 bits, of which 112 are kept: 64 in one word,
//! part of which also says where in the table the bucket lives, and 48 beside it. Nobody outside
//! the process knows the keys, so nobody can engineer a collision; that two of 100 million live
//! buckets share a fingerprint by accident has a chance of one in 10^18.

use std::hash::{BuildHasher, Hasher};

use ahash::RandomState;

use crate::charge::Charge;

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
        Self {
            low: RandomState::new(),
            high: RandomState::new(),
        }
    }

    /// The fingerprint of the bucket a charge is about: its key, algorithm and period.
    #[inline]
    pub(super) fn of(&self, charge: &Charge<'_>) -> Fingerprint {
        let text = charge.key.as_bytes();
        let meter = &charge.meter;
        // The period has 49 bits, the algorithm 3; what is left tells a rule's key from a hand-made.
        let kind = meter.period().as_micros() << 3 | meter.algorithm() as u64;
        let kind = kind ^ (charge.key.scope().len() as u64) << 52;
        let hash = |state: &RandomState| {
            let mut hasher = state.build_hasher();
            hasher.write_u64(kind);
            hasher.write(text);
            hasher.finish()
        };
        Fingerprint {
            low: hash(&self.low),
            high: hash(&self.high) >> (64 - HIGH_BITS),
        }
    }
}
