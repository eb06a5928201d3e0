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
//!
//! A store in another process knows by a *name* ([`Prefix::name`]) where a bucket lies, which has all of
//! it in one text:
//!
//! ```text
//! tollgate:{user=42}:per-user:tb                of a rule: all axes in the braces
//! tollgate:{tenant=acme}:plan:sw:60s:user=42    of one colocated by tenant
//! tollgate:{}:everybody:fw:1s                   of one without axes
//! tollgate:{user:42}::sl:900s                   by hand: no rule
//! └──┬───┘ └───┬───┘ └─┬─┘ │  └ period
//!  prefix     tag     rule └ algorithm
//! ```
//!
//! Names of token and leaky buckets have no period: those of one key lie together, so that a store
//! decides `10/s; 1000/h; 5000/day` about a user in one place.
//!
//! Braces stand nowhere else, so the tag is what Redis Cluster chooses a slot by: buckets of one
//! subject lie together (of one tenant, with [`colocate`](crate::Rule::colocate)), those of different
//! ones apart. A rule's name is never empty, so no name made by hand is a rule's.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use crate::algorithm::Algorithm;
use crate::digest::{Digest, Digester};
use crate::meter::Meter;
use crate::quota::Period;

mod stem;
mod text;

pub(crate) use stem::Stem;
use text::{Push, Text};

/// A key made by hand that is longer than this stands in names as a digest.
const LONGEST_PLAIN_KEY: usize = 128;

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

/// The value of an axis that stands in a key as it is, escaped where it has to be.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub enum PlainValue<'v> {
    /// Any bytes.
    Bytes(&'v [u8]),
    /// So many bytes, none of which has to be escaped, the first lowest and zeros above: never in memory,
    /// for what was just written there is slow to read in other pieces.
    Word { text: u128, length: usize },
}

impl PlainValue<'_> {
    #[inline(always)]
    pub(crate) fn len(self) -> usize {
        match self {
            Self::Bytes(value) => value.len(),
            Self::Word { length, .. } => length,
        }
    }
}

impl<'v> From<&'v [u8]> for PlainValue<'v> {
    #[inline(always)]
    fn from(value: &'v [u8]) -> Self {
        Self::Bytes(value)
    }
}

/// The name of one bucket, apart from its algorithm and period.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key<'a> {
    text: Text<'a>,
    // How many bytes of the text name the rule; zero for a key made by hand.
    scope: u16,
    // The part of the text by which the bucket is placed near others; all axes if it is empty.
    tag: (u16, u16),
}

/// The tag of keys that are placed by all they say.
const WHOLE: (u16, u16) = (0, 0);

impl<'a> Key<'a> {
    /// None.
    pub(crate) const EMPTY: Self = Self { text: Text::Borrowed(&[]), scope: 0, tag: WHOLE };

    /// A key made by hand: a string or bytes, used as they are.
    pub fn new(text: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self { text: Text::Borrowed(text.as_ref()), scope: 0, tag: WHOLE }
    }

    /// The key of a rule for a subject's values, in the order of the rule's axes.
    pub fn of_rule<'v, P: Into<KeyPart<'v>>>(
        rule: &str,
        values: impl IntoIterator<Item = (&'v str, P)>,
    ) -> Key<'static> {
        Self::of_rule_near(rule, values, None)
    }

    /// The same, placed near all buckets that have the same value on the axis `near`.
    pub fn of_rule_near<'v, P: Into<KeyPart<'v>>>(
        rule: &str,
        values: impl IntoIterator<Item = (&'v str, P)>,
        near: Option<&str>,
    ) -> Key<'static> {
        let mut text = Text::new();
        let mut tag = WHOLE;
        escape(rule.as_bytes(), &PLAIN, &mut text);
        // Rule names are short by construction; a longer one would only lose its scope.
        let scope = u16::try_from(text.len()).unwrap_or(u16::MAX);
        for (axis, value) in values {
            text.push(b":");
            let start = text.len();
            escape(axis.as_bytes(), &PLAIN, &mut text);
            push_value(value.into(), &mut text);
            if near == Some(axis) {
                tag = short(start..text.len()).unwrap_or(WHOLE);
            }
        }
        Key { text, scope, tag }
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

    /// What a rule's key is placed by, and what it says before and after that.
    fn tag_and_rest(&self) -> (&[u8], [&[u8]; 2]) {
        let scope = usize::from(self.scope);
        match (scope, self.tag) {
            (0, _) => (&[], [&[], &[]]),
            (_, WHOLE) => (self.text.get(scope + 1..).unwrap_or_default(), [&[], &[]]),
            (_, (start, end)) => {
                let (start, end) = (usize::from(start), usize::from(end));
                (&self.text[start..end], [&self.text[scope..start - 1], &self.text[end..]])
            }
        }
    }

    /// Which parts of the text name the rule and place the bucket: what tells keys of one text apart.
    #[doc(hidden)]
    #[inline(always)]
    pub const fn layout(&self) -> u64 {
        (self.scope as u64) << 32 | (self.tag.0 as u64) << 16 | self.tag.1 as u64
    }

    /// The key as a store looks at it.
    #[inline(always)]
    pub(crate) fn as_ref(&self) -> KeyRef<'_> {
        KeyRef { text: &self.text, scope: self.scope }
    }

