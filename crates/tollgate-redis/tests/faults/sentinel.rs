//! A primary that is replaced.

use std::time::{Duration, Instant};

use tollgate::StoreErrorKind;
use tollgate_testkit::redis::{Sentinels, Server, wait_for};

use crate::load::{Load, drained, during, resumed, served, store, take};

const KINDS: [StoreErrorKind; 3] =
    [StoreErrorKind::Unavailable, StoreErrorKind::Timeout, StoreErrorKind::ReadOnly];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_and_demoted_under_load() {
    let mut all = Sentinels::start(1);
    let store = store(&all.url());
    served(&store, "key").await;
    let load = Load::on(&store, 64);
    during(Duration::from_millis(500)).await;

    let before = all.primary_port();
    all.servers[0].kill();
    wait_for("another primary", || (all.primary_port() != before).then_some(()));
    wait_for("its promotion", || (all.primary().info("role")? == "master").then_some(()));
    resumed(&store, "key").await;

    // Back as a replica, and then made the primary again: the other one lives on, read-only.
    all.servers[0].restart();
    let now = all.primary_port();
    wait_for("its return", || {
        let online = all.primary().info("connected_slaves")? == "1";
        let follows = all.servers[0].info("master_link_status").as_deref() == Some("up");
        (online && follows).then_some(())
    });
    wait_for("a fail-over by hand", || all.fail_over().then_some(()));
    wait_for("the primary of before", || (all.primary_port() != now).then_some(()));
    wait_for("its promotion", || (all.primary().info("role")? == "master").then_some(()));
    resumed(&store, "key").await;

    load.finish().await.failed_only_by(&KINDS);
    drained(&store).await;
    assert!(all.primary().keys_without_expiry().is_empty());
    assert!(!all.primary().keys().is_empty(), "nothing reached the new primary");
}

/// A primary that was replaced and does not know, as one the sentinels cannot reach any more, is left
/// though it answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replaced_without_its_knowledge() {
    let all = Sentinels::start(0);
    let store = store(&all.url());
    served(&store, "key").await;
    let successor = Server::start();
    all.watch(&successor);
    let begun = Instant::now();
    while successor.keys().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(30), "the sentinels are not asked again");
        // While links are replaced it may fail.
        let _ = take(&store, "key").await;
        during(Duration::from_millis(20)).await;
    }
    assert_eq!(all.servers[0].info("role").as_deref(), Some("master"));
    resumed(&store, "key").await;
}
