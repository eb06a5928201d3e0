//! A decision as HTTP header fields. Pure: no clock, no I/O.
//!
//! Clients disagree about the fields a rate limit is told in, so the spelling is a value, a
//! [`Dialect`], and this is the only file that spells them. Whatever the dialect, a refusal that
//! can succeed later carries `Retry-After`, and every refusal `Cache-Control: no-store`.
//!
//! Only what can refuse is told: shadow charges are left out. Where a dialect has room for one
//! limit it is the binding one, and where it has a list the binding one comes first. Times are
//! rounded up to whole seconds, so that no client comes back too early.

use std::borrow::Cow;

use http::header::{CACHE_CONTROL, RETRY_AFTER};
use http::{HeaderName, HeaderValue};
use smallvec::SmallVec;
use tollgate::{
    Admission, Charge, Decision, Enforcement, Meter, Micros, Outcome, Provenance, Reading, Retry,
    Rule,
};

mod dialect;
mod merge;
mod name;
mod noted;
mod text;
mod told;

pub use dialect::{Dialect, UnknownDialect};
pub(crate) use merge::append;
use name::push_name;
pub(crate) use noted::Noted;
pub(crate) use text::Text;
pub(crate) use told::{OneLimit, Told};

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// The fields that tell limit, remaining and reset apart, in this order.
const DRAFT_6: [HeaderName; 3] = [
    HeaderName::from_static("ratelimit-limit"),
    HeaderName::from_static("ratelimit-remaining"),
    HeaderName::from_static("ratelimit-reset"),
];
const X_RATELIMIT: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit"),
    HeaderName::from_static("x-ratelimit-remaining"),
    HeaderName::from_static("x-ratelimit-reset"),
];

/// The largest integer of a structured field has 15 digits; larger ones are told as this.
const MAX_INTEGER: u64 = 999_999_999_999_999;

/// What one charge of the decided set is called and how it is metered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedMeter<'a> {
    /// What clients know it by: a rule's name, or the key of a charge made by hand. Any text; what
    /// a header cannot hold is escaped, and what is too long for one is cut.
    pub name: &'a str,
    /// How it is metered.
    pub meter: Meter,
}

/// The header fields that tell `decision`, whose outcomes belong to `policies` one by one.
///
/// ```
/// use tollgate::{Algorithm, Cost, ManualClock, MemoryStore, Meter};
/// use tollgate_tower::{Dialect, NamedMeter, render};
///
/// let store = MemoryStore::with_clock(ManualClock::at_secs(1_000));
/// let meter = Meter::new("100/min".parse()?, Algorithm::TokenBucket)?;
/// let decision = store.take("user:42", meter, Cost::ONE);
/// let policy = NamedMeter { name: "per-user", meter };
/// let fields = render(&decision, &[policy], Dialect::Draft11);
/// assert_eq!(fields[0].1, "\"per-user\";q=100;w=60");
/// assert_eq!(fields[1].1, "\"per-user\";r=99;t=1");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn render(decision: &Decision, policies: &[NamedMeter<'_>], dialect: Dialect) -> Fields {
    let mut fields = Vec::with_capacity(4);
    View { decision, policies }.spell(dialect, |name, value| fields.push((name, value)));
    fields
}

/// The header fields that tell an admission, by the names of its rules.
///
/// Headers tell policies apart by name alone, so where a rule has several quotas they are part of
/// the name.
pub fn render_admission(admission: &Admission, dialect: Dialect) -> Fields {
    let mut fields = Vec::with_capacity(4);
    spell(admission, dialect, |name, value| fields.push((name, value)));
    fields
}

