//! One limit of a rule in the eleventh draft, as far as it is the same in every answer.

use http::{HeaderName, HeaderValue};
use tollgate::{Meter, Outcome, Rule};

use super::name::push_name;
use super::{RATELIMIT, RATELIMIT_POLICY, Text, push_limit, push_standing};

/// What is noted down beside a rule: written for the first request that meets it alone. Where it has
/// other quotas for others (by tier, or by override), theirs are spelled anew each time.
struct Noted {
    meter: Meter,
    /// The whole `RateLimit-Policy`.
    limit: HeaderValue,
    /// The name, in quotes.
    name: HeaderValue,
}

/// Hands over the fields of an enforced charge that is alone in its set, if they are noted down.
#[inline]
pub(super) fn put(
    (rule, meter, outcome): (&Rule, &Meter, &Outcome),
    put: &mut impl FnMut(HeaderName, HeaderValue),
) -> bool {
    let noted = rule.note(|| Noted::new(rule.name(), meter));
    let Some(noted) = noted.filter(|noted| noted.meter == *meter) else {
        return false;
    };
    put(RATELIMIT_POLICY, noted.limit.clone());
    if let Some(reading) = &outcome.reading {
        let mut standing = Text::new();
        standing.push_ascii(noted.name.as_bytes());
        push_standing(&mut standing, reading);
        put(RATELIMIT, standing.to_value());
    }
    true
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
