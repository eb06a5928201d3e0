//! A policy's name as a structured field string: printable ASCII in double quotes.

/// The longest name told whole. With 16 charges, the most there are, the two lists of names stay
/// within what common proxies accept as headers.
const MAX_NAME: usize = 64;

/// Writes `name`, the `index`th of its set, in quotes.
///
/// `"` and `\` are escaped as the grammar has it; every byte it has no place for, and `%`, becomes `%XX`. A
/// name too long is cut, and ends in `~` and its index, so that two do not become one.
pub(super) fn push_name(list: &mut String, index: usize, name: &str) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    list.push('"');
    for byte in name.bytes().take(MAX_NAME) {
        match byte {
            b'"' | b'\\' => list.extend(['\\', char::from(byte)]),
            // A percent sign too, lest it be taken for the escape of another byte.
            b' '..=b'$' | b'&'..=b'~' => list.push(char::from(byte)),
            _ => {
                let digits = [byte >> 4, byte & 15].map(|digit| HEX[usize::from(digit)]);
                list.extend(['%', char::from(digits[0]), char::from(digits[1])]);
            }
        }
    }
    if name.len() > MAX_NAME {
        list.push('~');
        list.push_str(&index.to_string());
    }
    list.push('"');
}
