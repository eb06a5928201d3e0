//! The contract between deciding and remembering.
//!
//! A [`Store`] holds the states of buckets, owns the clock they are judged by, and answers one
//! question: may these charges be made? The question crosses the boundary as data, whole, because
//! the other side may be a script in a server far away.
//!
//! # The verb
//!
//! [`Store::decide`] takes a slice of [`ChargeSet`]s and answers each. The sets of a slice are
//! independent; a slice only saves trips, clock readings and cache misses.
//!
//! Each set is decided **at one instant** and **all or nothing**:
//!
//! 1. The store reads its clock once, `now`.
//! 2. Every charge is *evaluated* against its bucket as it stands. Nothing is changed yet.
//! 3. The set is refused if an [`Enforce`](crate::Enforcement::Enforce) charge does not fit, or if
//!    none of an [`AnyOf`](crate::Enforcement::AnyOf) group does.
//! 4. Admitted: every [`Take`](crate::Op::Take) that fits is *applied*, shadow charges among them.
//!    Refused: nothing is applied, so a refusal never costs anybody anything.
//! 5. The outcome of each charge is read off its bucket: with the charge in it, or as it stands.
//!
//! Between 2 and 4 no other decision sees or changes the buckets of the set.
//!
//! # The ops
//!
//! | op | fits when | changes |
//! |---|---|---|
//! | `Take` | `max` units fit, or at least `min` of them | takes them, if the set is admitted |
//! | `Peek` | the cost would fit; it enforces as a take would | nothing |
//! | `Refund` | always | gives back what was taken at `at` and still counts |
//! | `Reset` | always | forgets the bucket |
//!
//! A refund or reset is carried out whatever becomes of the rest of its set.
//!
//! # What a store may forget
//!
//! A state that is *stale* is indistinguishable from a fresh one under the quota that last charged
//! it. A store may drop it at any time, and must treat it as fresh if it has not. A bounded store
//! may also drop live states when it is full; it counts them.
//!
//! # A wrong store
//!
//! ```text
//! let state = map.get(key);                  // another process does the same here …
//! if state.fits(cost) {                      // … and both find room for the last unit
//!     map.insert(key, state.with(cost));
//! }
//! ```
//!
//! # Errors
//!
//! A refusal is an `Ok` decision. [`StoreError`] means the store could not be asked or did not
//! answer in time, and then nobody knows whether the charge was made; it is not asked again.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use smallvec::SmallVec;

use crate::algorithm::Ask;
use crate::charge::{Charge, ChargeSet, Cost, Enforcement, Op};
use crate::decision::Decision;
use crate::key::Key;
use crate::meter::Meter;

/// One answer per set, in the order of the question.
pub type Answers = SmallVec<[Result<Decision, StoreError>; 1]>;

/// Where states live. See the [module](self) for the contract.
pub trait Store: Send + Sync {
    /// Whether every answer is there at once, so that the future of a question is ready when it is
    /// first polled. Front ends then need not set a question aside to come back to it.
    const IMMEDIATE: bool = false;

    /// Decides each set, all or nothing, at one instant of this store's clock.
    fn decide(&self, sets: &[ChargeSet<'_>]) -> impl Future<Output = Answers> + Send;

    /// The same for one set: what most questions are. A store need not write it, and does so if it has
    /// a shorter way than through a slice.
    fn decide_one(
        &self,
        set: &ChargeSet<'_>,
    ) -> impl Future<Output = Result<Decision, StoreError>> + Send {
        let answers = self.decide(std::slice::from_ref(set));
        async move {
            // A store that answers a question with nothing broke the contract; nobody else should
            // panic.
            answers.await.pop().unwrap_or_else(|| Err(StoreError::new(StoreErrorKind::Protocol)))
        }
    }

    /// The same for one set, without a future, where the answer is there at once. `None`, with nothing
    /// decided, where it has to be waited for: always, unless the store is
    /// [immediate](Store::IMMEDIATE).
    fn decide_now(&self, set: &ChargeSet<'_>) -> Option<Result<Decision, StoreError>> {
        if !Self::IMMEDIATE {
            return None;
        }
        let question = pin!(self.decide(std::slice::from_ref(set)));
        match question.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(mut answers) => answers.pop(),
            // The store does not keep what it promised. Asking again may charge twice.
            Poll::Pending => None,
        }
    }

    /// The same for one charge of one unit, out of its parts. A store need not write it, and does so if
    /// it has a shorter way than through a set.
    #[doc(hidden)]
    fn take_now(
        &self,
        key: &Key<'_>,
        meter: &Meter,
        enforcement: Enforcement,
    ) -> Option<Result<Decision, StoreError>> {
        let op = Op::Take(Ask::exactly(Cost::ONE));
        let charge = Charge { key: key.borrowed(), meter: *meter, op, enforcement };
        self.decide_now(&ChargeSet::of(charge))
    }

    /// The refusal of one charge by itself, where it is remembered: what
    /// [`decide_one`](Store::decide_one) would answer too, but before a set or a future is made, which
    /// costs more than remembering. Most stores remember none.
    #[inline(always)]
    fn recall(&self, _charge: &Charge<'_>) -> Option<Decision> {
        None
    }

    /// Forgets refusals it remembers in order not to ask again, because limits have changed. Most
    /// stores remember none.
    fn forget_refusals(&self) {}
}

impl<S: Store + ?Sized> Store for std::sync::Arc<S> {
    const IMMEDIATE: bool = S::IMMEDIATE;

