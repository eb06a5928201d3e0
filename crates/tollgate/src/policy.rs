//! What operators say about whom: rules, compiled into something that answers in nanoseconds.
//!
//! A [`Policy`] is written with a [builder](PolicyBuilder), checked whole, and from then on never
//! changes; to change it, build another and [swap](crate::Gate::set_policy) it in. It is pure: it
//! asks no store and knows no time. [`Policy::resolve`] turns a [`Subject`] and its [`Costs`] into
//! the [`ChargeSet`](crate::ChargeSet) of all rules that apply:
//!
//! ```text
//! Subject, Costs ──▶ deny-list ──▶ allowlist ──▶ each rule: unit, conditions, axes
//!                                                   │ applies
//!                                                   ▼
//!                                 override, or tier, or quota ──▶ one charge per quota
//! ```
//!
//! # Limits inside a limit
//!
//! Rules that apply together are decided together, all or nothing, so a limit per tenant inside a
//! global one is two rules. Each tenant may have 100 a minute; all of them together no more than
//! what the machine behind can bear, and the biggest tenant cannot eat it all:
//!
//! ```
//! use tollgate::{Costs, Gate, ManualClock, MemoryStore, Policy, Rule, Subject};
//!
//! let policy = Policy::builder()
//!     .rule(Rule::new("everybody").quota("250/min"))
//!     .rule(Rule::new("per-tenant").by("tenant").quota("100/min"))
//!     .build()?;
//! let clock = ManualClock::at_secs(1_000_020);
//! let gate = Gate::new(policy, MemoryStore::with_clock(clock));
//! let passed = |tenant| {
//!     let subject = Subject::new().with("tenant", tenant);
//!     let costs = Costs::default();
//!     (0..1_000).filter(|_| gate.admit_now(&subject, &costs).is_allowed()).count()
//! };
//! assert_eq!(passed("biggest"), 100);
//! // Its other 900 were refused by its own limit and took nothing from the common one.
//! assert_eq!(passed("small"), 100);
//! assert_eq!(passed("late"), 50);
//! # Ok::<(), tollgate::policy::PolicyErrors>(())
//! ```
//!
//! # Two units
//!
//! A vendor that allows 60 requests and 100,000 tokens a minute is two rules in two units, and a
//! call that would exceed either takes from neither:
//!
//! ```
//! use tollgate::{Cost, Costs, Gate, MemoryStore, Policy, Rule, Subject};
//!
//! let policy = Policy::builder()
//!     .rule(Rule::new("calls").by("account").quota("60/min"))
//!     .rule(Rule::new("tokens").by("account").unit("tokens").quota("100000/min"))
//!     .build()?;
//! let gate = Gate::new(policy, MemoryStore::new());
//! let account = Subject::new().with("account", "a-1");
//! let tokens = |count| Costs::default().with("tokens", Cost::new(count).unwrap());
//!
//! assert!(gate.admit_now(&account, &tokens(99_000)).is_allowed());
//! let refused = gate.admit_now(&account, &tokens(2_000));
//! let (rule, _) = refused.binding().unwrap();
//! assert_eq!((refused.is_allowed(), rule.name()), (false, "tokens"));
//! // The refusal took no call either.
//! let left: Vec<_> = refused.outcomes().map(|(_, outcome)| outcome.reading.unwrap().remaining).collect();
//! assert_eq!(left, [59, 1_000]);
//! # Ok::<(), tollgate::policy::PolicyErrors>(())
//! ```

mod bound;
mod builder;
mod compile;
mod compiled;
mod error;
mod explain;
mod facts;
mod glob;
mod index;
mod list;
mod network;
mod note;
mod quotas;
mod resolution;
mod rule;
mod table;

pub use builder::PolicyBuilder;
pub use error::{Place, PolicyError, PolicyErrors};
pub use explain::{Because, Explained, Explanation, Source};
pub use glob::{Glob, GlobError};
pub use list::Listing;
pub use network::{Network, NetworkError};
pub use quotas::Quotas;
pub(crate) use resolution::Ground;
pub use resolution::{Charges, Resolution};
pub use rule::{Fallback, Missing, Override, Rule};

