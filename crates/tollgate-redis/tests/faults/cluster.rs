//! A cluster whose slots move and whose primaries die.

use std::time::{Duration, Instant};

use tollgate::{Algorithm, Charge, ChargeSet, Cost, Limiter, StoreErrorKind};
use tollgate_testkit::redis::{Cluster, Server, wait_for};

use crate::load::{
    Load, drained, during, failing, key, meter, plenty, resumed, served, spent, store,
    store_with_deadline, take,
};

/// Long enough that nothing is late but for a fault.
const PATIENT: Duration = Duration::from_secs(20);

/// The slot of a key made by hand, whose name has it in braces.
fn slot(cluster: &Cluster, key: &str) -> u16 {
    cluster.slot(&format!("{{{key}}}"))
}

/// The first of `key:0`, `key:1`, … that the primary at `place` owns.
fn owned_by(cluster: &Cluster, place: usize) -> String {
    let keys = (0..).map(|number| format!("key:{number}"));
    let mut owned = keys.filter(|key| cluster.owner(slot(cluster, key)) == place);
    owned.next().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moves_under_load() {
    let cluster = Cluster::start();
    let store = store_with_deadline(&cluster.url(), PATIENT);
    served(&store, "key").await;
    let limit = 400;
    let daily = meter(&format!("{limit}/day"), Algorithm::SlidingLog);
    let name = owned_by(&cluster, 0);
    let slot = slot(&cluster, &name);
    let load = Load::of_sets(&store, 32, PATIENT, |_| {
        ChargeSet::of(Charge::take(name.clone(), daily, Cost::ONE))
    });
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        cluster.begin_migration(slot, from, to);
        during(Duration::from_millis(50)).await;
        cluster.move_keys(slot, from, to);
        during(Duration::from_millis(50)).await;
        cluster.finish_migration(slot, from, to);
        during(Duration::from_millis(50)).await;
    }
    spent(&store, &name, daily).await;
    let tally = load.finish().await;
    assert_eq!((tally.allowed, tally.errors.len()), (limit, 0), "{tally:?}");
    drained(&store).await;
}

/// Two buckets of one slot, of which only one has moved yet, cannot be asked for together; alone
/// each can, and both when the other has followed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sets_wait_for_keys_that_are_on_their_way() {
    let cluster = Cluster::start();
    let store = store_with_deadline(&cluster.url(), PATIENT);
    served(&store, "key").await;
    let limiter = Limiter::new(&store);
    let (slow, fast) = (plenty(), meter("1000/hour", Algorithm::SlidingLog));
    let name = owned_by(&cluster, 0);
    let slot = slot(&cluster, &name);
    let mut both = ChargeSet::new();
    both.push(Charge::take(name.clone(), slow, Cost::ONE)).unwrap();
    both.push(Charge::take(name.clone(), fast, Cost::ONE)).unwrap();
    assert!(limiter.take(name.as_str(), slow, Cost::ONE).await.unwrap().is_allowed());
    cluster.begin_migration(slot, 0, 1);
    // One bucket is there, the other is not and so would be asked for elsewhere.
    assert!(limiter.take(name.as_str(), fast, Cost::ONE).await.unwrap().is_allowed());
    let waiting = {
        let (store, both) = (store.clone(), both.clone());
        tokio::spawn(async move { Limiter::new(store).take_set(&both).await })
    };
    during(Duration::from_millis(100)).await;
    // However many wait, they keep nobody waiting who asks the same server for something else.
    let more: Vec<_> = (0..16)
        .map(|_| {
            let (store, both) = (store.clone(), both.clone());
            tokio::spawn(async move { Limiter::new(store).take_set(&both).await })
        })
        .collect();
    during(Duration::from_millis(100)).await;
    for number in 0..20 {
        take(&store, &format!("{name}:{number}")).await.unwrap();
        assert!(limiter.peek(name.as_str(), slow, Cost::ONE).await.unwrap().is_allowed());
    }
    assert!(more.iter().all(|task| !task.is_finished()), "the others had to wait");
    for task in more {
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
    }
    drained(&store).await;
    assert!(!waiting.is_finished(), "a divided set was decided");
    cluster.move_keys(slot, 0, 1);
    cluster.finish_migration(slot, 0, 1);
    let decision = waiting.await.unwrap().unwrap();
    let left: Vec<u64> =
        decision.outcomes().iter().map(|outcome| outcome.reading.unwrap().remaining).collect();
    assert_eq!(left, [999_998, 998]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_dies_is_replaced_and_others_serve_on() {
    let mut cluster = Cluster::start();
    let store = store(&cluster.url());
    let (doomed, other) = (owned_by(&cluster, 0), owned_by(&cluster, 1));
    served(&store, &doomed).await;
    served(&store, &other).await;
    let load = Load::on(&store, 32);
    cluster.servers[0].kill();
    failing(&store, &doomed, StoreErrorKind::Unavailable).await;
    // Not merely sooner or later: while the one is down the other is not.
    let begun = Instant::now();
    while take(&store, &other).await.is_err() {
        assert!(begun.elapsed() < Duration::from_secs(2), "the others fail too");
    }
    wait_for("the replica's promotion", || cluster.is_primary(Cluster::PRIMARIES).then_some(()));
    resumed(&store, &doomed).await;
    let kinds = [StoreErrorKind::Unavailable, StoreErrorKind::Timeout];
    load.finish().await.failed_only_by(&kinds);
    drained(&store).await;
    for place in [1, 2, 3] {
        assert!(cluster.servers[place].keys_without_expiry().is_empty());
    }
}

/// Servers that do not tell their host are where the one that points at them is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redirections_without_a_host() {
    let cluster = Cluster::start();
    for server in &cluster.servers {
        let setting = ["cluster-preferred-endpoint-type", "unknown-endpoint"];
        server.command(&["CONFIG", "SET", setting[0], setting[1]]);
    }
    let store = store_with_deadline(&cluster.url(), PATIENT);
    served(&store, "key").await;
    let name = owned_by(&cluster, 0);
    let slot = slot(&cluster, &name);
    // Asked for elsewhere while it moves, and moved when it has.
    cluster.begin_migration(slot, 0, 1);
    assert!(take(&store, &name).await.unwrap().is_allowed());
    cluster.finish_migration(slot, 0, 1);
    assert!(take(&store, &name).await.unwrap().is_allowed());
    assert!(cluster.servers[0].keys().iter().all(|key| !key.contains(&name)));
}

