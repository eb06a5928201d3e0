//! A store with verbs: charges without a policy.

use std::borrow::Borrow;

use smallvec::smallvec;

use crate::charge::{Charge, ChargeSet, Cost, Op};
use crate::decision::Decision;
use crate::key::Key;
use crate::meter::Meter;
use crate::store::{Answers, Store, StoreError};
use crate::time::Timestamp;

/// Asks a store, one verb per question.
///
/// On a [`MemoryStore`](crate::MemoryStore) the futures are ready at once, and the store's own
/// methods do the same without them.
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
/// use tollgate::{Algorithm, Cost, Limiter, MemoryStore, Meter};
///
/// let limiter = Limiter::new(MemoryStore::new());
/// let meter = Meter::new("5/min".parse()?, Algorithm::TokenBucket)?;
/// let decision = limiter.take("user:42", meter, Cost::ONE).await?;
/// assert!(decision.is_allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Limiter<S> {
    store: S,
}

impl<S: Store> Limiter<S> {
    /// A limiter that asks `store`.
    pub const fn new(store: S) -> Self {
        Self { store }
    }

    /// The store.
    pub const fn store(&self) -> &S {
        &self.store
    }

    /// Takes `cost` units from one bucket.
    pub async fn take(
        &self,
        key: impl Into<Key<'_>>,
        meter: impl Borrow<Meter>,
        cost: Cost,
    ) -> Result<Decision, StoreError> {
        let set = {
            // In a scope of its own, so that none of it is kept in the future.
            let charge = Charge::take(key, *meter.borrow(), cost);
            if let Some(refusal) = self.store.recall(&charge) {
                return Ok(refusal);
            }
            ChargeSet::of(charge)
        };
        self.store.decide_one(&set).await
    }

    /// Says what taking `cost` units would do, and takes none.
    pub async fn peek(
        &self,
        key: impl Into<Key<'_>>,
        meter: impl Borrow<Meter>,
        cost: Cost,
    ) -> Result<Decision, StoreError> {
        self.store.decide_one(&ChargeSet::of(Charge::peek(key, *meter.borrow(), cost))).await
    }

    /// Gives back `cost` units that the decision made at `at` took.
    pub async fn refund(
        &self,
        key: impl Into<Key<'_>>,
        meter: impl Borrow<Meter>,
        cost: Cost,
        at: Timestamp,
    ) -> Result<Decision, StoreError> {
        self.store
            .decide_one(&ChargeSet::of(Charge::new(key, *meter.borrow(), Op::Refund { cost, at })))
            .await
    }

    /// Forgets a bucket.
    pub async fn reset(
        &self,
        key: impl Into<Key<'_>>,
        meter: impl Borrow<Meter>,
    ) -> Result<Decision, StoreError> {
        self.store.decide_one(&ChargeSet::of(Charge::new(key, *meter.borrow(), Op::Reset))).await
    }

    /// Decides one set, all or nothing, whatever its ops.
    pub async fn take_set(&self, set: &ChargeSet<'_>) -> Result<Decision, StoreError> {
        self.store.decide_one(set).await
    }

    /// Takes `cost` units from the bucket of each key, independently, in one go: one clock reading,
    /// one trip, one answer per key.
    pub async fn take_many<'k, K: Into<Key<'k>>>(
        &self,
        keys: impl IntoIterator<Item = K>,
        meter: impl Borrow<Meter>,
        cost: Cost,
    ) -> Answers {
        let charge = |key| ChargeSet::of(Charge::take(key, *meter.borrow(), cost));
        let sets: Vec<_> = keys.into_iter().map(charge).collect();
        self.take_sets(&sets).await
    }

    /// Decides independent sets in one go.
    pub async fn take_sets(&self, sets: &[ChargeSet<'_>]) -> Answers {
        match sets {
            [] => smallvec![],
            sets => self.store.decide(sets).await,
        }
    }
}
