//! One server that is killed, paused, made to forget, demoted or full.

use std::time::{Duration, Instant};

use tollgate::{Algorithm, Charge, ChargeSet, Cost, StoreErrorKind};
use tollgate_testkit::redis::Server;

use crate::load::{
    DEADLINE, Load, drained, during, failing, key, meter, resumed, served, spent, store,
    store_with_deadline, take,
};

const MOMENT: Duration = Duration::from_millis(500);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_and_restarted_empty() {
    let mut server = Server::start();
    let store = store(&server.url());
    served(&store, "key").await;
    let load = Load::on(&store, 64);
    during(MOMENT).await;
    server.kill();
    failing(&store, "key", StoreErrorKind::Unavailable).await;
    during(MOMENT).await;
    assert!(store.stats().is_breaker_open());
    server.restart();
    resumed(&store, "key").await;
    during(MOMENT).await;
    let tally = load.finish().await;
    tally.failed_only_by(&[StoreErrorKind::Unavailable, StoreErrorKind::Timeout]);
    drained(&store).await;
    assert!(!store.stats().is_breaker_open());
    assert!(server.keys_without_expiry().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paused_for_ten_seconds() {
    let server = Server::start();
    let store = store(&server.url());
    served(&store, "key").await;
    // A log counts exactly: what is granted before, during and after the pause, all from one bucket.
    let limit = 500;
    let daily = meter(&format!("{limit}/day"), Algorithm::SlidingLog);
    let one = |_| ChargeSet::of(Charge::take("shared", daily, Cost::ONE));
    let load = Load::of_sets(&store, 64, DEADLINE, one);
    server.pause();
    failing(&store, "key", StoreErrorKind::Unavailable).await;
    during(Duration::from_secs(10)).await;
    assert!(store.stats().is_breaker_open());
    server.resume();
    resumed(&store, "key").await;
    during(MOMENT).await;
    let tally = load.finish().await;
    assert!(tally.allowed <= limit, "{tally:?}");
    tally.failed_only_by(&[StoreErrorKind::Unavailable, StoreErrorKind::Timeout]);
    drained(&store).await;
}

/// While a server hangs nobody but the first few waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_of_a_server_that_hangs_are_told_at_once() {
    let server = Server::start();
    let deadline = Duration::from_secs(1);
    let store = store_with_deadline(&server.url(), deadline);
    served(&store, "key").await;
    server.pause();
    // One caller per connection may have to find out.
    failing(&store, "key", StoreErrorKind::Unavailable).await;
    let begun = Instant::now();
    for _ in 0..100 {
        assert_eq!(take(&store, "key").await.unwrap_err().kind(), StoreErrorKind::Unavailable);
    }
    assert!(begun.elapsed() < 50 * deadline, "each waited again: {:?}", begun.elapsed());
    server.resume();
    resumed(&store, "key").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn script_flushed_under_load() {
    let server = Server::start();
    let patient = Duration::from_secs(20);
    let store = store_with_deadline(&server.url(), patient);
    served(&store, "key").await;
    let limit = 1_000;
    let daily = meter(&format!("{limit}/day"), Algorithm::SlidingLog);
    let one = |_| ChargeSet::of(Charge::take("shared", daily, Cost::ONE));
    let load = Load::of_sets(&store, 64, patient, one);
    for _ in 0..20 {
        during(Duration::from_millis(50)).await;
        server.command(&["SCRIPT", "FLUSH"]);
    }
    spent(&store, "shared", daily).await;
    let tally = load.finish().await;
    assert_eq!((tally.allowed, tally.errors.len()), (limit, 0), "{tally:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_replica_behind_the_address() {
    let primary = Server::start();
    let replicaof = format!("127.0.0.1 {}", primary.port());
    let replica = Server::builder().arguments(&["--replicaof", &replicaof]).start();
    let patient = Duration::from_secs(5);
    let store = store_with_deadline(&replica.url(), patient);
    failing(&store, "key", StoreErrorKind::ReadOnly).await;
    let load = Load::of_sets(&store, 16, patient, |task| {
        ChargeSet::of(Charge::take(key(task), crate::load::plenty(), Cost::ONE))
    });
    during(MOMENT).await;
    load.finish().await.failed_only_by(&[StoreErrorKind::ReadOnly]);
    replica.command(&["REPLICAOF", "NO", "ONE"]);
    resumed(&store, "key").await;
    // And back: a primary that is demoted while in use.
    replica.command(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    failing(&store, "key", StoreErrorKind::ReadOnly).await;
    replica.command(&["REPLICAOF", "NO", "ONE"]);
    resumed(&store, "key").await;
    drained(&store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn out_of_memory() {
    let server = Server::builder().arguments(&["--maxmemory-policy", "noeviction"]).start();
    let patient = Duration::from_secs(5);
    let store = store_with_deadline(&server.url(), patient);
    served(&store, "key").await;
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    failing(&store, "new", StoreErrorKind::ReadOnly).await;
    let load = Load::on(&store, 16);
    during(MOMENT).await;
    load.finish().await.failed_only_by(&[StoreErrorKind::ReadOnly]);
    assert!(!store.stats().is_breaker_open(), "the server can be reached");
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    resumed(&store, "new").await;
    drained(&store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn not_there_when_the_store_is_built() {
    let mut server = Server::start();
    server.kill();
    let store = store(&server.url());
    failing(&store, "key", StoreErrorKind::Unavailable).await;
    server.restart();
    resumed(&store, "key").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_room_for_one_more() {
    let server = Server::start();
    let builder = tollgate_redis::RedisStore::builder(&server.url()).unwrap().max_in_flight(8);
    let patient = Duration::from_secs(20);
    let store = builder.deadline(patient).deny_cache(0).build().unwrap();
    served(&store, "key").await;
    server.pause();
    let waiting: Vec<_> = (0..8)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { take(&store, "key").await })
        })
        .collect();
    while store.stats().in_flight < 8 {
        tokio::task::yield_now().await;
    }
    let begun = Instant::now();
    for _ in 0..100 {
        assert_eq!(take(&store, "key").await.unwrap_err().kind(), StoreErrorKind::Overloaded);
    }
    assert!(begun.elapsed() < patient, "those without room waited: {:?}", begun.elapsed());
    server.resume();
    for answer in waiting {
        assert!(answer.await.unwrap().unwrap().is_allowed());
    }
    served(&store, "key").await;
    drained(&store).await;
}

/// Those who wait for a call to come back are told in time though none does, and one after another
/// takes the place of a call that was given up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_wait_for_a_call_are_told_in_time() {
    let server = Server::start();
    let deadline = Duration::from_secs(1);
    for idle in [true, false] {
        let store = store_with_deadline(&server.url(), deadline);
        served(&store, "key").await;
        // Whoever looks after deadlines is asleep by then, or has an ordinary question behind it.
        during(3 * deadline).await;
        if !idle {
            served(&store, "key").await;
            during(Duration::from_millis(200)).await;
        }
        server.pause();
        // More than may be out at once, later ones with a later end.
        let mut waiting = Vec::new();
        for _ in 0..20 {
            let store = store.clone();
            waiting.push(tokio::spawn(async move {
                let begun = Instant::now();
                (take(&store, "key").await.is_err(), begun.elapsed())
            }));
            during(Duration::from_millis(5)).await;
        }
        for answer in waiting {
            let told = tokio::time::timeout(Duration::from_secs(20), answer).await;
            let (failed, took) = told.expect("told at all").unwrap();
            assert!(failed && took < deadline * 8 / 5, "told after {took:?}, idle before: {idle}");
        }
        server.resume();
        drained(&store).await;
    }
}

/// A caller in a hurry is told in time, and the server does not count as down for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shorter_deadline_is_the_callers_own() {
    let server = Server::start();
    let store = store_with_deadline(&server.url(), Duration::from_secs(20));
    served(&store, "key").await;
    server.pause();
    let hurried = store.with_deadline(Duration::from_millis(20));
    for _ in 0..10 {
        assert_eq!(take(&hurried, "key").await.unwrap_err().kind(), StoreErrorKind::Timeout);
    }
    assert!(!store.stats().is_breaker_open());
    server.resume();
    // At once: it was never given up.
    assert!(take(&store, "key").await.is_ok());
    drained(&store).await;
}

/// A caller that leaves takes nothing with it, and what it leaves behind is finished.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_leave_stall_nobody() {
    let server = Server::start();
    let builder = tollgate_redis::RedisStore::builder(&server.url()).unwrap().max_in_flight(64);
    let store = builder.deadline(Duration::from_secs(10)).deny_cache(0).build().unwrap();
    served(&store, "key").await;
    server.pause();
    let mut overloaded = 0;
    for _ in 0..1_000 {
        // Gone before there can be an answer.
        let left = tokio::time::timeout(Duration::from_micros(100), take(&store, "key")).await;
        overloaded += u32::from(left.is_ok_and(|answer| answer.is_err()));
    }
    assert!(store.stats().in_flight <= 64);
    assert!(overloaded > 0, "what was left behind did not count");
    server.resume();
    drained(&store).await;
    served(&store, "key").await;
}