/// A server that says nobody owns a slot makes the map suspect: it is read again at once, and not
/// only when it is due.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_nobody_owns_has_the_map_read_again() {
    let cluster = Cluster::start();
    let store = store_with_deadline(&cluster.url(), PATIENT);
    let name = owned_by(&cluster, 0);
    let slot = slot(&cluster, &name).to_string();
    served(&store, &name).await;
    let read = || -> u64 {
        let calls = |server: &Server| {
            let info = server.command(&["INFO", "commandstats"]).text().unwrap();
            let line = info.lines().find_map(|line| line.strip_prefix("cmdstat_cluster|slots:"));
            let calls = line.and_then(|line| line.strip_prefix("calls=")?.split(',').next());
            calls.map_or(0, |calls| calls.parse().unwrap())
        };
        cluster.servers.iter().map(calls).sum()
    };
    cluster.servers[0].command(&["CLUSTER", "DELSLOTS", &slot]);
    let (begun, before) = (Instant::now(), read());
    while read() < before + 10 {
        failing(&store, &name, StoreErrorKind::Unavailable).await;
        assert!(begun.elapsed() < Duration::from_secs(20), "read only {} times", read() - before);
    }
    cluster.servers[0].command(&["CLUSTER", "ADDSLOTS", &slot]);
    resumed(&store, &name).await;
}

/// A server that was removed knows of no slots, and is not believed that there are none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_slots_is_not_believed() {
    let cluster = Cluster::start();
    let removed = &cluster.servers[Cluster::PRIMARIES];
    removed.command(&["CLUSTER", "RESET", "HARD"]);
    assert!(removed.command(&["CLUSTER", "SLOTS"]).elements().is_empty());
    let (first, then) = (removed.address(), cluster.servers[1].address());
    let store = store(&format!("redis+cluster://{first},{then}"));
    resumed(&store, &owned_by(&cluster, 0)).await;
    let alone = crate::load::store(&format!("redis+cluster://{first}"));
    failing(&alone, "key", StoreErrorKind::Unavailable).await;
}

