//! What the keys of one rule have in common.

use super::{Key, KeyPart, PLAIN, WHOLE, escape, push_value, short};
use std::borrow::Cow;

/// The keys of one rule, as far as they are the same for every subject: spelled once, so that only
/// values are spelled per charge.
#[derive(Clone, Debug)]
pub(crate) struct Stem {
    // What stands before each value, and the name alone in front where there is no axis.
    pieces: Vec<Box<[u8]>>,
    // How many bytes of the first piece name the rule.
    scope: u16,
    // The place of the axis by which buckets are placed near others.
    near: Option<usize>,
}

impl Stem {
    /// Of the keys that [`Key::of_rule_near`] makes of this rule and these axes.
    pub(crate) fn new<'n>(
        rule: &str,
        axes: impl IntoIterator<Item = &'n str>,
        near: Option<&str>,
    ) -> Self {
        let mut piece = Vec::new();
        escape(rule.as_bytes(), &PLAIN, &mut piece);
        // Rule names are short by construction; a longer one would only lose its scope.
        let scope = u16::try_from(piece.len()).unwrap_or(u16::MAX);
        let (mut pieces, mut place_of_near) = (Vec::new(), None);
        for axis in axes {
            if near == Some(axis) {
                place_of_near = Some(pieces.len());
            }
            piece.push(b':');
            escape(axis.as_bytes(), &PLAIN, &mut piece);
            pieces.push(std::mem::take(&mut piece).into());
        }
        if pieces.is_empty() {
            pieces.push(piece.into());
        }
        Self { pieces, scope, near: place_of_near }
    }

    /// The key of a subject with these values, one for each axis.
    pub(crate) fn key<'v>(&self, values: impl IntoIterator<Item = KeyPart<'v>>) -> Key<'static> {
        let mut text = Vec::with_capacity(64);
        let mut tag = WHOLE;
        let mut values = values.into_iter();
        for (place, piece) in self.pieces.iter().enumerate() {
            // An axis begins after a separator, the first after the rule's name.
            let start = 1 + if place == 0 { usize::from(self.scope) } else { text.len() };
            text.extend_from_slice(piece);
            if let Some(value) = values.next() {
                push_value(value, &mut text);
            }
            if self.near == Some(place) {
                tag = short(start..text.len()).unwrap_or(WHOLE);
            }
        }
        Key { text: Cow::Owned(text), scope: self.scope, tag }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Digester;

    #[test]
    fn a_stem_spells_what_is_spelled_without_it() {
        let digest = Digester::default().digest("42");
        let parts = [
            KeyPart::Plain("a:b=c"),
            KeyPart::Missing,
            KeyPart::Hashed(digest),
            KeyPart::Plain(""),
            KeyPart::Plain("192.0.2.7"),
        ];
        let axes = ["ip", "a:b", "tenant"];
        for count in 0..=axes.len() {
            for (first, near) in (0..parts.len()).flat_map(|first| {
                [None, Some("ip"), Some("a:b"), Some("tenant"), Some("x")].map(|near| (first, near))
            }) {
                let axes = &axes[..count];
                let values = || parts.iter().copied().cycle().skip(first).take(count);
                let stem = Stem::new("per:rule", axes.iter().copied(), near);
                let pairs = axes.iter().copied().zip(values());
                assert_eq!(stem.key(values()), Key::of_rule_near("per:rule", pairs, near));
            }
        }
    }
}
