//! The memory store's protocol under every interleaving a model checker finds.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p tollgate --test loom --release`. The store is the
//! real one on loom's atomics; only its table starts with a single home, so that threads meet and the
//! fourth key makes it split.

#![cfg(loom)]

use loom::sync::Arc;
use loom::thread;
use tollgate::{Algorithm, Charge, ChargeSet, Cost, ManualClock, MemoryStore, Meter, Micros};

type Store = MemoryStore<ManualClock>;

fn store() -> Arc<Store> {
    let clock = ManualClock::at_secs(1_000);
    let builder = MemoryStore::builder().max_keys(8).max_log_entries(8);
    Arc::new(builder.build_with_clock(clock))
}

fn meter(quota: &str, algorithm: Algorithm) -> Meter {
    Meter::new(quota.parse().unwrap(), algorithm).unwrap()
}

/// Explores every interleaving with up to three preemptions, which is where such bugs live.
fn check(story: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(story);
}

fn take(store: &Store, key: &str, meter: Meter) -> usize {
    usize::from(store.take(key, meter, Cost::ONE).is_allowed())
}

#[test]
fn the_last_unit_is_granted_once() {
    check(|| {
        let meter = meter("1/min", Algorithm::TokenBucket);
        let store = store();
        let other = Arc::clone(&store);
        let there = thread::spawn(move || take(&other, "k", meter));
        let here = take(&store, "k", meter);
        assert_eq!(here + there.join().unwrap(), 1);
    });
}

#[test]
fn two_new_keys_of_one_line_both_get_a_place() {
    check(|| {
        let meter = meter("1/min", Algorithm::FixedWindow);
        let store = store();
        let other = Arc::clone(&store);
        let there = thread::spawn(move || take(&other, "a", meter));
        assert_eq!(take(&store, "b", meter) + there.join().unwrap(), 2);
        assert_eq!(take(&store, "a", meter) + take(&store, "b", meter), 0);
        assert_eq!(store.keys(), 2);
    });
}

#[test]
fn a_reader_sees_a_state_from_before_or_after_a_write_never_half_of_each() {
    check(|| {
        // The write moves both words of the state: the window's end and its count.
        let meter = meter("10/min", Algorithm::FixedWindow);
        let store = store();
        store.take("k", meter, Cost::new(7).unwrap());
        store.clock().advance(Micros::from_secs(60));
        let other = Arc::clone(&store);
        let reader = thread::spawn(move || {
            let seen = other.peek("k", meter, Cost::ONE);
            let remaining = seen.outcomes()[0].reading.unwrap().remaining;
            assert!(remaining == 10 || remaining == 9, "half-written: {remaining} remaining");
        });
        assert_eq!(take(&store, "k", meter), 1);
        reader.join().unwrap();
    });
}

#[test]
fn sets_that_name_their_keys_in_opposite_order_neither_deadlock_nor_charge_a_part() {
    check(|| {
        let meter = meter("1/min", Algorithm::FixedWindow);
        let store = store();
        let both = move |store: &Store, keys: [&'static str; 2]| {
            let mut set = ChargeSet::new();
            for key in keys {
                set.push(Charge::take(key, meter, Cost::ONE)).unwrap();
            }
            usize::from(store.take_set(&set).is_allowed())
        };
        let other = Arc::clone(&store);
        let there = thread::spawn(move || both(&other, ["a", "b"]));
        let here = both(&store, ["b", "a"]);
        assert_eq!(here + there.join().unwrap(), 1);
        assert_eq!(take(&store, "a", meter) + take(&store, "b", meter), 0);
    });
}

#[test]
fn a_single_charge_and_a_set_on_the_same_key_share_one_unit() {
    check(|| {
        let (single, log) =
            (meter("1/min", Algorithm::TokenBucket), meter("5/min", Algorithm::SlidingLog));
        let store = store();
        let other = Arc::clone(&store);
        let there = thread::spawn(move || {
            let mut set = ChargeSet::new();
            set.push(Charge::take("k", single, Cost::ONE)).unwrap();
            set.push(Charge::take("k", log, Cost::ONE)).unwrap();
            usize::from(other.take_set(&set).is_allowed())
        });
        let here = take(&store, "k", single);
        let there = there.join().unwrap();
        assert_eq!(here + there, 1);
        let logged = 5 - store.peek("k", log, Cost::ONE).outcomes()[0].reading.unwrap().remaining;
        assert_eq!(logged as usize, there, "the set charged a part of itself");
    });
}

#[test]
fn a_key_is_neither_lost_nor_doubled_while_its_home_is_split() {
    check(|| {
        let meter = meter("2/min", Algorithm::FixedWindow);
        let store = store();
        for key in ["a", "b", "c"] {
            assert_eq!(take(&store, key, meter), 1);
        }
        let other = Arc::clone(&store);
        // The fourth key makes the only home split.
        let splitter = thread::spawn(move || take(&other, "d", meter));
        assert_eq!(take(&store, "a", meter), 1, "its first unit was counted, its second is free");
        assert_eq!(splitter.join().unwrap(), 1);
        assert_eq!(take(&store, "a", meter), 0, "both units are counted");
        assert_eq!(store.keys(), 4);
    });
}
