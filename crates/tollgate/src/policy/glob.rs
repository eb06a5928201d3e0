//! Patterns over values.

use std::error::Error;
use std::fmt;
use std::str::FromStr;

/// A pattern a value matches whole.
///
/// | written | matches |
/// |---|---|
/// | `*` | any run of characters, none included; it crosses `/`, so `/api/*` matches `/api/a/b` |
/// | `?` | exactly one character |
/// | `\*`, `\?`, `\\` | the character itself |
/// | anything else | itself, in the same case |
///
/// Matching never goes back over a `*`: it takes at most time proportional to the value times the
/// longest run between two stars, whatever the value is.
///
/// ```
/// use tollgate::Glob;
///
/// let glob: Glob = "/api/*/items/?".parse()?;
/// assert!(glob.matches("/api/v1/shop/items/7"));
/// assert!(!glob.matches("/api/v1/items/77"));
/// # Ok::<(), tollgate::policy::GlobError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    text: Box<str>,
    shape: Shape,
}

/// The cheapest way to match.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Shape {
    /// No wildcard at all.
    Literal(Box<str>),
    /// `*`
    Any,
    /// `text*`
    Prefix(Box<str>),
    /// `*text`
    Suffix(Box<str>),
    /// Everything else: what stands between the stars, the first run at the start of the value, the
    /// last at its end.
    Runs(Box<[Run]>),
}

/// What stands between two stars.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Run {
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    One,
}

impl Glob {
    /// The longest pattern, in bytes; it bounds the time of a match.
    pub const MAX_LEN: usize = 512;

    /// Whether the whole of `value` matches.
    #[inline]
    pub fn matches(&self, value: &str) -> bool {
        match &self.shape {
            Shape::Literal(text) => **text == *value,
            Shape::Any => true,
            Shape::Prefix(text) => value.starts_with(&**text),
            Shape::Suffix(text) => value.ends_with(&**text),
            Shape::Runs(runs) => runs_match(runs, value),
        }
    }

    /// The pattern as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The one value that matches, if there is no wildcard.
    pub fn literal(&self) -> Option<&str> {
        match &self.shape {
            Shape::Literal(text) => Some(text),
            _ => None,
        }
    }

    /// What every matching value starts with.
    pub(super) fn head(&self) -> &str {
        match &self.shape {
            Shape::Literal(text) | Shape::Prefix(text) => text,
            Shape::Any | Shape::Suffix(_) => "",
            Shape::Runs(runs) => match runs[0].pieces.first() {
                Some(Piece::Text(text)) => text,
                Some(Piece::One) | None => "",
            },
        }
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl FromStr for Glob {
    type Err = GlobError;

    fn from_str(text: &str) -> Result<Self, GlobError> {
        if text.is_empty() {
            return Err(GlobError::Empty);
        }
        if text.len() > Self::MAX_LEN {
            return Err(GlobError::TooLong);
        }
        Ok(Self { text: text.into(), shape: shape(read_runs(text)?) })
    }
}

/// Why a text is no pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GlobError {
    /// Nothing is written.
    Empty,
    /// Longer than [`Glob::MAX_LEN`].
    TooLong,
    /// A backslash before a character that needs none, or at the end.
    Escape {
        /// The pattern.
        pattern: String,
    },
}

impl fmt::Display for GlobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the pattern is empty; write \"*\" for any value"),
            Self::TooLong => write!(f, "the pattern is longer than {} bytes", Glob::MAX_LEN),
            Self::Escape { pattern } => write!(
                f,
                "in pattern {pattern:?} a \\ must be followed by *, ? or \\; \
                 write \\\\ for the character itself"
            ),
        }
    }
}

impl Error for GlobError {}

/// Splits a pattern at its stars.
fn read_runs(text: &str) -> Result<Vec<Run>, GlobError> {
    let mut runs = vec![Run::default()];
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let starred = runs.len() > 1;
        let run = runs.last_mut().expect("there is always a run");
        match c {
            // Stars in a row are one.
            '*' if starred && run.pieces.is_empty() => {}
            '*' => runs.push(Run::default()),
            '?' => run.pieces.push(Piece::One),
            '\\' => match chars.next() {
                Some(c @ ('*' | '?' | '\\')) => run.push(c),
                _ => {
                    let pattern = text.to_owned();
                    return Err(GlobError::Escape { pattern });
                }
            },
            c => run.push(c),
        }
    }
    Ok(runs)
}

/// Finds the cheapest shape.
fn shape(runs: Vec<Run>) -> Shape {
    let texts: Option<Vec<&str>> = runs.iter().map(Run::text).collect();
    match texts.as_deref() {
        Some([text]) => Shape::Literal((*text).into()),
        Some(["", ""]) => Shape::Any,
        Some([text, ""]) => Shape::Prefix((*text).into()),
        Some(["", text]) => Shape::Suffix((*text).into()),
        _ => Shape::Runs(runs.into()),
    }
}

fn runs_match(runs: &[Run], value: &str) -> bool {
    let Some((first, rest)) = runs.split_first() else {
        return false;
    };
    let Some(value) = first.strip_start(value) else {
        return false;
    };
    let Some((last, middle)) = rest.split_last() else {
        return value.is_empty();
    };
    let Some(mut value) = last.strip_end(value) else {
        return false;
    };
    // Each run as early as it goes: an earlier place leaves more for those that follow.
    for run in middle {
        match run.strip_through(value) {
            Some(rest) => value = rest,
            None => return false,
        }
    }
    true
}

