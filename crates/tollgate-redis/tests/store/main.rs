//! The store on servers that are well: every kind of URL, batches, and refusals remembered.

mod denials;
mod places;
mod reasons;

use std::pin::pin;
use std::time::Duration;

use tokio::time::timeout;
use tollgate::{Algorithm, Charge, ChargeSet, Cost, Decision, Limiter, Meter, Store, StoreError};
use tollgate_redis::RedisStore;
use tollgate_testkit::redis::{Reply, Server};

/// Long enough that nothing is late on a busy machine.
const PATIENT: Duration = Duration::from_secs(20);

fn meter(quota: &str, algorithm: Algorithm) -> Meter {
    Meter::new(quota.parse().unwrap(), algorithm).unwrap()
}

fn store(url: &str) -> RedisStore {
    RedisStore::builder(url).unwrap().deadline(PATIENT).build().unwrap()
}

fn remaining(decision: &Decision) -> u64 {
    decision.outcomes()[0].reading.unwrap().remaining
}

async fn take(store: &RedisStore, key: &str) -> Result<Decision, StoreError> {
    let daily = meter("1000000/day", Algorithm::TokenBucket);
    Limiter::new(store).take(key, daily, Cost::ONE).await
}

#[tokio::test]
async fn the_first_question_waits_for_the_connection() {
    let server = Server::start();
    let store = store(&server.url());
    assert!(take(&store, "key").await.unwrap().is_allowed());
    assert!(server.keys().iter().all(|key| key.starts_with("tollgate:")), "{:?}", server.keys());
    assert!(server.keys_without_expiry().is_empty());
}

#[tokio::test]
async fn a_slice_is_one_call() {
    let server = Server::start();
    let store = store(&server.url());
    take(&store, "warm up").await.unwrap();
    let calls = store.stats().calls;
    let hourly = meter("100/hour", Algorithm::SlidingWindow);
    let charge = |number: u64| Charge::take(format!("key:{}", number % 10), hourly, Cost::ONE);
    let sets: Vec<ChargeSet<'_>> = (0..100).map(|number| ChargeSet::of(charge(number))).collect();
    let answers = store.decide(&sets).await;
    let left: Vec<u64> = answers.iter().map(|answer| remaining(answer.as_ref().unwrap())).collect();
    // In order: each key is charged ten times, once per round of ten.
    let expected: Vec<u64> = (0..100).map(|number| 99 - number / 10).collect();
    assert_eq!(left, expected);
    assert_eq!(store.stats().calls - calls, 1);
    assert!(store.decide(&[]).await.is_empty());
}

/// A call takes 512 charges, so of 100 sets of 16 more than one call's wait behind the first.
#[tokio::test]
async fn a_slice_of_many_charges_is_as_many_calls_as_may_be_out() {
    let server = Server::start();
    let store = store(&server.url());
    take(&store, "warm up").await.unwrap();
    let calls = store.stats().calls;
    let hourly = meter("100/hour", Algorithm::TokenBucket);
    let sets: Vec<ChargeSet<'_>> = (0..100)
        .map(|set| {
            let charge = |number| Charge::take(format!("key:{set}:{number}"), hourly, Cost::ONE);
            let mut charges = ChargeSet::new();
            (0..16).map(charge).for_each(|charge| _ = charges.push(charge).unwrap());
            charges
        })
        .collect();
    server.pause();
    let mut answers = pin!(store.decide(&sets));
    assert!(timeout(Duration::from_millis(50), &mut answers).await.is_err());
    assert_eq!(store.stats().calls - calls, 2);
    server.resume();
    assert!(answers.await.iter().all(|answer| answer.as_ref().unwrap().is_allowed()));
    assert_eq!(store.stats().calls - calls, 4);
}

