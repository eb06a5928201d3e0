//! Where a reply ends, and the values in it.
//!
//! Replies are RESP 2, and looked at where they lie: what the script answers to a batch is one flat
//! array, and making a tree of it would cost more than everything else done with it.

/// A reply that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Garbled;

/// Finds the end of a reply that arrives in pieces, looking at every byte once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scanner {
    // How far it has looked.
    position: usize,
    // Values still to come, those inside arrays included.
    missing: usize,
}

impl Scanner {
    /// At the beginning of a reply.
    pub(crate) const fn new() -> Self {
        Self { position: 0, missing: 1 }
    }

    /// The length of the reply that `bytes` begins with, as soon as all of it is there.
    pub(crate) fn end(&mut self, bytes: &[u8]) -> Result<Option<usize>, Garbled> {
        while self.missing > 0 {
            let Some((head, next)) = head(bytes, self.position)? else { return Ok(None) };
            self.missing -= 1;
            if let Head::Array(values) = head {
                self.missing = self.missing.checked_add(values).ok_or(Garbled)?;
            }
            self.position = next;
        }
        Ok(Some(self.position))
    }
}

/// A value, or what an array begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Head<'r> {
    /// Nothing.
    Nil,
    /// An integer.
    Integer(i64),
    /// Bytes, or a word.
    Bytes(&'r [u8]),
    /// An error, in the server's words.
    Error(&'r [u8]),
    /// So many values, which follow.
    Array(usize),
}

/// Goes through the values of a reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Values<'r> {
    bytes: &'r [u8],
    position: usize,
}

impl<'r> Values<'r> {
    /// All values in `bytes`, one after the other.
    pub(crate) const fn of(bytes: &'r [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    /// The next value, or what the next array begins with.
    pub(crate) fn next(&mut self) -> Option<Head<'r>> {
        let (head, next) = head(self.bytes, self.position).ok()??;
        self.position = next;
        Some(head)
    }

    /// The next `count` whole values, as they lie there.
    pub(crate) fn take(&mut self, count: usize) -> Option<&'r [u8]> {
        let rest = &self.bytes[self.position..];
        let mut scanner = Scanner { position: 0, missing: count };
        let taken = scanner.end(rest).ok()??;
        self.position += taken;
        Some(&rest[..taken])
    }
}

/// The value at `position`, if all of it is there, and where the next begins.
fn head(bytes: &[u8], position: usize) -> Result<Option<(Head<'_>, usize)>, Garbled> {
    let rest = &bytes[position..];
    let Some(end) = rest.iter().position(|&byte| byte == b'\n') else { return Ok(None) };
    let (Some(&kind), Some(line)) = (rest.first(), rest[..end].strip_suffix(b"\r")) else {
        return Err(Garbled);
    };
    let (word, next) = (line.get(1..).ok_or(Garbled)?, end + 1);
    let head = match kind {
        b':' => Head::Integer(integer(word)?),
        b'+' => Head::Bytes(word),
        b'-' => Head::Error(word),
        b'$' | b'*' if word == b"-1" => Head::Nil,
        b'*' => Head::Array(usize::try_from(integer(word)?).map_err(|_| Garbled)?),
        b'$' => {
            let length = usize::try_from(integer(word)?).map_err(|_| Garbled)?;
            let after = next.checked_add(length).ok_or(Garbled)?;
            return match (rest.get(next..after), rest.get(after..after + 2)) {
                (Some(bytes), Some(b"\r\n")) => {
                    Ok(Some((Head::Bytes(bytes), position + after + 2)))
                }
                (Some(_), Some(_)) => Err(Garbled),
                _ => Ok(None),
            };
        }
        _ => return Err(Garbled),
    };
    Ok(Some((head, position + next)))
}

fn integer(word: &[u8]) -> Result<i64, Garbled> {
    let (negative, digits) = match word {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return Err(Garbled);
    }
    let mut number = 0_i64;
    for &digit in digits {
        let value = digit.wrapping_sub(b'0');
        if value > 9 {
            return Err(Garbled);
        }
        // Downwards, for the least integer has no positive.
        number = number.checked_mul(10).and_then(|n| n.checked_sub(value.into())).ok_or(Garbled)?;
    }
    if negative { Ok(number) } else { number.checked_neg().ok_or(Garbled) }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use redis::parse_redis_value;

    use super::{Head, Scanner, Values};

    /// Replies of every kind, arrays in arrays among them.
    fn replies() -> impl Strategy<Value = Vec<u8>> {
        let leaf = prop_oneof![
            Just(b"$-1\r\n".to_vec()),
            Just(b"*-1\r\n".to_vec()),
            any::<i64>().prop_map(|number| format!(":{number}\r\n").into_bytes()),
            "[A-Z]{1,8} [a-z ]{0,9}".prop_map(|text| format!("-{text}\r\n").into_bytes()),
            "[A-Z]{0,8}".prop_map(|text| format!("+{text}\r\n").into_bytes()),
            vec(any::<u8>(), 0..40).prop_map(|bytes| {
                [format!("${}\r\n", bytes.len()).as_bytes(), &bytes, b"\r\n"].concat()
            }),
        ];
        leaf.prop_recursive(3, 40, 8, |inner| {
            vec(inner, 0..8).prop_map(|values| {
                [format!("*{}\r\n", values.len()).into_bytes(), values.concat()].concat()
            })
        })
    }

    proptest! {
        #[test]
        fn a_reply_ends_where_it_ends_however_it_is_split(
            reply in replies(),
            after in vec(any::<u8>(), 0..9),
            mut cuts in vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let bytes = [reply.as_slice(), &after].concat();
            let mut scanner = Scanner::new();
            let mut cuts: Vec<usize> = cuts.drain(..).map(|cut| cut.index(reply.len())).collect();
            cuts.sort_unstable();
            for cut in cuts {
                prop_assert_eq!(scanner.end(&bytes[..cut]), Ok(None));
            }
            prop_assert_eq!(scanner.end(&bytes), Ok(Some(reply.len())));
            prop_assert!(parse_redis_value(&reply).is_ok());
            prop_assert_eq!(Values::of(&bytes).take(1), Some(reply.as_slice()));
        }

        #[test]
        fn nothing_that_arrives_makes_it_fail(bytes in vec(any::<u8>(), 0..60)) {
            let end = Scanner::new().end(&bytes);
            if let Ok(Some(end)) = end {
                prop_assert!(end <= bytes.len());
            }
            let mut values = Values::of(&bytes);
            while values.next().is_some() {}
        }

        #[test]
        fn nothing_that_resembles_a_reply_makes_it_fail(text in r"([*$:+-][0-9-]{0,20}\r\n?){0,6}") {
            let _ = Scanner::new().end(text.as_bytes());
            let _ = Values::of(text.as_bytes()).take(3);
        }

        #[test]
        fn integers_are_read_whole(number in any::<i64>()) {
            let text = format!(":{number}\r\n");
            prop_assert_eq!(Values::of(text.as_bytes()).next(), Some(Head::Integer(number)));
        }
    }
}
