//! Buckets are known by a keyed hash of their name, not by the name.
//!
//! Two hashes with independent random keys make 128 bits, of which 88 are
//! kept: 64 in one word, part of which also says where in the table the bucket lives, and 24 beside
//! part of the state. Nobody outside the process knows the keys, so nobody can engineer a collision;
//! that any two of 8 million live buckets share a fingerprint by accident has a chance of one in
//! 10^13. With the other 40 bits a home would hold four keys instead of five, and four times as many
//! would have to be looked for in a second place.
//!
//! The low word says where to look, so it comes first, and the high bits are worked out while the line
//! is on its way.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use crate::hash::{Ends, TextHasher};
use crate::key::KeyRef;
use crate::meter::Meter;

/// The 88 bits a bucket is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fingerprint {
    /// Compared first, and the source of the bucket's place.
    pub(super) low: u64,
    /// The bits from [`HIGH_SHIFT`] on; the others are zero.
    pub(super) high: u64,
}

/// What lies below the high bits of a fingerprint belongs to somebody else.
pub(super) const HIGH_SHIFT: u32 = 40;

/// Makes fingerprints; each store has secrets of its own.
pub(super) struct Fingerprinter {
    texts: TextHasher,
    // What the length of a key is multiplied by; odd.
    length: u64,
    // What the low word is multiplied by; odd.
    spread: u64,
}

impl Fingerprinter {
    pub(super) fn new() -> Self {
        let random = RandomState::new();
        // A model checker needs every run to be the same.
        Self::of_secrets(|index| if cfg!(loom) { !index } else { random.hash_one(index) })
    }

    fn of_secrets(secret: impl Fn(u64) -> u64) -> Self {
        let (length, spread) = (secret(8) | 1, secret(9) | 1);
        Self { texts: TextHasher::new(secret), length, spread }
    }

    /// The fingerprint of the bucket that a key, an algorithm and a period name.
    pub(super) fn of(&self, key: KeyRef<'_>, meter: &Meter) -> Fingerprint {
        let ends = self.texts.ends(key.text);
        let low = self.low(ends, key.text.len(), kind(key, meter));
        Fingerprint { low, high: self.high(ends) }
    }

    /// What both halves of a fingerprint are made of.
    #[inline(always)]
    pub(super) fn ends(&self, text: &[u8]) -> Ends {
        self.texts.ends(text)
    }

    /// The low word of [`Fingerprinter::of`]: enough to know where to look.
    ///
    /// Nobody can tell how a change of the text changes its hash, so nobody can make up for another
    /// kind by it. But texts of different lengths may have the same hash, so the length meets a secret
    /// of its own: else it might make up for the kind.
    ///
    /// Names that differ in a few digits, or binary ones that count, differ in sums of a few pieces of the
    /// secrets, and where a process has drawn pieces that are alike, many get the same few bits. So bits meet
    /// once more, in a product, which carries them upwards: the last byte has to do with all of them, and is
    /// the first by which a home is chosen. It can be divided again, so no two hashes become one.
    #[inline(always)]
    pub(super) fn low(&self, ends: Ends, length: usize, kind: u64) -> u64 {
        let hash = self.texts.one(ends) ^ (length as u64).wrapping_mul(self.length) ^ kind;
        hash.wrapping_mul(self.spread)
    }

    /// The high bits of [`Fingerprinter::of`].
    ///
    /// They know nothing of algorithms and periods: that the low word does is enough.
    #[inline(always)]
    pub(super) fn high(&self, ends: Ends) -> u64 {
        self.texts.other(ends) >> HIGH_SHIFT << HIGH_SHIFT
    }
}