/// Hands over the fields that tell an admission, one by one.
fn spell(admission: &Admission, dialect: Dialect, put: impl FnMut(HeaderName, HeaderValue)) {
    let decision = admission.decision();
    let names = names(admission);
    let policies: SmallVec<[NamedMeter<'_>; 4]> = (admission.charges().zip(&names))
        .map(|((_, charge, _), name)| NamedMeter { name, meter: charge.meter })
        .collect();
    View { decision, policies: &policies }.spell(dialect, put);
}

/// What each of several charges is called.
fn names(admission: &Admission) -> SmallVec<[Cow<'_, str>; 4]> {
    let is_repeated = |rule: &Rule| {
        let same = admission.charges().filter(|(other, ..)| other.name() == rule.name());
        same.count() > 1
    };
    let name = |(rule, charge, _): (_, &Charge<'_>, _)| match is_repeated(rule) {
        true => Cow::Owned(format!("{} {}", rule.name(), charge.meter.quota())),
        false => Cow::Borrowed(rule.name()),
    };
    admission.charges().map(name).collect()
}

/// What an answer says that turns a request away for a while, whatever was decided.
pub(crate) fn retry_later(seconds: Option<u64>) -> Fields {
    let no_store = (CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let retry_after = seconds.map(|seconds| (RETRY_AFTER, integer(seconds).into()));
    retry_after.into_iter().chain([no_store]).collect()
}

/// Header fields, in the order they are sent.
pub type Fields = Vec<(HeaderName, HeaderValue)>;

/// How the reset is told where it has a field of its own.
#[derive(Clone, Copy)]
enum Reset {
    /// Seconds since the epoch.
    Epoch,
    /// Seconds from now.
    Delta,
}

/// A decision with the policies its outcomes belong to.
struct View<'a> {
    decision: &'a Decision,
    policies: &'a [NamedMeter<'a>],
}

impl<'a> View<'a> {
    /// Hands over the fields, in the order they are sent.
    fn spell(&self, dialect: Dialect, mut put: impl FnMut(HeaderName, HeaderValue)) {
        match dialect {
            Dialect::Draft11 => self.draft_11(&mut put),
            Dialect::Draft7 => self.draft_7(&mut put),
            Dialect::Draft6 => self.draft_6(&mut put),
            Dialect::XRateLimitEpoch => self.one_by_one(X_RATELIMIT, Reset::Epoch, &mut put),
            Dialect::XRateLimitDelta => self.one_by_one(X_RATELIMIT, Reset::Delta, &mut put),
            Dialect::Envoy03 => self.envoy_03(&mut put),
            Dialect::Off => {}
        }
        if !self.decision.is_allowed() {
            self.refusal().into_iter().for_each(|(name, value)| put(name, value));
        }
    }

    fn draft_11(&self, put: &mut impl FnMut(HeaderName, HeaderValue)) {
        let (mut limits, mut standings) = (Text::new(), Text::new());
        for (index, policy, outcome) in self.enforced() {
            push_comma(&mut limits);
            push_name(&mut limits, index, policy.name);
            push_limit(&mut limits, &policy.meter);
            // Without numbers (a fallback decided) there is a policy but no standing under it.
            if let Some(reading) = &outcome.reading {
                push_comma(&mut standings);
                push_name(&mut standings, index, policy.name);
                push_standing(&mut standings, Standing::of(reading));
            }
        }
        put_list(put, RATELIMIT_POLICY, &limits);
        put_list(put, RATELIMIT, &standings);
    }

    fn draft_7(&self, put: &mut impl FnMut(HeaderName, HeaderValue)) {
        if let Some([limit, remaining, reset]) = self.numbers(Reset::Delta) {
            let mut standing = Text::new();
            push_parameter(&mut standing, "limit=", limit);
            push_parameter(&mut standing, ", remaining=", remaining);
            push_parameter(&mut standing, ", reset=", reset);
            put(RATELIMIT, standing.to_value());
        }
        self.numeric_policy(put);
    }

    fn draft_6(&self, put: &mut impl FnMut(HeaderName, HeaderValue)) {
        self.one_by_one(DRAFT_6, Reset::Delta, put);
        self.numeric_policy(put);
    }

    /// `100;w=60, 1000;w=86400`: the policies of drafts 6 and 7, which have no names.
    fn numeric_policy(&self, put: &mut impl FnMut(HeaderName, HeaderValue)) {
        let mut limits = Text::new();
        for (_, policy, _) in self.enforced() {
            push_comma(&mut limits);
            limits.push_integer(integer(policy.meter.capacity()));
            push_parameter(&mut limits, ";w=", window_secs(&policy.meter));
        }
        put_list(put, RATELIMIT_POLICY, &limits);
    }

    /// Limit, remaining and reset of the binding outcome, a field each.
    fn one_by_one(
        &self,
        names: [HeaderName; 3],
        reset: Reset,
        put: &mut impl FnMut(HeaderName, HeaderValue),
    ) {
        if let Some(numbers) = self.numbers(reset) {
            let fields = names.into_iter().zip(numbers);
            fields.for_each(|(name, value)| put(name, integer(value).into()));
        }
    }

