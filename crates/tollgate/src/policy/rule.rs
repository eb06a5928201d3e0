//! What an operator writes: rules and their exceptions.

use std::any::Any;

use super::note::Note;
use super::quotas::Quotas;
use crate::algorithm::Algorithm;
use crate::charge::Enforcement;
use crate::subject::Costs;
use crate::time::Micros;

/// One limit: whom it is for, how they are told apart, and how much each may have.
///
/// A rule applies to a subject when all its [conditions](Rule::when) hold and the request costs
/// something in its [unit](Rule::unit). It then charges one bucket per combination of values on its
/// [axes](Rule::by), and per quota if it has several.
///
/// Nothing is checked while a rule is written; [`PolicyBuilder::build`] reports everything at once.
///
/// ```
/// use tollgate::{Algorithm, Fallback, Rule};
///
/// let rule = Rule::new("login")
///     .when("method", "POST")
///     .when("route", "/auth/login")
///     .by("email")
///     .quota("5/15m")
///     .algorithm(Algorithm::SlidingLog)
///     .on_store_failure(Fallback::Deny)
///     .hash();
/// assert_eq!(rule.name(), "login");
/// ```
///
/// [`PolicyBuilder::build`]: super::PolicyBuilder::build
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub(super) name: String,
    pub(super) conditions: Vec<Condition>,
    pub(super) axes: Vec<String>,
    pub(super) quota: Option<Quotas>,
    pub(super) tiers: Option<Tiers>,
    algorithm: Algorithm,
    unit: String,
    missing: Missing,
    fallback: Fallback,
    shadow: bool,
    group: Option<u8>,
    margin: u8,
    hash: bool,
    wait: Micros,
    critical: bool,
    colocate: Option<String>,
    note: Note,
}

/// An axis and the pattern its value must match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    pub(super) axis: String,
    pub(super) pattern: String,
}

/// Quotas by the value of an axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tiers {
    pub(super) axis: String,
    pub(super) named: Vec<(String, Quotas)>,
}

/// What a rule does with a subject that lacks one of its axes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Missing {
    /// It does not apply.
    #[default]
    Skip,
    /// All who lack the axis share a bucket.
    Share,
    /// It refuses them. A shadow rule refuses nobody and does not apply.
    Deny,
}

/// What a rule does when the store cannot be asked.
///
/// Where several rules apply the strictest wins: one `Deny` refuses, else the `Local` ones must all
/// fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Fallback {
    /// It lets through, uncounted: being reachable matters more than the limit.
    Allow,
    /// It refuses: the limit guards something worse than an outage, such as guessing passwords.
    Deny,
    /// This process decides alone, by the same quota, counting what it has let through itself since
    /// the store failed. With several processes each allows the whole quota.
    #[default]
    Local,
}

impl Fallback {
    /// The name in configuration and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Local => "local",
        }
    }
}