    /// The same key, without its bytes.
    #[inline(always)]
    pub(crate) fn borrowed(&self) -> Key<'_> {
        Key { text: Text::Borrowed(&self.text), scope: self.scope, tag: self.tag }
    }

    /// The key as a store looks at it, if somebody else owns its bytes; or itself.
    #[inline(always)]
    pub(crate) fn into_ref(self) -> Result<KeyRef<'a>, Self> {
        match self.text {
            Text::Borrowed(text) => Ok(KeyRef { text, scope: self.scope }),
            Text::InPlace(_) | Text::Owned(_) => Err(self),
        }
    }

    /// The same key, owning its bytes.
    pub fn into_owned(self) -> Key<'static> {
        Key { text: self.text.into_owned(), scope: self.scope, tag: self.tag }
    }
}

/// What follows an axis.
#[inline(always)]
fn push_value(value: KeyPart<'_>, into: &mut Text<'_>) {
    match value {
        KeyPart::Plain(value) => {
            into.push(b"=");
            escape(value.as_bytes(), &PLAIN, into);
        }
        KeyPart::Hashed(digest) => {
            into.push(b"=#");
            into.push(&digest.to_hex());
        }
        KeyPart::Missing => {}
    }
}

/// A range that fits a key's fields.
fn short(range: Range<usize>) -> Option<(u16, u16)> {
    Some((u16::try_from(range.start).ok()?, u16::try_from(range.end).ok()?))
}

/// What all names of a store begin with, so that several may share a server.
///
/// ```
/// use tollgate::{Algorithm, Key, Meter, Prefix};
///
/// let prefix: Prefix = "shop".parse()?;
/// let meter = Meter::new("100/min".parse()?, Algorithm::TokenBucket)?;
/// let key = Key::of_rule("per-user", [("user", "42")]);
/// assert_eq!(prefix.name(&key, &meter), b"shop:{user=42}:per-user:tb");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Prefix(Cow<'static, str>);

impl Prefix {
    /// The longest prefix, in bytes.
    pub const MAX: usize = 64;

    /// The name under which the bucket of `key` and `meter` lies. Token buckets of one key that differ in
    /// their periods share one, and so do leaky ones; all others have names of their own.
    pub fn name(&self, key: &Key<'_>, meter: &Meter) -> Vec<u8> {
        let mut name = Vec::with_capacity(self.0.len() + key.text.len() + 32);
        name.extend_from_slice(self.0.as_bytes());
        name.extend_from_slice(b":{");
        if key.scope().is_empty() {
            spell_by_hand(&key.text, &mut name);
        }
        let (tag, [before, after]) = key.tag_and_rest();
        name.extend_from_slice(tag);
        name.extend_from_slice(b"}:");
        name.extend_from_slice(key.scope());
        name.push(b':');
        name.extend_from_slice(short_name(meter.algorithm()));
        if !lie_together(meter.algorithm()) {
            name.push(b':');
            spell_period(meter.period(), &mut name);
        }
        name.extend_from_slice(before);
        name.extend_from_slice(after);
        name
    }