    /// Limit, remaining and reset as Envoy tells them: the limit is followed by all policies.
    fn envoy_03(&self, put: &mut impl FnMut(HeaderName, HeaderValue)) {
        let Some([limit, remaining, reset]) = self.numbers(Reset::Delta) else {
            return;
        };
        let mut limits = Text::new();
        limits.push_integer(integer(limit));
        for (index, policy, _) in self.enforced() {
            push_comma(&mut limits);
            limits.push_integer(integer(policy.meter.capacity()));
            push_parameter(&mut limits, ";w=", window_secs(&policy.meter));
            limits.push_str(";name=");
            push_name(&mut limits, index, policy.name);
        }
        let values = [limits.to_value(), integer(remaining).into(), integer(reset).into()];
        X_RATELIMIT.into_iter().zip(values).for_each(|(name, value)| put(name, value));
    }

    /// What every refusal says, in any dialect.
    fn refusal(&self) -> Fields {
        retry_later(match self.decision.retry() {
            Retry::Never => None,
            Retry::After(wait) => Some(wait.as_secs_ceil().max(1)),
            // A list, or a missing axis: nothing will change by itself.
            Retry::Now if self.decision.provenance() == Provenance::Policy => None,
            // Refused without numbers: nobody knows when, but not in this very second.
            Retry::Now => Some(1),
        })
    }

    /// Limit, remaining and reset of the binding outcome.
    fn numbers(&self, reset: Reset) -> Option<[u64; 3]> {
        let reading = self.first()?;
        let wait = wait(&reading);
        let reset = match reset {
            Reset::Delta => wait.as_secs_ceil(),
            Reset::Epoch => {
                let at = self.decision.at().as_micros();
                Micros::new(at.saturating_add(wait.get())).as_secs_ceil()
            }
        };
        Some([reading.capacity, reading.remaining, reset])
    }

    /// The reading that dialects with room for one tell.
    fn first(&self) -> Option<Reading> {
        self.enforced().find_map(|(_, _, outcome)| outcome.reading)
    }

    /// Everything that can refuse, the binding one first, each with its place in the set.
    fn enforced(&self) -> impl Iterator<Item = (usize, &'a NamedMeter<'a>, &'a Outcome)> {
        let pairs = || self.policies.iter().zip(self.decision.outcomes()).enumerate();
        let binding = self.decision.binding();
        let first = binding.and_then(|index| pairs().nth(index));
        let rest = pairs().filter(move |(index, _)| Some(*index) != binding);
        let all = first.into_iter().chain(rest);
        all.filter(|(_, (_, outcome))| outcome.enforcement != Enforcement::Shadow)
            .map(|(index, (policy, outcome))| (index, policy, outcome))
    }
}

/// What a client should wait for: room, if it was refused, else a fresh start.
fn wait(reading: &Reading) -> Micros {
    match reading.retry {
        Retry::After(wait) => wait,
        Retry::Now | Retry::Never => reading.reset,
    }
}

/// The time a spent capacity takes to come back, which no dialect allows to be zero.
fn window_secs(meter: &Meter) -> u64 {
    meter.refill().as_secs_ceil().max(1)
}

fn integer(value: u64) -> u64 {
    value.min(MAX_INTEGER)
}

/// The limit of a named policy.
fn push_limit(list: &mut Text, meter: &Meter) {
    push_parameter(list, ";q=", meter.capacity());
    push_parameter(list, ";w=", window_secs(meter));
}

/// What is told of a client's standing under a limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    remaining: u64,
    wait_secs: u64,
}

impl Standing {
    #[inline]
    fn of(reading: &Reading) -> Self {
        Self { remaining: reading.remaining, wait_secs: wait(reading).as_secs_ceil() }
    }
}

/// The standing under a named policy.
fn push_standing(list: &mut Text, standing: Standing) {
    push_parameter(list, ";r=", standing.remaining);
    push_parameter(list, ";t=", standing.wait_secs);
}

#[inline(always)]
fn push_parameter(list: &mut Text, parameter: &str, value: u64) {
    list.push_str(parameter);
    list.push_integer(integer(value));
}

fn push_comma(list: &mut Text) {
    if !list.is_empty() {
        list.push_str(", ");
    }
}

/// Hands over a list unless it is empty, which a structured one must not be.
fn put_list(put: &mut impl FnMut(HeaderName, HeaderValue), name: HeaderName, list: &Text) {
    if !list.is_empty() {
        put(name, list.to_value());
    }
}
