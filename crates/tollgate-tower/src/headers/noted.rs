//! One limit of a rule in the eleventh draft, as far as it is the same in every answer.

use http::HeaderValue;
use tollgate::{Meter, Outcome, Rule};

use super::name::push_name;
use super::{Text, push_limit, push_standing};

/// What is noted down beside a rule: written for the first request that meets it alone. Where it has
/// other quotas for others (by tier, or by override), theirs are spelled anew each time.
struct Noted {
    meter: Meter,
    /// The whole `RateLimit-Policy`.
    limit: HeaderValue,
    /// The name, in quotes.
    name: HeaderValue,
}

/// The `RateLimit-Policy` and `RateLimit` of an enforced charge that is alone in its set, if its limit
/// is noted down.
#[inline(always)]
pub(super) fn fields(
    (rule, meter, outcome): (&Rule, &Meter, &Outcome),
) -> Option<(HeaderValue, Option<HeaderValue>)> {
    let noted = rule.note(|| Noted::new(rule.name(), meter));
    let noted = noted.filter(|noted| noted.meter == *meter)?;
    let standing = outcome.reading.as_ref().map(|reading| {
        let mut standing = Text::new();
        standing.push_ascii(noted.name.as_bytes());
        push_standing(&mut standing, reading);
        standing.to_value()
    });
    Some((noted.limit.clone(), standing))
}

impl Noted {
    #[cold]
    fn new(rule: &str, meter: &Meter) -> Self {
        let mut text = Text::new();
        push_name(&mut text, 0, rule);
        let name = text.to_value();
        push_limit(&mut text, meter);
        Self { meter: *meter, limit: text.to_value(), name }
    }
}