impl Run {
    fn push(&mut self, c: char) {
        match self.pieces.last_mut() {
            Some(Piece::Text(text)) => text.push(c),
            _ => self.pieces.push(Piece::Text(c.into())),
        }
    }

    /// The run as text, if it is only that.
    fn text(&self) -> Option<&str> {
        match &*self.pieces {
            [] => Some(""),
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// What is left after the run at the start of `value`.
    fn strip_start<'v>(&self, value: &'v str) -> Option<&'v str> {
        self.pieces.iter().try_fold(value, |value, piece| {
            let mut chars = value.chars();
            match piece {
                Piece::Text(text) => value.strip_prefix(text.as_str()),
                Piece::One => chars.next().map(|_| chars.as_str()),
            }
        })
    }

    /// What is left before the run at the end of `value`.
    fn strip_end<'v>(&self, value: &'v str) -> Option<&'v str> {
        self.pieces.iter().rev().try_fold(value, |value, piece| {
            let mut chars = value.chars();
            match piece {
                Piece::Text(text) => value.strip_suffix(text.as_str()),
                Piece::One => chars.next_back().map(|_| chars.as_str()),
            }
        })
    }

    /// What is left after the earliest place of the run in `value`.
    fn strip_through<'v>(&self, value: &'v str) -> Option<&'v str> {
        if let Some(text) = self.text() {
            return value.find(text).map(|at| &value[at + text.len()..]);
        }
        let mut starts = value.char_indices().map(|(at, _)| at);
        starts.find_map(|at| self.strip_start(&value[at..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, value: &str) -> bool {
        pattern.parse::<Glob>().unwrap().matches(value)
    }

    #[test]
    fn patterns_match_whole_values() {
        for (pattern, yes, no) in [
            ("GET", &["GET"][..], &["get", "GETS", ""][..]),
            ("*", &["", "x", "/a/b"], &[]),
            ("**", &["", "x"], &[]),
            ("/api/*", &["/api/", "/api/a/b"], &["/api", "/apix"]),
            ("*.example.com", &["a.example.com"], &["example.com"]),
            ("a*c", &["ac", "abc", "abcc"], &["ab", "a", "cab"]),
            ("ab*ba", &["abba", "ab-ba"], &["aba", "ab"]),
            ("a?c", &["abc", "aéc", "a?c"], &["ac", "abbc"]),
            ("?", &["x", "日"], &["", "xy"]),
            ("*?", &["x", "xy"], &[""]),
            ("?*?", &["xy", "xyz"], &["x", ""]),
            ("*a?b*c?", &["xa-b-cd", "aab aéb c日"], &["a-b-c", "ab-cd"]),
            ("*ab*ab*", &["abab", "xabxabx"], &["ab", "aba"]),
            (r"a\*b", &["a*b"], &["aXb", r"a\*b"]),
            (r"\\\?*", &[r"\?", r"\?x"], &[r"\x"]),
            ("*é*", &["caféine"], &["cafe"]),
        ] {
            for value in yes {
                assert!(matches(pattern, value), "{pattern} should match {value:?}");
            }
            for value in no {
                assert!(!matches(pattern, value), "{pattern} should not match {value:?}");
            }
        }
    }

    /// The definition, spelled out: exponential, and obviously right.
    fn model(pattern: &[char], value: &[char]) -> bool {
        match (pattern.split_first(), value.split_first()) {
            (None, None) => true,
            (Some(('*', rest)), _) if model(rest, value) => true,
            (Some(('*', _)), Some((_, value))) => model(pattern, value),
            (Some(('?', pattern)), Some((_, value))) => model(pattern, value),
            (Some((p, pattern)), Some((v, value))) => p == v && model(pattern, value),
            _ => false,
        }
    }

    #[test]
    fn every_short_pattern_agrees_with_the_definition() {
        let words = |alphabet: &[char], longest| {
            let mut words = vec![String::new()];
            let mut from = 0;
            for _ in 0..longest {
                let to = words.len();
                for index in from..to {
                    let word = words[index].clone();
                    words.extend(alphabet.iter().map(|c| format!("{word}{c}")));
                }
                from = to;
            }
            words
        };
        let values = words(&['a', 'é'], 6);
        for pattern in &words(&['a', 'é', '*', '?'], 5)[1..] {
            let glob: Glob = pattern.parse().unwrap();
            let chars: Vec<char> = pattern.chars().collect();
            for value in &values {
                let expected = model(&chars, &value.chars().collect::<Vec<_>>());
                assert_eq!(glob.matches(value), expected, "{pattern} on {value}");
            }
        }
    }

    #[test]
    fn a_pattern_made_to_backtrack_does_not() {
        // Exponential for a matcher that tries every split: 2^100 of them.
        let pattern = "a*".repeat(100) + "b";
        assert!(!matches(&pattern, &"a".repeat(10_000)));
    }

    #[test]
    fn the_head_is_what_every_match_starts_with() {
        for (pattern, head) in [("/a/*", "/a/"), ("x", "x"), ("*x", ""), ("a?b", "a"), ("?b", "")] {
            assert_eq!(pattern.parse::<Glob>().unwrap().head(), head);
        }
    }

    #[test]
    fn refusals_say_what_to_write() {
        for (pattern, hint) in [
            ("", "write \"*\""),
            (r"a\b", r"write \\"),
            (r"a\", r"write \\"),
            (&"a".repeat(513), "512 bytes"),
        ] {
            let error = pattern.parse::<Glob>().unwrap_err().to_string();
            assert!(error.contains(hint), "{error}");
        }
    }
}
