//! What a refused charge is known by: two keyed hashes.
//!
//! The secrets are the store's own, so nobody outside can look for two charges that share a name.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use tollgate::hash::{Ends, TextHasher, fold};
use tollgate::{Ask, Charge, Enforcement, Op};

/// What a charge is known by: its bucket, and the bucket with limit and cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) bucket: u64,
    pub(super) terms: u64,
}

/// Makes names. What a client can choose meets a secret everywhere.
pub(super) struct Namer {
    texts: TextHasher,
    ends: [u64; 3],
}

impl Namer {
    pub(super) fn new() -> Self {
        let random = RandomState::new();
        let secret = |index: u64| random.hash_one(index);
        Self { texts: TextHasher::new(secret), ends: [8, 9, 10].map(secret) }
    }

    /// The name of a charge whose refusal is worth remembering: one that takes and is enforced.
    #[inline(always)]
    pub(super) fn name(&self, charge: &Charge<'_>) -> Option<Name> {
        let Op::Take(Ask { min, max }) = charge.op else {
            return None;
        };
        if charge.enforcement != Enforcement::Enforce {
            return None;
        }
        let ends = self.texts.ends(charge.key.as_bytes());
        let terms = self.texts.other(ends);
        let terms = mix(terms ^ charge.meter.limit(), self.ends[1] ^ charge.meter.capacity());
        let terms = mix(terms ^ min.get(), self.ends[2] ^ max.get());
        Some(Name { bucket: self.bucket_of(charge, ends), terms })
    }

    /// What the bucket of a charge is known by.
    pub(super) fn bucket(&self, charge: &Charge<'_>) -> u64 {
        self.bucket_of(charge, self.texts.ends(charge.key.as_bytes()))
    }

    #[inline(always)]
    fn bucket_of(&self, charge: &Charge<'_>, ends: Ends) -> u64 {
        // Keys of one text have one length, so each says what the other does not.
        let apart = charge.key.layout() << 16 ^ charge.key.as_bytes().len() as u64;
        mix(self.texts.one(ends) ^ apart, self.ends[0] ^ charge.meter.kind())
    }
}

/// The product of two words, its halves folded together.
#[inline(always)]
fn mix(one: u64, two: u64) -> u64 {
    fold(u128::from(one) * u128::from(two))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use tollgate::{Algorithm, Cost, Key, Meter};

    use super::*;

    fn take<'k>(key: impl Into<Key<'k>>, quota: &str, cost: u64) -> Charge<'k> {
        let meter = Meter::new(quota.parse().unwrap(), Algorithm::TokenBucket).unwrap();
        Charge::take(key, meter, Cost::new(cost).unwrap())
    }

    #[test]
    fn keys_of_every_length_that_differ_in_one_bit_differ_in_half_the_bits() {
        let namer = Namer::new();
        let name = |text: &[u8]| namer.name(&take(text, "1/s", 1)).unwrap();
        for length in 1..=64 {
            let text = vec![0x5a_u8; length];
            let (one, mut flipped) = (name(&text), 0);
            for bit in 0..8 * length {
                let mut other = text.clone();
                other[bit / 8] ^= 1 << (bit % 8);
                let other = name(&other);
                flipped += (one.bucket ^ other.bucket).count_ones() as usize;
                flipped += (one.terms ^ other.terms).count_ones() as usize;
            }
            let mean = flipped / (8 * length);
            assert!((56..=72).contains(&mean), "length {length}: {mean} of 128 bits change");
        }
    }

    #[test]
    fn whatever_makes_another_question_makes_another_name() {
        let namer = Namer::new();
        let zeros = [0_u8; 80];
        let mut seen = HashSet::new();
        let mut is_new = |charge: &Charge<'_>| {
            let Name { bucket, terms } = namer.name(charge).unwrap();
            seen.insert((bucket, terms))
        };
        for length in 0..=zeros.len() {
            assert!(is_new(&take(&zeros[..length], "1/s", 1)), "length {length}");
        }
        for (quota, cost) in [("1/s", 2), ("2/s", 1), ("1/s burst 2", 1), ("1/min", 1)] {
            assert!(is_new(&take(&zeros[..7], quota, cost)), "{quota}, {cost}");
        }
    }

    #[test]
    fn limits_and_costs_are_not_part_of_the_bucket() {
        let namer = Namer::new();
        let bucket = |quota, cost| namer.bucket(&take("key", quota, cost));
        assert_eq!(bucket("1/s", 1), bucket("2/s", 3));
        assert_ne!(bucket("1/s", 1), bucket("1/min", 1));
        let charge = take("key", "1/s", 1);
        assert_eq!(namer.name(&charge).unwrap().bucket, namer.bucket(&charge));
    }

    #[test]
    fn stores_do_not_share_secrets() {
        let charge = take("key", "1/s", 1);
        assert_ne!(Namer::new().name(&charge), Namer::new().name(&charge));
    }
}
