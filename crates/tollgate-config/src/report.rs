//! What is wrong with settings: all of it, where, and what to write instead.

use std::error::Error;
use std::fmt;

use crate::secrets::{self, logins, without_logins};
use crate::source::{Source, Span};
use crate::tree::Format;

/// Problems shown before the rest is only counted: enough for any file somebody is still writing,
/// and a bound for one that nobody wrote.
const MAX_SHOWN: usize = 100;

/// Problems kept at all. Whatever is searched for among them is found soon.
const MAX_KEPT: usize = 1_000;

/// Characters of a line that are shown; the rest of a longer one is cut on either side.
const MAX_LINE: usize = 160;

/// Whether a problem keeps settings from being used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// It does.
    Error,
    /// It does not, but something is probably not as meant.
    Warning,
}

impl Severity {
    /// The word it is shown with.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) severity: Severity,
    pub(crate) message: String,
    pub(crate) help: Option<String>,
    pub(crate) span: Option<Span>,
}

/// Problems while they are collected.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    list: Vec<Problem>,
    /// Errors beyond those kept.
    dropped: usize,
    /// Texts that are not shown, whatever is wrong around them.
    secrets: Vec<Span>,
    /// Whether YAML is spoken, where a field is followed by a colon.
    yaml: bool,
}

impl Problems {
    /// Keeps a text out of everything that is shown.
    pub(crate) fn hide(&mut self, span: Span) {
        self.secrets.push(span);
    }

    /// What is wrong here, and what to write instead.
    pub(crate) fn error(
        &mut self,
        span: Span,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.push(Severity::Error, Some(span), message.into(), help.into());
    }

    /// What is probably not meant here, and what to write instead.
    pub(crate) fn warn(&mut self, span: Span, message: impl Into<String>, help: impl Into<String>) {
        self.push(Severity::Warning, Some(span), message.into(), help.into());
    }

    /// What is wrong with no place in particular.
    pub(crate) fn nowhere(&mut self, message: impl Into<String>, help: impl Into<String>) {
        self.push(Severity::Error, None, message.into(), help.into());
    }

    /// A message as the library writes them: what is wrong, a semicolon, what to write.
    pub(crate) fn told(&mut self, span: Span, text: &str) {
        let text = without_logins(text);
        let (message, help) = text.rsplit_once("; ").unwrap_or((&text, ""));
        self.error(span, message, help);
    }

    /// From now on what to write is said in the words of this format.
    pub(crate) fn speak(&mut self, format: Format) {
        self.yaml = format == Format::Yaml;
    }

    /// Whether anything is wrong within `span`.
    pub(crate) fn touch(&self, span: Span) -> bool {
        self.spans().any(|found| {
            found.source == span.source && span.start <= found.start && found.end <= span.end
        })
    }

    /// The places of all that are about one.
    pub(crate) fn spans(&self) -> impl Iterator<Item = Span> {
        self.list.iter().filter_map(|problem| problem.span)
    }

    /// Whether no more are kept, so that looking for more is a waste.
    pub(crate) fn is_full(&self) -> bool {
        self.list.len() == MAX_KEPT
    }

    pub(crate) fn any_errors(&self) -> bool {
        self.dropped > 0 || self.list.iter().any(|problem| problem.severity == Severity::Error)
    }

    /// The problems with the texts they are about, in the order of those.
    pub(crate) fn into_report(mut self, sources: Vec<Source>) -> Report {
        self.list.sort_by_key(|problem| problem.span.map(|span| (span.source, span.start)));
        self.list.dedup();
        let Self { list: problems, dropped, mut secrets, .. } = self;
        for secret in &mut secrets {
            *secret = secrets::with_what_is_beside(*secret, &sources[secret.source]);
        }
        // Sorted and apart, so that the last one before a place is the only one that can hold it.
        secrets.sort_unstable();
        secrets.dedup_by(|next, kept| {
            let within = next.source == kept.source && next.start <= kept.end;
            kept.end = if within { kept.end.max(next.end) } else { kept.end };
            within
        });
        Report { sources, problems, dropped, secrets }
    }

    fn push(&mut self, severity: Severity, span: Option<Span>, message: String, help: String) {
        if self.list.len() == MAX_KEPT {
            self.dropped += usize::from(severity == Severity::Error);
            return;
        }
        let help = (!help.is_empty()).then_some(help);
        let help = help.map(|help| match self.yaml {
            true => help.replace(" = ", ": "),
            false => help,
        });
        self.list.push(Problem { severity, message, help, span });
    }
}

/// Everything that is wrong with some settings, or only doubtful; printed as text for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    sources: Vec<Source>,
    problems: Vec<Problem>,
    dropped: usize,
    secrets: Vec<Span>,
}

/// One thing that is wrong, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding<'r> {
    /// Whether it keeps the settings from being used.
    pub severity: Severity,
    /// What is wrong, in one lowercase sentence.
    pub message: &'r str,
    /// What to write instead.
    pub help: Option<&'r str>,
    /// Where; `None` if it is about no place in particular.
    pub place: Option<Place<'r>>,
}

