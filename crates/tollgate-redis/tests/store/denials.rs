//! What was refused is refused again without asking, and no longer than is right.

use std::time::{Duration, Instant};

use tollgate::{
    Algorithm, Charge, ChargeSet, Cost, Decision, Enforcement, Gate, Key, Limiter, Meter, Micros,
    Policy, Provenance, Retry, Rule, Store, Verdict,
};
use tollgate_redis::RedisStore;
use tollgate_testkit::redis::{Proxy, Server};

use crate::{meter, store};

async fn take(store: &RedisStore, meter: Meter, cost: u64) -> Decision {
    Limiter::new(store).take("key", meter, Cost::new(cost).unwrap()).await.unwrap()
}

/// A store, and a bucket of 10 that lasts a day and is used up.
async fn used_up(server: &Server) -> (RedisStore, Meter) {
    let (store, daily) = (store(&server.url()), meter("10/day", Algorithm::SlidingLog));
    assert!(take(&store, daily, 10).await.is_allowed());
    (store, daily)
}

#[tokio::test]
async fn a_refusal_is_remembered_with_its_numbers() {
    let server = Server::start();
    let (store, daily) = used_up(&server).await;
    let first = take(&store, daily, 1).await;
    assert_eq!((first.provenance(), first.is_allowed()), (Provenance::Store, false));
    let calls = store.stats().calls;
    let begun = Instant::now();
    let mut last = take(&store, daily, 1).await;
    while last.provenance() == Provenance::DenyCache {
        assert!(!last.is_allowed());
        let (then, now) =
            (first.outcomes()[0].reading.unwrap(), last.outcomes()[0].reading.unwrap());
        assert_eq!((now.capacity, now.remaining, now.units), (then.capacity, then.remaining, 0));
        // Both name the same instant: the later, the less there is to wait.
        let fits = |decision: &Decision| match decision.retry() {
            Retry::After(span) => decision.at() + span,
            other => panic!("{other:?}"),
        };
        assert_eq!(fits(&first), fits(&last));
        assert!(last.at() >= first.at());
        assert_eq!(store.stats().calls, calls, "Redis was asked");
        last = take(&store, daily, 1).await;
    }
    // For a second at most, though there is a day to wait.
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert_eq!((last.provenance(), last.is_allowed()), (Provenance::Store, false));
    assert!(store.stats().remembered > 0);
}

/// However long the question was on its way, nobody is told to come back before it fits.
#[tokio::test]
async fn a_slow_wire_makes_no_promise_early() {
    let server = Server::start();
    used_up(&server).await;
    let proxy = Proxy::start(server.port());
    let (store, daily) = (store(&proxy.url()), meter("10/day", Algorithm::SlidingLog));
    Limiter::new(&store).peek("key", daily, Cost::ONE).await.unwrap();
    proxy.delay(Duration::from_millis(100));
    let mut refused = take(&store, daily, 1).await;
    let again = loop {
        let again = take(&store, daily, 1).await;
        match again.provenance() {
            Provenance::DenyCache => break again,
            // On a busy machine the second it is remembered for may have gone by.
            _ => refused = again,
        }
    };
    let time = server.command(&["TIME"]);
    let part = |place: usize| time.elements()[place].text().unwrap().parse::<u64>().unwrap();
    let now = part(0) * 1_000_000 + part(1);
    // It counts on from the instant Redis decided at, and does not run ahead of Redis.
    assert!(again.at() >= refused.at());
    assert!(again.at().as_micros() <= now, "{} µs ahead", again.at().as_micros() - now);
}

#[tokio::test]
async fn another_cost_limit_or_algorithm_is_asked_for() {
    let server = Server::start();
    let (store, daily) = used_up(&server).await;
    take(&store, daily, 2).await;
    assert_eq!(take(&store, daily, 2).await.provenance(), Provenance::DenyCache);
    assert_eq!(take(&store, daily, 1).await.provenance(), Provenance::Store);
    // A raised limit acts at once.
    let raised = meter("20/day", Algorithm::SlidingLog);
    let decision = take(&store, raised, 2).await;
    assert_eq!((decision.provenance(), decision.is_allowed()), (Provenance::Store, true));
    let other = meter("10/day", Algorithm::TokenBucket);
    assert!(take(&store, other, 2).await.is_allowed());
}

