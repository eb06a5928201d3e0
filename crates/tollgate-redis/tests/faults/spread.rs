//! Sets that span the slots of a cluster, and what they leave behind when they are refused, left or
//! held up.

use std::time::{Duration, Instant};

use tollgate::{Algorithm, Charge, ChargeSet, Cost, Decision, Limiter, Meter};
use tollgate_redis::RedisStore;
use tollgate_testkit::redis::Cluster;

use crate::load::{drained, meter, served, store_with_deadline};

/// Long enough that nothing is late but for a fault.
const PATIENT: Duration = Duration::from_secs(20);

/// Keys of which each primary owns one, in ascending order of their slots.
fn one_of_each(cluster: &Cluster) -> [String; Cluster::PRIMARIES] {
    std::array::from_fn(|place| {
        let keys = (0..).map(|number| format!("key:{number}"));
        let owner = |key: &String| cluster.owner(cluster.slot(&format!("{{{key}}}")));
        let mut owned = keys.filter(|key| owner(key) == place);
        owned.next().unwrap()
    })
}

/// A cluster whose servers may hang for long without being replaced.
fn patient_cluster() -> Cluster {
    let cluster = Cluster::start();
    for server in &cluster.servers {
        server.command(&["CONFIG", "SET", "cluster-node-timeout", "120000"]);
    }
    cluster
}

fn daily(limit: u64, algorithm: Algorithm) -> Meter {
    meter(&format!("{limit}/day"), algorithm)
}

fn set(charges: impl IntoIterator<Item = (String, Meter)>) -> ChargeSet<'static> {
    let mut set = ChargeSet::new();
    for (key, meter) in charges {
        set.push(Charge::take(key, meter, Cost::ONE)).unwrap();
    }
    set
}

fn left(decision: &Decision) -> Vec<u64> {
    decision.outcomes().iter().map(|outcome| outcome.reading.unwrap().remaining).collect()
}

async fn remaining(store: &RedisStore, key: &str, meter: Meter) -> u64 {
    left(&Limiter::new(store).peek(key, meter, Cost::ONE).await.unwrap())[0]
}

/// Waits until everything that was taken of a bucket is given back.
async fn given_back(store: &RedisStore, key: &str, meter: Meter, limit: u64) {
    let begun = Instant::now();
    while remaining(store, key, meter).await < limit {
        assert!(begun.elapsed() < Duration::from_secs(30), "{key} stays charged");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A leaky bucket gives nothing back, so a set that is refused must not have taken of one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_set_leaves_leaky_buckets_alone() {
    let cluster = Cluster::start();
    let store = store_with_deadline(&cluster.url(), PATIENT);
    let names = one_of_each(&cluster);
    served(&store, &names[0]).await;
    let limiter = Limiter::new(&store);
    let (leaky, log) = (Algorithm::LeakyBucket, Algorithm::SlidingLog);
    // Which of the three has room for one only, and how the three are limited.
    for (scarce, algorithms) in [
        (1, [leaky, log, log]),
        (2, [leaky, log, leaky]),
        (0, [log, leaky, leaky]),
        (1, [leaky, leaky, log]),
        (2, [leaky, leaky, leaky]),
        (0, [leaky, leaky, leaky]),
    ] {
        let meters: [Meter; 3] = std::array::from_fn(|place| {
            daily(if place == scarce { 1 } else { 5 }, algorithms[place])
        });
        let all = || set(names.iter().cloned().zip(meters));
        assert!(limiter.take_set(&all()).await.unwrap().is_allowed());
        let mut before = Vec::new();
        for (name, meter) in names.iter().zip(meters) {
            before.push(remaining(&store, name, meter).await);
        }
        for _ in 0..3 {
            let decision = limiter.take_set(&all()).await.unwrap();
            assert_eq!((decision.is_allowed(), decision.binding()), (false, Some(scarce)));
            assert_eq!(left(&decision), before, "{algorithms:?}");
        }
        for ((name, meter), before) in names.iter().zip(meters).zip(before) {
            assert_eq!(remaining(&store, name, meter).await, before, "{algorithms:?}");
            limiter.reset(name.as_str(), meter).await.unwrap();
        }
    }
}

/// A set is one decision under way, however many slots it spans, so there is always room to give
/// back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_set_that_spans_slots_needs_room_for_one() {
    let cluster = Cluster::start();
    let builder = RedisStore::builder(&cluster.url()).unwrap().max_in_flight(1);
    let store = builder.deadline(PATIENT).deny_cache(0).build().unwrap();
    let names = one_of_each(&cluster);
    served(&store, &names[0]).await;
    let limiter = Limiter::new(&store);
    let meters = [5, 1, 5].map(|limit| daily(limit, Algorithm::SlidingLog));
    for round in 0..5 {
        drained(&store).await;
        let decision = limiter.take_set(&set(names.iter().cloned().zip(meters))).await.unwrap();
        assert_eq!(decision.is_allowed(), round == 0, "{decision:?}");
        assert_eq!(left(&decision), [4, 0, 4]);
    }
}

/// A caller that leaves while a slot is asked leaves nothing charged, neither there nor before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_leave_on_the_way_leave_nothing_charged() {
    let cluster = patient_cluster();
    let store = store_with_deadline(&cluster.url(), PATIENT);
    let [first, then, _] = one_of_each(&cluster);
    served(&store, &first).await;
    served(&store, &then).await;
    let log = daily(5, Algorithm::SlidingLog);
    cluster.servers[1].pause();
    let both = set([(first.clone(), log), (then.clone(), log)]);
    let caller = {
        let store = store.clone();
        tokio::spawn(async move { Limiter::new(store).take_set(&both).await })
    };
    while remaining(&store, &first, log).await == 5 {
        tokio::task::yield_now().await;
    }
    // The first has been taken, and the other cannot be yet.
    caller.abort();
    assert!(caller.await.unwrap_err().is_cancelled());
    cluster.servers[1].resume();
    drained(&store).await;
    given_back(&store, &first, log, 5).await;
    given_back(&store, &then, log, 5).await;
}

/// A refusal is told in time even if what was taken cannot be given back in time; it is later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_for_what_is_given_back() {
    let cluster = patient_cluster();
    let store = store_with_deadline(&cluster.url(), PATIENT);
    let [first, then, _] = one_of_each(&cluster);
    served(&store, &first).await;
    let (log, scarce) = (daily(5, Algorithm::SlidingLog), daily(1, Algorithm::SlidingLog));
    assert!(Limiter::new(&store).take_set(&set([(then.clone(), scarce)])).await.is_ok());
    let both = set([(first.clone(), log), (then.clone(), scarce)]);
    cluster.servers[1].pause();
    let begun = Instant::now();
    let caller = {
        let hurried = store.with_deadline(Duration::from_secs(3));
        tokio::spawn(async move { Limiter::new(hurried).take_set(&both).await })
    };
    while remaining(&store, &first, log).await == 5 {
        tokio::task::yield_now().await;
    }
    cluster.servers[0].pause();
    cluster.servers[1].resume();
    // On a machine so busy that three seconds did not suffice, it is an error.
    let answer = caller.await.unwrap();
    assert!(answer.is_err() || !answer.unwrap().is_allowed());
    assert!(begun.elapsed() < PATIENT / 2, "the caller waited: {:?}", begun.elapsed());
    cluster.servers[0].resume();
    given_back(&store, &first, log, 5).await;
    drained(&store).await;
}