/// A place in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'r> {
    /// The file, variable or flag.
    pub source: &'r str,
    /// Counted from one.
    pub line: usize,
    /// Counted from one, in characters.
    pub column: usize,
}

impl Report {
    /// A report of one error about no place in particular.
    pub(crate) fn of(message: impl Into<String>, help: impl Into<String>) -> Self {
        let mut problems = Problems::default();
        problems.nowhere(message, help);
        problems.into_report(Vec::new())
    }

    /// Everything found, in the order of the texts.
    pub fn findings(&self) -> impl ExactSizeIterator<Item = Finding<'_>> {
        self.problems.iter().map(|problem| Finding {
            severity: problem.severity,
            message: &problem.message,
            help: problem.help.as_deref(),
            place: problem.span.map(|span| {
                let source = &self.sources[span.source];
                let (line, column) = source.position(span.start);
                Place { source: source.name(), line, column }
            }),
        })
    }

    /// How many errors and how many warnings.
    pub fn counts(&self) -> (usize, usize) {
        let errors = self.findings().filter(|found| found.severity == Severity::Error).count();
        (errors + self.dropped, self.problems.len() - errors)
    }

    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }
}

impl fmt::Display for Report {
    /// Each problem with its line and a caret under the text it is about, a blank line between two.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().take(MAX_SHOWN).enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            writeln!(f, "{}: {}", problem.severity.name(), problem.message)?;
            let margin = match problem.span {
                Some(span) => self.snippet(f, span)?,
                None => 0,
            };
            if let Some(help) = &problem.help {
                writeln!(f, "{:margin$} = help: {help}", "")?;
            }
        }
        match self.problems.len().saturating_sub(MAX_SHOWN) + self.dropped {
            0 => Ok(()),
            more => writeln!(f, "\nand {more} more"),
        }
    }
}

impl Error for Report {}

impl Report {
    /// The line a span starts in, with carets under what it covers of it; says how wide the margin
    /// is.
    fn snippet(&self, f: &mut fmt::Formatter<'_>, span: Span) -> Result<usize, fmt::Error> {
        let source = &self.sources[span.source];
        let (number, column) = source.position(span.start);
        let (start, line) = source.line_at(span.start);
        let end = span.end.min(start + line.len());
        let covered = source.text().get(span.start..end).map_or(0, |text| text.chars().count());
        let margin = number.to_string().len();
        writeln!(f, "{:margin$}--> {}:{number}:{column}", "", source.name())?;
        writeln!(f, "{:margin$} |", "")?;
        let logins = logins(line);
        let is_hidden = |at: usize| {
            self.is_secret(span.source, start + at) || logins.iter().any(|it| it.contains(&at))
        };
        let skipped = column.saturating_sub(MAX_LINE / 2);
        let shown = line.char_indices().skip(skipped).take(MAX_LINE);
        let shown = shown.map(|(at, c)| match is_hidden(at) {
            true => '*',
            false => printable(c),
        });
        writeln!(f, "{number} | {}", shown.collect::<String>().trim_end())?;
        let indent = column - 1 - skipped.min(column - 1);
        let carets = "^".repeat(covered.clamp(1, MAX_LINE.saturating_sub(indent).max(1)));
        writeln!(f, "{:margin$} | {:indent$}{carets}", "", "")?;
        Ok(margin)
    }

    fn is_secret(&self, source: usize, at: usize) -> bool {
        let before =
            self.secrets.partition_point(|secret| (secret.source, secret.start) <= (source, at));
        let last = before.checked_sub(1).map(|index| self.secrets[index]);
        last.is_some_and(|secret| secret.source == source && at < secret.end)
    }
}

/// A character as it is shown, one column wide: a tab or a control character would move the carets
/// or the reader's terminal.
fn printable(c: char) -> char {
    match c {
        '\t' => ' ',
        c if c.is_control() => '\u{fffd}',
        c => c,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(text: &str, start: usize, end: usize) -> String {
        let mut problems = Problems::default();
        problems.error(Span::within(0, text, start, end), "no such thing", "write another");
        problems.into_report(vec![Source::new("a.toml", text)]).to_string()
    }

    #[test]
    fn carets_stand_under_what_they_are_about() {
        assert_eq!(
            report("a = 1\n\té = \"x\"\n", 7, 9),
            "error: no such thing\n --> a.toml:2:2\n  |\n2 |  é = \"x\"\n  |  ^\n  = help: write another\n"
        );
    }

    #[test]
    fn a_span_over_several_lines_is_marked_in_the_first_and_one_at_the_end_by_one_caret() {
        assert!(report("a = [\n1]", 4, 8).contains("1 | a = [\n  |     ^\n"));
        assert!(report("a = ", 4, 4).contains("1 | a =\n  |     ^\n"));
    }

    #[test]
    fn long_lines_are_cut_around_the_place() {
        let text = format!("{}b{}", "a".repeat(1_000), "c".repeat(1_000));
        let shown = report(&text, 1_000, 1_001);
        let longest = shown.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(longest < MAX_LINE + 10, "{shown}");
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[3].find('b'), lines[4].find('^'));
    }
}
