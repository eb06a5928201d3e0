//! Many threads on shared buckets: exactly the limit passes, composites never charge a part, and
//! growing loses nobody.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use tollgate::{
    Algorithm, Charge, ChargeSet, Cost, Decision, ManualClock, MemoryStore, Meter, Micros, Op,
};
use tollgate_testkit::conformance::{meter, set};

const THREADS: u64 = 8;

type Frozen = MemoryStore<ManualClock>;

fn frozen() -> Frozen {
    MemoryStore::with_clock(ManualClock::at_secs(1_700_000_000))
}

/// Runs `work` on all threads at once, each with its number.
fn on_all_threads(work: impl Fn(u64) + Sync) {
    thread::scope(|scope| {
        for number in 0..THREADS {
            let work = &work;
            scope.spawn(move || work(number));
        }
    });
}

fn units(decision: &Decision) -> u64 {
    let outcomes = decision.outcomes().iter();
    outcomes.map(|outcome| outcome.reading.expect("a store has numbers").units).sum()
}

fn left(store: &Frozen, key: &str, meter: Meter) -> u64 {
    let decision = store.peek(key, meter, Cost::ONE);
    let reading = decision.outcomes()[0].reading;
    reading.expect("a store has numbers").remaining
}

#[test]
fn exactly_the_limit_passes_of_what_all_threads_want() {
    for algorithm in Algorithm::ALL {
        let (store, meter) = (frozen(), meter("10000/h", algorithm));
        let granted = AtomicU64::new(0);
        on_all_threads(|_| {
            for _ in 0..2_500 {
                let decision = store.take("shared", meter, Cost::ONE);
                granted.fetch_add(units(&decision), Ordering::Relaxed);
            }
        });
        assert_eq!(granted.into_inner(), 10_000, "{algorithm}: 20,000 wanted");
        assert_eq!(left(&store, "shared", meter), 0, "{algorithm}");
    }
}

#[test]
fn composites_in_any_order_charge_all_or_nothing() {
    // Every pair of neighbours on a ring of one bucket per algorithm, each thread in an order of its
    // own; each bucket is in two pairs.
    let (store, meters) = (frozen(), Algorithm::ALL.map(|one| meter("3000/h", one)));
    let pairs: [AtomicU64; 5] = Default::default();
    on_all_threads(|number| {
        for turn in 0..4_000_usize {
            let first = (turn * (number as usize + 1)) % 5;
            let second = (first + 1) % 5;
            let mut members = [first, second];
            if number % 2 == 1 {
                members.reverse();
            }
            let charges = members.map(|one| Charge::take("ring", meters[one], Cost::ONE));
            let decision = store.take_set(&set(charges));
            let taken = units(&decision);
            assert_eq!(taken, if decision.is_allowed() { 2 } else { 0 }, "a part");
            pairs[first].fetch_add(taken / 2, Ordering::Relaxed);
        }
    });
    let pairs = pairs.map(AtomicU64::into_inner);
    for (index, meter) in meters.into_iter().enumerate() {
        let granted = pairs[index] + pairs[(index + 4) % 5];
        let used = 3_000 - left(&store, "ring", meter);
        assert_eq!(granted, used, "{meter}: granted by its two pairs, and charged");
    }
    // 32,000 pairs wanted, and 15,000 units there are: nobody fits any more.
    let full = meters.iter().filter(|one| left(&store, "ring", **one) == 0);
    assert!(full.count() >= 3, "no two neighbours have room: {pairs:?}");
}

#[test]
fn growing_loses_no_key_and_grants_none_twice() {
    for algorithm in Algorithm::ALL {
        let (store, meter) = (frozen(), meter("1/h", algorithm));
        let keys = 20_000;
        let granted = AtomicU64::new(0);
        on_all_threads(|number| {
            for turn in 0..keys {
                // Half the threads from the other end, so that they meet all over the table.
                let key = if number % 2 == 0 { turn } else { keys - 1 - turn };
                let decision = store.take(format!("key {key}"), meter, Cost::ONE);
                granted.fetch_add(units(&decision), Ordering::Relaxed);
            }
        });
        assert_eq!(granted.into_inner(), keys, "{algorithm}: each key once");
        assert_eq!(store.keys() as u64, keys, "{algorithm}");
        assert_eq!(store.evictions(), 0, "{algorithm}: there was room");
    }
}

