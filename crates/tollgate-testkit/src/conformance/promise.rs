//! What a decision on several limits says as one.

use tollgate::{Algorithm, Enforcement, Micros, Retry, Store};

use super::{Bench, Driven, meter, reading};

/// The retry of a set is the longest among those that refuse it, and it is true to the microsecond.
pub async fn a_set_waits_for_the_slowest<S: Store, D: Driven>(bench: &Bench<S, D>) {
    let meters = [
        meter("3/s", Algorithm::SlidingLog),
        meter("3/min", Algorithm::TokenBucket),
        meter("3/min", Algorithm::SlidingWindow),
        meter("3/s", Algorithm::LeakyBucket),
        meter("3/s", Algorithm::FixedWindow),
    ];
    let name = |index: usize| format!("limit {index}");
    let charges = |cost: u64| {
        let charges = meters.iter().enumerate();
        charges.map(move |(index, meter)| bench.charge(&name(index), *meter, cost))
    };
    assert!(bench.all(charges(2)).await.is_allowed());
    let refused = bench.all(charges(3)).await;
    let longest = (0..meters.len()).map(|index| reading(&refused, index).retry);
    assert_eq!(refused.retry(), longest.max().expect("five retries"));
    let Retry::After(wait) = refused.retry() else {
        panic!("3 of 3 fit some time, and not now: {refused:?}");
    };
    bench.at(Micros::new(wait.get() - 1));
    let early = bench.all(charges(3)).await;
    assert_eq!(early.retry(), Retry::After(Micros::new(1)), "a microsecond early");
    bench.at(wait);
    assert!(bench.all(charges(3)).await.is_allowed(), "at the promise");
}

/// Of several refusals the one with the longest retry binds, *never* before all; the first of
/// equals.
pub async fn the_longest_refusal_binds<S: Store, D: Driven>(bench: &Bench<S, D>) {
    let short = meter("2/s", Algorithm::SlidingLog);
    let long = meter("2/h", Algorithm::SlidingLog);
    for name in ["a", "b"] {
        assert!(bench.take(name, short, 2).await.is_allowed());
        assert!(bench.take(name, long, 2).await.is_allowed());
    }
    let a = || bench.charge("a", short, 1);
    let decision = bench.all([a(), bench.charge("a", long, 1)]).await;
    assert_eq!(decision.binding(), Some(1), "an hour is longer than a second");
    let decision = bench.all([a(), bench.charge("b", short, 1)]).await;
    assert_eq!(decision.binding(), Some(0), "the first of equals");
    let never = [bench.charge("a", long, 1), bench.charge("b", short, 3), a()];
    let decision = bench.all(never).await;
    assert_eq!((decision.binding(), decision.retry()), (Some(1), Retry::Never));
    let shadow = bench.charge("a", long, 1).enforced(Enforcement::Shadow);
    let decision = bench.all([shadow, a()]).await;
    assert_eq!(decision.binding(), Some(1), "a shadow refuses nobody");
    assert_eq!(decision.retry(), Retry::After(Micros::from_secs(1)));
}

/// Of an admitted set the limit with the least share left binds, the first of equals; a shadow only
/// if there is nothing else.
pub async fn the_least_share_binds<S: Store, D: Driven>(bench: &Bench<S, D>) {
    let large = meter("1000/min", Algorithm::FixedWindow);
    let small = meter("4/min", Algorithm::SlidingWindow);
    let both = || [bench.charge("large", large, 1), bench.charge("small", small, 1)];
    assert_eq!(bench.all(both()).await.binding(), Some(1), "3 of 4 is less than 999 of 1000");
    assert!(bench.take("large", large, 900).await.is_allowed());
    assert_eq!(bench.all(both()).await.binding(), Some(0), "98 of 1000 is less than 2 of 4");
    let equals = [bench.charge("one", small, 1), bench.charge("two", small, 1)];
    assert_eq!(bench.all(equals).await.binding(), Some(0), "the first of equals");
    let [real, shadow] = both();
    let decision = bench.all([shadow.enforced(Enforcement::Shadow), real]).await;
    assert_eq!(decision.binding(), Some(1), "what is enforced comes first");
    let alone = bench.charge("one", small, 1).enforced(Enforcement::Shadow);
    assert_eq!(bench.all([alone]).await.binding(), Some(0), "a shadow alone");
}

/// A clock that steps back grants nothing, and denies for no longer than the step.
pub async fn a_clock_that_steps_back_is_harmless<S: Store, D: Driven>(bench: &Bench<S, D>) {
    for algorithm in Algorithm::ALL {
        let (name, meter) = (algorithm.name(), meter("4/s", algorithm));
        bench.at(Micros::from_secs(10));
        assert!(bench.take(name, meter, 3).await.is_allowed());
        bench.at(Micros::from_secs(7));
        assert!(bench.left(name, meter).await <= 1, "{name}: granted by the step");
        bench.at(Micros::from_secs(10));
        assert_eq!(bench.left(name, meter).await, 1, "{name}: as before the step");
        assert!(bench.take(name, meter, 1).await.is_allowed(), "{name}");
    }
}