    /// A pattern, as `SCAN` takes it, of the names of all buckets of a rule.
    pub fn names_of_rule(&self, rule: &str) -> Vec<u8> {
        let mut pattern = Vec::with_capacity(self.0.len() + rule.len() + 8);
        pattern.extend_from_slice(self.0.as_bytes());
        pattern.extend_from_slice(b":{*}:");
        escape(rule.as_bytes(), &PLAIN, &mut pattern);
        pattern.extend_from_slice(b":*");
        pattern
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
        // Only stores in this process look at keys this way, and they place nothing.
        Self { text: Text::Borrowed(text), scope, tag: WHOLE }
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
        Self { text: Text::Owned(text.into_bytes()), scope: 0, tag: WHOLE }
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

impl Default for Prefix {
    /// `tollgate`.
    fn default() -> Self {
        Self(Cow::Borrowed("tollgate"))
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let plain = |byte: u8| is_plain(byte) || byte == b':';
        match text.len() {
            1..=Self::MAX if text.bytes().all(plain) => Ok(Self(Cow::Owned(text.to_owned()))),
            _ => Err(PrefixError { text: text.chars().take(80).collect() }),
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// A text that cannot begin names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixError {
    text: String,
}

impl fmt::Display for PrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = Prefix::MAX;
        write!(
            f,
            "prefix {:?} does not begin names: write 1 to {most} of ASCII letters, digits and \
             \"-_./@+~,!$:\", such as \"shop\"",
            self.text
        )
    }
}

impl Error for PrefixError {}

/// Whether a byte stands for itself in a rule's key. Separators, braces (Cluster's hash tags), glob
/// characters and everything that is not printable ASCII do not.
const fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'-' | b'_' | b'.' | b'/' | b'@' | b'+' | b'~' | b',' | b'!' | b'$')
}

/// Which bytes stand for themselves, looked up because keys are spelled once per charge.
type Table = [bool; 256];

/// [`is_plain`] of every byte.
const PLAIN: Table = {
    let mut plain = [false; 256];
    let mut byte = 0;
    while byte < plain.len() {
        plain[byte] = is_plain(byte as u8);
        byte += 1;
    }
    plain
};

/// The same for keys made by hand, which have no separators to be mistaken for.
const PLAIN_BY_HAND: Table = {
    let mut plain = PLAIN;
    plain[b':' as usize] = true;
    plain[b'=' as usize] = true;
    plain[b'|' as usize] = true;
    plain
};

#[inline]
fn escape(text: &[u8], plain: &Table, into: &mut impl Push) {
    // Most values are plain from end to end, and that is found out fastest by looking at all of them.
    if text.iter().fold(true, |all, &byte| all & plain[usize::from(byte)]) {
        return into.push(text);
    }
    escape_some(text, plain, into);
}

/// The same where something is to be escaped.
#[cold]
fn escape_some(text: &[u8], plain: &Table, into: &mut impl Push) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut rest = text;
    while let Some(at) = rest.iter().position(|&byte| !plain[usize::from(byte)]) {
        let byte = rest[at];
        let (high, low) = (usize::from(byte >> 4), usize::from(byte & 15));
        into.push(&rest[..at]);
        into.push(&[b'%', HEX[high], HEX[low]]);
        rest = &rest[at + 1..];
    }
    into.push(rest);
}

/// A key made by hand within a name: escaped, or as a digest if it is long. A plain # is escaped.
fn spell_by_hand(text: &[u8], into: &mut Vec<u8>) {
    if text.len() <= LONGEST_PLAIN_KEY {
        return escape(text, &PLAIN_BY_HAND, into);
    }
    into.push(b'#');
    into.extend(Digester::default().digest(text).to_hex());
}

/// An algorithm within a name.
const fn short_name(algorithm: Algorithm) -> &'static [u8] {
    match algorithm {
        Algorithm::FixedWindow => b"fw",
        Algorithm::SlidingLog => b"sl",
        Algorithm::SlidingWindow => b"sw",
        Algorithm::TokenBucket => b"tb",
        Algorithm::LeakyBucket => b"lb",
    }
}

/// Whether buckets of one key that differ in their periods have one name.
const fn lie_together(algorithm: Algorithm) -> bool {
    matches!(algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket)
}

/// A period within a name: in seconds, or in the largest smaller unit that it is a multiple of.
fn spell_period(period: Period, into: &mut Vec<u8>) {
    if let Some(calendar) = period.as_calendar() {
        return escape(calendar.name().as_bytes(), &PLAIN, into);
    }
    let micros = period.as_micros();
    let (count, unit) = match () {
        () if micros.is_multiple_of(1_000_000) => (micros / 1_000_000, "s"),
        () if micros.is_multiple_of(1_000) => (micros / 1_000, "ms"),
        () => (micros, "us"),
    };
    spell_number(count, into);
    into.extend_from_slice(unit.as_bytes());
}

