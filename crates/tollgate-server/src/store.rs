//! A store of either kind, chosen when the server starts.

use tollgate::store::Answers;
use tollgate::{ChargeSet, MemoryStore, Store};
use tollgate_redis::RedisStore;

/// Where the buckets of a server are.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one of it")]
pub enum AnyStore {
    /// In this process.
    Memory(MemoryStore),
    /// In Redis, shared with others.
    Redis(RedisStore),
}

impl Store for AnyStore {
    async fn decide(&self, sets: &[ChargeSet<'_>]) -> Answers {
        match self {
            Self::Memory(store) => store.decide(sets).await,
            Self::Redis(store) => store.decide(sets).await,
        }
    }

    fn forget_refusals(&self) {
        match self {
            Self::Memory(store) => store.forget_refusals(),
            Self::Redis(store) => store.forget_refusals(),
        }
    }
}
