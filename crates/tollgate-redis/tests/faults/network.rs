//! A wire that is slow, cut, or swallows everything.

use std::time::Duration;

use tollgate::{Algorithm, Charge, ChargeSet, Cost, StoreErrorKind};
use tollgate_testkit::redis::{Proxy, Server};

use crate::load::{
    DEADLINE, Load, drained, during, failing, meter, resumed, served, store, store_with_deadline,
    take,
};

const DOWN: [StoreErrorKind; 2] = [StoreErrorKind::Unavailable, StoreErrorKind::Timeout];

fn counted(limit: u64) -> impl Fn(usize) -> ChargeSet<'static> {
    let daily = meter(&format!("{limit}/day"), Algorithm::SlidingLog);
    move |_| ChargeSet::of(Charge::take("shared", daily, Cost::ONE))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_milliseconds_more() {
    let server = Server::start();
    let proxy = Proxy::start(server.port());
    let store = store(&proxy.url());
    served(&store, "key").await;
    let limit = 500;
    let load = Load::of_sets(&store, 64, DEADLINE, counted(limit));
    proxy.delay(Duration::from_millis(100));
    failing(&store, "key", StoreErrorKind::Unavailable).await;
    during(Duration::from_secs(1)).await;
    assert!(store.stats().is_breaker_open(), "a server that is always late is used");
    proxy.delay(Duration::ZERO);
    resumed(&store, "key").await;
    let tally = load.finish().await;
    assert!(tally.allowed <= limit, "{tally:?}");
    tally.failed_only_by(&DOWN);
    drained(&store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_again_and_again() {
    let server = Server::start();
    let proxy = Proxy::start(server.port());
    let store = store(&proxy.url());
    served(&store, "key").await;
    let limit = 500;
    let load = Load::of_sets(&store, 64, DEADLINE, counted(limit));
    for _ in 0..20 {
        proxy.cut();
        during(Duration::from_millis(50)).await;
    }
    resumed(&store, "key").await;
    let tally = load.finish().await;
    assert!(tally.allowed <= limit, "{tally:?}");
    tally.failed_only_by(&DOWN);
    drained(&store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn swallowed_without_a_word() {
    let server = Server::start();
    let proxy = Proxy::start(server.port());
    let store = store(&proxy.url());
    served(&store, "key").await;
    let limit = 500;
    let load = Load::of_sets(&store, 64, DEADLINE, counted(limit));
    proxy.black_hole();
    failing(&store, "key", StoreErrorKind::Unavailable).await;
    during(Duration::from_secs(2)).await;
    assert!(store.stats().is_breaker_open());
    // The connections from before stay half open: nothing ever comes back on them.
    proxy.restore();
    resumed(&store, "key").await;
    let tally = load.finish().await;
    assert!(tally.allowed <= limit, "{tally:?}");
    tally.failed_only_by(&DOWN);
    drained(&store).await;
}

/// The server has lost the script and says so when it is too late for the caller. It has charged
/// nothing, and is not asked again for somebody who was told that there is no answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sent_again_for_nobody() {
    let server = Server::start();
    let proxy = Proxy::start(server.port());
    let store = store_with_deadline(&proxy.url(), Duration::from_secs(20));
    served(&store, "key").await;
    drained(&store).await;
    server.command(&["SCRIPT", "FLUSH"]);
    proxy.delay(Duration::from_millis(100));
    let hurried = store.with_deadline(Duration::from_millis(20));
    let error = take(&hurried, "late").await.expect_err("there is no time");
    assert_eq!(error.kind(), StoreErrorKind::Timeout);
    drained(&store).await;
    proxy.delay(Duration::ZERO);
    // Whoever comes next is asked for as usual.
    served(&store, "next").await;
    let keys = server.keys();
    assert!(keys.iter().any(|key| key.contains("next")), "{keys:?}");
    assert!(!keys.iter().any(|key| key.contains("late")), "{keys:?}");
}
