//! What stands for a value that must not, or need not, be written out in a key.
//!
//! A rule with [`hash`](crate::Rule::hash) keeps personal values (an e-mail address, a card number)
//! out of keys, and so out of Redis, logs and backups; and every value too long for a key is
//! shortened the same way. Either way the key holds the first 128 bits of a SHA-256:
//!
//! | salt | digest | the same by hand |
//! |---|---|---|
//! | none | SHA-256 of the value | `printf %s VALUE \| sha256sum \| cut -c1-32` |
//! | set | HMAC-SHA-256 of the value, keyed by the salt | `printf %s VALUE \| openssl dgst -sha256 -hmac SALT` |
//!
//! It is the same in every process and version, for buckets in Redis are shared by all of them. A
//! plain hash of a guessable value can be found by guessing, so set a salt
//! ([`PolicyBuilder::salt`](crate::policy::PolicyBuilder::salt)), the same everywhere, where keys
//! are seen by people who should not know who is meant. Collisions cannot be engineered: 128 bits of
//! a collision-resistant function take 2^64 attempts, with or without the salt.
//!
//! Written out here (FIPS 180-4, RFC 2104) rather than depended on, for it is short, and checked
//! against the published vectors.

use std::fmt;

/// 128 bits that stand for a value.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest([u8; 16]);

impl Digest {
    /// The digest of a value without a salt.
    pub fn of_value(value: &str) -> Self {
        Digester::default().digest(value)
    }

    /// The bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// 32 lowercase hexadecimal digits.
    pub fn to_hex(&self) -> [u8; 32] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut hex = [0; 32];
        for (pair, byte) in hex.chunks_exact_mut(2).zip(self.0) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        hex
    }

    fn of(state: &[u32; 8]) -> Self {
        let mut bytes = [0; 16];
        for (bytes, word) in bytes.chunks_exact_mut(4).zip(state) {
            bytes.copy_from_slice(&word.to_be_bytes());
        }
        Self(bytes)
    }
}

