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
    // Bytes in place; all there is room for once there was too little.
    length: usize,
    // Everything, once there is no room in place.
    spilled: Vec<u8>,
}

impl Text {
    pub(crate) const fn new() -> Self {
        Self { place: [0; IN_PLACE], length: 0, spilled: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Adds an ASCII character.
    #[inline(always)]
    pub(crate) fn push(&mut self, c: char) {
        debug_assert!(c.is_ascii(), "{c:?}");
        self.push_ascii(&[c as u8]);
    }

    /// Adds ASCII text.
    #[inline(always)]
    pub(crate) fn push_str(&mut self, text: &str) {
        self.push_ascii(text.as_bytes());
    }

    /// Adds a number in decimal.
    pub(crate) fn push_integer(&mut self, value: u64) {
        let length = 1 + value.checked_ilog10().unwrap_or(0) as usize;
        match self.place.get_mut(self.length..self.length + length) {
            Some(room) => {
                write_integer(room, value);
                self.length += length;
            }
            None => {
                // The largest has twenty digits.
                let mut digits = [0; 20];
                write_integer(&mut digits[..length], value);
                self.spill(&digits[..length]);
            }
        }
    }

    /// The text as a value of a header; it must be printable.
    pub(crate) fn to_value(&self) -> HeaderValue {
        HeaderValue::from_bytes(self.as_bytes()).expect("only printable ASCII was written")
    }

    fn as_bytes(&self) -> &[u8] {
        match self.spilled.is_empty() {
            true => &self.place[..self.length],
            false => &self.spilled,
        }
    }

    /// Adds bytes that are ASCII.
    #[inline(always)]
    pub(crate) fn push_ascii(&mut self, bytes: &[u8]) {
        debug_assert!(bytes.is_ascii(), "{}", bytes.escape_ascii());
        match self.place.get_mut(self.length..self.length + bytes.len()) {
            Some(room) => {
                room.copy_from_slice(bytes);
                self.length += bytes.len();
            }
            None => self.spill(bytes),
        }
    }

    #[cold]
    fn spill(&mut self, bytes: &[u8]) {
        if self.spilled.is_empty() {
            self.spilled.extend_from_slice(&self.place[..self.length]);
            self.length = IN_PLACE;
        }
        self.spilled.extend_from_slice(bytes);
    }
}

/// Writes a number that has as many digits as there is room, two at a time. Not out of a table of
/// pairs, which would be fetched from afar once per answer.
#[inline(always)]
fn write_integer(room: &mut [u8], mut value: u64) {
    let mut pairs = room.rchunks_exact_mut(2);
    for pair in &mut pairs {
        let two = (value % 100) as u8;
        pair.copy_from_slice(&[b'0' + two / 10, b'0' + two % 10]);
        value /= 100;
    }
    if let [first] = pairs.into_remainder() {
        *first = b'0' + (value % 10) as u8;
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
            assert_eq!(text.to_value(), value.to_string());
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
                assert_eq!(text.to_value(), expected);
            }
        }
    }
}
