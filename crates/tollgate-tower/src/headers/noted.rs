//! One limit of a rule in the eleventh draft, as far as it is the same in every answer.

use std::sync::Arc;

use http::HeaderValue;
use tollgate::{Meter, Rule};

use super::name::push_name;
use super::{Standing, Text, push_limit, push_standing};

/// What is noted down beside a rule: written for the first request that meets it alone. Where it has
/// other quotas for others (by tier, or by override), theirs are spelled anew each time.
#[derive(Debug)]
pub(crate) struct Noted {
    meter: Meter,
    /// The whole `RateLimit-Policy`.
    pub(super) limit: HeaderValue,
    /// The name, in quotes.
    name: HeaderValue,
}

/// The note of a rule, if it is about this limit.
#[inline(always)]
pub(super) fn find<'r>(rule: &'r Rule, meter: &Meter) -> Option<&'r Arc<Noted>> {
    let noted = rule.note(|| Arc::new(Noted::new(rule.name(), meter)));
    noted.filter(|noted| noted.meter == *meter)
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
    /// The `RateLimit` of this standing under the limit.
    pub(super) fn spell(&self, standing: Standing) -> HeaderValue {
        let mut text = Text::new();
        text.push_ascii(self.name.as_bytes());
        push_standing(&mut text, standing);
        text.to_value()
    }
}