#[tokio::test]
async fn it_ends_when_the_charge_fits() {
    let server = Server::start();
    let (store, quick) = (store(&server.url()), meter("1/100ms", Algorithm::TokenBucket));
    let limiter = Limiter::new(&store);
    let mut granted = 0;
    let begun = Instant::now();
    let mut first = None;
    while granted < 5 {
        let decision = limiter.take("key", quick, Cost::ONE).await.unwrap();
        if decision.is_allowed() {
            granted += 1;
            first.get_or_insert(decision.at());
            let Some(first) = first else { continue };
            let earliest = first + Micros::from_millis(100 * (granted - 1));
            assert!(decision.at() >= earliest, "granted too early");
        }
        tokio::task::yield_now().await;
    }
    assert!(begun.elapsed() < Duration::from_secs(20), "refused for too long");
}

#[tokio::test]
async fn a_refund_and_a_reset_clear_it() {
    let server = Server::start();
    let (store, daily) = (store(&server.url()), meter("10/day", Algorithm::SlidingLog));
    let limiter = Limiter::new(&store);
    let taken = take(&store, daily, 10).await;
    take(&store, daily, 1).await;
    assert_eq!(take(&store, daily, 1).await.provenance(), Provenance::DenyCache);
    limiter.refund("key", daily, Cost::ONE, taken.at()).await.unwrap();
    assert!(take(&store, daily, 1).await.is_allowed());
    // What is sent within moments of a clearing is not remembered, and Redis may answer within them.
    let begun = Instant::now();
    let mut refused = take(&store, daily, 1).await;
    while refused.provenance() == Provenance::Store {
        assert!(
            !refused.is_allowed() && begun.elapsed() < Duration::from_secs(20),
            "not remembered"
        );
        refused = take(&store, daily, 1).await;
    }
    assert_eq!(refused.provenance(), Provenance::DenyCache);
    limiter.reset("key", daily).await.unwrap();
    assert!(take(&store, daily, 1).await.is_allowed());
}

#[tokio::test]
async fn it_can_be_forgotten_and_switched_off() {
    let server = Server::start();
    let (store, daily) = used_up(&server).await;
    take(&store, daily, 1).await;
    assert_eq!(take(&store, daily, 1).await.provenance(), Provenance::DenyCache);
    store.forget_refusals();
    assert_eq!(take(&store, daily, 1).await.provenance(), Provenance::Store);
    let builder = RedisStore::builder(&server.url()).unwrap().deadline(crate::PATIENT);
    let without = builder.deny_cache(0).build().unwrap();
    for _ in 0..3 {
        assert_eq!(take(&without, daily, 1).await.provenance(), Provenance::Store);
    }
}

#[tokio::test]
async fn a_new_policy_clears_it() {
    let server = Server::start();
    let store = store(&server.url());
    let policy = || Policy::builder().rule(Rule::new("all").quota("1/day")).build().unwrap();
    let gate = Gate::new(policy(), store.clone());
    let admit = async || {
        let admission = gate.admit(&Default::default(), &Default::default()).await;
        (admission.is_allowed(), admission.provenance())
    };
    assert_eq!(admit().await, (true, Provenance::Store));
    assert_eq!(admit().await, (false, Provenance::Store));
    assert_eq!(admit().await, (false, Provenance::DenyCache));
    gate.set_policy(policy());
    assert_eq!(admit().await, (false, Provenance::Store));
}

