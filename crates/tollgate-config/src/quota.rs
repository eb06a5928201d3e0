//! Quotas as files have them. Whatever a file's quota may be, it is read here and nowhere else.

use tollgate::policy::Quotas;
use tollgate::{Algorithm, Meter, Quota};

use crate::calendar::{self, Unit, Whose};
use crate::fields;
use crate::nearest::nearest;
use crate::report::Problems;
use crate::source::Spanned;

/// What a calendar window is written with.
const CALENDAR: &str = "calendar-";

/// Whether a text speaks of calendar windows.
pub(crate) fn is_calendar(text: &str) -> bool {
    text.to_ascii_lowercase().contains(CALENDAR)
}

/// Reads the quotas of one text and sees that the algorithm can meter them. Calendar windows are
/// those of `whose`.
pub(crate) fn read(
    text: &Spanned<String>,
    algorithm: Algorithm,
    whose: &Whose,
    problems: &mut Problems,
) -> Option<Quotas> {
    // Of a quota that is not there the library says more.
    let complete = text.value.split(';').all(|part| !part.trim().is_empty());
    let quotas = match is_calendar(&text.value) && complete {
        true => read_calendar(text, whose, problems)?,
        false => Quotas::from(&text.value),
    };
    match quotas.parsed() {
        Err(error) => tell(text, &error.to_string(), " (examples", problems),
        Ok(list) => {
            for quota in list {
                if let Err(error) = Meter::new(*quota, algorithm) {
                    tell(text, &error.to_string(), ": ", problems);
                }
            }
        }
    }
    Some(quotas)
}

/// Reads quotas of which at least one is by the calendar; those that are not may stand beside them.
fn read_calendar(text: &Spanned<String>, whose: &Whose, problems: &mut Problems) -> Option<Quotas> {
    let mut quotas: Vec<Quota> = Vec::new();
    for part in text.value.split(';') {
        let lower = part.to_ascii_lowercase();
        let (plain, unit) = match lower.split_once(CALENDAR) {
            None => (part.to_owned(), None),
            // The limit before it is read as that of any other quota.
            Some((limit, unit)) => (format!("{limit}day"), Some(unit.trim())),
        };
        let quota = match plain.parse::<Quota>() {
            Ok(quota) => quota,
            Err(error) => {
                tell(text, &error.to_string(), " (examples", problems);
                return None;
            }
        };
        let quota = match unit {
            None => Some(quota),
            Some(unit) => by_calendar(text, quota, unit, whose, problems),
        };
        quotas.push(quota?);
    }
    Some(quotas.into())
}

/// The quota with the windows of a unit instead of its own.
fn by_calendar(
    text: &Spanned<String>,
    quota: Quota,
    unit: &str,
    whose: &Whose,
    problems: &mut Problems,
) -> Option<Quota> {
    let names = Unit::NAMED.map(|(name, _)| name);
    let found = Unit::NAMED.iter().find(|(name, _)| *name == unit);
    let Some((_, unit)) = found else {
        let message = format!("there is no calendar window {:?}", fields::shortened(unit));
        let meant = nearest(unit, names).unwrap_or("day");
        let help = format!(
            "write {}/{CALENDAR}{meant}; there are {CALENDAR}{}",
            quota.limit(),
            names.join(&format!(", {CALENDAR}")),
        );
        problems.error(text.span, message, help);
        return None;
    };
    // A zone that does not exist has been complained about where it is written.
    let period = calendar::period(*unit, whose);
    let period = period.or_else(|| calendar::period(*unit, &Whose::default()));
    Quota::new(quota.limit(), period?)
}

/// Passes on what the library says, whose help follows a semicolon or, without one, `otherwise`.
fn tell(text: &Spanned<String>, said: &str, otherwise: &str, problems: &mut Problems) {
    match said.rsplit_once(otherwise) {
        Some((message, help)) if !message.contains("; ") && !help.contains("; ") => {
            let help = match otherwise {
                " (examples" => format!("examples{}", help.trim_end_matches(')')),
                _ => help.to_owned(),
            };
            problems.error(text.span, message, help);
        }
        _ => problems.told(text.span, said),
    }
}
