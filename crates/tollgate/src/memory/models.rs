//! The memory store's protocol under every interleaving a model checker finds.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p tollgate --lib --release models`. The store is the
//! real one on loom's atomics; only its table starts with a single home, so that threads meet and the
//! fourth key makes it split.

use loom::sync::Arc;
use loom::thread;

use super::MemoryStore;
use crate::algorithm::Algorithm;
use crate::charge::{Charge, ChargeSet, Cost};
use crate::clock::ManualClock;
use crate::key::Key;
use crate::meter::Meter;
use crate::time::Micros;

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
    model.max_branches = 20_000;
    model.check(story);
}

/// Six keys of one home, and still of one when the table has four: the last one found no room at home.
/// Secrets are the same in every run, so these are too.
fn keys_of_one_home(store: &Store, meter: &Meter) -> Vec<String> {
    let low = |key: &String| store.fingerprinter.of(Key::from(key.as_str()).as_ref(), meter).low;
    let keys = (0..).map(|number| format!("key {number}"));
    keys.filter(|key| low(key).swap_bytes() & 3 == 0).take(6).collect()
}

/// Whether a key lives in an overflow line.
fn is_away(store: &Store, key: &str, meter: &Meter) -> bool {
    let fingerprint = store.fingerprinter.of(Key::from(key).as_ref(), meter);
    store.table.home(fingerprint.low).line.find_any(fingerprint).is_none()
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

#[test]
fn a_key_that_comes_home_and_the_one_that_makes_room_lose_nothing() {
    check(|| {
        let meter = meter("2/min", Algorithm::FixedWindow);
        let store = store();
        let keys = keys_of_one_home(&store, &meter);
        for key in &keys {
            assert_eq!(take(&store, key, meter), 1);
        }
        let away = keys.iter().position(|key| is_away(&store, key, &meter));
        let away = away.expect("six keys do not fit a home");
        let (other, homely) = (Arc::clone(&store), keys[(away + 1) % keys.len()].clone());
        let there = thread::spawn({
            let homely = homely.clone();
            move || take(&other, &homely, meter)
        });
        assert_eq!(take(&store, &keys[away], meter), 1);
        assert_eq!(there.join().unwrap(), 1);
        let left: usize = keys.iter().map(|key| take(&store, key, meter)).sum();
        assert_eq!(left, keys.len() - 2, "the two have taken all they may, the others half");
        assert_eq!(store.keys(), keys.len());
    });
}

#[test]
fn whoever_makes_room_for_a_key_that_comes_home_is_seen_as_before() {
    check(|| {
        let meter = meter("2/min", Algorithm::FixedWindow);
        let filled = || {
            let store = store();
            let keys = keys_of_one_home(&store, &meter);
            for key in &keys {
                assert_eq!(take(&store, key, meter), 1);
            }
            let away = keys.iter().position(|key| is_away(&store, key, &meter));
            (store, keys, away.expect("six keys do not fit a home"))
        };
        // In a model all stores are alike, so another one tells who it will be.
        let (other, keys, away) = filled();
        assert_eq!(take(&other, &keys[away], meter), 1);
        let displaced = keys.into_iter().find(|key| is_away(&other, key, &meter));
        let displaced = displaced.expect("somebody has made room");

        let (store, keys, away) = filled();
        let reader = thread::spawn({
            let store = Arc::clone(&store);
            move || store.peek(displaced.as_str(), meter, Cost::ONE)
        });
        assert_eq!(take(&store, &keys[away], meter), 1);
        let seen = reader.join().unwrap();
        assert_eq!(seen.outcomes()[0].reading.map(|reading| reading.remaining), Some(1));
    });
}

#[test]
fn a_key_in_an_overflow_line_takes_its_last_unit_once() {
    check(|| {
        let meter = meter("2/min", Algorithm::TokenBucket);
        let store = store();
        let keys = keys_of_one_home(&store, &meter);
        for key in &keys {
            assert_eq!(take(&store, key, meter), 1);
        }
        let away = keys.iter().find(|key| is_away(&store, key, &meter)).cloned();
        let away = away.expect("six keys do not fit a home");
        let (other, same) = (Arc::clone(&store), away.clone());
        let there = thread::spawn(move || take(&other, &same, meter));
        let here = take(&store, &away, meter);
        assert_eq!(here + there.join().unwrap(), 1);
    });
}
