//! Many tasks that ask without pause, and what they were told.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tollgate::{
    Algorithm, Charge, ChargeSet, Cost, Decision, Key, Limiter, Meter, Provenance, StoreError,
    StoreErrorKind,
};
use tollgate_redis::RedisStore;

/// How long a decision may take in most tests.
pub(crate) const DEADLINE: Duration = Duration::from_millis(50);

/// How much later a task may be told on a machine that is busy with other tests.
const SLACK: Duration = Duration::from_secs(2);

/// Service has to resume within two seconds of the server's return. The rest is for the machine.
const RESUME: Duration = Duration::from_secs(2 + 3);

/// A store with the usual settings but no deny cache, so that every decision asks Redis.
pub(crate) fn store(url: &str) -> RedisStore {
    store_with_deadline(url, DEADLINE)
}

/// The same with another deadline: long, where nothing may be late but because of the machine.
pub(crate) fn store_with_deadline(url: &str, deadline: Duration) -> RedisStore {
    let builder = RedisStore::builder(url).unwrap().deny_cache(0);
    builder.deadline(deadline).build().unwrap()
}

pub(crate) fn meter(quota: &str, algorithm: Algorithm) -> Meter {
    Meter::new(quota.parse().unwrap(), algorithm).unwrap()
}

/// A limit nobody reaches.
pub(crate) fn plenty() -> Meter {
    meter("1000000/day", Algorithm::FixedWindow)
}

pub(crate) async fn take(store: &RedisStore, key: &str) -> Result<Decision, StoreError> {
    Limiter::new(store).take(key, plenty(), Cost::ONE).await
}

/// Asks until Redis decides, and says how long that took.
pub(crate) async fn served(store: &RedisStore, key: &str) -> Duration {
    let begun = Instant::now();
    while take(store, key).await.is_err() {
        assert!(begun.elapsed() < Duration::from_secs(30), "Redis is never found: {store:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    begun.elapsed()
}

/// Asks until Redis decides again after a fault, which must not take long.
pub(crate) async fn resumed(store: &RedisStore, key: &str) {
    let took = served(store, key).await;
    eprintln!("resumed after {took:?}");
    assert!(took < RESUME, "service resumed only after {took:?}");
}

/// Asks until the answer is an error of this kind.
pub(crate) async fn failing(store: &RedisStore, key: &str, kind: StoreErrorKind) {
    let begun = Instant::now();
    loop {
        match take(store, key).await {
            Err(error) if error.kind() == kind => return,
            answer => assert!(begun.elapsed() < RESUME, "not {kind:?} but {answer:?}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until others have used a quota up.
pub(crate) async fn spent(store: &RedisStore, key: &str, meter: Meter) {
    let begun = Instant::now();
    while Limiter::new(store).peek(key, meter, Cost::ONE).await.unwrap().is_allowed() {
        assert!(begun.elapsed() < Duration::from_secs(60), "the quota is never used up");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until nothing is under way, as must be soon when nobody asks.
pub(crate) async fn drained(store: &RedisStore) {
    let begun = Instant::now();
    while store.stats().in_flight > 0 {
        assert!(begun.elapsed() < Duration::from_secs(10), "something is left over: {store:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// What tasks were told.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    pub(crate) errors: HashMap<StoreErrorKind, u64>,
    slowest: Duration,
}

impl Tally {
    fn count(&mut self, answer: &Result<Decision, StoreError>, took: Duration) {
        match answer {
            Ok(decision) => {
                assert_eq!(decision.provenance(), Provenance::Store);
                match decision.is_allowed() {
                    true => self.allowed += 1,
                    false => self.denied += 1,
                }
            }
            Err(error) => *self.errors.entry(error.kind()).or_default() += 1,
        }
        self.slowest = self.slowest.max(took);
    }

    fn add(&mut self, other: Self) {
        self.allowed += other.allowed;
        self.denied += other.denied;
        for (kind, count) in other.errors {
            *self.errors.entry(kind).or_default() += count;
        }
        self.slowest = self.slowest.max(other.slowest);
    }

    /// The errors were of these kinds only.
    pub(crate) fn failed_only_by(&self, kinds: &[StoreErrorKind]) {
        assert!(self.errors.keys().all(|kind| kinds.contains(kind)), "{self:?}");
    }
}

/// Tasks that ask until told to stop.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    tasks: JoinSet<Tally>,
    deadline: Duration,
}

impl Load {
    /// So many tasks, of which each asks for a key of its own out of a few.
    pub(crate) fn on(store: &RedisStore, tasks: usize) -> Self {
        Self::of_sets(store, tasks, DEADLINE, |task| {
            ChargeSet::of(Charge::take(key(task % 16), plenty(), Cost::ONE))
        })
    }

    /// So many tasks, of which each asks for the same set over and over.
    pub(crate) fn of_sets(
        store: &RedisStore,
        tasks: usize,
        deadline: Duration,
        set: impl Fn(usize) -> ChargeSet<'static>,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut load = Self { stop, tasks: JoinSet::new(), deadline };
        for task in 0..tasks {
            let (store, set, stop) = (store.clone(), set(task), Arc::clone(&load.stop));
            load.tasks.spawn(async move {
                let limiter = Limiter::new(store);
                let mut tally = Tally::default();
                while !stop.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    let answer = limiter.take_set(&set).await;
                    tally.count(&answer, begun.elapsed());
                    // An answer that comes at once must not take the processor from everybody else.
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                tally
            });
        }
        load
    }

    /// Stops and says what was told; nothing may have come later than it had to.
    pub(crate) async fn finish(mut self) -> Tally {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Tally::default();
        while let Some(tally) = self.tasks.join_next().await {
            all.add(tally.unwrap());
        }
        eprintln!("{all:?}");
        assert!(all.slowest < self.deadline + SLACK, "a decision was late: {all:?}");
        all
    }
}

/// Lets the load go on for so long.
pub(crate) async fn during(span: Duration) {
    tokio::time::sleep(span).await;
}

pub(crate) fn key(number: usize) -> Key<'static> {
    format!("key:{number}").into()
}
