//! Texts that settings come from, and places in them.

use std::fmt;

/// A text settings were read from: a file, an environment variable, a flag. It may hold secrets, so
/// that `Debug` tells only how long it is.
#[derive(Clone, PartialEq, Eq)]
pub struct Source {
    name: String,
    text: String,
}

impl Source {
    /// A text under the name people know it by.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: name.into(), text: text.into() }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The line and the column of a byte, both counted from one, the column in characters.
    pub(crate) fn position(&self, at: usize) -> (usize, usize) {
        let before = self.text.get(..at).unwrap_or(&self.text);
        let line = before.matches('\n').count() + 1;
        let start = before.rfind('\n').map_or(0, |end| end + 1);
        (line, before[start..].chars().count() + 1)
    }

    /// The line a byte is in, without its end, and where it starts.
    pub(crate) fn line_at(&self, at: usize) -> (usize, &str) {
        let at = at.min(self.text.len());
        let start = self.text[..at].rfind('\n').map_or(0, |end| end + 1);
        let line = self.text[start..].lines().next().unwrap_or("");
        (start, line)
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Source({:?}, {} bytes)", self.name, self.text.len())
    }
}

/// A piece of one of several sources, in bytes. Always on character boundaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span {
    pub(crate) source: usize,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Span {
    /// A piece of `text`, which is the source of this number; cut to what there is of it.
    pub(crate) fn within(source: usize, text: &str, start: usize, end: usize) -> Self {
        let start = text.floor_char_boundary(start.min(text.len()));
        let end = text.ceil_char_boundary(end.clamp(start, text.len()));
        Self { source, start, end }
    }
}

/// A value with the place it was written at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spanned<T> {
    pub(crate) value: T,
    pub(crate) span: Span,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_from_one_in_characters() {
        let source = Source::new("x", "ab\ncdé f\n");
        for (at, expected) in [(0, (1, 1)), (2, (1, 3)), (3, (2, 1)), (8, (2, 5)), (99, (3, 1))] {
            assert_eq!(source.position(at), expected, "{at}");
        }
        assert_eq!(source.line_at(5), (3, "cdé f"));
        assert_eq!(source.line_at(99), (10, ""));
    }
}