impl fmt::Display for Digest {
    /// 32 lowercase hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = self.to_hex();
        f.pad(str::from_utf8(&hex).expect("hexadecimal digits are ASCII"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

/// Makes digests, all with the same salt or all without.
#[derive(Clone, Default)]
pub(crate) struct Digester {
    // The states after the two padded keys of an HMAC, so that a digest costs no more than the
    // blocks of its value and one.
    salted: Option<(Sha256, Sha256)>,
}

impl Digester {
    /// Digests keyed by `salt`; an empty one is none.
    pub(crate) fn salted(salt: &[u8]) -> Self {
        if salt.is_empty() {
            return Self::default();
        }
        let mut key = [0; BLOCK];
        if salt.len() > BLOCK {
            let state = Sha256::new().finish(salt);
            for (bytes, word) in key.chunks_exact_mut(4).zip(state) {
                bytes.copy_from_slice(&word.to_be_bytes());
            }
        } else {
            key[..salt.len()].copy_from_slice(salt);
        }
        let padded = |pad: u8| Sha256::new().after_block(&key.map(|byte| byte ^ pad));
        Self { salted: Some((padded(0x36), padded(0x5c))) }
    }

    /// The digest of a value.
    pub(crate) fn digest(&self, value: impl AsRef<[u8]>) -> Digest {
        let value = value.as_ref();
        let Some((inner, outer)) = &self.salted else {
            return Digest::of(&Sha256::new().finish(value));
        };
        let mut first = [0; 32];
        let state = inner.finish(value);
        for (bytes, word) in first.chunks_exact_mut(4).zip(state) {
            bytes.copy_from_slice(&word.to_be_bytes());
        }
        Digest::of(&outer.finish(&first))
    }
}

impl fmt::Debug for Digester {
    // The states are as good as the salt, which is nobody's business.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let salt = if self.salted.is_some() { "set" } else { "none" };
        write!(f, "Digester(salt: {salt})")
    }
}

/// Bytes in a block.
const BLOCK: usize = 64;

/// SHA-256 after a whole number of blocks.
#[derive(Clone, Copy)]
struct Sha256 {
    state: [u32; 8],
    blocks: u64,
}

impl Sha256 {
    const fn new() -> Self {
        Self { state: START, blocks: 0 }
    }

    fn after_block(mut self, block: &[u8; BLOCK]) -> Self {
        compress(&mut self.state, block);
        self.blocks += 1;
        self
    }

    /// The hash of what was seen so far and `tail`.
    fn finish(&self, tail: &[u8]) -> [u32; 8] {
        let mut state = self.state;
        let (blocks, rest) = tail.as_chunks::<BLOCK>();
        for block in blocks {
            compress(&mut state, block);
        }
        // A one bit, zeros, and the length in bits; in a block of its own if it does not fit.
        let mut last = [0; 2 * BLOCK];
        last[..rest.len()].copy_from_slice(rest);
        last[rest.len()] = 0x80;
        let end = match rest.len() + 1 + 8 <= BLOCK {
            true => BLOCK,
            false => 2 * BLOCK,
        };
        let bits = (self.blocks * BLOCK as u64 + tail.len() as u64) * 8;
        last[end - 8..end].copy_from_slice(&bits.to_be_bytes());
        let (blocks, _) = last[..end].as_chunks::<BLOCK>();
        for block in blocks {
            compress(&mut state, block);
        }
        state
    }
}

/// The hash's one step (FIPS 180-4, 6.2.2), in its own letters.
fn compress(state: &mut [u32; 8], block: &[u8; BLOCK]) {
    let mut w = [0_u32; 64];
    for (word, bytes) in w.iter_mut().zip(block.as_chunks::<4>().0) {
        *word = u32::from_be_bytes(*bytes);
    }
    for t in 16..64 {
        let (early, late) = (w[t - 15], w[t - 2]);
        let early = early.rotate_right(7) ^ early.rotate_right(18) ^ (early >> 3);
        let late = late.rotate_right(17) ^ late.rotate_right(19) ^ (late >> 10);
        w[t] = w[t - 16].wrapping_add(early).wrapping_add(w[t - 7]).wrapping_add(late);
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    for (k, w) in K.iter().zip(w) {
        let sum = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let choice = (e & f) ^ (!e & g);
        let one = h.wrapping_add(sum).wrapping_add(choice).wrapping_add(*k).wrapping_add(w);
        let sum = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        let majority = (a & b) ^ (a & c) ^ (b & c);
        let two = sum.wrapping_add(majority);
        (h, g, f, e) = (g, f, e, d.wrapping_add(one));
        (d, c, b, a) = (c, b, a, one.wrapping_add(two));
    }
    for (word, more) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *word = word.wrapping_add(more);
    }
}

/// The fractional parts of the square roots of the first eight primes.
const START: [u32; 8] = [
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
];

/// The fractional parts of the cube roots of the first 64 primes.
#[rustfmt::skip]
const K: [u32; 64] = [
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
];

#[cfg(test)]
mod tests {
    use super::*;

    /// NIST's own examples, then lengths around a block's edge as coreutils' sha256sum has them.
    #[test]
    fn without_a_salt_it_is_sha_256() {
        let digester = Digester::default();
        let a = |count| "a".repeat(count);
        for (text, expected) in [
            (String::new(), "e3b0c44298fc1c149afbf4c8996fb924"),
            ("abc".into(), "ba7816bf8f01cfea414140de5dae2223"),
            (
                "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq".into(),
                "248d6a61d20638b8e5c026930c3e6039",
            ),
            (a(1_000_000), "cdc76e5c9914fb9281a1c7e284d73e67"),
            (a(55), "9f4390f8d30c2dd92ec9f095b65e2b9a"),
            (a(56), "b35439a4ac6f0948b6d6f9e3c6af0f5f"),
            (a(64), "ffe054fe7ae0cb6dc65c3af9b61d5209"),
        ] {
            assert_eq!(digester.digest(&text).to_string(), expected, "{text:.80}");
        }
    }

    /// RFC 4231, test cases 1, 2 and 6 (whose key is longer than a block).
    #[test]
    fn with_a_salt_it_is_hmac_sha_256() {
        for (salt, text, expected) in [
            (&[0x0b; 20][..], "Hi There", "b0344c61d8db38535ca8afceaf0bf12b"),
            (b"Jefe", "what do ya want for nothing?", "5bdcc146bf60754e6a042426089575c7"),
            (
                &[0xaa; 131],
                "Test Using Larger Than Block-Size Key - Hash Key First",
                "60e431591ee0b67f0d8a26aacbf5b77f",
            ),
        ] {
            assert_eq!(Digester::salted(salt).digest(text).to_string(), expected);
        }
    }

    #[test]
    fn nothing_shows_the_salt() {
        assert_eq!(format!("{:?}", Digester::salted(b"secret")), "Digester(salt: set)");
    }
}