/// What tells the buckets of a key apart.
#[inline(always)]
pub(super) fn kind(key: KeyRef<'_>, meter: &Meter) -> u64 {
    // What the meter's kind leaves over tells a rule's key from one made by hand.
    meter.kind() ^ (u64::from(key.scope) << 52)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;
    use crate::algorithm::Algorithm;
    use crate::key::Key;
    use crate::memory::table::Shape;

    impl Fingerprinter {
        /// Both hashes of `text`, for a `kind` of it.
        fn hash(&self, text: &[u8], kind: u64) -> (u64, u64) {
            let ends = self.ends(text);
            (self.low(ends, text.len(), kind), self.texts.other(ends))
        }
    }

    #[test]
    fn texts_of_every_length_that_differ_in_one_bit_differ_in_half_the_bits() {
        // Under one set of secrets the few bits of a short text are no sample: all their changes are
        // the same secret, shifted.
        let printers: Vec<_> = (0..64).map(|_| Fingerprinter::new()).collect();
        for length in 1..=64 {
            let text = vec![0x5a_u8; length];
            let mut flipped = 0;
            for printer in &printers {
                let (low, high) = printer.hash(&text, 7);
                for bit in 0..8 * length {
                    let mut other = text.clone();
                    other[bit / 8] ^= 1 << (bit % 8);
                    let (other_low, other_high) = printer.hash(&other, 7);
                    let changed = (low ^ other_low).count_ones() + (high ^ other_high).count_ones();
                    assert!(
                        changed > 16,
                        "length {length}, bit {bit}: only {changed} bits changed"
                    );
                    flipped += changed as usize;
                }
            }
            let mean = flipped / (8 * length * printers.len());
            assert!((60..=68).contains(&mean), "length {length}: {mean} of 128 bits change");
        }
    }

    /// One whose secrets are the same in every run.
    fn with_seed(seed: u64) -> Fingerprinter {
        // SplitMix64.
        Fingerprinter::of_secrets(|index| {
            let mixed = (seed << 8 | index).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ mixed >> 31
        })
    }

    #[test]
    fn similar_names_spread_over_homes_like_any_others_whatever_the_secrets() {
        let families: [fn(u32) -> Vec<u8>; 11] = [
            |user| format!("user:{user}").into(),
            |user| format!("{user}").into(),
            |user| format!("tenant:17:user:{user}").into(),
            |host| Ipv4Addr::from(0x0a00_0000 + host).to_string().into(),
            |host| Ipv4Addr::from(0x0a00_0000 + host).octets().into(),
            |host| Ipv6Addr::from(0x2001_0db8 << 96 | u128::from(host)).octets().into(),
            |host| Ipv6Addr::from(0x2001_0db8 << 96 | u128::from(host) << 64).octets().into(),
            |number| u64::from(number).to_le_bytes().into(),
            |number| u128::from(number).to_le_bytes().into(),
            |number| u128::from(number).to_be_bytes().into(),
            |number| (u128::from(number) << 44).to_le_bytes().into(),
        ];
        for (homes, seeds) in [(1 << 10, 2_000), (1 << 13, 100), (1 << 15, 30)] {
            for family in families {
                check_spread(family, homes, seeds);
            }
        }
    }

    /// Checks that names find room in the first five slots of homes, four to one on average, as often as
    /// names do that have nothing in common: nine in ten.
    fn check_spread(family: fn(u32) -> Vec<u8>, homes: usize, seeds: u64) {
        let shape = Shape::of(homes);
        let names: Vec<_> = (0..).map(family).take(4 * homes).collect();
        for seed in 0..seeds {
            let printer = with_seed(seed);
            let mut keys = vec![0_usize; homes];
            for name in &names {
                keys[shape.home(printer.hash(name, 0).0)] += 1;
            }
            let beyond: usize = keys.iter().map(|keys| keys.saturating_sub(5)).sum();
            assert!(
                beyond * 100 / names.len() < 14,
                "{homes} homes, seed {seed}: {beyond} of {} names like {} are not among the first five",
                names.len(),
                names[0].escape_ascii()
            );
        }
    }

    #[test]
    fn lengths_and_kinds_are_told_apart() {
        let printer = Fingerprinter::new();
        let zeros = [0_u8; 80];
        let mut seen = HashSet::new();
        for length in 0..=zeros.len() {
            assert!(seen.insert(printer.hash(&zeros[..length], 0)), "length {length}");
        }
        for algorithm in Algorithm::ALL {
            for quota in ["1/s", "1/min", "2/min"] {
                let Ok(meter) = Meter::new(quota.parse().unwrap(), algorithm) else { continue };
                let Fingerprint { low, high } = printer.of(Key::new("k").as_ref(), &meter);
                // Not the limit but the algorithm and the period name a bucket.
                assert_eq!(seen.insert((low, high)), quota != "2/min", "{meter}");
            }
        }
    }

    #[test]
    fn a_text_cannot_make_up_for_its_kind() {
        let printer = Fingerprinter::new();
        for text in ["x", "10042", "u:10042", "user:42/search?q", "tenant:17:user:123456"] {
            for (one, two) in [(0, 1), (1, 2), (3, 4), (8_000_000 << 3, 480_000_000 << 3 | 3)] {
                let difference = u64::to_le_bytes(one ^ two);
                // At every place of the text, as at every place a block may begin.
                for place in 0..text.len() {
                    let mut other = text.as_bytes().to_vec();
                    for (byte, flip) in other[place..].iter_mut().zip(difference) {
                        *byte ^= flip;
                    }
                    let hashes = (printer.hash(text.as_bytes(), one), printer.hash(&other, two));
                    assert_ne!(
                        hashes.0.0, hashes.1.0,
                        "{text} as {one}, changed at {place}, as {two}"
                    );
                    assert_ne!(
                        hashes.0.1, hashes.1.1,
                        "{text} as {one}, changed at {place}, as {two}"
                    );
                }
            }
        }
    }

    #[test]
    fn stores_do_not_share_secrets() {
        let (one, two) = (Fingerprinter::new(), Fingerprinter::new());
        assert_ne!(one.hash(b"user:42", 0), two.hash(b"user:42", 0));
    }
}
