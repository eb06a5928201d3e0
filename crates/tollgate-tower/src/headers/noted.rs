//! One limit of a rule in the eleventh draft, as far as it is the same in every answer.

use http::HeaderValue;
use tollgate::{Meter, Micros, Rule};

use super::name::push_name;
use super::{Text, push_limit};

/// What is noted down beside a rule: written for the first request that meets it alone. Where it has
/// other quotas for others (by tier, or by override), theirs are spelled anew each time.
#[derive(Debug)]
pub(crate) struct Noted {
    // All that the limit's text says of a meter.
    capacity: u64,
    refill: Micros,
    /// The whole `RateLimit-Policy`.
    pub(super) limit: HeaderValue,
    /// How much of that is the name, in quotes.
    pub(super) name: usize,
}

/// The note of a rule, if it is about this limit.
pub(super) fn find<'r>(rule: &'r Rule, meter: &Meter) -> Option<&'r Noted> {
    let noted = rule.note(|| Noted::new(rule.name(), meter))?;
    (noted.capacity == meter.capacity() && noted.refill == meter.refill()).then_some(noted)
}

impl Noted {
    #[cold]
    pub(super) fn new(rule: &str, meter: &Meter) -> Self {
        let mut limit = Text::new();
        push_name(&mut limit, 0, rule);
        let name = limit.len();
        push_limit(&mut limit, meter);
        let (capacity, refill) = (meter.capacity(), meter.refill());
        Self { capacity, refill, limit: limit.to_value(), name }
    }
}
