//! Defects found in popular rate limiters. Each is a story that must not happen here.
//!
//! Those about networks, proxies, metrics and scripts are told where those live.

use tollgate::algorithm::{Ask, State};
use tollgate::{
    Algorithm, Charge, ChargeSet, Cost, Decision, ManualClock, MemoryStore, Meter, Micros, Op,
    Reading, Retry,
};
use tollgate_testkit::conformance::{meter, units};

fn store() -> (MemoryStore<ManualClock>, ManualClock) {
    let clock = ManualClock::at_secs(1_700_000_000);
    (MemoryStore::with_clock(clock.clone()), clock)
}

fn reading(decision: &Decision) -> Reading {
    decision.outcomes()[0].reading.expect("a store has numbers")
}

fn look(store: &MemoryStore<ManualClock>, meter: Meter) -> Reading {
    reading(&store.peek("client", meter, Cost::ONE))
}

#[test]
fn a_refused_weighted_call_still_raises_the_counter() {
    // Limit 10, used 8, a cost of 5 is refused, and the counter becomes 13.
    for algorithm in Algorithm::ALL {
        let (store, _) = store();
        let meter = meter("10/min", algorithm);
        assert!(store.take("client", meter, units(8)).is_allowed());
        assert!(!store.take("client", meter, units(5)).is_allowed());
        assert_eq!(look(&store, meter).remaining, 2, "{algorithm}: 8 are used");
        assert!(store.take("client", meter, units(2)).is_allowed());
    }
}

#[test]
fn one_greedy_call_locks_the_user_out_for_days() {
    // A token bucket goes to −1,000,003 tokens after one call that asks for a million.
    for algorithm in Algorithm::ALL {
        let (store, clock) = store();
        let meter = meter("10/min", algorithm);
        assert!(store.take("client", meter, units(3)).is_allowed());
        let greedy = store.take("client", meter, units(1_000_000));
        assert!(!greedy.is_allowed(), "{algorithm}: a million of ten");
        assert_eq!(look(&store, meter).remaining, 7, "{algorithm}: nothing owed");
        clock.advance(Micros::from_secs(120));
        assert!(store.take("client", meter, units(10)).is_allowed(), "{algorithm}");
    }
}

#[test]
fn keys_without_a_time_to_live() {
    // A script compares a number with a string, and keys stay for ever.
    for algorithm in Algorithm::ALL {
        let meter = meter("10/min", algorithm);
        let clock = ManualClock::at_secs(1_700_000_000);
        let now = tollgate::Clock::now(&clock);
        let mut state = State::fresh(algorithm);
        let tollgate::algorithm::Evaluation::Fits { delta, .. } =
            state.evaluate(&meter, Ask::exactly(units(10)), now)
        else {
            panic!("{algorithm}: ten of ten fit");
        };
        state.apply(delta);
        let lives = state.stale_at(&meter) - now.as_micros();
        assert!(lives > 0, "{algorithm}: it counts");
        assert!(lives <= 120_000_000, "{algorithm}: {lives} µs for a limit per minute");
    }
}

#[test]
fn a_cost_that_can_never_fit_is_told_to_retry() {
    // Eleven of ten, answered with "retry in 9 s".
    for algorithm in Algorithm::ALL {
        let (store, _) = store();
        let meter = meter("10/min", algorithm);
        assert!(store.take("client", meter, units(10)).is_allowed());
        let decision = store.take("client", meter, units(11));
        assert_eq!(decision.retry(), Retry::Never, "{algorithm}");
    }
}

#[test]
fn at_most_n_grants_2_and_charges_more() {
    // "Allow at most 5" grants the 2 that are left and charges 2.45.
    for algorithm in Algorithm::ALL {
        let (store, clock) = store();
        let meter = meter("7/s", algorithm);
        assert!(store.take("client", meter, units(5)).is_allowed());
        clock.advance(Micros::new(65_000));
        let left = look(&store, meter).remaining;
        let ask = Ask { min: Cost::ONE, max: units(5) };
        let charge = Charge::new("client", meter, Op::Take(ask));
        let granted = reading(&store.take_set(&ChargeSet::of(charge)));
        assert_eq!((left, granted.units), (2, 2), "{algorithm}: whole units");
        // Between two and three were there; the part beyond two is not lost.
        let Retry::After(wait) = look(&store, meter).retry else {
            panic!("{algorithm}: nothing is left now");
        };
        let restored = matches!(algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket);
        assert!(!restored || wait.get() == 142_858 - 65_000, "{algorithm}: {wait}");
    }
}

#[test]
fn raising_the_rate_leaves_a_client_refused() {
    // After raising a rate 100×, a client was still refused for 19.7 s.
    for algorithm in Algorithm::ALL {
        let (store, _) = store();
        let [low, high] = ["3/min", "300/min"].map(|quota| meter(quota, algorithm));
        assert!(store.take("client", low, units(3)).is_allowed());
        assert!(!store.take("client", low, Cost::ONE).is_allowed());
        let raised = store.take("client", high, Cost::ONE);
        assert!(raised.is_allowed(), "{algorithm}: acts at once");
    }
    // And a bucket whose burst stays small refills at the new rate from now on.
    let (store, clock) = store();
    let [low, high] = ["3/min burst 3", "300/min burst 3"].map(|quota| {
        let quota = quota.parse().expect("a quota");
        Meter::new(quota, Algorithm::TokenBucket).expect("a meter")
    });
    assert!(store.take("client", low, units(3)).is_allowed());
    clock.advance(Micros::from_millis(200));
    assert!(store.take("client", high, Cost::ONE).is_allowed(), "0.2 s a unit");
}

