//! The quota grammar: `LIMIT/PERIOD [burst N]`, several joined by `;`.
//!
//! One grammar for code, configuration, command line and API, forgiving in the ways people vary
//! (`100 per minute`, `5 / 15 min`, `1_000/day`) and in no others.

use std::error::Error;
use std::fmt;

use super::{Period, Quota};
use crate::time::Micros;

/// Unit names people type, each with its length in microseconds. Plurals are listed, not guessed.
const SPELLINGS: [(&[&str], u64); 7] = [
    (&["us", "µs", "usec", "usecs", "microsecond", "microseconds"], 1),
    (&["ms", "msec", "msecs", "millisecond", "milliseconds"], 1_000),
    (&["s", "sec", "secs", "second", "seconds"], 1_000_000),
    (&["m", "min", "mins", "minute", "minutes"], 60_000_000),
    (&["h", "hr", "hrs", "hour", "hours"], 3_600_000_000),
    (&["d", "day", "days"], 86_400_000_000),
    (&["w", "wk", "week", "weeks"], 7 * 86_400_000_000),
];

/// The longest text looked at; a quota worth reading is far shorter.
const MAX_TEXT: usize = 256;

/// Why a text is not a quota: it quotes the text and says what is accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseQuotaError {
    text: String,
    problem: Problem,
}

/// What is wrong with a quota's text.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Problem {
    TooLong,
    NoSlash,
    Number { what: &'static str, found: String },
    OutOfRange { what: &'static str, found: String },
    Unit { found: String },
    CalendarUnit { found: String, instead: &'static str },
    PeriodRange,
    AfterPeriod { found: String },
    Comma,
    NoQuota,
    SamePeriod { period: Period },
}

impl fmt::Display for ParseQuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = "us, ms, s, min, h, d or w";
        let most = Quota::MAX_LIMIT;
        write!(f, "quota {:?}: ", self.text)?;
        match &self.problem {
            Problem::TooLong => write!(f, "longer than {MAX_TEXT} bytes")?,
            Problem::NoSlash => f.write_str("no \"/\" between a limit and a period")?,
            Problem::Number { what, found } => {
                write!(f, "the {what} must be a whole number from 1 to {most}, not {found:?}")?;
            }
            Problem::OutOfRange { what, found } => {
                write!(f, "the {what} must be from 1 to {most}, not {found}")?;
            }
            Problem::Unit { found } => {
                write!(f, "unknown unit of time {found:?}; write {units}")?;
            }
            Problem::CalendarUnit { found, instead } => {
                write!(f, "a {found} has no fixed length; write {instead}")?;
            }
            Problem::PeriodRange => f.write_str("the period must be from 1ms to 3653d")?,
            Problem::AfterPeriod { found } => {
                write!(f, "{found:?} after the period; only \"burst N\" may follow it")?;
            }
            Problem::Comma => f.write_str(
                "a comma after the period; write a space before \"burst\", and \";\" between quotas",
            )?,
            Problem::NoQuota => {
                f.write_str("no quota on one side of a \";\"; leave the \";\" out, or add one")?;
            }
            Problem::SamePeriod { period } => {
                write!(f, "two quotas have the same period ({period}); each needs its own")?;
            }
        }
        f.write_str(" (examples: \"100/min\", \"5/15m\", \"10/s burst 50\")")
    }
}

impl Error for ParseQuotaError {}

/// Reads several quotas joined by `;`, each with a period of its own.
///
/// ```
/// let quotas = tollgate::quota::parse_list("10/s burst 20; 1000/day")?;
/// assert_eq!(quotas.len(), 2);
/// # Ok::<(), tollgate::ParseQuotaError>(())
/// ```
pub fn parse_list(text: &str) -> Result<Vec<Quota>, ParseQuotaError> {
    let mut quotas: Vec<Quota> = Vec::new();
    if text.contains(';') && text.split(';').any(|part| part.trim().is_empty()) {
        return Err(error(text, Problem::NoQuota));
    }
    for part in text.split(';') {
        let next = quota(part)?;
        if quotas.iter().any(|quota| quota.period() == next.period()) {
            let period = next.period();
            return Err(error(text, Problem::SamePeriod { period }));
        }
        quotas.push(next);
    }
    Ok(quotas)
}

/// Reads one quota.
pub(super) fn quota(text: &str) -> Result<Quota, ParseQuotaError> {
    let fail = |problem| error(text, problem);
    if text.len() > MAX_TEXT {
        return Err(fail(Problem::TooLong));
    }
    let lower = text.trim().to_lowercase();
    let (limit, rest) = split_rate(&lower).ok_or_else(|| fail(Problem::NoSlash))?;
    let limit = count("limit", limit).map_err(fail)?;
    let (period, burst) = match rest.split_once("burst") {
        None => (rest, None),
        Some((period, burst)) => (period, Some(count("burst", burst).map_err(fail)?)),
    };
    let period = read_period(period).map_err(fail)?;
    let out_of_range =
        |what, found: u64| fail(Problem::OutOfRange { what, found: found.to_string() });
    let quota = Quota::new(limit, period).ok_or_else(|| out_of_range("limit", limit))?;
    match burst {
        None => Ok(quota),
        Some(burst) => quota.with_burst(burst).ok_or_else(|| out_of_range("burst", burst)),
    }
}

fn error(text: &str, problem: Problem) -> ParseQuotaError {
    // Quoted back to whoever wrote it, so cut where it would only be noise.
    ParseQuotaError { text: text.trim().chars().take(80).collect(), problem }
}

