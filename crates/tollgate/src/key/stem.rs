//! What the keys of one rule have in common.

use super::text::Push;
use super::{Key, KeyPart, PLAIN, PlainValue, WHOLE, escape, push_value, short};

/// The keys of one rule, as far as they are the same for every subject: spelled once, so that only
/// values are spelled per charge.
#[derive(Clone, Debug)]
pub(crate) struct Stem {
    // The rule's name, and the first axis if there is one.
    start: Key<'static>,
    // What stands before each value but the first.
    pieces: Vec<Box<[u8]>>,
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
        let mut start = Key::of_rule(rule, [] as [(&str, KeyPart<'_>); 0]);
        let (mut pieces, mut place_of_near) = (Vec::new(), None);
        for (place, axis) in axes.into_iter().enumerate() {
            if near == Some(axis) {
                place_of_near = Some(place);
            }
            let mut piece = vec![b':'];
            escape(axis.as_bytes(), &PLAIN, &mut piece);
            match place {
                0 => start.text.push(&piece),
                _ => pieces.push(piece.into()),
            }
        }
        Self { start, pieces, near: place_of_near }
    }

    /// A key as all start; to be finished by [adding](Stem::add) a value for each axis, in order.
    #[inline(always)]
    pub(crate) fn start(&self) -> Key<'static> {
        Key { text: self.start.text.to_extend(), scope: self.start.scope, tag: WHOLE }
    }

    /// Adds the value of the axis at `place` to a key.
    #[inline(always)]
    pub(crate) fn add(&self, key: &mut Key<'static>, place: usize, value: KeyPart<'_>) {
        // An axis begins after a separator, the first after the rule's name.
        let mut start = 1 + usize::from(key.scope);
        if let Some(piece) = place.checked_sub(1).and_then(|place| self.pieces.get(place)) {
            start = 1 + key.text.len();
            key.text.push(piece);
        }
        push_value(value, &mut key.text);
        self.place_near(key, place, start);
    }

    /// Of the same keys where there is one axis and always a value, which is then
    /// [all that is added](Stem::add_only).
    pub(crate) fn up_to_value(mut self) -> Self {
        self.start.text.push(b"=");
        self
    }

    /// Adds the value of the only axis to a key that starts [as far as that](Stem::up_to_value).
    #[inline(always)]
    pub(crate) fn add_only(&self, key: &mut Key<'static>, value: PlainValue<'_>) {
        match value {
            PlainValue::Bytes(value) => escape(value, &PLAIN, &mut key.text),
            PlainValue::Word { text, length } => key.text.push_word(text, length),
        }
        self.place_near(key, 0, 1 + usize::from(key.scope));
    }

    /// Has a key placed by the axis at `place`, which begins at `start`, if that is how it is placed.
    #[inline(always)]
    fn place_near(&self, key: &mut Key<'static>, place: usize, start: usize) {
        if self.near == Some(place) {
            key.tag = short(start..key.text.len()).unwrap_or(WHOLE);
        }
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
                let mut key = stem.start();
                values().enumerate().for_each(|(place, value)| stem.add(&mut key, place, value));
                let pairs = axes.iter().copied().zip(values());
                assert_eq!(key, Key::of_rule_near("per:rule", pairs, near));
            }
        }
    }

    #[test]
    fn a_value_in_a_word_is_spelled_as_in_memory() {
        let value = "255.255.255.255";
        // Of every length that a key with a value has room for in place, and of some beyond.
        for rule in (1..40).map(|length| "r".repeat(length)) {
            for (length, near) in (0..=value.len()).flat_map(|len| [(len, None), (len, Some("ip"))])
            {
                let value = &value[..length];
                let mut word = [0; 16];
                word[..length].copy_from_slice(value.as_bytes());
                let word = PlainValue::Word { text: u128::from_le_bytes(word), length };
                let stem = Stem::new(&rule, ["ip"], near).up_to_value();
                for value_of_both in [word, PlainValue::Bytes(value.as_bytes())] {
                    let mut key = stem.start();
                    stem.add_only(&mut key, value_of_both);
                    assert_eq!(key, Key::of_rule_near(&rule, [("ip", value)], near));
                }
            }
        }
    }
}