#[test]
fn lowering_the_limit_of_an_emptied_bucket_grants_units() {
    // Lowering the limit of an empty bucket gave 9 units at once.
    for algorithm in Algorithm::ALL {
        let (store, _) = store();
        let [high, low] = ["100/min", "10/min"].map(|quota| meter(quota, algorithm));
        assert!(store.take("client", high, units(100)).is_allowed());
        assert_eq!(look(&store, low).remaining, 0, "{algorithm}");
        assert!(!store.take("client", low, Cost::ONE).is_allowed(), "{algorithm}");
        assert!(!store.take("client", high, Cost::ONE).is_allowed(), "{algorithm}");
    }
}

#[test]
fn idleness_is_saved_up_beyond_the_burst() {
    // A clamp in the wrong place admits 17 requests for a burst of 10 after a pause.
    for algorithm in Algorithm::ALL {
        let (store, clock) = store();
        let meter = meter("10/min", algorithm);
        assert!(store.take("client", meter, units(7)).is_allowed());
        clock.advance(Micros::from_secs(86_400));
        let passed = (0..30).filter(|_| store.take("client", meter, Cost::ONE).is_allowed());
        assert_eq!(passed.count(), 10, "{algorithm}");
    }
}

#[test]
fn waits_cut_to_whole_seconds_become_retry_after_0() {
    // A wait of 300 ms becomes 0 s, and the client is refused again.
    for algorithm in Algorithm::ALL {
        let (store, clock) = store();
        let meter = meter("2/s", algorithm);
        clock.advance(Micros::new(700_001));
        assert!(store.take("client", meter, units(2)).is_allowed());
        let Retry::After(wait) = store.take("client", meter, Cost::ONE).retry() else {
            panic!("{algorithm}: one of two fits some time");
        };
        assert!(wait < Micros::from_secs(2), "{algorithm}: {wait}");
        assert!(wait.as_secs_ceil() >= 1, "{algorithm}: rounded up, never to 0");
        // The client waits as long as the header says.
        clock.advance(Micros::from_secs(wait.as_secs_ceil()));
        assert!(store.take("client", meter, Cost::ONE).is_allowed(), "{algorithm}");
    }
}

#[test]
fn undoing_one_request_deletes_its_neighbours() {
    // A failed request is removed with "delete everything at this timestamp", and so are others of
    // the same instant.
    for algorithm in Algorithm::ALL {
        let (store, _) = store();
        let meter = meter("10/min", algorithm);
        let decisions = [3, 4].map(|cost| store.take("client", meter, units(cost)));
        assert_eq!(decisions[0].at(), decisions[1].at(), "in one microsecond");
        let refund = store.refund("client", meter, units(3), decisions[0].at());
        let back = reading(&refund).units;
        // A leaky bucket's slots were promised.
        let expected = if algorithm == Algorithm::LeakyBucket { 0 } else { 3 };
        assert_eq!(back, expected, "{algorithm}");
        assert_eq!(look(&store, meter).remaining, 3 + back, "{algorithm}: 4 stay");
    }
}

#[test]
fn an_over_limit_memory_is_wrong_after_a_limit_change() {
    // "Over the limit" is remembered by key alone, and still said when the limit is another.
    for algorithm in Algorithm::ALL {
        let (store, _) = store();
        let [low, high] = ["1/min", "2/min"].map(|quota| meter(quota, algorithm));
        assert!(store.take("client", low, Cost::ONE).is_allowed());
        for _ in 0..3 {
            assert!(!store.take("client", low, Cost::ONE).is_allowed());
        }
        assert!(store.take("client", high, Cost::ONE).is_allowed(), "{algorithm}");
        assert!(!store.take("client", high, Cost::ONE).is_allowed(), "{algorithm}");
    }
}

#[test]
fn a_refused_composite_charges_the_others() {
    // The per-user limit refuses, and the global counter is raised all the same.
    let (store, _) = store();
    let user = meter("1/min", Algorithm::SlidingLog);
    let all = meter("100/min", Algorithm::TokenBucket);
    let both = || {
        let mut set = ChargeSet::of(Charge::take("everybody", all, Cost::ONE));
        let user = Charge::take("client", user, Cost::ONE);
        set.push(user).expect("another bucket");
        set
    };
    assert!(store.take_set(&both()).is_allowed());
    for _ in 0..50 {
        assert!(!store.take_set(&both()).is_allowed(), "the user is over");
    }
    let seen = reading(&store.peek("everybody", all, Cost::ONE));
    assert_eq!(seen.remaining, 99, "one request passed, and one was charged");
}