#[tokio::test]
async fn what_gathers_while_calls_are_out_goes_together() {
    let server = Server::start();
    let store = store(&server.url());
    take(&store, "warm up").await.unwrap();
    let before = store.stats();
    let tasks: Vec<_> = (0..500)
        .map(|number| {
            let store = store.clone();
            tokio::spawn(async move { take(&store, &format!("key:{number}")).await })
        })
        .collect();
    for task in tasks {
        assert!(task.await.unwrap().unwrap().is_allowed());
    }
    let stats = store.stats();
    assert_eq!(stats.decisions - before.decisions, 500);
    assert!(stats.calls - before.calls < 50, "{stats:?}");
    assert_eq!(stats.in_flight, 0);
    let counted: u64 = stats.latency.classes.iter().map(|(_, count)| count).sum();
    assert_eq!(counted, stats.decisions);
}

#[tokio::test]
async fn a_set_without_charges_is_admitted() {
    let server = Server::start();
    let limiter = Limiter::new(store(&server.url()));
    assert!(limiter.take_set(&ChargeSet::new()).await.unwrap().is_allowed());
}

/// The server's clock decides: no instant of ours ever reaches it.
#[tokio::test]
async fn no_clock_but_the_servers_is_asked() {
    let server = Server::start();
    let store = store(&server.url());
    take(&store, "warm up").await.unwrap();
    let mut monitor = server.client();
    assert_eq!(monitor.send(&["MONITOR"]).unwrap(), Reply::Simple("OK".into()));
    let decision = take(&store, "key").await.unwrap();
    let seen = loop {
        let line = monitor.receive().unwrap().text().unwrap();
        if line.contains("\"EVALSHA\"") {
            break line;
        }
    };
    // After the one key comes its shape. An instant, as a test may give, would come behind it.
    let (_, arguments) = seen.split_once("tollgate:{key}::tb\" ").expect("the key");
    assert!(!arguments.contains("\" \""), "{seen}");
    let time = server.command(&["TIME"]);
    let seconds: u64 = time.elements()[0].text().unwrap().parse().unwrap();
    assert!(decision.at().as_micros() / 1_000_000 <= seconds);
}

#[tokio::test]
async fn several_stores_share_buckets_unless_their_prefixes_differ() {
    let server = Server::start();
    let (one, two) = (store(&server.url()), store(&server.url()));
    let builder = RedisStore::builder(&server.url()).unwrap().deadline(PATIENT);
    let three = builder.prefix("shop".parse().unwrap()).build().unwrap();
    let mut left = Vec::new();
    for store in [&one, &two, &three] {
        left.push(remaining(&take(store, "key").await.unwrap()));
    }
    assert_eq!(left, [999_999, 999_998, 999_999]);
}

#[tokio::test]
async fn connections_end_with_the_store() {
    let server = Server::start();
    let store = store(&server.url());
    take(&store, "key").await.unwrap();
    let ours = || {
        let clients = server.command(&["CLIENT", "LIST"]).text().unwrap();
        // One of them is the one that asks.
        clients.lines().count() - 1
    };
    assert!(ours() > 0);
    let clone = store.clone();
    drop(store);
    take(&clone, "key").await.unwrap();
    drop(clone);
    while ours() > 0 {
        tokio::task::yield_now().await;
    }
}

/// A store outlives the runtime it was built in without harm: it only has no answers any more.
#[test]
fn a_runtime_that_ends_leaves_nobody_waiting() {
    let server = Server::start();
    let runtime = || tokio::runtime::Runtime::new().unwrap();
    let (one, other) = (runtime(), runtime());
    let store = one.block_on(async { store(&server.url()) });
    let hurried = store.with_deadline(Duration::from_millis(200));
    other.block_on(async { take(&store, "key").await.unwrap() });
    let asking: Vec<_> = (0..200)
        .map(|_| {
            let hurried = hurried.clone();
            other.spawn(async move { while take(&hurried, "key").await.is_ok() {} })
        })
        .collect();
    one.shutdown_background();
    other.block_on(async {
        for task in asking {
            task.await.unwrap();
        }
        assert!(take(&hurried, "key").await.is_err());
    });
}

#[test]
fn without_a_runtime_nothing_is_built() {
    let error = RedisStore::builder("redis://localhost").unwrap().build().unwrap_err();
    assert!(error.to_string().contains("tokio runtime"), "{error}");
}
