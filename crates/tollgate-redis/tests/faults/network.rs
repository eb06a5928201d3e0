//! A wire that is slow, cut, or swallows everything.

use std::time::Duration;

use tollgate::{Algorithm, Charge, ChargeSet, Cost, StoreErrorKind};
use tollgate_testkit::redis::{Proxy, Server};

use crate::load::{DEADLINE, Load, drained, during, failing, meter, resumed, served, store};

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
