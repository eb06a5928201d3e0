//! An exact rate limiter: five algorithms, all-or-nothing composites, truthful answers, bounded
//! memory.
//!
//! This crate is the library by itself. It does no I/O, spawns nothing and needs no runtime; it
//! decides in memory, in the caller's thread. The same decisions are served over HTTP by the command
//! `tollgate` (`tollgate-server`), and told in header fields by `tollgate-tower`.
//!
//! # Quick start
//!
//! A [`MemoryStore`] holds buckets by key. A [`Meter`] says how much a bucket allows and how that is
//! counted. Taking from a bucket gives a [`Decision`].
//!
//! ```
//! use tollgate::{Algorithm, Cost, MemoryStore, Meter};
//!
//! let store = MemoryStore::new();
//! let meter = Meter::new("100/min".parse()?, Algorithm::TokenBucket)?;
//!
//! let decision = store.take("user:42", meter, Cost::ONE);
//! assert!(decision.is_allowed());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Build a meter once and copy it; share the store by reference or in an `Arc`. Keys are strings or
//! bytes; with the key, the algorithm and the period name a bucket, so `user:42` under `10/s` and
//! under `1000/day` are two.
//!
//! # Quotas
//!
//! A [`Quota`] is a limit per period, and for buckets a burst. It is written the same way in code,
//! requests and configuration: `LIMIT/PERIOD [burst N]`.
//!
//! ```
//! use tollgate::{Period, Quota, quota};
//!
//! let quota: Quota = "10/s burst 50".parse()?;
//! assert_eq!((quota.limit(), quota.period(), quota.burst()), (10, Period::SECOND, 50));
//!
//! // The burst is the limit unless told otherwise, and periods are from 1 ms to 3653 days.
//! assert_eq!("5/15m".parse::<Quota>()?, "5 per 15 minutes".parse()?);
//! assert_eq!(Quota::per_minute(100).unwrap(), "100/min".parse()?);
//!
//! // Several, each with a period of its own.
//! assert_eq!(quota::parse_list("10/s; 1000/day")?.len(), 2);
//!
//! // What is no quota says why, and what is accepted.
//! let error = "10/fortnight".parse::<Quota>().unwrap_err();
//! assert!(error.to_string().contains("\"100/min\""));
//! # Ok::<(), tollgate::ParseQuotaError>(())
//! ```
//!
//! A [`Meter`] is a quota with an [`Algorithm`], checked together: it exists only if every number
//! the algorithm will form stays an exact integer.
//!
//! # Algorithms
//!
//! | algorithm | admits a cost *c* when | in any one period, at most | state | largest limit |
//! |---|---|---|---|---|
//! | [`FixedWindow`] | taken in this window + *c* ≤ limit; windows are aligned to the epoch | 2 × limit, all at once around an edge | two words | 2^53 − 1 |
//! | [`SlidingLog`] | taken in the last period + *c* ≤ limit | the limit: exact | an entry per request that counts | 100,000 |
//! | [`SlidingWindow`] | this window + the share of the last one still in view + *c* ≤ limit | under 2 × limit, never at once: what comes back after an edge comes evenly | two words | 94,906,265 |
//! | [`TokenBucket`] | *c* tokens are there; `burst` at most, refilled evenly | limit + burst, of which the burst at once | two words | limit × burst ≤ 2^53 |
//! | [`LeakyBucket`] | queue + *c* ≤ burst; the queue drains evenly | limit + burst admitted; with [`Decision::delay`] kept, they go on evenly | two words | limit × burst ≤ 2^53 |
//!
//! When in doubt take [`SlidingWindow`], which is what rules use unless told otherwise;
//! [`SlidingLog`] where a limit is a promise to somebody else; [`TokenBucket`] where bursts are
//! welcome; [`LeakyBucket`] to space requests out; [`FixedWindow`] for quotas that people read as
//! "per day". A cost beyond what could ever fit is refused with [`Retry::Never`].
//!
//! [`FixedWindow`]: Algorithm::FixedWindow
//! [`SlidingLog`]: Algorithm::SlidingLog
//! [`SlidingWindow`]: Algorithm::SlidingWindow
//! [`TokenBucket`]: Algorithm::TokenBucket
//! [`LeakyBucket`]: Algorithm::LeakyBucket
//!
//! # Reading a decision
//!
//! A refusal is a decision like any other. Either way each charge has an [`Outcome`] with its
//! numbers, and times are exact to the microsecond: retrying exactly when told succeeds if nobody
//! else came, and a microsecond earlier does not.
//!
//! ```
//! use tollgate::{Algorithm, Cost, ManualClock, MemoryStore, Meter, Micros, Retry};
//!
//! let clock = ManualClock::at_secs(1_700_000_000);
//! let store = MemoryStore::with_clock(clock.clone());
//! let meter = Meter::new("6/min burst 2".parse()?, Algorithm::LeakyBucket)?;
//!
//! // Admitted; the second should be held until the first has drained.
//! assert_eq!(store.take("job", meter, Cost::ONE).delay(), Micros::ZERO);
//! assert_eq!(store.take("job", meter, Cost::ONE).delay(), Micros::from_secs(10));
//!
//! // Refused, and then exactly when it fits.
//! let refused = store.take("job", meter, Cost::ONE);
//! assert_eq!(refused.retry(), Retry::After(Micros::from_secs(10)));
//! let reading = refused.outcomes()[0].reading.unwrap();
//! assert_eq!((reading.capacity, reading.remaining), (2, 0));
//! assert_eq!(reading.reset, Micros::from_secs(20));
//!
//! clock.advance(Micros::new(9_999_999));
//! assert!(!store.peek("job", meter, Cost::ONE).is_allowed());
//! clock.advance(Micros::new(1));
//! assert!(store.take("job", meter, Cost::ONE).is_allowed());
//!
//! // Three can never fit a burst of two.
//! assert_eq!(store.take("job", meter, Cost::new(3).unwrap()).retry(), Retry::Never);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | | |
//! |---|---|
//! | [`Decision::is_allowed`], [`verdict`](Decision::verdict) | may it go on |
//! | [`Decision::retry`] | `Now`, `After` a span counted from [`at`](Decision::at), or `Never` |
//! | [`Decision::delay`] | how long to hold an admitted request; only a leaky bucket asks for it |
//! | [`Decision::binding`] | the outcome that decided: of a refusal the longest to wait for, else the one with the least share left |
//! | [`Decision::outcomes`] | for each charge its verdict and a [`Reading`]: capacity, remaining, reset, retry, delay, units taken |
//! | [`Decision::provenance`] | who decided: the store, a fallback, or the policy alone |
//! | [`Decision::at`] | when, by the store's clock |
//!
//! # Composites
//!
//! A [`ChargeSet`] is decided whole, at one instant: every charge fits and all are taken, or one does
//! not and nothing changes. Algorithms may be mixed.
//!
//! ```
//! use tollgate::{Algorithm, Charge, ChargeSet, Cost, MemoryStore, Meter};
//!
//! let store = MemoryStore::new();
//! let per_user = Meter::new("100/min".parse()?, Algorithm::SlidingWindow)?;
//! let global = Meter::new("1/day".parse()?, Algorithm::SlidingLog)?;
//! let ask = |user| -> Result<_, tollgate::ChargeSetError> {
//!     let mut set = ChargeSet::new();
//!     set.push(Charge::take(user, per_user, Cost::ONE))?;
//!     set.push(Charge::take("everybody", global, Cost::ONE))?;
//!     Ok(store.take_set(&set))
//! };
//! assert!(ask("ann")?.is_allowed());
//!
//! let refused = ask("bob")?;
//! assert_eq!(refused.binding(), Some(1));
//! // Bob was not charged for what the other limit refused.
//! assert_eq!(refused.outcomes()[0].reading.unwrap().remaining, 100);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A charge can also be in [`Enforcement::Shadow`]: it is counted and told, and never refuses. Or in
//! a group, [`Enforcement::AnyOf`], which refuses only when none of the group fits. Independent
//! decisions are made together, faster than one by one, by [`MemoryStore::take_many`].
//!
//! # Policies and the gate
//!
//! A [`Policy`] says in rules what otherwise code would: whom a limit is for, by which axes they are
//! told apart, and how much each may have. A [`Gate`] is a policy in force over a store; it takes a
//! [`Subject`] and always has an answer, an [`Admission`]: a decision with the rules it is about.
//!
//! ```
//! use tollgate::{Algorithm, Costs, Fallback, Gate, MemoryStore, Policy, Rule, Subject};
//!
//! let policy = Policy::builder()
//!     .allow_network("ip", "10.0.0.0/8")
//!     .rule(Rule::new("per-ip").when("route", "/api/*").by("ip").quota("120/min"))
//!     .rule(
//!         Rule::new("plan")
//!             .by("tenant")
//!             .tier("plan", [("free", "1/day"), ("paid", "10000/day")])
//!             .algorithm(Algorithm::TokenBucket)
//!             .on_store_failure(Fallback::Deny),
//!     )
//!     .build()?;
//! let gate = Gate::new(policy, MemoryStore::new());
//!
//! let subject = Subject::new()
//!     .with("ip", "192.0.2.7")
//!     .with("route", "/api/search")
//!     .with("tenant", "acme")
//!     .with("plan", "free");
//! assert!(gate.admit_now(&subject, &Costs::default()).is_allowed());
//! let refused = gate.admit_now(&subject, &Costs::default());
//! assert_eq!(refused.rule().unwrap().name(), "plan");
//! # Ok::<(), tollgate::policy::PolicyErrors>(())
//! ```
//!
//! [`Gate::admit`] is the same as a future, for stores that have to be waited for. The module
//! [`policy`] shows limits inside a limit and costs in several units; [`Policy::explain`] says why a
//! subject meets the rules it meets; everything wrong with a policy is reported at once when it is
//! built.
//!
//! # Stores and time
//!
//! A [`Store`] remembers and decides, and owns the clock it decides by; nobody else asks what time
//! it is. [`MemoryStore`] is the one in this crate. Its methods are plain calls; through the trait,
//! and so through [`Limiter`] and [`Gate::admit`], the same answers are futures that are ready at
//! once.
//!
//! By default the clock is the system's. [`MemoryStore::with_clock`] takes any [`Clock`], and a
//! [`ManualClock`] makes tests exact: time is driven, never slept. A clock that steps back grants
//! nothing, and denies for no longer than the step.
//!
//! # Bounded memory
//!
//! A store starts with a few kilobytes, grows as keys come, and holds at most so many:
//!
//! ```
//! use tollgate::MemoryStore;
//!
//! let store = MemoryStore::builder().max_keys(100_000).max_log_entries(1_000_000).build();
//! assert_eq!((store.keys(), store.log_entries(), store.evictions()), (0, 0, 0));
//! ```
//!
//! A bucket takes about 48 bytes however long its key is. A sliding log lies beside and takes about
//! 190 with one entry, and 16 to 32 more for each further one. Buckets that are as good as fresh are
//! forgotten as others come. When all that are held still count, the one nearest to fresh among a few
//! looked at gives way, and [`evictions`](MemoryStore::evictions) counts it. There is no background
//! thread.
//!
//! # Changing limits
//!
//! A bucket's name has no limit in it, so ask with another meter, or swap the policy
//! ([`Gate::set_policy`]), and what was used is still known. A higher limit acts at once; a lower one
//! grants nothing, and keeps nobody waiting for longer than they had been told. Another period or
//! algorithm is another bucket, and starts fresh.
//!
//! ```
//! use tollgate::{Algorithm, Cost, MemoryStore, Meter};
//!
//! let store = MemoryStore::new();
//! let meter = |quota: &str| -> Result<_, Box<dyn std::error::Error>> {
//!     Ok(Meter::new(quota.parse()?, Algorithm::SlidingLog)?)
//! };
//! let (ten, fifteen, five) = (meter("10/day")?, meter("15/day")?, meter("5/day")?);
//! let all = Cost::new(10).unwrap();
//! assert!(store.take("user:42", ten, all).is_allowed());
//! assert_eq!(store.peek("user:42", fifteen, Cost::ONE).outcomes()[0].reading.unwrap().remaining, 5);
//! assert_eq!(store.peek("user:42", five, Cost::ONE).outcomes()[0].reading.unwrap().remaining, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Refunds
//!
//! What was taken and not used can be given back, with the [`at`](Decision::at) of the decision that
//! took it, as long as it still counts. A leaky bucket gives nothing back, for the places behind it
//! were promised. With a policy, [`Gate::refund`] does it for all rules of an admission.
//!
//! ```
//! use tollgate::{Algorithm, Cost, MemoryStore, Meter};
//!
//! let store = MemoryStore::new();
//! let meter = Meter::new("1000/day".parse()?, Algorithm::SlidingLog)?;
//!
//! // Reserve an estimate, then give back what was not used.
//! let reserved = store.take("tokens:acme", meter, Cost::new(800).unwrap());
//! let refund = store.refund("tokens:acme", meter, Cost::new(300).unwrap(), reserved.at());
//! let reading = refund.outcomes()[0].reading.unwrap();
//! assert_eq!((reading.units, reading.remaining), (300, 500));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! More to run: the crate's `examples/` (`cargo run -p tollgate --example boundary_burst`).

pub mod algorithm;
mod charge;
pub mod clock;
mod decision;
pub mod digest;
mod divisor;
pub mod gate;
#[doc(hidden)]
pub mod hash;
mod key;
mod limiter;
pub mod memory;
mod meter;
pub mod policy;
pub mod quota;
pub mod store;
mod subject;
mod sync;
mod time;

pub use algorithm::{Algorithm, Ask};
pub use charge::{Charge, ChargeSet, ChargeSetError, Cost, Enforcement, Op};
pub use clock::{Clock, ManualClock, SystemClock};
pub use decision::{Decision, Outcome, Outcomes, Provenance, Reading, Retry, Verdict};
pub use gate::{Admission, Deferred, Gate};
pub use key::{Key, KeyPart, Prefix, PrefixError};
pub use limiter::Limiter;
pub use memory::MemoryStore;
pub use meter::{Meter, MeterError};
pub use policy::{Fallback, Glob, Missing, Network, Override, Policy, Resolution, Rule};
pub use quota::{ParseQuotaError, Period, Quota};
pub use store::{Store, StoreError, StoreErrorKind};
pub use subject::{Costs, Subject};
pub use time::{MAX_EXACT, Micros, Timestamp};

/// The code in the README, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
