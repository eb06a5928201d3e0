//! A policy's name as a structured field string: printable ASCII in double quotes.

use super::Text;

/// The longest name told whole. With 16 charges, the most there are, the two lists of names stay
/// within what common proxies accept as headers.
const MAX_NAME: usize = 64;

/// Writes `name`, the `index`th of its set, in quotes.
///
/// `"` and `\` are escaped as the grammar has it; every byte it has no place for, and `%`, becomes `%XX`. A
/// name too long is cut, and ends in `~` and its index, so that two do not become one.
pub(super) fn push_name(list: &mut Text, index: usize, name: &str) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    list.push('"');
    // Names are nearly always short and plain.
    if name.len() <= MAX_NAME && name.bytes().all(is_plain) {
        list.push_str(name);
        list.push('"');
        return;
    }
    for byte in name.bytes().take(MAX_NAME) {
        match byte {
            b'"' | b'\\' => {
                list.push('\\');
                list.push(char::from(byte));
            }
            byte if is_plain(byte) => list.push(char::from(byte)),
            _ => {
                let digits = [byte >> 4, byte & 15].map(|digit| HEX[usize::from(digit)]);
                list.push('%');
                list.push(char::from(digits[0]));
                list.push(char::from(digits[1]));
            }
        }
    }
    if name.len() > MAX_NAME {
        list.push('~');
        list.push_integer(index as u64);
    }
    list.push('"');
}

/// Whether a byte stands for itself. A percent sign does not, lest it be taken for the escape of
/// another byte.
fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\' | b'%')
}