/// Writes a number in decimal. Names are spelled once per charge, and formatting would be the most of
/// it.
fn spell_number(mut number: u64, into: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    into.extend_from_slice(&digits[first..]);
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

    fn name(key: &Key<'_>, quota: &str, algorithm: Algorithm) -> String {
        let meter = Meter::new(quota.parse().unwrap(), algorithm).unwrap();
        String::from_utf8(Prefix::default().name(key, &meter)).unwrap()
    }

    #[test]
    fn a_name_says_everything_that_makes_a_bucket() {
        let key = Key::of_rule("per-route", [("route", "/search"), ("user", "42")]);
        for (quota, algorithm, expected) in [
            ("9/min", Algorithm::TokenBucket, "tollgate:{route=/search:user=42}:per-route:tb"),
            ("9/h", Algorithm::TokenBucket, "tollgate:{route=/search:user=42}:per-route:tb"),
            ("9/min", Algorithm::LeakyBucket, "tollgate:{route=/search:user=42}:per-route:lb"),
            (
                "9/250ms",
                Algorithm::FixedWindow,
                "tollgate:{route=/search:user=42}:per-route:fw:250ms",
            ),
            (
                "9/day",
                Algorithm::FixedWindow,
                "tollgate:{route=/search:user=42}:per-route:fw:86400s",
            ),
            (
                "9/1001us",
                Algorithm::SlidingLog,
                "tollgate:{route=/search:user=42}:per-route:sl:1001us",
            ),
            ("9/s", Algorithm::SlidingWindow, "tollgate:{route=/search:user=42}:per-route:sw:1s"),
        ] {
            assert_eq!(name(&key, quota, algorithm), expected);
        }
    }

    #[test]
    fn the_tag_is_the_colocated_axis() {
        let values = [("route", "/"), ("tenant", "acme"), ("user", "42")];
        let named = |near| {
            let key = Key::of_rule_near("r", values, near);
            assert_eq!(key.as_bytes(), b"r:route=/:tenant=acme:user=42", "whatever it is near");
            name(&key, "1/s", Algorithm::FixedWindow)
        };
        assert_eq!(named(None), "tollgate:{route=/:tenant=acme:user=42}:r:fw:1s");
        assert_eq!(named(Some("tenant")), "tollgate:{tenant=acme}:r:fw:1s:route=/:user=42");
        assert_eq!(named(Some("route")), "tollgate:{route=/}:r:fw:1s:tenant=acme:user=42");
        assert_eq!(named(Some("user")), "tollgate:{user=42}:r:fw:1s:route=/:tenant=acme");
        let alone = Key::of_rule("everybody", [("", ""); 0]);
        assert_eq!(name(&alone, "1/s", Algorithm::FixedWindow), "tollgate:{}:everybody:fw:1s");
    }

    #[test]
    fn no_value_forges_a_tag_or_another_name() {
        let spelled = |key: &Key<'_>| name(key, "1/s", Algorithm::FixedWindow);
        let rule = Key::of_rule("login", [("ip", "10.0.0.1")]);
        assert_eq!(spelled(&rule), "tollgate:{ip=10.0.0.1}:login:fw:1s");
        for text in
            ["ip=10.0.0.1}:login", "login:ip=10.0.0.1", "ip=10.0.0.1", "", "{}", "a}{b*\0\u{e9}"]
        {
            let key = Key::new(text);
            let name = spelled(&key);
            assert_ne!(name, spelled(&rule));
            assert!(name.starts_with("tollgate:{") && name.ends_with("}::fw:1s"), "{name}");
            assert_eq!(name.matches(['{', '}']).count(), 2, "{name}");
            assert!(name.bytes().all(|byte| byte.is_ascii_graphic()), "{name}");
        }
        assert_eq!(spelled(&Key::new("user:42")), "tollgate:{user:42}::fw:1s");
        assert_ne!(spelled(&Key::new("a%3Ab")), spelled(&Key::new("a:b")));
    }

    #[test]
    fn a_long_key_made_by_hand_is_a_digest_in_names() {
        let spelled = |text: &str| name(&Key::new(text), "1/s", Algorithm::FixedWindow);
        let (most, long) = ("k".repeat(128), "k".repeat(129));
        assert_eq!(spelled(&most), format!("tollgate:{{{most}}}::fw:1s"));
        let digest = Digester::default().digest(&long);
        assert_eq!(spelled(&long), format!("tollgate:{{#{digest}}}::fw:1s"));
        assert_ne!(spelled(&format!("#{digest}")), spelled(&long), "a # is escaped");
        assert_ne!(spelled(&"k".repeat(130)), spelled(&long));
    }

    #[test]
    fn a_prefix_keeps_to_what_needs_no_escape() {
        for text in ["", "a{b}", "a*", "a b", "\u{e9}", &"p".repeat(65)] {
            let error = text.parse::<Prefix>().unwrap_err().to_string();
            assert!(error.contains("such as \"shop\""), "{error}");
        }
        let prefix: Prefix = "shop:eu-1".parse().unwrap();
        assert_eq!(prefix.names_of_rule("a*b"), b"shop:eu-1:{*}:a%2Ab:*");
    }
}
