//! The one door: policy, store and fallbacks behind one question that always has an answer.
//!
//! ```text
//! Gate::admit(&Subject, &Costs)
//!    ├─ Policy::resolve ── on a list, no rule, a missing axis ──▶ Admission (by the policy)
//!    ├─ Limiter::take_set, one question to the store ───────────▶ Admission (by the store)
//!    └─ the store cannot be asked: the rules' fallbacks ────────▶ Admission (by fallback)
//! ```

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::algorithm::Ask;
use crate::charge::{ChargeSet, Cost, Op};
use crate::clock::{Clock, SystemClock};
use crate::decision::Decision;
use crate::limiter::Limiter;
use crate::memory::{MemoryStore, MemoryStoreBuilder};
use crate::policy::{Charges, Fallback, Ground, Policy};
use crate::store::{Store, StoreError, StoreErrorKind};
use crate::subject::{Costs, Subject};

mod admission;
mod brief;
mod deferred;
mod fallback;
mod refund;
mod reset;
mod settlement;

#[doc(hidden)]
pub use crate::key::PlainValue;
pub use admission::{Admission, Reason};
#[doc(hidden)]
pub use brief::Brief;
pub use deferred::{Deferred, MustWait};

/// The store that decides for rules with [`Fallback::Local`] while the real
/// one cannot be asked.
pub type LocalStore = MemoryStore<Arc<dyn Clock>>;

/// The most buckets of a gate's own local store: enough to stop those who matter for the minutes an
/// outage lasts, and some five megabytes when full. It starts with a few kilobytes.
const LOCAL_KEYS: usize = 100_000;

/// The same for the entries of sliding logs.
const LOCAL_LOG_ENTRIES: usize = 1_000_000;

/// A policy in force, over a store.
///
/// ```
/// # fn block_on<F: Future>(f: F) -> F::Output {
/// #     let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
/// #     match std::pin::pin!(f).poll(&mut cx) {
/// #         std::task::Poll::Ready(output) => output,
/// #         std::task::Poll::Pending => unreachable!(),
/// #     }
/// # }
/// # block_on(async {
/// use tollgate::{Costs, Gate, MemoryStore, Policy, Rule, Subject};
///
/// let policy = Policy::builder()
///     .rule(Rule::new("per-ip").by("ip").quota("2/min"))
///     .build()?;
/// let gate = Gate::new(policy, MemoryStore::new());
///
/// let subject = Subject::new().with("ip", "192.0.2.7");
/// assert!(gate.admit(&subject, &Costs::default()).await.is_allowed());
/// assert!(gate.admit(&subject, &Costs::default()).await.is_allowed());
/// let refused = gate.admit(&subject, &Costs::default()).await;
/// assert!(!refused.is_allowed());
/// assert_eq!(refused.rule().unwrap().name(), "per-ip");
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Debug)]
pub struct Gate<S> {
    // Most gates keep the policy they were made with, and then nobody takes the lock. Kept for good: a
    // gate whose policy was replaced holds two.
    first: Arc<Policy>,
    is_replaced: AtomicBool,
    // Replaced whole; a reader holds the lock only to copy the pointer.
    policy: RwLock<Arc<Policy>>,
    limiter: Limiter<S>,
    local: Local,
}

/// Deciding without the store.
#[derive(Debug)]
struct Local {
    store: LocalStore,
    // How many gates share what the store would have counted.
    replicas: NonZeroU32,
}