use crate::algorithm::Ask;
use crate::charge::{Cost, Op};
use crate::digest::Digester;
use crate::subject::{Costs, Subject};
use compiled::{Compiled, Plain, Reach};
use facts::{Facts, Names};
use index::{Found, Index};

/// The longest name of a rule, axis or unit, in bytes. Names are in every key.
pub const MAX_NAME: usize = 128;

/// The largest safety margin, in per cent.
pub const MAX_MARGIN: u8 = 99;

/// A set of rules, compiled, checked and immutable.
///
/// ```
/// use tollgate::{Costs, Policy, Rule, Subject};
///
/// let policy = Policy::builder()
///     .allow_network("ip", "10.0.0.0/8")
///     .rule(Rule::new("per-ip").when("route", "/api/*").by("ip").quota("120/min"))
///     .build()?;
///
/// let subject = Subject::new().with("ip", "192.0.2.7").with("route", "/api/search");
/// let resolution = policy.resolve(&subject, &Costs::default());
/// let charge = &resolution.charges().unwrap().set().charges()[0];
/// assert_eq!(charge.key.to_string(), "per-ip:ip=192.0.2.7");
///
/// let errors = Policy::builder()
///     .rule(Rule::new("per-ip").by("ip").quota("120/fortnight").margin(100))
///     .build()
///     .unwrap_err();
/// assert_eq!(errors.iter().count(), 2);
/// # Ok::<(), tollgate::policy::PolicyErrors>(())
/// ```
#[derive(Clone, Debug)]
pub struct Policy {
    version: u64,
    rules: Vec<Compiled>,
    // The same in short, if that is one rule for everybody.
    plain: Option<Plain>,
    // Whether requests have to wait for each of the rules.
    all_critical: bool,
    // Which of the rules to ask about a subject.
    index: Index,
    axes: Names,
    units: Names,
    allow: Vec<Listing>,
    deny: Vec<Listing>,
    digester: Digester,
}

impl Policy {
    /// A policy to be written.
    pub fn builder() -> PolicyBuilder {
        PolicyBuilder::default()
    }

    /// The number it was given.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Its rules, in order.
    pub fn rules(&self) -> impl ExactSizeIterator<Item = &Rule> {
        self.rules.iter().map(|compiled| &compiled.rule)
    }

    /// The rule at a place.
    pub fn rule(&self, index: usize) -> Option<&Rule> {
        self.rules.get(index).map(|compiled| &compiled.rule)
    }

    /// Who is let through before any rule is asked.
    pub fn allowlist(&self) -> &[Listing] {
        &self.allow
    }

    /// Who is refused before anything else is asked.
    pub fn denylist(&self) -> &[Listing] {
        &self.deny
    }

    /// All axes it looks at; front ends need not find out any other.
    pub fn axes(&self) -> impl ExactSizeIterator<Item = &str> {
        self.axes.iter()
    }

    /// All units it counts.
    pub fn units(&self) -> impl ExactSizeIterator<Item = &str> {
        self.units.iter()
    }

    /// What it makes of a request: the charges to be made, or why none are.
    ///
    /// Pure. The heap is touched only for long keys of rules that apply (and where subjects, sets, or
    /// rules that ask for the same value are too many to be kept inline), never for a rule that does
    /// not. It costs what the rules cost that could apply, not what all of them would.
    pub fn resolve(&self, subject: &Subject<'_>, costs: &Costs<'_>) -> Resolution {
        let mut charges = Charges::default();
        let take = |cost| Op::Take(Ask::exactly(cost));
        match self.charge(subject, costs, take, &mut charges) {
            None | Some(Ground::NoRule) => Resolution::Charges(charges),
            Some(Ground::Allowlisted { entry }) => Resolution::Allowlisted { entry },
            Some(Ground::Denylisted { entry }) => Resolution::Denylisted { entry },
            Some(Ground::MissingAxis { rule, axis }) => Resolution::MissingAxis { rule, axis },
        }
    }

