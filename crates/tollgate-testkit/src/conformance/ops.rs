//! The other ops: peek, refund, reset, and the lease's take.

use tollgate::{Algorithm, Ask, Cost, Micros, Op, Retry, Store, Timestamp};

use super::{Bench, Driven, START, meter, reading, units};

/// Peeking says what taking would, and takes nothing.
pub async fn a_peek_takes_nothing<S: Store, D: Driven>(bench: &Bench<S, D>) {
    for algorithm in Algorithm::ALL {
        let (name, meter) = (algorithm.name(), meter("5/min", algorithm));
        for _ in 0..10 {
            let decision = bench.op(name, meter, Op::Peek(units(5))).await;
            assert!(decision.is_allowed(), "{name}: looked at only");
            assert_eq!(reading(&decision, 0).units, 0, "{name}");
        }
        assert!(bench.take(name, meter, 2).await.is_allowed());
        let peek = bench.op(name, meter, Op::Peek(units(5))).await;
        let take = bench.take(name, meter, 5).await;
        assert_eq!(peek, take, "{name}: a peek is refused as the take is");
        assert!(!take.is_allowed(), "{name}: 2 and 5 do not fit into 5");
    }
}

/// What a decision took comes back, once, and never more than was there.
pub async fn a_refund_gives_back_what_was_taken<S: Store, D: Driven>(bench: &Bench<S, D>) {
    for algorithm in Algorithm::ALL {
        let (name, meter) = (algorithm.name(), meter("10/h", algorithm));
        let taken = bench.take(name, meter, 6).await;
        bench.at(Micros::new(10));
        assert!(bench.take(name, meter, 4).await.is_allowed(), "{name}");
        let refund = |cost| Op::Refund { cost: units(cost), at: taken.at() };
        let decision = bench.op(name, meter, refund(4)).await;
        assert!(decision.is_allowed(), "{name}: a refund always fits");
        let (back, left) = match algorithm {
            // Its slots were promised.
            Algorithm::LeakyBucket => (0, 0),
            _ => (4, 4),
        };
        assert_eq!(reading(&decision, 0).units, back, "{name}");
        assert_eq!(bench.left(name, meter).await, left, "{name}");
        let rest = reading(&bench.op(name, meter, refund(100)).await, 0);
        assert!(rest.remaining <= rest.capacity, "{name}: beyond fresh");
        let of_that_instant = matches!(algorithm, Algorithm::SlidingLog);
        assert!(!of_that_instant || rest.units == 2, "{name}: its own units only");
        bench.at(Micros::new(0));
    }
}

/// A refund for an instant at which nothing was taken, or that no longer counts, gives nothing.
pub async fn a_refund_out_of_time_gives_nothing<S: Store, D: Driven>(bench: &Bench<S, D>) {
    let windows = [Algorithm::FixedWindow, Algorithm::SlidingLog, Algorithm::SlidingWindow];
    for algorithm in windows {
        let (name, meter) = (algorithm.name(), meter("10/s", algorithm));
        bench.at(Micros::ZERO);
        assert!(bench.take(name, meter, 6).await.is_allowed());
        bench.at(Micros::from_secs(2));
        assert!(bench.take(name, meter, 6).await.is_allowed());
        let before = bench.look(name, meter).await;
        for at in [START, Timestamp::from_micros(START.as_micros() - 5_000_000)] {
            let refund = Op::Refund { cost: Cost::ONE, at };
            let decision = bench.op(name, meter, refund).await;
            assert_eq!(reading(&decision, 0).units, 0, "{name}: no longer counts");
        }
        assert_eq!(bench.look(name, meter).await, before, "{name}: untouched");
    }
}

/// A reset bucket is a fresh one.
pub async fn a_reset_forgets<S: Store, D: Driven>(bench: &Bench<S, D>) {
    for algorithm in Algorithm::ALL {
        let (name, meter) = (algorithm.name(), meter("5/min", algorithm));
        let fresh = bench.look(name, meter).await;
        assert!(bench.take(name, meter, 5).await.is_allowed());
        assert!(!bench.take(name, meter, 1).await.is_allowed());
        assert!(bench.op(name, meter, Op::Reset).await.is_allowed(), "{name}");
        assert_eq!(bench.look(name, meter).await, fresh, "{name}");
        assert!(bench.take(name, meter, 5).await.is_allowed(), "{name}");
    }
}

/// A refund or reset is carried out whatever becomes of the rest of its set.
pub async fn a_refund_goes_through_in_a_refused_set<S: Store, D: Driven>(bench: &Bench<S, D>) {
    for algorithm in Algorithm::ALL {
        let meter = meter("5/min", algorithm);
        let name = algorithm.name();
        let (spent, full) = (format!("{name} spent"), format!("{name} full"));
        assert!(bench.take(&spent, meter, 5).await.is_allowed());
        assert!(bench.take(&full, meter, 5).await.is_allowed());
        let reset = tollgate::Charge::new(bench.key(&spent), meter, Op::Reset);
        let decision = bench.all([reset, bench.charge(&full, meter, 1)]).await;
        assert!(!decision.is_allowed(), "{name}: the other is full");
        assert_eq!(bench.left(&spent, meter).await, 5, "{name}: reset anyway");
    }
}

/// A lease gets as much as is left, at least its minimum, or nothing.
pub async fn a_lease_takes_what_is_left<S: Store, D: Driven>(bench: &Bench<S, D>) {
    let lease = |min, max| Op::Take(Ask { min: units(min), max: units(max) });
    for algorithm in Algorithm::ALL {
        let (name, meter) = (algorithm.name(), meter("10/min", algorithm));
        let granted = bench.op(name, meter, lease(1, 6)).await;
        assert_eq!(reading(&granted, 0).units, 6, "{name}: all of it");
        let refused = bench.op(name, meter, lease(5, 9)).await;
        assert!(!refused.is_allowed(), "{name}: 4 are left, 5 wanted");
        assert!(matches!(refused.retry(), Retry::After(_)), "{name}");
        let rest = bench.op(name, meter, lease(2, 1_000)).await;
        assert_eq!(reading(&rest, 0).units, 4, "{name}: what is left");
        assert_eq!(bench.left(name, meter).await, 0, "{name}: charged as granted");
        let none = bench.op(name, meter, lease(1, 1_000)).await;
        assert!(!none.is_allowed(), "{name}: nothing is left");
    }
}