impl<S: Store> Gate<S> {
    /// A gate with `policy` over `store`, whose fallback is a small store on the system's clock.
    pub fn new(policy: impl Into<Arc<Policy>>, store: S) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let bounds =
            MemoryStoreBuilder::default().max_keys(LOCAL_KEYS).max_log_entries(LOCAL_LOG_ENTRIES);
        let first = policy.into();
        Self {
            policy: RwLock::new(Arc::clone(&first)),
            first,
            is_replaced: AtomicBool::new(false),
            limiter: Limiter::new(store),
            local: Local { store: bounds.build_with_clock(clock), replicas: NonZeroU32::MIN },
        }
    }

    /// The same gate with another local store: other bounds, or another clock.
    pub fn with_local(self, local: LocalStore) -> Self {
        Self { local: Local { store: local, ..self.local }, ..self }
    }

    /// The same gate as one of so many that share a store.
    ///
    /// While the store cannot be asked each counts alone, and a client whose requests are spread
    /// over all of them would get the quota of each. So the local store then goes by quotas divided
    /// by their number: together they grant no more than the quota, but for those below one unit
    /// each, which are not cut to nothing.
    pub fn with_replicas(self, replicas: NonZeroU32) -> Self {
        Self { local: Local { replicas, ..self.local }, ..self }
    }

    /// The policy in force.
    #[inline]
    pub fn policy(&self) -> Arc<Policy> {
        // In one order with the store, lest anybody who asks after it finds the old policy.
        match self.is_replaced.load(Ordering::SeqCst) {
            false => Arc::clone(&self.first),
            true => self.replaced(),
        }
    }

    fn replaced(&self) -> Arc<Policy> {
        // Nothing panics while holding the lock, and what it guards is never half written.
        let policy = self.policy.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&policy)
    }

    /// Puts another policy in force and returns the one before.
    ///
    /// Decisions under way finish by the old one; every later one goes by the new. Usage is kept
    /// wherever a rule keeps its name, axes, algorithm and period: a raised limit acts at once, a
    /// lowered one counts what was taken before.
    pub fn set_policy(&self, policy: impl Into<Arc<Policy>>) -> Arc<Policy> {
        let mut current = self.policy.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *current, policy.into());
        self.is_replaced.store(true, Ordering::SeqCst);
        drop(current);
        self.limiter.store().forget_refusals();
        before
    }

    /// The store with its verbs, for charges without a policy.
    pub fn limiter(&self) -> &Limiter<S> {
        &self.limiter
    }

    /// The store that decides while the other cannot be asked.
    pub fn local(&self) -> &LocalStore {
        &self.local.store
    }

    /// Decides a request and charges it, all rules or none. Never fails: when the store cannot be
    /// asked the rules' [fallbacks](crate::Fallback) decide.
    pub async fn admit(&self, subject: &Subject<'_>, costs: &Costs<'_>) -> Admission {
        let (asked, ground) = self.begin(subject, costs, take);
        self.ask(asked, ground).await
    }

    /// Says what [`admit`](Gate::admit) would, and charges nothing.
    pub async fn peek(&self, subject: &Subject<'_>, costs: &Costs<'_>) -> Admission {
        let (asked, ground) = self.begin(subject, costs, Op::Peek);
        self.ask(asked, ground).await
    }

    /// Decides charges no rule speaks of; when the store cannot be asked the local one decides, and
    /// the reason comes along.
    pub async fn take_set(&self, set: &ChargeSet<'_>) -> (Decision, Option<StoreError>) {
        match self.limiter.take_set(set).await {
            Ok(decision) => (decision, None),
            Err(error) => {
                let all = fallback::Fallbacks::from_elem(Fallback::Local, set.len());
                (fallback::decide(set, &all, &self.local), Some(error))
            }
        }
    }

    /// Asks the store, unless there is a ground to do without.
    async fn ask(&self, asked: Question, ground: Option<Ground>) -> Admission {
        match ground {
            Some(ground) => asked.decided(ground),
            None => {
                let answer = self.limiter.take_set(asked.charges.set()).await;
                self.conclude(asked, answer)
            }
        }
    }

    /// What the policy alone makes of a request. Inlined, for it is large, and moved out of every
    /// function that returns it.
    #[inline(always)]
    fn begin(
        &self,
        subject: &Subject<'_>,
        costs: &Costs<'_>,
        op: impl Fn(Cost) -> Op,
    ) -> (Question, Option<Ground>) {
        Question::new(self.policy(), subject, costs, op)
    }

    /// The admission with the store's decision, or the fallbacks' if there is none.
    #[inline(always)]
    fn conclude(&self, asked: Question, answer: Result<Decision, StoreError>) -> Admission {
        match answer {
            Ok(decision) if asked.is_answered_by(&decision) => asked.answered(decision),
            answer => {
                let error = answer.err().unwrap_or_else(no_answer);
                let decision = self.fall_back(&asked);
                Admission { store_error: Some(Arc::new(error)), ..asked.answered(decision) }
            }
        }
    }

    /// Has the rules' fallbacks decide.
    #[cold]
    fn fall_back(&self, asked: &Question) -> Decision {
        let Question { policy, charges } = asked;
        let fallbacks = charges.numbers().iter().map(|&rule| policy.fallback_of(rule)).collect();
        fallback::decide(charges.set(), &fallbacks, &self.local)
    }
}

