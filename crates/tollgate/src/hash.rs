//! The keyed hashes that buckets are known by, here and in stores elsewhere. No part of the public
//! interface.
//!
//! Each adds secrets to the words of a text, multiplies them two by two into 128 bits, adds the products
//! up (NH, the hash of UMAC) and folds the halves of the sum together. Nobody outside the process knows
//! the secrets, so nobody can look for texts that share a hash.

/// Two hashes of texts, whose secrets have nothing to do with each other.
pub struct TextHasher {
    one: Secrets,
    other: Secrets,
}

/// What is added to the words of a text, for one hash.
struct Secrets {
    first: (u64, u64),
    last: (u64, u64),
}

/// The first and the last 16 bytes of a text, with all that lies between mixed in.
///
/// A text of up to 16 bytes has none that come first. Read once, and hashed twice.
#[derive(Clone, Copy)]
pub struct Ends {
    first: (u64, u64),
    last: (u64, u64),
}

impl TextHasher {
    /// One with the first eight of these secrets.
    pub fn new(secret: impl Fn(u64) -> u64) -> Self {
        let pair = |index: u64| (secret(index), secret(index + 1));
        let secrets = |index: u64| Secrets { first: pair(index), last: pair(index + 2) };
        Self { one: secrets(0), other: secrets(4) }
    }

    /// What both hashes of a text are made of.
    #[inline(always)]
    pub fn ends(&self, text: &[u8]) -> Ends {
        // The last block overlaps the one before, so that no length needs a shorter read.
        match (text.first_chunk(), text.last_chunk()) {
            (Some(first), Some(last)) if text.len() > BLOCK => {
                let long = text.len() > 2 * BLOCK;
                let first = if long { self.all_but_last(text) } else { words(first) };
                Ends { first, last: words(last) }
            }
            (_, Some(all)) => Ends { first: (0, 0), last: words(all) },
            (_, None) => Ends { first: (0, 0), last: short_words(text) },
        }
    }

    /// One hash of a text; whoever needs the length to tell mixes it in.
    #[inline(always)]
    pub fn one(&self, ends: Ends) -> u64 {
        self.one.hash(ends)
    }

    /// The other.
    #[inline(always)]
    pub fn other(&self, ends: Ends) -> u64 {
        self.other.hash(ends)
    }

    /// All blocks of a long text but the last, in 128 bits as well.
    #[inline(never)]
    fn all_but_last(&self, text: &[u8]) -> (u64, u64) {
        let (blocks, _) = text[..text.len() - 1].as_chunks();
        blocks.iter().map(words).fold((0, 0), |(one, other), block| {
            let mix =
                |state: u64, with: &Secrets| fold(product(block.0 ^ state, block.1, with.last));
            (mix(one, &self.one), mix(other, &self.other))
        })
    }
}

impl Secrets {
    #[inline(always)]
    fn hash(&self, Ends { first, last }: Ends) -> u64 {
        let first = product(first.0, first.1, self.first);
        fold(first.wrapping_add(product(last.0, last.1, self.last)))
    }
}

/// Bytes that are read at once.
const BLOCK: usize = 16;

#[inline(always)]
fn words(block: &[u8; BLOCK]) -> (u64, u64) {
    let both = u128::from_le_bytes(*block);
    (both as u64, (both >> 64) as u64)
}

/// The bytes of a text shorter than a block, each at least once; the length is mixed in elsewhere.
#[inline(always)]
fn short_words(text: &[u8]) -> (u64, u64) {
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

/// The product of two words, with a secret added to each.
#[inline(always)]
fn product(one: u64, two: u64, secrets: (u64, u64)) -> u128 {
    u128::from(one.wrapping_add(secrets.0)) * u128::from(two.wrapping_add(secrets.1))
}

/// The halves of a product, folded together.
#[inline(always)]
pub fn fold(product: u128) -> u64 {
    product as u64 ^ (product >> 64) as u64
}
