//! A field's value while it is written.
//!
//! Headers are written on every answer, so this touches the heap only for what is kept, and spares
//! the machinery of formatting.

use http::HeaderValue;

/// What is kept in place: two limits with names of ordinary length.
const IN_PLACE: usize = 128;

/// ASCII, in place as long as it is short.
#[derive(Debug)]
pub(crate) struct Text {
    place: [u8; IN_PLACE],
    length: usize,
    // Everything, once there is no room in place.
    spilled: Vec<u8>,
}

impl Text {
    pub(crate) const fn new() -> Self {
        Self { place: [0; IN_PLACE], length: 0, spilled: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.as_bytes().is_empty()
    }

    /// Adds an ASCII character.
    #[inline]
    pub(crate) fn push(&mut self, c: char) {
        debug_assert!(c.is_ascii(), "{c:?}");
        self.push_bytes(&[c as u8]);
    }

    /// Adds ASCII text.
    #[inline]
    pub(crate) fn push_str(&mut self, text: &str) {
        debug_assert!(text.is_ascii(), "{text:?}");
        self.push_bytes(text.as_bytes());
    }

    /// Adds a number in decimal.
    #[inline]
    pub(crate) fn push_integer(&mut self, mut value: u64) {
        if value < 10 {
            return self.push_bytes(&[b'0' + value as u8]);
        }
        // The largest has twenty digits.
        let mut digits = [0; 20];
        let mut start = digits.len();
        loop {
            start -= 1;
            digits[start] = b'0' + (value % 10) as u8;
            value /= 10;
            if value == 0 {
                break;
            }
        }
        self.push_bytes(&digits[start..]);
    }

    /// The text as a value of a header; it must be printable.
    pub(crate) fn to_value(&self) -> HeaderValue {
        HeaderValue::from_bytes(self.as_bytes()).expect("only printable ASCII was written")
    }

    /// The text.
    pub(crate) fn as_str(&self) -> &str {
        str::from_utf8(self.as_bytes()).expect("only ASCII was written")
    }

    fn as_bytes(&self) -> &[u8] {
        match self.spilled.is_empty() {
            true => &self.place[..self.length],
            false => &self.spilled,
        }
    }

    #[inline]
    fn push_bytes(&mut self, bytes: &[u8]) {
        let end = self.length + bytes.len();
        match self.place.get_mut(self.length..end) {
            Some(room) if self.spilled.is_empty() => {
                room.copy_from_slice(bytes);
                self.length = end;
            }
            _ => self.spill(bytes),
        }
    }

    #[cold]
    fn spill(&mut self, bytes: &[u8]) {
        if self.spilled.is_empty() {
            self.spilled.extend_from_slice(&self.place[..self.length]);
        }
        self.spilled.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_written_in_decimal() {
        for value in [0, 7, 10, 99, 100, 1_234_567_890, u64::MAX] {
            let mut text = Text::new();
            text.push_integer(value);
            assert_eq!(text.as_str(), value.to_string());
        }
    }

    #[test]
    fn whatever_its_length_it_reads_as_it_was_written() {
        for piece in ["a", "abc", "abcdefghijklmnop"] {
            let (mut text, mut expected) = (Text::new(), String::new());
            for _ in 0..2 * IN_PLACE {
                assert_eq!(text.is_empty(), expected.is_empty());
                text.push_str(piece);
                text.push('-');
                expected.push_str(piece);
                expected.push('-');
                assert_eq!(text.as_str(), expected);
            }
        }
    }
}