impl Rule {
    /// A rule of this name, for every subject, all in one bucket, without a quota yet.
    ///
    /// The name is part of every bucket's key: renaming a rule starts it fresh.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            conditions: Vec::new(),
            axes: Vec::new(),
            quota: None,
            tiers: None,
            algorithm: Algorithm::SlidingWindow,
            unit: Costs::REQUESTS.to_owned(),
            missing: Missing::default(),
            fallback: Fallback::default(),
            shadow: false,
            group: None,
            margin: 0,
            hash: false,
            wait: Micros::ZERO,
            critical: true,
            colocate: None,
            note: Note::default(),
        }
    }

    /// Applies only to subjects whose value on `axis` matches the [glob](super::Glob) `pattern`. A
    /// subject without the axis does not match. All conditions must hold.
    pub fn when(mut self, axis: impl Into<String>, pattern: impl Into<String>) -> Self {
        self.conditions.push(Condition { axis: axis.into(), pattern: pattern.into() });
        self
    }

    /// A bucket per value of `axis`; of several axes, per combination of their values.
    pub fn by(mut self, axis: impl Into<String>) -> Self {
        self.axes.push(axis.into());
        self
    }

    /// How much each bucket allows. Beside [tiers](Rule::tier), what those get whose tier is not in
    /// the table.
    pub fn quota(mut self, quota: impl Into<Quotas>) -> Self {
        self.quota = Some(quota.into());
        self
    }

    /// Quotas by the value of `axis`: what `free` and `paid` customers get.
    ///
    /// A value that is not in the table, or none at all, gets the tier named `default` (or the
    /// rule's [quota](Rule::quota)); without one it gets the strictest in the table, which is the
    /// one with the lowest sustained rate, and of those with the same rate the one with the smallest
    /// capacity.
    ///
    /// ```
    /// use tollgate::{Algorithm, Costs, Policy, Rule, Subject};
    ///
    /// let policy = Policy::builder()
    ///     .rule(
    ///         Rule::new("plan")
    ///             .by("tenant")
    ///             .tier("plan", [("free", "100/day"), ("paid", "10000/day")])
    ///             .algorithm(Algorithm::TokenBucket),
    ///     )
    ///     .build()?;
    ///
    /// let quota_of = |plan| {
    ///     let subject = Subject::new().with("tenant", "acme").with("plan", plan);
    ///     let resolution = policy.resolve(&subject, &Costs::default());
    ///     resolution.charges().unwrap().set().charges()[0].meter.limit()
    /// };
    /// assert_eq!(quota_of("paid"), 10_000);
    /// assert_eq!(quota_of("free"), 100);
    /// assert_eq!(quota_of("gold"), 100);
    /// # Ok::<(), tollgate::policy::PolicyErrors>(())
    /// ```
    pub fn tier<N, Q>(
        mut self,
        axis: impl Into<String>,
        quotas: impl IntoIterator<Item = (N, Q)>,
    ) -> Self
    where
        N: Into<String>,
        Q: Into<Quotas>,
    {
        let named = quotas.into_iter();
        self.tiers = Some(Tiers {
            axis: axis.into(),
            named: named.map(|(name, quota)| (name.into(), quota.into())).collect(),
        });
        self
    }

    /// How its quotas are metered; by a sliding window unless told otherwise.
    pub fn algorithm(self, algorithm: Algorithm) -> Self {
        Self { algorithm, ..self }
    }

    /// What it counts: `requests` unless told otherwise, or `tokens`, `cents`, … as in [`Costs`].
    pub fn unit(self, unit: impl Into<String>) -> Self {
        Self { unit: unit.into(), ..self }
    }

    /// Only watches: it is evaluated and, where it fits, charged like any other, but never refuses;
    /// its outcome tells that it would have.
    pub fn shadow(self) -> Self {
        Self { shadow: true, ..self }
    }

    /// Refuses only when every applying rule of the same group refuses: each is an allowance of its
    /// own, and one that is left is enough.
    pub fn any_of(self, group: u8) -> Self {
        Self { group: Some(group), ..self }
    }

    /// What it does with a subject that lacks one of its axes.
    pub fn missing(self, missing: Missing) -> Self {
        Self { missing, ..self }
    }

    /// What it does when the store cannot be asked.
    pub fn on_store_failure(self, fallback: Fallback) -> Self {
        Self { fallback, ..self }
    }

    /// Stays so many per cent below every one of its quotas (overrides among them), rounded down and
    /// never below one unit: a vendor's cap kept at a distance.
    pub fn margin(self, per_cent: u8) -> Self {
        Self { margin: per_cent, ..self }
    }

    /// Keeps values out of its keys: they hold a [digest](crate::digest) instead.
    pub fn hash(self) -> Self {
        Self { hash: true, ..self }
    }

    /// Holds a request that does not fit for up to so long, and asks again when it would, before it
    /// refuses. Front ends that cannot hold requests refuse at once.
    ///
    /// The [delay](crate::Decision::delay) of an admitted request, a leaky bucket's, is no part of it.
    pub fn wait(self, longest: impl Into<Micros>) -> Self {
        Self { wait: longest.into(), ..self }
    }

    /// Counts without making a request wait for it, and so never refuses: it [watches](Rule::shadow),
    /// and front ends may charge it [behind the request](crate::Gate::admit_deferring). A charge made
    /// so is not [settled](crate::Gate::settle) with the request, and stands at the estimate; a shadow
    /// rule is settled.
    pub fn non_critical(self) -> Self {
        Self { critical: false, ..self }
    }

    /// Keeps all buckets that have the same value on `axis`, one of its own, in one place of a
    /// cluster. Rules colocated by the same axis are then decided together, at once, where otherwise
    /// each place would have to be asked for itself. A store in one place takes no notice.
    ///
    /// ```
    /// use tollgate::{Algorithm, Costs, Meter, Policy, Prefix, Rule, Subject};
    ///
    /// let policy = Policy::builder()
    ///     .rule(Rule::new("tenant").by("tenant").quota("1000/min"))
    ///     .rule(Rule::new("user").by("tenant").by("user").colocate("tenant").quota("60/min"))
    ///     .build()?;
    /// let subject = Subject::new().with("tenant", "acme").with("user", "42");
    /// let resolution = policy.resolve(&subject, &Costs::default());
    /// let charges = resolution.charges().unwrap().set().charges();
    /// let name = |index: usize| Prefix::default().name(&charges[index].key, &charges[index].meter);
    /// assert_eq!(name(0), b"tollgate:{tenant=acme}:tenant:sw:60s");
    /// assert_eq!(name(1), b"tollgate:{tenant=acme}:user:sw:60s:user=42");
    /// # Ok::<(), tollgate::policy::PolicyErrors>(())
    /// ```
    pub fn colocate(self, axis: impl Into<String>) -> Self {
        Self { colocate: Some(axis.into()), ..self }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The axes it tells subjects apart by.
    pub fn axes(&self) -> impl ExactSizeIterator<Item = &str> {
        self.axes.iter().map(String::as_str)
    }

    /// Its conditions: axes and the patterns their values must match.
    pub fn conditions(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.conditions
            .iter()
            .map(|condition| (condition.axis.as_str(), condition.pattern.as_str()))
    }

    /// What it counts.
    pub fn counted_unit(&self) -> &str {
        &self.unit
    }

    /// How its quotas are metered.
    pub fn metered_by(&self) -> Algorithm {
        self.algorithm
    }

    /// Whether it can refuse.
    pub fn enforcement(&self) -> Enforcement {
        match (self.shadow || !self.critical, self.group) {
            (true, _) => Enforcement::Shadow,
            (false, Some(group)) => Enforcement::AnyOf(group),
            (false, None) => Enforcement::Enforce,
        }
    }

    /// What it does with a subject that lacks one of its axes.
    pub fn when_missing(&self) -> Missing {
        self.missing
    }

    /// What it does when the store cannot be asked.
    pub fn fallback(&self) -> Fallback {
        self.fallback
    }

    /// Per cent it stays below its quotas.
    pub fn safety_margin(&self) -> u8 {
        self.margin
    }

    /// The axis by whose value its buckets are kept together.
    pub fn colocated_by(&self) -> Option<&str> {
        self.colocate.as_deref()
    }

    /// What a front end has noted down beside this rule, so as not to work it out for every request:
    /// how its name is spelled in a header, say. Made if there is none yet; `None` where somebody else
    /// has made one of another kind.
    pub fn note<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Option<&T> {
        self.note.get_or_make(make)
    }

    /// Whether its keys hold digests instead of values.
    pub fn is_hashed(&self) -> bool {
        self.hash
    }

    /// The longest it has a request held before it refuses; zero unless told otherwise.
    pub fn longest_wait(&self) -> Micros {
        self.wait
    }

    /// Whether requests have to wait for it to be charged.
    pub fn is_critical(&self) -> bool {
        self.critical
    }
}