#[tokio::test]
async fn of_a_set_one_enforced_charge_is_enough() {
    let server = Server::start();
    let (store, daily) = used_up(&server).await;
    let limiter = Limiter::new(&store);
    let set = |enforcement| {
        let mut set = ChargeSet::new();
        set.push(Charge::take("other", daily, Cost::ONE)).unwrap();
        set.push(Charge::take("key", daily, Cost::ONE).enforced(enforcement)).unwrap();
        set
    };
    assert!(!limiter.take_set(&set(Enforcement::Enforce)).await.unwrap().is_allowed());
    let decision = limiter.take_set(&set(Enforcement::Enforce)).await.unwrap();
    assert_eq!((decision.provenance(), decision.is_allowed()), (Provenance::DenyCache, false));
    assert_eq!(decision.binding(), Some(1));
    let [other, refusing] = decision.outcomes() else { panic!("{decision:?}") };
    assert_eq!((other.verdict, other.reading), (Verdict::Allow, None));
    assert_eq!((refusing.verdict, refusing.reading.unwrap().remaining), (Verdict::Deny, 0));
    // Learned from a set, it holds for the charge alone too.
    assert_eq!(take(&store, daily, 1).await.provenance(), Provenance::DenyCache);
    // Charges that cannot refuse are not refused for.
    for enforcement in [Enforcement::Shadow, Enforcement::AnyOf(0)] {
        for _ in 0..2 {
            let decision = limiter.take_set(&set(enforcement)).await.unwrap();
            assert_eq!(decision.provenance(), Provenance::Store);
        }
    }
    let peek = limiter.peek("key", daily, Cost::ONE).await.unwrap();
    assert_eq!((peek.provenance(), peek.is_allowed()), (Provenance::Store, false));
}

/// However many keys are refused, no more is remembered than there is room for.
#[tokio::test]
async fn it_never_grows() {
    let server = Server::start();
    let builder = RedisStore::builder(&server.url()).unwrap().deadline(crate::PATIENT);
    let store = builder.deny_cache(16).build().unwrap();
    let daily = meter("1/day", Algorithm::FixedWindow);
    let keys: Vec<String> = (0..1_000).map(|number| format!("key:{number}")).collect();
    let sets = |keys: &[String]| -> Vec<ChargeSet<'static>> {
        let charge = |key: &String| Charge::take(key.clone(), daily, Cost::new(2).unwrap());
        keys.iter().map(|key| ChargeSet::of(charge(key))).collect()
    };
    let all = sets(&keys);
    assert!(store.decide(&all).await.iter().all(|answer| !answer.as_ref().unwrap().is_allowed()));
    let again = store.decide(&all).await;
    let remembered = again
        .iter()
        .filter(|answer| answer.as_ref().unwrap().provenance() == Provenance::DenyCache)
        .count();
    assert!((1..=16).contains(&remembered), "{remembered}");
}

/// One that was asked for together with others is remembered for who asks alone, and the other way round.
#[tokio::test]
async fn one_set_and_many_share_what_is_remembered() {
    let server = Server::start();
    let (store, daily) = used_up(&server).await;
    let one = [ChargeSet::of(Charge::take("key", daily, Cost::ONE))];
    let two = [one[0].clone(), ChargeSet::of(Charge::take("other", daily, Cost::new(11).unwrap()))];
    let provenance = |answer: &Result<Decision, _>| answer.as_ref().unwrap().provenance();
    assert_eq!(provenance(&store.decide_one(&one[0]).await), Provenance::Store);
    assert_eq!(provenance(&store.decide_one(&one[0]).await), Provenance::DenyCache);
    assert_eq!(provenance(&store.decide(&one).await[0]), Provenance::DenyCache);
    let both: Vec<_> = store.decide(&two).await.iter().map(provenance).collect();
    assert_eq!(both, [Provenance::DenyCache, Provenance::Store]);
    // More than there ever is: no time to wait is told, and it is remembered all the same.
    let never = store.decide_one(&two[1]).await.unwrap();
    assert_eq!((never.provenance(), never.retry()), (Provenance::DenyCache, Retry::Never));
}

/// What a rule says is no key made by hand, and where a bucket is placed tells it from others too.
#[tokio::test]
async fn keys_of_one_text_are_told_apart() {
    let server = Server::start();
    let (store, daily) = (store(&server.url()), meter("10/day", Algorithm::FixedWindow));
    let limiter = Limiter::new(&store);
    let values = [("a", "1"), ("b", "2")];
    let of_rule = [None, Some("a"), Some("b")].map(|near| Key::of_rule_near("rule", values, near));
    for key in of_rule.into_iter().chain([Key::new("rule:a=1:b=2")]) {
        for expected in [Provenance::Store, Provenance::DenyCache] {
            let decision = limiter.take(key.clone(), daily, Cost::new(11).unwrap()).await.unwrap();
            assert_eq!((decision.is_allowed(), decision.provenance()), (false, expected), "{key}");
        }
    }
}