#[test]
fn what_is_refunded_can_be_taken_again_and_nothing_else() {
    let algorithms = Algorithm::ALL.into_iter();
    for algorithm in algorithms.filter(|one| *one != Algorithm::LeakyBucket) {
        let (store, meter) = (frozen(), meter("1000/h", algorithm));
        let held = AtomicU64::new(0);
        on_all_threads(|number| {
            for turn in 0..3_000_u64 {
                let decision = store.take("shared", meter, Cost::ONE);
                held.fetch_add(units(&decision), Ordering::Relaxed);
                if decision.is_allowed() && (turn + number) % 2 == 0 {
                    let back = store.refund("shared", meter, Cost::ONE, decision.at());
                    assert_eq!(units(&back), 1, "{algorithm}: it was there");
                    held.fetch_sub(1, Ordering::Relaxed);
                }
            }
        });
        let held = held.into_inner();
        assert_eq!(held, 1_000, "{algorithm}: more wanted than there is");
        assert_eq!(left(&store, "shared", meter), 0, "{algorithm}");
    }
}

#[test]
fn between_two_resets_no_more_than_the_limit_passes() {
    for algorithm in Algorithm::ALL {
        let (store, meter) = (frozen(), meter("100/h", algorithm));
        let (granted, resets) = (AtomicU64::new(0), AtomicU64::new(0));
        on_all_threads(|number| {
            for turn in 0..2_000_u64 {
                if number == 0 && turn % 100 == 99 {
                    store.reset("shared", meter);
                    resets.fetch_add(1, Ordering::Relaxed);
                }
                let decision = store.take("shared", meter, Cost::ONE);
                granted.fetch_add(units(&decision), Ordering::Relaxed);
            }
        });
        let (granted, resets) = (granted.into_inner(), resets.into_inner());
        assert!(granted >= 100, "{algorithm}: one limit at least");
        assert!(granted <= 100 * (resets + 1), "{algorithm}: {granted} with {resets}");
        let used = 100 - left(&store, "shared", meter);
        assert!(used <= granted, "{algorithm}: {used} charged, {granted} granted");
    }
}

#[test]
fn a_new_key_and_a_stale_one_in_a_set_keep_their_own_states() {
    // A new key may be given the slot of a stale one, but not of one that the set itself is about
    // to write: the two would end up in one slot.
    for algorithm in Algorithm::ALL {
        let clock = ManualClock::at_secs(1_700_000_000);
        let store = MemoryStore::with_clock(clock.clone());
        let meter = meter("1/s", algorithm);
        for pair in 0..200 {
            let (known, new) = (format!("known {pair}"), format!("new {pair}"));
            assert!(store.take(&known, meter, Cost::ONE).is_allowed());
            clock.advance(Micros::from_secs(5));
            let take = |key| Charge::take(key, meter, Cost::ONE);
            let both: ChargeSet<'_> = set_of([take(&new), take(&known)]);
            assert!(store.take_set(&both).is_allowed(), "{algorithm}: both are fresh");
            for key in [&known, &new] {
                let again = store.peek(key, meter, Cost::ONE);
                assert!(!again.is_allowed(), "{algorithm}: {key} was just charged");
            }
        }
    }
}

/// A set of charges on borrowed keys.
fn set_of<'a>(charges: impl IntoIterator<Item = Charge<'a>>) -> ChargeSet<'a> {
    let mut set = ChargeSet::new();
    for charge in charges {
        set.push(charge).expect("charges that go together");
    }
    set
}

#[test]
fn stale_keys_refunds_and_resets_in_sets_keep_every_state_apart() {
    // The same, with ops that free slots in the middle of a set.
    for algorithm in Algorithm::ALL {
        let clock = ManualClock::at_secs(1_700_000_000);
        let store = MemoryStore::with_clock(clock.clone());
        let meter = meter("1/s", algorithm);
        let name = |kind: &str, turn: u64| format!("{kind} {turn}");
        for turn in 0..200 {
            let keys = ["reset", "stale", "new"].map(|kind| name(kind, turn));
            assert!(store.take(&keys[1], meter, Cost::ONE).is_allowed());
            clock.advance(Micros::from_secs(5));
            assert!(store.take(&keys[0], meter, Cost::ONE).is_allowed());
            let decision = store.take_set(&set_of([
                Charge::new(&keys[0], meter, Op::Reset),
                Charge::take(&keys[2], meter, Cost::ONE),
                Charge::take(&keys[1], meter, Cost::ONE),
            ]));
            assert!(decision.is_allowed(), "{algorithm}: nothing is in the way");
            let refused = keys.iter().map(|key| !store.peek(key, meter, Cost::ONE).is_allowed());
            let refused: Vec<bool> = refused.collect();
            assert_eq!(refused, [false, true, true], "{algorithm}: turn {turn}");
        }
    }
}