/// Another quota for some subjects of a rule.
///
/// It stands in for the rule's quota and tiers alike. Of several that match, the first counts.
/// Where it has the same period as what it replaces, usage carries over; with another period the
/// subject starts fresh, for that is another bucket.
///
/// ```
/// use tollgate::{Override, Policy, Rule};
///
/// let policy = Policy::builder()
///     .rule(Rule::new("plan").by("tenant").quota("100/day"))
///     .overriding(Override::new("plan", "50000/day").when("tenant", "acme"))
///     .build()?;
/// # Ok::<(), tollgate::policy::PolicyErrors>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    pub(super) rule: String,
    pub(super) conditions: Vec<Condition>,
    pub(super) quota: Quotas,
}

impl Override {
    /// Another quota for the rule of this name; it needs a [condition](Override::when).
    pub fn new(rule: impl Into<String>, quota: impl Into<Quotas>) -> Self {
        Self { rule: rule.into(), conditions: Vec::new(), quota: quota.into() }
    }

    /// For subjects whose value on `axis` matches the [glob](super::Glob) `pattern`. All conditions
    /// must hold.
    pub fn when(mut self, axis: impl Into<String>, pattern: impl Into<String>) -> Self {
        self.conditions.push(Condition { axis: axis.into(), pattern: pattern.into() });
        self
    }

    /// The rule it is about.
    pub fn rule(&self) -> &str {
        &self.rule
    }
}