/// Sets that span slots are taken slot by slot, and a refused one leaves nothing charged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sets_that_span_slots() {
    let cluster = Cluster::start();
    let store = store_with_deadline(&cluster.url(), PATIENT);
    served(&store, "key").await;
    let limiter = Limiter::new(&store);
    let hourly = |limit: u64| meter(&format!("{limit}/day"), Algorithm::SlidingLog);
    let set = |charges: Vec<Charge<'static>>| {
        let mut set = ChargeSet::new();
        charges.into_iter().for_each(|charge| {
            set.push(charge).unwrap();
        });
        set
    };
    let take = |number: usize, limit| Charge::take(key(number), hourly(limit), Cost::ONE);

    // Three buckets on as many slots, of which one has room for two.
    for (scarce, order) in [(0, [2, 5, 5]), (1, [5, 2, 5]), (2, [5, 5, 2])] {
        let names = [10 * scarce, 10 * scarce + 1, 10 * scarce + 2];
        let charges = || names.iter().zip(order).map(|(&name, limit)| take(name, limit)).collect();
        for round in 0..4 {
            let decision = limiter.take_set(&set(charges())).await.unwrap();
            assert_eq!(decision.is_allowed(), round < 2, "{decision:?}");
            assert_eq!(decision.outcomes().len(), 3);
            if round >= 2 {
                assert_eq!(decision.binding(), Some(scarce));
            }
        }
        for (name, limit) in names.into_iter().zip(order) {
            let peek = limiter.peek(key(name), hourly(limit), Cost::ONE).await.unwrap();
            let left = peek.outcomes()[0].reading.unwrap().remaining;
            assert_eq!(left, limit - 2, "a refused set stayed charged");
        }
    }

    // Of a group one has to fit, wherever it lies.
    let any = |number, limit| take(number, limit).enforced(tollgate::Enforcement::AnyOf(1));
    for round in 0..4 {
        let decision = limiter.take_set(&set(vec![any(50, 1), any(51, 3)])).await.unwrap();
        assert_eq!(decision.is_allowed(), round < 3, "{decision:?}");
    }

    // Resets and peeks need no order.
    let reset = |number: usize| Charge::new(key(number), hourly(5), tollgate::Op::Reset);
    assert!(limiter.take_set(&set(vec![reset(0), reset(1)])).await.unwrap().is_allowed());
    let peek = limiter.peek(key(1), hourly(5), Cost::ONE).await.unwrap();
    assert_eq!(peek.outcomes()[0].reading.unwrap().remaining, 5);
}

/// However many sets that span slots compete, no bucket grants more than it has, and in the end
/// nothing stays charged that was not granted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn competing_sets_that_span_slots_never_grant_too_much() {
    let cluster = Cluster::start();
    let store = store_with_deadline(&cluster.url(), PATIENT);
    served(&store, "key").await;
    let limit = 50;
    let daily = meter(&format!("{limit}/day"), Algorithm::SlidingLog);
    let pair = |task: usize| {
        let mut set = ChargeSet::new();
        for number in [task % 3, (task + 1) % 3] {
            set.push(Charge::take(key(number), daily, Cost::ONE)).unwrap();
        }
        set
    };
    let load = Load::of_sets(&store, 24, PATIENT, pair);
    let limiter = Limiter::new(&store);
    let left = async |number: usize| {
        let peek = limiter.peek(key(number), daily, Cost::ONE).await.unwrap();
        peek.outcomes()[0].reading.unwrap().remaining
    };
    // Until two of the three are used up, a pair still fits somewhere.
    let begun = Instant::now();
    loop {
        let empty = [left(0).await, left(1).await, left(2).await];
        if empty.iter().filter(|&&left| left == 0).count() >= 2 {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "never used up: {empty:?}");
    }
    during(Duration::from_millis(200)).await;
    let tally = load.finish().await;
    drained(&store).await;
    let used: u64 = (limit - left(0).await) + (limit - left(1).await) + (limit - left(2).await);
    assert_eq!(tally.errors.len(), 0, "{tally:?}");
    assert_eq!(used, 2 * tally.allowed, "{tally:?}");
}

/// A server's word that a slot has moved was not heeded where nobody waited for the answer any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_is_noticed_though_callers_leave() {
    let cluster = Cluster::start();
    let store = store_with_deadline(&cluster.url(), PATIENT);
    served(&store, "key").await;
    let name = owned_by(&cluster, 0);
    served(&store, &name).await;
    let slot = slot(&cluster, &name);
    cluster.begin_migration(slot, 0, 1);
    cluster.move_keys(slot, 0, 1);
    cluster.finish_migration(slot, 0, 1);
    for _ in 0..300 {
        // Asks, and leaves at once.
        let mut asking = Box::pin(take(&store, &name));
        let answered =
            std::future::poll_fn(|cx| std::task::Poll::Ready(asking.as_mut().poll(cx).is_ready()));
        let _ = answered.await;
        drop(asking);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drained(&store).await;
    // The map is read 100 ms after a suspicion, so some ten may be sent in vain.
    let moved = cluster.servers[0].info("errorstat_MOVED").unwrap_or_default();
    let moved: u32 = moved.rsplit('=').next().and_then(|count| count.parse().ok()).unwrap_or(0);
    assert!((1..40).contains(&moved), "the old owner said MOVED {moved} times of 300");
}