    fn decide(&self, sets: &[ChargeSet<'_>]) -> impl Future<Output = Answers> + Send {
        (**self).decide(sets)
    }

    fn decide_one(
        &self,
        set: &ChargeSet<'_>,
    ) -> impl Future<Output = Result<Decision, StoreError>> + Send {
        (**self).decide_one(set)
    }

    fn decide_now(&self, set: &ChargeSet<'_>) -> Option<Result<Decision, StoreError>> {
        (**self).decide_now(set)
    }

    #[inline(always)]
    fn take_now(
        &self,
        key: &Key<'_>,
        meter: &Meter,
        enforcement: Enforcement,
    ) -> Option<Result<Decision, StoreError>> {
        (**self).take_now(key, meter, enforcement)
    }

    #[inline(always)]
    fn recall(&self, charge: &Charge<'_>) -> Option<Decision> {
        (**self).recall(charge)
    }

    fn forget_refusals(&self) {
        (**self).forget_refusals();
    }
}

impl<S: Store + ?Sized> Store for &S {
    const IMMEDIATE: bool = S::IMMEDIATE;

    fn decide(&self, sets: &[ChargeSet<'_>]) -> impl Future<Output = Answers> + Send {
        (**self).decide(sets)
    }

    fn decide_one(
        &self,
        set: &ChargeSet<'_>,
    ) -> impl Future<Output = Result<Decision, StoreError>> + Send {
        (**self).decide_one(set)
    }

    fn decide_now(&self, set: &ChargeSet<'_>) -> Option<Result<Decision, StoreError>> {
        (**self).decide_now(set)
    }

    #[inline(always)]
    fn take_now(
        &self,
        key: &Key<'_>,
        meter: &Meter,
        enforcement: Enforcement,
    ) -> Option<Result<Decision, StoreError>> {
        (**self).take_now(key, meter, enforcement)
    }

    #[inline(always)]
    fn recall(&self, charge: &Charge<'_>) -> Option<Decision> {
        (**self).recall(charge)
    }

    fn forget_refusals(&self) {
        (**self).forget_refusals();
    }
}

/// Why a store gave no answer.
#[derive(Debug)]
pub struct StoreError {
    kind: StoreErrorKind,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// What kept a store from answering: what an operator looks at first, and a metric's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// It cannot be reached.
    Unavailable,
    /// It did not answer before the deadline; the charge may have been made.
    Timeout,
    /// Too many questions are waiting already.
    Overloaded,
    /// It answers but cannot write: a replica, or out of memory.
    ReadOnly,
    /// It answered with something that is no answer.
    Protocol,
}

impl StoreErrorKind {
    /// The name in metrics and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unavailable => "unavailable",
            Self::Timeout => "timeout",
            Self::Overloaded => "overloaded",
            Self::ReadOnly => "read-only",
            Self::Protocol => "protocol",
        }
    }
}

impl StoreError {
    /// An error of this kind.
    pub fn new(kind: StoreErrorKind) -> Self {
        Self { kind, source: None }
    }

    /// An error of this kind with its cause.
    pub fn caused_by(
        kind: StoreErrorKind,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { kind, source: Some(source.into()) }
    }

    /// What kept the store from answering.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }
}

impl fmt::Display for StoreError {
    /// What could not be done; in the alternate form (`{:#}`) also why, which may name servers, and so is
    /// for logs and not for strangers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            StoreErrorKind::Unavailable => "reach the store",
            StoreErrorKind::Timeout => "get an answer from the store before the deadline",
            StoreErrorKind::Overloaded => "ask the store: too many decisions are waiting",
            StoreErrorKind::ReadOnly => "write to the store",
            StoreErrorKind::Protocol => "understand the store's answer",
        })?;
        match &self.source {
            Some(source) if f.alternate() => write!(f, ": {source}"),
            _ => Ok(()),
        }
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::Algorithm;
    use crate::decision::{Provenance, Verdict};
    use crate::time::Timestamp;

    /// Allows everything, by way of a future only.
    struct Open<const IMMEDIATE: bool>;

    impl<const IMMEDIATE: bool> Store for Open<IMMEDIATE> {
        const IMMEDIATE: bool = IMMEDIATE;

        async fn decide(&self, sets: &[ChargeSet<'_>]) -> Answers {
            let at = Timestamp::EPOCH;
            let open = || Decision::without_charges(Verdict::Allow, at, Provenance::Store);
            sets.iter().map(|_| Ok(open())).collect()
        }
    }

    #[test]
    fn only_a_store_that_is_immediate_is_asked_without_waiting() {
        let set = ChargeSet::new();
        let answer = Open::<true>.decide_now(&set).map(|answer| answer.unwrap().is_allowed());
        assert_eq!(answer, Some(true));
        assert!(std::sync::Arc::new(Open::<false>).decide_now(&set).is_none());
        let meter = Meter::new("1/s".parse().unwrap(), Algorithm::TokenBucket).unwrap();
        let (key, enforced) = (&Key::new("k"), Enforcement::Enforce);
        let answer = Open::<true>.take_now(key, &meter, enforced);
        assert_eq!(answer.map(|answer| answer.unwrap().is_allowed()), Some(true));
        assert!(std::sync::Arc::new(Open::<false>).take_now(key, &meter, enforced).is_none());
    }
}
