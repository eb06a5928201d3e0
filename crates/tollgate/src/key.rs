//! The names of buckets. This is the only file that spells them.
//!
//! A bucket belongs to a key, an algorithm and a period. A key is either what somebody wrote
//! ([`Key::new`], for charges made by hand) or what a rule says of a subject ([`Key::of_rule`]):
//!
//! ```text
//! user:42                                 by hand: any bytes
//! per-route:route=/search:user=42         a rule's: its name, then axis=value in the rule's order
//! └───┬───┘
//!   scope
//! ```
//!
//! The part after an axis is one of three, and none can be made to look like another:
//!
//! ```text
//! user=42                                 a value, as it is
//! user=#73475cb40a568e8da8a045ced110137e  the digest of a private or long value; a plain # is %23
//! user                                    no value: the bucket of all who lack the axis
//! ```
//!
//! In a rule's key every byte of a name or value that could be mistaken for a separator is escaped
//! as `%XX`, so two different subjects never share a bucket, whatever their values contain. The
//! scope keeps the two kinds apart: no key made by hand equals a rule's.

use std::borrow::Cow;
use std::fmt;

use crate::digest::Digest;

/// What a rule's key says of one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPart<'v> {
    /// The value itself.
    Plain(&'v str),
    /// What stands for a private or long value.
    Hashed(Digest),
    /// The axis has no value.
    Missing,
}

impl<'v> From<&'v str> for KeyPart<'v> {
    fn from(value: &'v str) -> Self {
        Self::Plain(value)
    }
}

/// The name of one bucket, apart from its algorithm and period.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key<'a> {
    text: Cow<'a, [u8]>,
    // How many bytes of the text name the rule; zero for a key made by hand.
    scope: u16,
}

impl<'a> Key<'a> {
    /// A key made by hand: a string or bytes, used as they are.
    pub fn new(text: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self { text: Cow::Borrowed(text.as_ref()), scope: 0 }
    }

    /// The key of a rule for a subject's values, in the order of the rule's axes.
    pub fn of_rule<'v, P: Into<KeyPart<'v>>>(
        rule: &str,
        values: impl IntoIterator<Item = (&'v str, P)>,
    ) -> Key<'static> {
        let mut text = Vec::with_capacity(64);
        escape(rule, &mut text);
        // Rule names are short by construction; a longer one would only lose its scope.
        let scope = u16::try_from(text.len()).unwrap_or(u16::MAX);
        for (axis, value) in values {
            text.push(b':');
            escape(axis, &mut text);
            match value.into() {
                KeyPart::Plain(value) => {
                    text.push(b'=');
                    escape(value, &mut text);
                }
                KeyPart::Hashed(digest) => {
                    text.extend(b"=#");
                    text.extend(digest.to_hex());
                }
                KeyPart::Missing => {}
            }
        }
        Key { text: Cow::Owned(text), scope }
    }

    /// The key's bytes.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.text
    }

    /// The part that names the rule, escaped; empty for a key made by hand.
    pub fn scope(&self) -> &[u8] {
        &self.text[..usize::from(self.scope)]
    }

    /// The key as a store looks at it.
    #[inline(always)]
    pub(crate) fn as_ref(&self) -> KeyRef<'_> {
        KeyRef { text: &self.text, scope: self.scope }
    }

    /// The same key, owning its bytes.
    pub fn into_owned(self) -> Key<'static> {
        Key { text: Cow::Owned(self.text.into_owned()), scope: self.scope }
    }
}

/// A key's parts, borrowed.
#[derive(Clone, Copy)]
pub(crate) struct KeyRef<'a> {
    pub(crate) text: &'a [u8],
    pub(crate) scope: u16,
}

impl<'a> From<KeyRef<'a>> for Key<'a> {
    fn from(KeyRef { text, scope }: KeyRef<'a>) -> Self {
        Self { text: Cow::Borrowed(text), scope }
    }
}

impl<'a> From<&'a str> for Key<'a> {
    fn from(text: &'a str) -> Self {
        Self::new(text)
    }
}

impl<'a> From<&'a String> for Key<'a> {
    fn from(text: &'a String) -> Self {
        Self::new(text)
    }
}

impl<'a> From<&'a [u8]> for Key<'a> {
    fn from(text: &'a [u8]) -> Self {
        Self::new(text)
    }
}

impl From<String> for Key<'static> {
    fn from(text: String) -> Self {
        Self { text: Cow::Owned(text.into_bytes()), scope: 0 }
    }
}

impl fmt::Display for Key<'_> {
    /// The text, with bytes that are not printable ASCII shown as `\xNN`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.escape_ascii().fmt(f)
    }
}

impl fmt::Debug for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key(\"{self}\")")
    }
}

/// Whether a byte stands for itself in a rule's key. Separators, braces (Cluster's hash tags), glob
/// characters and everything that is not printable ASCII do not.
const fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'-' | b'_' | b'.' | b'/' | b'@' | b'+' | b'~' | b',' | b'!' | b'$')
}

/// [`is_plain`] of every byte, for keys are spelled once per charge.
const PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let mut byte = 0;
    while byte < plain.len() {
        plain[byte] = is_plain(byte as u8);
        byte += 1;
    }
    plain
};

fn escape(text: &str, into: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    // Whole runs at a time, for most values are plain from end to end.
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|&byte| !PLAIN[usize::from(byte)]) {
        let byte = rest[at];
        let (high, low) = (usize::from(byte >> 4), usize::from(byte & 15));
        into.extend_from_slice(&rest[..at]);
        into.extend_from_slice(&[b'%', HEX[high], HEX[low]]);
        rest = &rest[at + 1..];
    }
    into.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Digester;

    #[test]
    fn a_rule_key_names_the_rule_then_its_axes() {
        let key = Key::of_rule("per-route", [("route", "/search"), ("user", "42")]);
        assert_eq!(key.to_string(), "per-route:route=/search:user=42");
        assert_eq!(key.scope(), b"per-route");
    }

    #[test]
    fn no_value_forges_a_separator() {
        let one = Key::of_rule("r", [("a", "1:b=2")]);
        let two = Key::of_rule("r", [("a", "1"), ("b", "2")]);
        assert_ne!(one.as_bytes(), two.as_bytes());
        let tag = Key::of_rule("r", [("a", "{x}*?[é\r\n")]);
        assert_eq!(tag.to_string(), "r:a=%7Bx%7D%2A%3F%5B%C3%A9%0D%0A");
    }

    #[test]
    fn no_value_forges_a_digest_or_a_missing_axis() {
        let digest = Digester::default().digest("alice@example.com");
        let hashed = Key::of_rule("r", [("a", KeyPart::Hashed(digest))]);
        assert_eq!(hashed.to_string(), "r:a=#ff8d9819fc0e12bf0d24892e45987e24");
        let plain = Key::of_rule("r", [("a", format!("#{digest}").as_str())]);
        assert_eq!(plain.to_string(), "r:a=%23ff8d9819fc0e12bf0d24892e45987e24");
        let missing = Key::of_rule("r", [("a", KeyPart::Missing), ("b", KeyPart::Plain("1"))]);
        assert_eq!(missing.to_string(), "r:a:b=1");
        assert_ne!(missing, Key::of_rule("r", [("a", ""), ("b", "1")]));
        assert_ne!(missing, Key::of_rule("r", [("a", ":b=1")]));
    }

    #[test]
    fn a_key_made_by_hand_is_never_a_rules() {
        let rule = Key::of_rule("login", [("ip", "10.0.0.1")]);
        assert_ne!(Key::new("login:ip=10.0.0.1"), rule);
    }
}
