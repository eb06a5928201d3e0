//! Lists in headers, whose separators may stand in quotes.

/// The parts between separators that stand outside of quotes.
pub(crate) fn split(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let (mut quoted, mut escaped) = (false, false);
    text.split(move |c: char| {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ => return !quoted && c == separator,
        }
        false
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_in_quotes_separate_nothing() {
        let parts: Vec<&str> = split(r#"a;"b;\";c";d"#, ';').collect();
        assert_eq!(parts, ["a", r#""b;\";c""#, "d"]);
    }
}