    /// The same with any op, into `charges`, which are empty; and stay so where there is a ground to
    /// decide without them.
    #[inline(always)]
    pub(crate) fn charge(
        &self,
        subject: &Subject<'_>,
        costs: &Costs<'_>,
        op: impl Fn(Cost) -> Op,
        charges: &mut Charges,
    ) -> Option<Ground> {
        // Many policies are one rule for everybody, and then most of the rest is about nothing.
        if let Some(plain) = &self.plain
            && plain.charge(subject, costs, &op, charges)
        {
            return None;
        }
        self.charge_by_all(subject, costs, op, charges)
    }

    /// The policy in short, if it is one rule for everybody that requests have to wait for.
    #[inline(always)]
    pub(crate) fn plain(&self) -> Option<&Plain> {
        self.plain.as_ref().filter(|_| self.all_critical)
    }

    /// See [`Policy::charge`], whatever the rules.
    #[inline(never)]
    fn charge_by_all(
        &self,
        subject: &Subject<'_>,
        costs: &Costs<'_>,
        op: impl Fn(Cost) -> Op,
        charges: &mut Charges,
    ) -> Option<Ground> {
        let mut facts = Facts::none();
        facts.learn(&self.axes, &self.units, subject, costs);
        if let Some(entry) = list::find(&self.deny, &facts) {
            return Some(Ground::Denylisted { entry });
        }
        if let Some(entry) = list::find(&self.allow, &facts) {
            return Some(Ground::Allowlisted { entry });
        }
        let mut found = Found::new();
        for rule in self.index.candidates(&facts, &mut found) {
            let compiled = &self.rules[rule];
            match compiled.reach(&facts) {
                Reach::Applies(cost) => {
                    compiled.charge(&facts, &self.digester, op(cost), (charges, rule as u32));
                }
                Reach::Denies(axis) => {
                    *charges = Charges::default();
                    return Some(Ground::MissingAxis { rule, axis });
                }
                Reach::NoCost | Reach::Condition(_) | Reach::Skips(_) => {}
            }
        }
        charges.set().is_empty().then_some(Ground::NoRule)
    }

    /// Whether requests have to wait for the rule of this number.
    #[inline(always)]
    pub(crate) fn is_critical(&self, rule: u32) -> bool {
        self.all_critical || self.rule(rule as usize).is_none_or(Rule::is_critical)
    }

    /// What the rule of this number does when the store cannot be asked.
    pub(crate) fn fallback_of(&self, rule: u32) -> Fallback {
        self.rule(rule as usize).map_or_else(Fallback::default, Rule::fallback)
    }

    /// Why a request meets the rules it meets, and not the others.
    ///
    /// ```
    /// use tollgate::{Costs, Policy, Rule, Subject};
    ///
    /// let policy = Policy::builder()
    ///     .rule(Rule::new("per-ip").by("ip").quota("120/min"))
    ///     .rule(Rule::new("login").when("route", "/auth/*").by("ip").quota("5/15m"))
    ///     .build()?;
    /// let subject = Subject::new().with("ip", "192.0.2.7").with("route", "/api");
    /// let explanation = policy.explain(&subject, &Costs::default());
    /// let lines: Vec<String> = explanation
    ///     .rules
    ///     .iter()
    ///     .map(|explained| format!("{}: {}", explained.rule.name(), explained.because))
    ///     .collect();
    /// assert_eq!(lines, [
    ///     "per-ip: applies: 120/min sliding-window to per-ip:ip=192.0.2.7",
    ///     "login: does not apply: route is \"/api\", not \"/auth/*\"",
    /// ]);
    /// # Ok::<(), tollgate::policy::PolicyErrors>(())
    /// ```
    pub fn explain(&self, subject: &Subject<'_>, costs: &Costs<'_>) -> Explanation<'_> {
        let facts = Facts::new(&self.axes, &self.units, subject, costs);
        let rules = self.rules.iter();
        Explanation {
            denylisted: list::find(&self.deny, &facts).map(|entry| &self.deny[entry]),
            allowlisted: list::find(&self.allow, &facts).map(|entry| &self.allow[entry]),
            rules: rules
                .map(|compiled| explain::explain(compiled, &facts, &self.digester))
                .collect(),
        }
    }
}
