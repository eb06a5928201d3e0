//! Sets: all or nothing, over mixed algorithms.

use tollgate::{
    Algorithm, Charge, ChargeSet, ChargeSetError, Enforcement, Op, Retry, Store, Verdict,
};

use super::{Bench, Driven, meter, reading, set, units};

/// One bucket of each algorithm, full to `left` units of ten.
async fn one_of_each<S: Store, D: Driven>(bench: &Bench<S, D>, left: u64) -> Vec<Charge<'static>> {
    let mut charges = Vec::new();
    for algorithm in Algorithm::ALL {
        let (name, meter) = (algorithm.name(), meter("10/min", algorithm));
        assert!(bench.take(name, meter, 10 - left).await.is_allowed());
        charges.push(bench.charge(name, meter, 1));
    }
    charges
}

/// What is left in each bucket of these charges.
async fn lefts<S: Store, D: Driven>(bench: &Bench<S, D>, charges: &[Charge<'static>]) -> Vec<u64> {
    let mut lefts = Vec::new();
    for charge in charges {
        let name = charge.meter.algorithm().name();
        lefts.push(bench.left(name, charge.meter).await);
    }
    lefts
}

/// Every charge of an admitted set is taken; of a refused one none, whichever of them refused.
pub async fn a_set_is_all_or_nothing<S: Store, D: Driven>(bench: &Bench<S, D>) {
    let charges = one_of_each(bench, 5).await;
    let decision = bench.all(charges.clone()).await;
    assert!(decision.is_allowed(), "all five fit");
    assert_eq!(decision.outcomes().len(), 5, "one outcome per charge");
    assert_eq!(lefts(bench, &charges).await, [4; 5], "all are taken");
    for greedy in 0..5 {
        let mut charges = charges.clone();
        charges[greedy].op = Op::Take(tollgate::Ask::exactly(units(5)));
        let decision = bench.all(charges.clone()).await;
        assert!(!decision.is_allowed(), "the {greedy}th does not fit");
        for (index, outcome) in decision.outcomes().iter().enumerate() {
            assert_eq!(outcome.verdict.is_allow(), index != greedy, "each by itself");
            assert_eq!(reading(&decision, index).units, 0, "nothing is taken");
        }
        assert_eq!(decision.binding(), Some(greedy), "the one that refused");
        assert_eq!(lefts(bench, &charges).await, [4; 5], "nothing changed");
    }
}

/// A shadow charge never refuses, is taken when it fits and the set is admitted, and only then.
pub async fn a_shadow_never_blocks<S: Store, D: Driven>(bench: &Bench<S, D>) {
    for algorithm in Algorithm::ALL {
        let meter = meter("2/min", algorithm);
        let (real, shadow) = (format!("{algorithm} real"), format!("{algorithm} shadow"));
        let both = |shadow_cost| {
            let shadow = bench.charge(&shadow, meter, shadow_cost);
            [bench.charge(&real, meter, 1), shadow.enforced(Enforcement::Shadow)]
        };
        assert!(bench.all(both(2)).await.is_allowed());
        assert_eq!(bench.left(&shadow, meter).await, 0, "{algorithm}: it fitted");
        let decision = bench.all(both(1)).await;
        assert!(decision.is_allowed(), "{algorithm}: a shadow never blocks");
        assert_eq!(decision.outcomes()[1].verdict, Verdict::Deny, "yet it says so");
        assert_eq!(decision.retry(), Retry::Now, "{algorithm}: nobody has to wait");
        bench.op(&shadow, meter, Op::Reset).await;
        assert!(!bench.all(both(1)).await.is_allowed(), "{algorithm}: 2 of 2 used");
        let left = bench.left(&shadow, meter).await;
        assert_eq!(left, 2, "{algorithm}: a refused set charges no shadow");
    }
}

/// A group refuses only if all its members do, and then it is free as soon as one is.
pub async fn a_group_refuses_only_together<S: Store, D: Driven>(bench: &Bench<S, D>) {
    let slow = meter("1/h", Algorithm::TokenBucket);
    let quick = meter("1/s", Algorithm::SlidingLog);
    let group = || {
        let members = [bench.charge("slow", slow, 1), bench.charge("quick", quick, 1)];
        members.map(|charge| charge.enforced(Enforcement::AnyOf(7)))
    };
    assert!(bench.take("slow", slow, 1).await.is_allowed());
    let decision = bench.all(group()).await;
    assert!(decision.is_allowed(), "one of them fits");
    assert_eq!(reading(&decision, 0).units, 0, "the full one is not charged");
    assert_eq!(reading(&decision, 1).units, 1, "the other is");
    let refused = bench.all(group()).await;
    assert!(!refused.is_allowed(), "none of them fits");
    assert_eq!(refused.binding(), Some(1), "the member that is free soonest");
    assert_eq!(refused.retry(), reading(&refused, 1).retry);
    let second = tollgate::Micros::from_secs(1);
    assert_eq!(refused.retry(), Retry::After(second), "as soon as one is free");
    bench.at(second);
    assert!(bench.all(group()).await.is_allowed(), "and then it passes");
}

/// Two groups are two conditions, beside what is enforced alone.
pub async fn groups_are_apart<S: Store, D: Driven>(bench: &Bench<S, D>) {
    let meter = meter("1/min", Algorithm::FixedWindow);
    assert!(bench.take("full", meter, 1).await.is_allowed());
    let groups = bench.all([
        bench.charge("full", meter, 1).enforced(Enforcement::AnyOf(1)),
        bench.charge("free", meter, 1).enforced(Enforcement::AnyOf(2)),
    ]);
    assert!(!groups.await.is_allowed(), "all of group 1 refuse");
    assert_eq!(bench.left("free", meter).await, 1, "nothing is charged");
}

/// Charges on one bucket add up and share an outcome; those that disagree cannot be in one set.
pub async fn one_bucket_twice_adds_up<S: Store, D: Driven>(bench: &Bench<S, D>) {
    for algorithm in Algorithm::ALL {
        let (name, five) = (algorithm.name(), meter("5/min", algorithm));
        let mut twice = ChargeSet::of(bench.charge(name, five, 2));
        let index = twice.push(bench.charge(name, five, 3));
        assert_eq!(index, Ok(0), "{name}: they share an outcome");
        let decision = bench.decide(&twice).await;
        assert_eq!(decision.outcomes().len(), 1, "{name}");
        assert_eq!(reading(&decision, 0).units, 5, "{name}: 2 and 3");
        assert!(!bench.take(name, five, 1).await.is_allowed(), "{name}");
        let other = bench.charge(name, meter("6/min", algorithm), 1);
        let conflict = twice.push(other);
        assert!(matches!(conflict, Err(ChargeSetError::Conflict { .. })), "{name}");
    }
}

/// The sets of one question are decided in order, each by itself.
pub async fn sets_are_decided_in_order_and_apart<S: Store, D: Driven>(bench: &Bench<S, D>) {
    for algorithm in Algorithm::ALL {
        let (name, meter) = (algorithm.name(), meter("3/min", algorithm));
        let other = format!("{name} other");
        let mut sets: Vec<_> = (0..20).map(|_| set([bench.charge(name, meter, 1)])).collect();
        sets.insert(1, set([bench.charge(name, meter, 1), bench.charge(&other, meter, 4)]));
        sets.push(set([bench.charge(&other, meter, 3)]));
        sets.push(ChargeSet::new());
        let decisions = bench.decide_all(&sets).await;
        let allowed: Vec<bool> = decisions.iter().map(|one| one.is_allowed()).collect();
        let mut expected = vec![true, false, true, true];
        expected.resize(21, false);
        expected.extend([true, true]);
        assert_eq!(allowed, expected, "{name}");
        assert_eq!(bench.left(&other, meter).await, 0, "{name}: of its own set only");
    }
}
