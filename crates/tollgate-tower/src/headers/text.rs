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

    pub(crate) fn len(&self) -> usize {
        self.as_bytes().len()
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
    #[inline(always)]
    pub(crate) fn push_integer(&mut self, value: u64) {
        if value < EIGHT_DIGITS {
            let digits = eight_digits(value);
            let zeros = (digits.trailing_zeros() / 8).min(7);
            self.push_digits(digits >> (8 * zeros), 8 - zeros as usize);
        } else {
            self.push_large(value);
        }
    }

    #[inline(never)]
    fn push_large(&mut self, value: u64) {
        self.push_integer(value / EIGHT_DIGITS);
        self.push_digits(eight_digits(value % EIGHT_DIGITS), 8);
    }

    /// Adds the first so many of eight digits. All are written, if there is room, and those beyond
    /// written over by what comes next.
    #[inline(always)]
    fn push_digits(&mut self, digits: u64, count: usize) {
        let text = (digits | u64::from_ne_bytes([b'0'; 8])).to_le_bytes();
        match self.place.get_mut(self.length..self.length + text.len()) {
            Some(room) => {
                room.copy_from_slice(&text);
                self.length += count;
            }
            None => self.spill(&text[..count]),
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

/// The least number that has more.
const EIGHT_DIGITS: u64 = 100_000_000;

/// The eight digits of a number below a hundred million, a byte each, the first lowest. All at once:
/// halved into numbers of four digits, of two and of one, that stand side by side. What multiplies and
/// shifts is a division by a hundred, and by ten, exact for numbers that small.
#[inline]
fn eight_digits(value: u64) -> u64 {
    let fours = (value / 10_000) | ((value % 10_000) << 32);
    let high = ((fours * 10_486) >> 20) & 0x7f_0000_007f;
    let twos = high | ((fours - high * 100) << 16);
    let high = ((twos * 103) >> 10) & 0x000f_000f_000f_000f;
    high | ((twos - high * 10) << 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_written_in_decimal() {
        let large = [1_234_567_890, 10_000_000_000_000_000, u64::MAX];
        let around = (0..20).map(|digits| 10_u64.pow(digits));
        let around = around.flat_map(|power| [power - 1, power, power + 1]);
        for value in (0..10_000).chain(around).chain(large) {
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