impl<C: Clock> Gate<MemoryStore<C>> {
    /// [`admit`](Gate::admit) without a future, for a store in this process.
    pub fn admit_now(&self, subject: &Subject<'_>, costs: &Costs<'_>) -> Admission {
        let (asked, ground) = self.begin(subject, costs, take);
        self.ask_now(asked, ground)
    }

    /// [`peek`](Gate::peek) without a future, for a store in this process.
    pub fn peek_now(&self, subject: &Subject<'_>, costs: &Costs<'_>) -> Admission {
        let (asked, ground) = self.begin(subject, costs, Op::Peek);
        self.ask_now(asked, ground)
    }

    #[inline(always)]
    fn ask_now(&self, asked: Question, ground: Option<Ground>) -> Admission {
        match ground {
            Some(ground) => asked.decided(ground),
            None => {
                let decision = self.limiter.store().take_set(asked.charges.set());
                self.conclude(asked, Ok(decision))
            }
        }
    }
}

fn take(cost: Cost) -> Op {
    Op::Take(Ask::exactly(cost))
}

fn no_answer() -> StoreError {
    StoreError::new(StoreErrorKind::Protocol)
}

/// Charges on their way to a store.
#[derive(Clone, Debug)]
struct Question {
    // What decides stays alive, so that the names of rules need not be copied.
    policy: Arc<Policy>,
    charges: Charges,
}

impl Question {
    /// What a policy makes of a request: what the store is to be asked, or the ground to do without.
    #[inline(always)]
    fn new(
        policy: Arc<Policy>,
        subject: &Subject<'_>,
        costs: &Costs<'_>,
        op: impl Fn(Cost) -> Op,
    ) -> (Self, Option<Ground>) {
        let mut question = Self { policy, charges: Charges::default() };
        let ground = question.resolve(subject, costs, op);
        (question, ground)
    }

    /// Asks what the policy makes of a request, instead of whatever was asked before.
    #[inline(always)]
    fn resolve(
        &mut self,
        subject: &Subject<'_>,
        costs: &Costs<'_>,
        op: impl Fn(Cost) -> Op,
    ) -> Option<Ground> {
        if !self.charges.set().is_empty() {
            self.charges = Charges::default();
        }
        self.policy.charge(subject, costs, op, &mut self.charges)
    }

    /// A question by the same policy, without charges so far.
    fn without_charges(&self) -> Self {
        Self { policy: Arc::clone(&self.policy), charges: Charges::default() }
    }

    /// Whether a decision is an answer. Outcomes are told apart by their place, so one of another length
    /// is none.
    #[inline(always)]
    fn is_answered_by(&self, decision: &Decision) -> bool {
        decision.outcomes().len() == self.charges.set().len()
    }

    /// The admission where the policy decides alone.
    fn decided(self, ground: Ground) -> Admission {
        let decision = admission::alone(ground.verdict());
        Admission { decision, asked: self, ground: Some(ground), store_error: None }
    }

    /// The admission with this decision.
    #[inline(always)]
    fn answered(self, decision: Decision) -> Admission {
        Admission { decision, asked: self, ground: None, store_error: None }
    }
}