/// The texts on either side of `/` or ` per `.
fn split_rate(text: &str) -> Option<(&str, &str)> {
    text.split_once('/').or_else(|| text.split_once(" per "))
}

/// A whole number with optional underscores, as in `1_000`.
fn count(what: &'static str, text: &str) -> Result<u64, Problem> {
    let text = text.trim();
    let digits = text.replace('_', "");
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Problem::Number { what, found: text.to_owned() });
    }
    // Only a number too large for 64 bits is left to fail here.
    digits.parse().map_err(|_| Problem::OutOfRange { what, found: text.to_owned() })
}

/// A period such as `min`, `15m` or `250 ms`; without a number it is one unit.
fn read_period(text: &str) -> Result<Period, Problem> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number = if number.is_empty() { 1 } else { count("period", number)? };
    let (unit, extra) = match unit.trim().split_once(char::is_whitespace) {
        None => (unit.trim(), ""),
        Some((unit, extra)) => (unit, extra.trim()),
    };
    if unit.contains(',') {
        return Err(Problem::Comma);
    }
    let micros = unit_micros(unit)?;
    if !extra.is_empty() {
        return Err(Problem::AfterPeriod { found: extra.to_owned() });
    }
    number
        .checked_mul(micros)
        .and_then(|micros| Period::new(Micros::new(micros)))
        .ok_or(Problem::PeriodRange)
}

/// The length of a named unit.
fn unit_micros(name: &str) -> Result<u64, Problem> {
    let found = SPELLINGS.iter().find(|(names, _)| names.contains(&name));
    if let Some((_, micros)) = found {
        return Ok(*micros);
    }
    Err(match name {
        "month" | "months" | "mo" => {
            Problem::CalendarUnit { found: "month".to_owned(), instead: "30d or 31d" }
        }
        "year" | "years" | "y" | "yr" => {
            Problem::CalendarUnit { found: "year".to_owned(), instead: "365d or 366d" }
        }
        _ => Problem::Unit { found: name.to_owned() },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_type() {
        for (text, limit, micros, burst) in [
            ("100/min", 100, 60_000_000, 100),
            ("5/15m", 5, 900_000_000, 5),
            ("10/s burst 50", 10, 1_000_000, 50),
            ("1/250ms", 1, 250_000, 1),
            ("1000/day", 1_000, 86_400_000_000, 1_000),
            ("1_000 per hour", 1_000, 3_600_000_000, 1_000),
            (" 3 / 2 weeks ", 3, 14 * 86_400_000_000, 3),
            ("7/400days", 7, 400 * 86_400_000_000, 7),
            ("9000000/ms", 9_000_000, 1_000, 9_000_000),
            ("60/Minute BURST 5", 60, 60_000_000, 5),
            ("60/min burst5", 60, 60_000_000, 5),
            ("2/1500us", 2, 1_500, 2),
        ] {
            let quota: Quota = text.parse().unwrap_or_else(|error| panic!("{error}"));
            let found = (quota.limit(), quota.period().as_micros(), quota.burst());
            assert_eq!(found, (limit, micros, burst), "{text}");
            assert_eq!(quota.to_string().parse(), Ok(quota), "{text} does not read back");
        }
    }

    #[test]
    fn refusals_quote_the_text_and_say_what_is_accepted() {
        for (text, expected) in [
            ("", "no \"/\""),
            ("100", "no \"/\""),
            ("0/min", "limit must be from 1"),
            ("-5/min", "whole number"),
            ("1.5/s", "whole number"),
            ("abc/min", "not \"abc\""),
            ("10/", "unknown unit of time \"\""),
            ("10/fortnight", "unknown unit of time \"fortnight\""),
            ("10/month", "write 30d"),
            ("10/year", "write 365d"),
            ("10/0s", "from 1ms to 3653d"),
            ("10/999us", "from 1ms to 3653d"),
            ("10/4000d", "from 1ms to 3653d"),
            ("10/99999999999999999d", "from 1ms to 3653d"),
            ("9007199254740992/s", "from 1 to 9007199254740991"),
            ("99999999999999999999999/s", "from 1 to 9007199254740991"),
            ("10/s burst 0", "burst must be from 1"),
            ("10/s burst", "the burst must be a whole number"),
            ("10/s maximum 5", "only \"burst N\" may follow"),
            ("10/s, burst 50", "a comma after the period; write a space before \"burst\""),
            ("10/s,burst 50", "a comma after the period"),
            ("10/s, 100/min", "\";\" between quotas"),
        ] {
            let error = text.parse::<Quota>().expect_err(text).to_string();
            assert!(error.contains(expected), "{text:?} gave {error:?}");
            assert!(error.contains(&format!("{:?}", text.trim())), "{error:?} does not quote it");
            assert!(error.contains("\"100/min\""), "{error:?} shows no example");
        }
        let long = format!("1/{}s", "0".repeat(300));
        assert!(long.parse::<Quota>().unwrap_err().to_string().contains("longer than 256"));
    }

    #[test]
    fn a_list_needs_distinct_periods() {
        assert_eq!(parse_list("10/s; 100/min").map(|quotas| quotas.len()), Ok(2));
        let error = parse_list("10/60s; 100/min").unwrap_err().to_string();
        assert!(error.contains("same period (min)"), "{error}");
        for text in ["5/15 min;", "; 10/s", "10/s; ;100/min", ";"] {
            let error = parse_list(text).unwrap_err().to_string();
            let expected = format!("quota {text:?}: no quota on one side of a \";\"; leave the");
            assert!(error.starts_with(&expected), "{error}");
        }
    }
}
