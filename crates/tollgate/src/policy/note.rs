//! What is noted down beside a rule.

use std::any::Any;
use std::fmt;
use std::sync::OnceLock;

/// A place for one note of whatever kind, written once. It is no part of what the rule says: rules
/// with different notes are equal, and copies start without one, for they may be changed.
#[derive(Default)]
pub(super) struct Note(OnceLock<Box<dyn Any + Send + Sync>>);

impl Note {
    /// The note, made if there is none; `None` if there is one of another kind.
    pub(super) fn get_or_make<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Option<&T> {
        self.0.get_or_init(|| Box::new(make())).downcast_ref()
    }
}

impl Clone for Note {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for Note {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Note {}

impl fmt::Debug for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Note").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use crate::Rule;

    #[test]
    fn a_rule_keeps_its_first_note_and_equals_one_without() {
        let (rule, other) = (Rule::new("r"), Rule::new("r"));
        assert_eq!(rule.note(|| 1_u8), Some(&1));
        assert_eq!(rule.note(|| 2_u8), Some(&1));
        assert_eq!(rule.note(|| "of another kind"), None);
        assert_eq!(rule, other);
    }

    #[test]
    fn a_copy_of_a_rule_starts_without_a_note() {
        let rule = Rule::new("r");
        assert_eq!(rule.note(|| 1_u8), Some(&1));
        assert_eq!(rule.clone().note(|| 2_u8), Some(&2));
    }
}
