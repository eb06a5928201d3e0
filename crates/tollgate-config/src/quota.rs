//! Quotas as files have them. Whatever a file's quota may be, it is read here and nowhere else.

use tollgate::policy::Quotas;
use tollgate::{Algorithm, Meter};

use crate::report::Problems;
use crate::source::Spanned;

/// What a calendar window is written with.
const CALENDAR: &str = "calendar-";

/// Reads the quotas of one text and sees that the algorithm can meter them.
pub(crate) fn read(
    text: &Spanned<String>,
    algorithm: Algorithm,
    problems: &mut Problems,
) -> Option<Quotas> {
    if text.value.to_ascii_lowercase().contains(CALENDAR) {
        let help = "write a period of fixed length, such as \"1000/day\"; with algorithm = \
                    \"fixed-window\" a day starts at midnight UTC";
        problems.error(text.span, "calendar windows are not supported yet", help);
        return None;
    }
    let quotas = Quotas::from(&text.value);
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
