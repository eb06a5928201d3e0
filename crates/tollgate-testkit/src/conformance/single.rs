//! One bucket: how much fits, and when again.

use tollgate::{Algorithm, Micros, Provenance, Retry, Store};

use super::{Bench, Driven, START, meter, reading};

/// Exactly the limit passes at one instant, two requests in one microsecond count twice, and the
/// answer is complete.
pub async fn the_limit_passes_and_no_more<S: Store, D: Driven>(bench: &Bench<S, D>) {
    for algorithm in Algorithm::ALL {
        let (name, meter) = (algorithm.name(), meter("5/min", algorithm));
        for used in 1..=5 {
            let decision = bench.take(name, meter, 1).await;
            assert!(decision.is_allowed(), "{name}: unit {used} of 5");
            assert_eq!(decision.at(), START, "{name}: at the store's instant");
            assert_eq!(decision.provenance(), Provenance::Store);
            let reading = reading(&decision, 0);
            let numbers = (reading.capacity, reading.remaining, reading.units);
            assert_eq!(numbers, (5, 5 - used, 1), "{name}");
            assert_eq!(reading.retry, Retry::Now, "{name}");
            assert!(reading.reset > Micros::ZERO, "{name}: something counts now");
        }
        let refused = bench.take(name, meter, 1).await;
        assert!(!refused.is_allowed(), "{name}: the sixth of 5");
        assert_eq!(reading(&refused, 0).units, 0, "{name}: took nothing");
    }
}

/// A cost beyond the capacity never fits and is told so; one within it is told when.
pub async fn a_cost_beyond_capacity_is_never<S: Store, D: Driven>(bench: &Bench<S, D>) {
    for algorithm in Algorithm::ALL {
        let (name, meter) = (algorithm.name(), meter("5/min", algorithm));
        let never = bench.take(name, meter, 6).await;
        assert_eq!(never.retry(), Retry::Never, "{name}: 6 never fit into 5");
        assert_eq!(bench.left(name, meter).await, 5, "{name}: took nothing");
        assert!(bench.take(name, meter, 1).await.is_allowed());
        let later = bench.take(name, meter, 5).await.retry();
        assert!(matches!(later, Retry::After(_)), "{name}: 5 fit some time");
        let never = bench.take(name, meter, 6).await;
        assert_eq!(never.retry(), Retry::Never, "{name}: 6 never fit into 5");
    }
}

/// A refused request leaves every number as it was, however often it comes.
pub async fn a_refusal_changes_nothing<S: Store, D: Driven>(bench: &Bench<S, D>) {
    for algorithm in Algorithm::ALL {
        let (name, meter) = (algorithm.name(), meter("10/min", algorithm));
        assert!(bench.take(name, meter, 8).await.is_allowed());
        let before = bench.look(name, meter).await;
        for _ in 0..3 {
            assert!(!bench.take(name, meter, 5).await.is_allowed(), "{name}");
            assert_eq!(bench.look(name, meter).await, before, "{name}");
        }
        assert!(bench.take(name, meter, 2).await.is_allowed(), "{name}");
    }
}

/// Retrying at the promised instant succeeds, a microsecond before it fails.
pub async fn a_promise_is_exact<S: Store, D: Driven>(bench: &Bench<S, D>) {
    for algorithm in Algorithm::ALL {
        // Seven a second: a unit lasts no whole number of microseconds.
        let (name, meter) = (algorithm.name(), meter("7/s", algorithm));
        bench.at(Micros::new(0));
        assert!(bench.take(name, meter, 3).await.is_allowed());
        bench.at(Micros::new(123_457));
        assert!(bench.take(name, meter, 4).await.is_allowed(), "{name}");
        let Retry::After(wait) = bench.take(name, meter, 6).await.retry() else {
            panic!("{name}: 6 of 7 fit some time, and not now");
        };
        bench.at(Micros::new(123_457 + wait.get() - 1));
        let early = bench.take(name, meter, 6).await;
        assert_eq!(early.retry(), Retry::After(Micros::new(1)), "{name}");
        bench.at(Micros::new(123_457 + wait.get()));
        assert!(bench.take(name, meter, 6).await.is_allowed(), "{name}");
    }
}

/// A leaky bucket holds each request for the queue before it; the others hold none.
pub async fn only_a_leaky_bucket_delays<S: Store, D: Driven>(bench: &Bench<S, D>) {
    for algorithm in Algorithm::ALL {
        let (name, meter) = (algorithm.name(), meter("10/s", algorithm));
        for before in 0..10 {
            let expected = match algorithm {
                Algorithm::LeakyBucket => Micros::from_millis(before * 100),
                _ => Micros::ZERO,
            };
            let decision = bench.take(name, meter, 1).await;
            assert_eq!(decision.delay(), expected, "{name} after {before}");
        }
    }
}

/// Raising a limit acts at once, lowering it grants nothing, and what was used stays used.
pub async fn a_changed_limit_is_fair<S: Store, D: Driven>(bench: &Bench<S, D>) {
    for algorithm in Algorithm::ALL {
        let name = algorithm.name();
        let [low, high] = ["10/min", "100/min"].map(|quota| meter(quota, algorithm));
        assert!(bench.take(name, low, 10).await.is_allowed());
        assert!(!bench.take(name, low, 1).await.is_allowed(), "{name}");
        assert_eq!(bench.left(name, high).await, 90, "{name}: raised at once");
        assert!(bench.take(name, high, 90).await.is_allowed(), "{name}");
        assert_eq!(bench.left(name, low).await, 0, "{name}: lowered");
        assert!(!bench.take(name, low, 1).await.is_allowed(), "{name}");
        assert!(!bench.take(name, high, 1).await.is_allowed(), "{name}");
    }
}

/// Buckets of other keys, algorithms and periods are other buckets.
pub async fn buckets_are_apart<S: Store, D: Driven>(bench: &Bench<S, D>) {
    for algorithm in Algorithm::ALL {
        let per_minute = meter("3/min", algorithm);
        for name in ["one", "two"] {
            let taken = bench.take(name, per_minute, 3).await;
            assert!(taken.is_allowed(), "{algorithm} {name}");
        }
        let per_hour = bench.take("one", meter("3/h", algorithm), 3).await;
        assert!(per_hour.is_allowed(), "{algorithm}: another period");
    }
}
