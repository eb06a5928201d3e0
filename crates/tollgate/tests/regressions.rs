//! Bugs we had, each with its story.

use std::sync::Arc;
use std::thread;

use tollgate::{Algorithm, Charge, ChargeSet, Cost, ManualClock, MemoryStore, Meter, Micros};

fn meter(quota: &str, algorithm: Algorithm) -> Meter {
    Meter::new(quota.parse().unwrap(), algorithm).unwrap()
}

fn store() -> MemoryStore<ManualClock> {
    MemoryStore::with_clock(ManualClock::at_secs(1_000_000))
}

/// The algorithm was mixed into the same word as the key's first letters, so that changing both by
/// the same bits gave one bucket for two: whatever the store's secrets, `u:10042` and `t:10042`.
#[test]
fn keys_that_differ_as_their_algorithms_do_have_buckets_of_their_own() {
    let names =
        ["10042", "20042", "u:10042", "t:10042", "pay", "say", "x", "y", "hello:1", "iello:1"];
    let store = store();
    let mut set = 0;
    for algorithm in Algorithm::ALL {
        for name in names {
            for quota in ["1/s", "1/min", "1/h"] {
                let decision = store.take(name, meter(quota, algorithm), Cost::ONE);
                assert!(
                    decision.is_allowed(),
                    "{name} at {quota} by {algorithm} is somebody else's"
                );
                set += 1;
            }
        }
    }
    assert_eq!(store.keys(), set);
}

/// A log's ticket was overwritten by a window that shared its slot, and the next look at the log
/// panicked under the lock of its line, which nobody could take any more.
#[test]
fn a_log_and_a_window_of_similar_names_do_not_meet() {
    let store = store();
    let log = meter("5/h", Algorithm::SlidingLog);
    let window = meter("9007199254740991/h", Algorithm::FixedWindow);
    for _ in 0..3 {
        assert!(store.take("hello:1", log, Cost::ONE).is_allowed());
        assert!(store.take("iello:1", window, Cost::new(1_000_000).unwrap()).is_allowed());
    }
    let remaining = |key: &str, meter| {
        store.peek(key, meter, Cost::ONE).outcomes()[0].reading.unwrap().remaining
    };
    assert_eq!(remaining("hello:1", log), 2);
    assert_eq!(remaining("iello:1", window), 9_007_199_254_740_991 - 3_000_000);
}

/// A look at a log that was stale just then dropped it, and a clock that stepped back after that
/// found it fresh.
#[test]
fn looking_ahead_forgets_nothing() {
    for (quota, algorithm) in [
        ("5/h", Algorithm::SlidingLog),
        ("5/h", Algorithm::TokenBucket),
        ("5/30d", Algorithm::TokenBucket),
        ("5/h", Algorithm::SlidingWindow),
        ("5/h", Algorithm::FixedWindow),
    ] {
        let (store, meter) = (store(), meter(quota, algorithm));
        let now = store.take("k", meter, Cost::new(5).unwrap()).at();
        store.clock().advance(Micros::from_secs(90 * 86_400));
        assert!(store.peek("k", meter, Cost::ONE).is_allowed());
        store.clock().set(now);
        assert!(!store.take("k", meter, Cost::ONE).is_allowed(), "{meter} forgot");
    }
}

/// Two threads chose the same key to give way, one of them found it gone, and the store kept one key
/// more for good.
#[test]
fn threads_that_insert_at_once_leave_no_key_too_many() {
    const THREADS: usize = 8;
    for max_keys in [1, 1_000] {
        let builder = MemoryStore::builder().max_keys(max_keys);
        let store = Arc::new(builder.build_with_clock(ManualClock::at_secs(1_000_000)));
        let meter = meter("1/h", Algorithm::TokenBucket);
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let store = Arc::clone(&store);
                scope.spawn(move || {
                    for key in 0..20_000 {
                        store.take(format!("{thread}:{key}"), meter, Cost::ONE);
                        assert!(store.keys() <= max_keys + 2 * THREADS, "{} keys", store.keys());
                    }
                });
            }
        });
        // Whoever comes last sets right what was under way.
        store.take("last", meter, Cost::ONE);
        assert!(store.keys() <= max_keys, "{} keys of {max_keys}", store.keys());
    }
}

/// Buckets too large for a slot were counted as log entries, and gave way for want of room for logs.
#[test]
fn large_buckets_are_not_bounded_as_logs_are() {
    let clock = ManualClock::at_secs(1_000_000);
    let store = MemoryStore::builder().max_log_entries(100).build_with_clock(clock);
    // More limits than there are numbers for: the buckets of the others lie beside the table.
    for limit in 1..=3_000 {
        let meter = meter(&format!("{limit}/h"), Algorithm::TokenBucket);
        store.take("k".to_owned() + &limit.to_string(), meter, Cost::new(limit).unwrap());
    }
    assert_eq!((store.evictions(), store.log_entries()), (0, 0));
    let meter = meter("3000/h", Algorithm::TokenBucket);
    assert!(!store.take("k3000", meter, Cost::new(2).unwrap()).is_allowed());
}

/// Resetting a key that is not there added it.
#[test]
fn resetting_an_unknown_key_adds_nothing() {
    for algorithm in Algorithm::ALL {
        let store = MemoryStore::with_clock(ManualClock::default());
        store.reset("k", meter("5/h", algorithm));
        assert_eq!(store.keys(), 0, "{algorithm}");
    }
}

/// A set with a ticketed state and one without, refused: both must be as they were.
#[test]
fn a_refused_set_puts_logs_back() {
    let store = store();
    let (log, window) = (meter("5/h", Algorithm::SlidingLog), meter("1/h", Algorithm::FixedWindow));
    let mut set = ChargeSet::new();
    set.push(Charge::take("k", log, Cost::ONE)).unwrap();
    set.push(Charge::take("k", window, Cost::ONE)).unwrap();
    assert!(store.take_set(&set).is_allowed());
    for _ in 0..10 {
        assert!(!store.take_set(&set).is_allowed());
    }
    assert_eq!(store.peek("k", log, Cost::ONE).outcomes()[0].reading.unwrap().remaining, 4);
    assert_eq!(store.log_entries(), 1);
}

/// A bucket counted as fresh under a limit that there was no number left for.
#[test]
fn a_limit_without_a_number_does_not_forget_the_debt() {
    let store = MemoryStore::with_clock(ManualClock::at_secs(1_700_000_000));
    let bucket = |limit: u64| meter(&format!("{limit}/h burst 10"), Algorithm::TokenBucket);
    // More limits than there are numbers for; the first got one unless another test was here before.
    let limits: Vec<Meter> = (1..=600).map(|limit| bucket(10_000 + limit)).collect();
    let (numbered, unnumbered) = (limits[0], limits[599]);
    let takes = [numbered, unnumbered].into_iter().cycle().take(1_000);
    let granted = takes.filter(|meter| store.take("k", meter, Cost::ONE).is_allowed()).count();
    assert_eq!(granted, 10);
}
