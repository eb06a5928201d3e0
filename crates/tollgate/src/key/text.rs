//! The bytes of a key, without the heap as long as they are few.

use std::hash::{Hash, Hasher};
use std::ops::Deref;

/// As many bytes as are kept in place: enough for a rule of ordinary name that goes by address.
const IN_PLACE: usize = 32;

/// The bytes of a key.
#[derive(Clone)]
pub(super) enum Text<'a> {
    Borrowed(&'a [u8]),
    InPlace(Short),
    Owned(Vec<u8>),
}

/// Few bytes. Their number has a word to itself, so that all of it lies in whole words and is copied
/// by them.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Short {
    length: usize,
    bytes: [u8; IN_PLACE],
}

impl Text<'_> {
    /// None yet.
    pub(super) const fn new() -> Text<'static> {
        Text::InPlace(Short { length: 0, bytes: [0; IN_PLACE] })
    }

    /// The same bytes, with room for as many again as one value commonly has.
    #[inline(always)]
    pub(super) fn to_extend(&self) -> Text<'static> {
        match self {
            Self::InPlace(short) => Text::InPlace(*short),
            Self::Borrowed(bytes) => Text::Owned(roomy(bytes, &[])),
            Self::Owned(bytes) => Text::Owned(roomy(bytes, &[])),
        }
    }

    /// Adds the first bytes of a word, the lowest first, of which the others are zero.
    #[inline(always)]
    pub(super) fn push_word(&mut self, word: u128, length: usize) {
        let pushed = match self {
            Self::InPlace(short) => short.push_word(word, length),
            Self::Borrowed(_) | Self::Owned(_) => false,
        };
        if !pushed {
            self.push(&word.to_le_bytes()[..length]);
        }
    }

    pub(super) fn into_owned(self) -> Text<'static> {
        match self {
            Text::Borrowed(bytes) => {
                let mut text = Text::new();
                text.push(bytes);
                text
            }
            Text::InPlace(short) => Text::InPlace(short),
            Text::Owned(bytes) => Text::Owned(bytes),
        }
    }

    #[cold]
    fn spill(&mut self, more: &[u8]) {
        if let Self::Owned(bytes) = self {
            return bytes.extend_from_slice(more);
        }
        *self = Self::Owned(roomy(self, more));
    }
}

/// Bytes on the heap, with room for more.
#[cold]
fn roomy(bytes: &[u8], more: &[u8]) -> Vec<u8> {
    const ROOM: usize = 64;
    let mut all = Vec::with_capacity(bytes.len() + more.len() + ROOM);
    all.extend_from_slice(bytes);
    all.extend_from_slice(more);
    all
}

impl Short {
    fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    /// Adds bytes if there is room for them.
    #[inline(always)]
    fn push(&mut self, bytes: &[u8]) -> bool {
        let Some(room) = self.bytes.get_mut(self.length..self.length + bytes.len()) else {
            return false;
        };
        room.copy_from_slice(bytes);
        self.length += bytes.len();
        true
    }

    /// Adds the first bytes of a word if there is room for all of it: what lies beyond the text is
    /// nobody's, and a length that is not known takes a loop to copy.
    #[inline(always)]
    fn push_word(&mut self, word: u128, length: usize) -> bool {
        let Some(room) = self.bytes.get_mut(self.length..self.length + size_of_val(&word)) else {
            return false;
        };
        room.copy_from_slice(&word.to_le_bytes());
        self.length += length;
        true
    }
}

/// Something that bytes are added to.
pub(super) trait Push {
    fn push(&mut self, bytes: &[u8]);
}

impl Push for Vec<u8> {
    fn push(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

impl Push for Text<'_> {
    #[inline]
    fn push(&mut self, bytes: &[u8]) {
        let pushed = match self {
            Self::InPlace(short) => short.push(bytes),
            Self::Borrowed(_) | Self::Owned(_) => false,
        };
        if !pushed {
            self.spill(bytes);
        }
    }
}

impl Deref for Text<'_> {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::InPlace(short) => short.as_bytes(),
            Self::Owned(bytes) => bytes,
        }
    }
}

/// Whether they are the same bytes, wherever they are.
impl PartialEq for Text<'_> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Text<'_> {}

impl Hash for Text<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_its_length_a_text_is_what_was_added() {
        for piece in ["a", "abc", "abcdefghijklm"] {
            let (mut text, mut expected) = (Text::new(), Vec::new());
            for _ in 0..2 * IN_PLACE {
                text.push(piece.as_bytes());
                expected.extend_from_slice(piece.as_bytes());
                assert_eq!(*text, *expected);
                assert!(text == Text::Owned(expected.clone()));
                assert!(Text::Borrowed(&expected).into_owned() == text);
            }
        }
    }
}
