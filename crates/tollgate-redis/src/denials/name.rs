//! What a refused charge is known by: two keyed hashes, made in one pass over its key.
//!
//! The secrets are the store's own, so nobody outside can look for two charges that share a name.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash, Hasher};

use tollgate::hash::{BLOCK, fold, short_words, words};
use tollgate::{Ask, Charge, Enforcement, Op};

/// What a charge is known by: its bucket, and the bucket with limit and cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) bucket: u64,
    pub(super) terms: u64,
}

/// Makes names. What a client can choose meets a secret everywhere.
pub(super) struct Namer {
    starts: [u64; 2],
    blocks: [u64; 2],
    ends: [u64; 2],
}

impl Namer {
    pub(super) fn new() -> Self {
        let random = RandomState::new();
        let secrets = |first: u64| [random.hash_one(first), random.hash_one(first + 1)];
        Self { starts: secrets(0), blocks: secrets(2), ends: secrets(4) }
    }

    /// The name of a charge whose refusal is worth remembering: one that takes and is enforced.
    #[inline]
    pub(super) fn name(&self, charge: &Charge<'_>) -> Option<Name> {
        let Op::Take(Ask { min, max }) = charge.op else {
            return None;
        };
        if charge.enforcement != Enforcement::Enforce {
            return None;
        }
        let [low, high] = self.key(charge);
        let quota = charge.meter.quota();
        // The period is part of the bucket.
        let terms = fold(high ^ quota.limit(), self.ends[1] ^ quota.burst());
        let terms = fold(terms ^ min.get(), self.blocks[1] ^ max.get());
        Some(Name { bucket: self.end(low, charge), terms })
    }

    /// What the bucket of a charge is known by.
    pub(super) fn bucket(&self, charge: &Charge<'_>) -> u64 {
        let [low, _] = self.key(charge);
        self.end(low, charge)
    }

    #[inline]
    fn key(&self, charge: &Charge<'_>) -> [u64; 2] {
        let mut lanes = Lanes { states: self.starts, blocks: self.blocks, length: 0, shorts: 1 };
        charge.key.hash(&mut lanes);
        if let Some(calendar) = charge.meter.period().as_calendar() {
            calendar.hash(&mut lanes);
        }
        lanes.absorb((lanes.length, lanes.shorts));
        lanes.states
    }

    /// The name of a bucket: what its key came to, with algorithm and period.
    #[inline]
    fn end(&self, low: u64, charge: &Charge<'_>) -> u64 {
        let (algorithm, period) = (charge.meter.algorithm() as u64, charge.meter.period());
        fold(low ^ period.as_micros(), self.ends[0] ^ algorithm)
    }
}

/// Both hashes on their way through a key.
struct Lanes {
    states: [u64; 2],
    blocks: [u64; 2],
    // What is absorbed together at the end: the last length said, and short numbers behind a one that
    // tells how many they are.
    length: u64,
    shorts: u64,
}

impl Lanes {
    #[inline]
    fn absorb(&mut self, (first, last): (u64, u64)) {
        for (state, block) in self.states.iter_mut().zip(self.blocks) {
            *state = fold(first ^ *state, last ^ block);
        }
    }
}

impl Hasher for Lanes {
    /// Both have a result, so this is not it.
    fn finish(&self) -> u64 {
        self.states[0]
    }

    /// A text whose length is said too.
    #[inline]
    fn write(&mut self, text: &[u8]) {
        let mut rest = text;
        while let Some((block, more)) = rest.split_first_chunk().filter(|_| rest.len() > BLOCK) {
            self.absorb(words(block));
            rest = more;
        }
        // The last block overlaps the one before, so that no length needs a shorter read.
        self.absorb(text.last_chunk().map_or_else(|| short_words(text), words));
    }

    #[inline]
    fn write_usize(&mut self, length: usize) {
        if self.length != 0 {
            self.absorb((self.length, 0));
        }
        self.length = length as u64;
    }

    #[inline]
    fn write_u16(&mut self, short: u16) {
        if self.shorts >> 48 != 0 {
            self.absorb((0, self.shorts));
            self.shorts = 1;
        }
        self.shorts = self.shorts << 16 | u64::from(short);
    }
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
