//! The gate through the public interface, on clocks the tests drive and a store they can break.

use std::collections::BTreeSet;
use std::future::Future;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tollgate::gate::{Brief, LocalStore, Reason};
use tollgate::policy::PolicyBuilder;
use tollgate::store::Answers;
use tollgate::{
    Admission, Algorithm, ChargeSet, Clock, Cost, Costs, Enforcement, Fallback, Gate, ManualClock,
    MemoryStore, Micros, Missing, Outcome, Policy, Provenance, Retry, Rule, Store, StoreError,
    StoreErrorKind, Subject, Timestamp, Verdict,
};

/// Every future here is ready at once.
fn now<F: Future>(future: F) -> F::Output {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(output) => output,
        std::task::Poll::Pending => panic!("nothing here waits"),
    }
}

/// A store that can be switched off.
struct Breakable {
    store: MemoryStore<ManualClock>,
    down: AtomicBool,
}

impl Store for Breakable {
    const IMMEDIATE: bool = true;

    fn decide(&self, sets: &[ChargeSet<'_>]) -> impl Future<Output = Answers> + Send {
        let down = || StoreError::new(StoreErrorKind::Unavailable);
        let answers = match self.down.load(Ordering::Relaxed) {
            true => sets.iter().map(|_| Err(down())).collect(),
            false => self.store.take_sets(sets).into_iter().map(Ok).collect(),
        };
        std::future::ready(answers)
    }
}

/// A gate over a store that works until told otherwise, both it and the fallback on one clock.
struct Scene {
    clock: ManualClock,
    gate: Gate<Breakable>,
}

impl Scene {
    fn new(policy: PolicyBuilder) -> Self {
        // The start of a minute, and of an hour.
        let clock = ManualClock::at_secs(3_600_000);
        let local: Arc<dyn Clock> = Arc::new(clock.clone());
        let store = Breakable {
            store: MemoryStore::with_clock(clock.clone()),
            down: AtomicBool::new(false),
        };
        let gate = Gate::new(build(policy), store).with_local(LocalStore::with_clock(local));
        Self { clock, gate }
    }

    fn broken(policy: PolicyBuilder) -> Self {
        let scene = Self::new(policy);
        scene.set_down(true);
        scene
    }

    fn set_down(&self, down: bool) {
        let store = self.gate.limiter().store();
        store.down.store(down, Ordering::Relaxed);
    }

    fn admit(&self, values: &[(&str, &str)]) -> Admission {
        self.admit_at(values, &Costs::default())
    }

    fn admit_at(&self, values: &[(&str, &str)], costs: &Costs<'_>) -> Admission {
        let subject = values.iter().copied().collect();
        now(self.gate.admit(&subject, costs))
    }

    /// The whole of an admission in short, if it comes to one.
    fn admit_briefly(&self, values: &[(&str, &str)]) -> Option<Admission> {
        let of = |axis: &[u8]| values.iter().find(|(known, _)| known.as_bytes() == axis);
        let mut brief = Brief::default();
        let value_of = |axis: &[u8]| of(axis).map(|(_, value)| value.as_bytes());
        self.gate.admit_briefly_now(value_of, &mut brief).then(|| self.gate.whole(&brief))
    }

    /// How many of `count` requests pass.
    fn passed(&self, count: usize, values: &[(&str, &str)]) -> usize {
        (0..count).filter(|_| self.admit(values).is_allowed()).count()
    }
}

fn build(policy: PolicyBuilder) -> Policy {
    policy.build().unwrap_or_else(|errors| panic!("{errors}"))
}

fn cost(units: u64) -> Cost {
    Cost::new(units).unwrap()
}

/// Rule, verdict and what remains, per outcome.
fn summary(admission: &Admission) -> Vec<(&str, Verdict, Option<u64>)> {
    let remaining = |outcome: &Outcome| outcome.reading.map(|reading| reading.remaining);
    let outcomes = admission.outcomes();
    outcomes.map(|(rule, outcome)| (rule.name(), outcome.verdict, remaining(outcome))).collect()
}

use Verdict::{Allow, Deny};

#[test]
fn one_refusal_refuses_all_and_charges_none() {
    let scene = Scene::new(
        Policy::builder()
            .rule(Rule::new("all").quota("10/min"))
            .rule(Rule::new("user").by("user").quota("2/min").algorithm(Algorithm::SlidingLog))
            .rule(Rule::new("route").by("route").quota("5/min").algorithm(Algorithm::TokenBucket)),
    );
    let values = [("user", "u"), ("route", "/")];
    assert_eq!(scene.passed(5, &values), 2);
    let refused = scene.admit(&values);
    assert_eq!(
        summary(&refused),
        [("all", Allow, Some(8)), ("user", Deny, Some(0)), ("route", Allow, Some(3))]
    );
    assert_eq!(refused.provenance(), Provenance::Store);
    let (rule, outcome) = refused.binding().unwrap();
    assert_eq!((rule.name(), outcome.verdict), ("user", Deny));
    assert_eq!(refused.retry(), Retry::After(Micros::from_secs(60)));
    // Another user of the same route has what is left there.
    assert_eq!(scene.passed(9, &[("user", "v"), ("route", "/")]), 2);
    assert_eq!(scene.passed(9, &[("user", "w"), ("route", "/")]), 1);
}

#[test]
fn two_units_are_one_set() {
    let scene = Scene::new(
        Policy::builder()
            .rule(Rule::new("calls").by("key").quota("60/min"))
            .rule(Rule::new("tokens").by("key").unit("tokens").quota("100000/min")),
    );
    let key = [("key", "k")];
    let tokens = |count| Costs::default().with("tokens", cost(count));
    assert!(scene.admit_at(&key, &tokens(99_999)).is_allowed());
    let refused = scene.admit_at(&key, &tokens(2));
    assert_eq!(summary(&refused), [("calls", Allow, Some(59)), ("tokens", Deny, Some(1))]);
    assert!(scene.admit_at(&key, &tokens(1)).is_allowed());
    // Without tokens the rule about tokens has no say.
    assert_eq!(scene.passed(100, &key), 58);
    let never = scene.admit_at(&[("key", "other")], &tokens(100_001));
    assert_eq!(never.retry(), Retry::Never);
}

#[test]
fn the_policy_decides_alone_where_it_can() {
    let scene = Scene::broken(
        Policy::builder().allow_network("ip", "10.0.0.0/8").deny("user", "mallory").rule(
            Rule::new("user")
                .when("route", "/u/*")
                .by("user")
                .quota("1/min")
                .missing(Missing::Deny),
        ),
    );
    let allowed = scene.admit(&[("ip", "10.1.1.1"), ("route", "/u/")]);
    assert!(allowed.is_allowed());
    assert!(
        matches!(allowed.reason(), Some(Reason::Allowlisted(entry)) if entry.to_string() == "10.0.0.0/8")
    );
    let banned = scene.admit(&[("ip", "10.1.1.1"), ("user", "mallory")]);
    assert!(!banned.is_allowed());
    assert!(matches!(banned.reason(), Some(Reason::Denylisted(entry)) if entry.axis() == "user"));
    let nobody = scene.admit(&[("route", "/u/x")]);
    assert!(!nobody.is_allowed());
    assert!(matches!(nobody.reason(), Some(Reason::MissingAxis { axis: "user", .. })));
    assert_eq!(nobody.rule().unwrap().name(), "user");
    let free = scene.admit(&[("route", "/"), ("user", "u")]);
    assert!(free.is_allowed());
    assert!(matches!(free.reason(), Some(Reason::NoRule)));
    for admission in [allowed, banned, nobody, free] {
        assert_eq!(admission.provenance(), Provenance::Policy);
        assert_eq!(admission.decision().at(), Timestamp::EPOCH);
        assert_eq!(admission.outcomes().count(), 0);
        assert!(admission.binding().is_none());
        assert!(admission.store_error().is_none(), "the store was not asked");
    }
}

#[test]
fn a_shadow_rule_tells_and_never_refuses() {
    let scene = Scene::new(
        Policy::builder()
            .rule(Rule::new("strict").quota("2/min").shadow())
            .rule(Rule::new("real").quota("4/min")),
    );
    assert_eq!(scene.passed(2, &[]), 2);
    let third = scene.admit(&[]);
    assert!(third.is_allowed());
    assert_eq!(summary(&third), [("strict", Deny, Some(0)), ("real", Allow, Some(1))]);
    assert_eq!(third.rule().unwrap().name(), "real");
    assert_eq!(scene.passed(5, &[]), 1);
    // A refused set does not charge the shadow either.
    scene.clock.advance(Micros::from_secs(59));
    assert!(!scene.admit(&[]).is_allowed());
}

#[test]
fn a_group_refuses_when_none_of_it_fits() {
    let scene = Scene::new(
        Policy::builder()
            .rule(Rule::new("free").by("user").quota("2/day").any_of(0))
            .rule(Rule::new("paid").by("user").quota("3/min").any_of(0)),
    );
    assert_eq!(scene.passed(9, &[("user", "u")]), 3);
    scene.clock.advance(Micros::from_secs(120));
    assert_eq!(scene.passed(9, &[("user", "u")]), 3);
}

/// What rules of every combination of fallbacks answer while the store is down, as a table: one
/// request against rules that all have room, then one against rules of which the local ones have
/// none.
#[test]
fn the_strictest_fallback_wins() {
    const ALL: [Fallback; 3] = [Fallback::Allow, Fallback::Deny, Fallback::Local];
    for first in ALL {
        for second in ALL {
            for third in ALL {
                let fallbacks = [first, second, third];
                let rule = |index: usize| {
                    let rule = Rule::new(format!("r{index}")).quota("2/min");
                    rule.on_store_failure(fallbacks[index])
                };
                let rules = (0..3).map(rule);
                let scene = Scene::broken(rules.fold(Policy::builder(), PolicyBuilder::rule));
                let denies = fallbacks.contains(&Fallback::Deny);
                let local = fallbacks.contains(&Fallback::Local);
                let expected = match (denies, local) {
                    (true, _) => 0,
                    (false, true) => 2,
                    (false, false) => 5,
                };
                assert_eq!(scene.passed(5, &[]), expected, "{fallbacks:?}");
                let last = scene.admit(&[]);
                assert_eq!(last.provenance(), Provenance::Fallback);
                let error = last.store_error().unwrap();
                assert_eq!(error.kind(), StoreErrorKind::Unavailable);
                for ((rule, outcome), fallback) in last.outcomes().zip(fallbacks) {
                    assert_eq!(rule.fallback(), fallback);
                    // Numbers only where somebody counts, and nothing is counted that was refused.
                    let remaining = outcome.reading.map(|reading| reading.remaining);
                    let left = if denies { 2 } else { 0 };
                    assert_eq!(remaining, (fallback == Fallback::Local).then_some(left));
                    let verdict = match fallback {
                        Fallback::Allow => Allow,
                        Fallback::Deny => Deny,
                        Fallback::Local if denies => Allow,
                        Fallback::Local => Deny,
                    };
                    assert_eq!(outcome.verdict, verdict, "{fallbacks:?}");
                }
            }
        }
    }
}

#[test]
fn replicas_share_the_quota_while_each_counts_alone() {
    let rule = |algorithm| Rule::new("r").by("user").quota("10/min").algorithm(algorithm);
    for algorithm in Algorithm::ALL {
        let scene = Scene::new(Policy::builder().rule(rule(algorithm)));
        let replicas = NonZeroU32::new(4).unwrap();
        let scene = Scene { gate: scene.gate.with_replicas(replicas), ..scene };
        // The store counts for all, and is not divided.
        assert_eq!(scene.passed(20, &[("user", "by-store")]), 10, "{algorithm}");
        scene.set_down(true);
        assert_eq!(scene.passed(20, &[("user", "alone")]), 2, "{algorithm}");
        // More than a share can be granted, and what has been is counted.
        let dear = Costs::requests(cost(7));
        assert!(scene.admit_at(&[("user", "dear")], &dear).is_allowed(), "{algorithm}");
        assert_eq!(scene.passed(20, &[("user", "dear")]), 0, "{algorithm}");
        let refused = scene.admit_at(&[("user", "dear")], &dear);
        assert!(!refused.is_allowed() && refused.retry() != Retry::Never, "{algorithm}");
        let hopeless = scene.admit_at(&[("user", "dear")], &Costs::requests(cost(11)));
        assert_eq!(hopeless.retry(), Retry::Never, "{algorithm}");
    }
}

#[test]
fn local_rules_are_decided_all_or_nothing() {
    let scene = Scene::broken(
        Policy::builder()
            .rule(Rule::new("all").quota("5/min"))
            .rule(Rule::new("user").by("user").quota("2/min")),
    );
    assert_eq!(scene.passed(9, &[("user", "u")]), 2);
    assert_eq!(scene.passed(9, &[("user", "v")]), 2);
    assert_eq!(scene.passed(9, &[("user", "w")]), 1);
    let refused = scene.admit(&[("user", "w")]);
    assert_eq!(summary(&refused), [("all", Deny, Some(0)), ("user", Allow, Some(1))]);
    assert!(matches!(refused.retry(), Retry::After(_)));
}

#[test]
fn a_shadow_rule_refuses_nobody_during_an_outage_either() {
    for fallback in [Fallback::Allow, Fallback::Deny, Fallback::Local] {
        let shadow = Rule::new("s").quota("1/min").shadow().on_store_failure(fallback);
        let scene = Scene::broken(Policy::builder().rule(shadow));
        assert_eq!(scene.passed(3, &[]), 3, "{fallback:?}");
        let (_, outcome) = scene.admit(&[]).binding().map(|(r, o)| (r.clone(), *o)).unwrap();
        let would = if fallback == Fallback::Allow { Allow } else { Deny };
        assert_eq!(outcome.verdict, would);
    }
}

#[test]
fn a_group_falls_back_as_a_group() {
    const ALL: [Fallback; 3] = [Fallback::Allow, Fallback::Deny, Fallback::Local];
    for first in ALL {
        for second in ALL {
            let one = Rule::new("a").quota("1/min").any_of(3).on_store_failure(first);
            let two = Rule::new("b").quota("2/min").any_of(3).on_store_failure(second);
            let scene = Scene::broken(Policy::builder().rule(one).rule(two));
            let each = BTreeSet::from([(first, 1), (second, 2)].map(|(by, limit)| match by {
                Fallback::Allow => 5,
                Fallback::Deny => 0,
                Fallback::Local => limit,
            }));
            // Whichever lets the most through decides.
            let most = *each.last().unwrap();
            assert_eq!(scene.passed(5, &[]), most, "{first:?} {second:?}");
        }
    }
}

#[test]
fn a_group_excused_by_one_member_does_not_keep_others_from_counting() {
    let scene = Scene::broken(
        Policy::builder()
            .rule(Rule::new("a").quota("9/min").any_of(0).on_store_failure(Fallback::Allow))
            .rule(Rule::new("b").quota("1/min").any_of(0))
            .rule(Rule::new("all").quota("3/min")),
    );
    assert_eq!(scene.passed(9, &[]), 3);
    let refused = scene.admit(&[]);
    let group = |(_, outcome): (&Rule, &Outcome)| outcome.enforcement == Enforcement::AnyOf(0);
    assert_eq!(refused.outcomes().filter(|pair| group(*pair)).count(), 2);
}

#[test]
fn an_outage_ends_by_itself_and_the_store_remembers() {
    let scene = Scene::new(Policy::builder().rule(Rule::new("r").quota("5/min")));
    assert_eq!(scene.passed(3, &[]), 3);
    scene.set_down(true);
    // The local store counts only what it let through itself.
    assert_eq!(scene.passed(9, &[]), 5);
    scene.set_down(false);
    let back = scene.admit(&[]);
    assert_eq!(back.provenance(), Provenance::Store);
    assert_eq!(summary(&back), [("r", Allow, Some(1))]);
}

#[test]
fn an_answer_that_fits_no_question_is_none() {
    struct Wrong;
    impl Store for Wrong {
        fn decide(&self, sets: &[ChargeSet<'_>]) -> impl Future<Output = Answers> + Send {
            let decision =
                tollgate::Decision::without_charges(Allow, Timestamp::EPOCH, Provenance::Store);
            std::future::ready(sets.iter().map(|_| Ok(decision.clone())).collect())
        }
    }
    let rule = Rule::new("r").quota("1/min").on_store_failure(Fallback::Deny);
    let gate = Gate::new(build(Policy::builder().rule(rule)), Wrong);
    let admission = now(gate.admit(&Subject::new(), &Costs::default()));
    assert!(!admission.is_allowed());
    assert_eq!(admission.store_error().unwrap().kind(), StoreErrorKind::Protocol);
}

#[test]
fn peeking_changes_nothing_in_store_or_fallback() {
    for down in [false, true] {
        let scene = Scene::new(Policy::builder().rule(Rule::new("r").quota("1/min")));
        scene.set_down(down);
        let peek = || now(scene.gate.peek(&Subject::new(), &Costs::default()));
        assert!(peek().is_allowed() && peek().is_allowed());
        assert_eq!(scene.passed(2, &[]), 1);
        let refused = peek();
        assert!(!refused.is_allowed());
        assert_eq!(refused.rule().unwrap().name(), "r");
    }
}

#[test]
fn a_refund_gives_back_what_was_taken_and_no_more() {
    for down in [false, true] {
        let scene = Scene::new(
            Policy::builder()
                .rule(Rule::new("calls").quota("10/min; 100/day"))
                .rule(Rule::new("tokens").unit("tokens").quota("1000/min"))
                .rule(Rule::new("watch").unit("tokens").quota("5/min").shadow()),
        );
        scene.set_down(down);
        let subject = Subject::new();
        let refund = |costs: &Costs<'_>, of: &Admission| {
            let back = now(scene.gate.refund(&subject, costs, of)).unwrap();
            let units = back
                .outcomes()
                .map(|(rule, outcome)| (rule.name().to_owned(), outcome.reading.unwrap().units));
            units.collect::<Vec<_>>()
        };
        let estimate = Costs::requests(cost(2)).with("tokens", cost(800));
        let admitted = scene.admit_at(&[], &estimate);
        assert!(admitted.is_allowed());
        // The shadow did not fit, so it has nothing to give back; a part comes back as a part.
        assert_eq!(refund(&Costs::only("tokens", cost(300)), &admitted), [("tokens".into(), 300)]);
        let too_much = Costs::requests(cost(9)).with("cents", cost(1));
        assert_eq!(refund(&too_much, &admitted), [("calls".into(), 2), ("calls".into(), 2)]);
        let state = scene.admit_at(&[], &Costs::requests(cost(1)).with("tokens", cost(100)));
        let left: Vec<_> = summary(&state).iter().map(|(_, _, left)| left.unwrap()).collect();
        assert_eq!(left, [9, 99, 400, 5]);
        // A refusal took nothing.
        let refused = scene.admit_at(&[], &Costs::requests(cost(10)));
        assert!(!refused.is_allowed());
        assert!(refund(&Costs::requests(cost(10)), &refused).is_empty());
    }
}

#[test]
fn of_two_quotas_only_the_one_that_was_charged_gives_back() {
    let rule = Rule::new("watch").quota("5/min; 900/day").shadow();
    let scene = Scene::new(Policy::builder().rule(rule));
    let eight = Costs::requests(cost(8));
    let admitted = scene.admit_at(&[], &eight);
    let back = now(scene.gate.refund(&Subject::new(), &eight, &admitted)).unwrap();
    let (_, outcome) = back.outcomes().next().unwrap();
    let reading = outcome.reading.unwrap();
    assert_eq!((back.outcomes().count(), reading.units), (1, 8));
    assert_eq!((reading.capacity, reading.remaining), (900, 900));
}

#[test]
fn a_refund_goes_to_whoever_decided() {
    let scene = Scene::new(
        Policy::builder().rule(Rule::new("r").quota("10/min").algorithm(Algorithm::TokenBucket)),
    );
    let ten = Costs::requests(cost(10));
    let by_store = scene.admit_at(&[], &ten);
    scene.set_down(true);
    let by_fallback = scene.admit_at(&[], &ten);
    assert!(by_store.is_allowed() && by_fallback.is_allowed());
    let lost = now(scene.gate.refund(&Subject::new(), &ten, &by_store));
    assert_eq!(lost.unwrap_err().kind(), StoreErrorKind::Unavailable);
    scene.set_down(false);
    now(scene.gate.refund(&Subject::new(), &ten, &by_fallback)).unwrap();
    assert!(!scene.admit(&[]).is_allowed(), "the store was given what it never took");
    let at = by_store.decision().at();
    let back = now(scene.gate.refund_at(&Subject::new(), &ten, at)).unwrap();
    assert_eq!(back.outcomes().next().unwrap().1.reading.unwrap().units, 10);
    assert!(scene.admit(&[]).is_allowed());
}

#[test]
fn a_new_policy_keeps_usage_and_acts_at_once() {
    for algorithm in Algorithm::ALL {
        let policy = |limit: &str| {
            let rule = Rule::new("r").by("user").quota(limit).algorithm(algorithm);
            build(Policy::builder().rule(rule))
        };
        let scene = Scene::new(Policy::builder());
        let user = [("user", "u")];
        scene.gate.set_policy(policy("10/min"));
        assert_eq!(scene.passed(4, &user), 4, "{algorithm}");
        let old = scene.gate.set_policy(policy("6/min"));
        assert_eq!(old.rules().count(), 1);
        let lowered = scene.passed(20, &user);
        assert!(lowered <= 2, "{algorithm}: lowering granted {lowered} extra");
        scene.gate.set_policy(policy("20/min"));
        let raised = scene.passed(40, &user);
        assert!((1..=16).contains(&raised), "{algorithm}: raising gave {raised}");
        let total = 4 + lowered + raised;
        assert!(total <= 20, "{algorithm}: {total} in one instant");
        // Another name is another bucket.
        let other = Rule::new("other").by("user").quota("3/min").algorithm(algorithm);
        scene.gate.set_policy(build(Policy::builder().rule(other)));
        assert_eq!(scene.passed(9, &user), 3);
    }
}

#[test]
fn an_admission_keeps_the_policy_it_was_made_by() {
    let scene = Scene::new(Policy::builder().version(1).rule(Rule::new("old").quota("5/min")));
    let admission = scene.admit(&[]);
    scene.gate.set_policy(build(Policy::builder().version(2)));
    assert_eq!(admission.rule().unwrap().name(), "old");
    assert_eq!(admission.policy().version(), 1);
    assert_eq!(scene.gate.policy().version(), 2);
    let back = now(scene.gate.refund(&Subject::new(), &Costs::default(), &admission)).unwrap();
    assert_eq!(summary(&back), [("old", Allow, Some(5))]);
}

#[test]
fn charges_without_a_rule_fall_back_to_the_local_store() {
    let scene = Scene::broken(Policy::builder());
    let meter = tollgate::Meter::new("1/min".parse().unwrap(), Algorithm::FixedWindow).unwrap();
    let set = ChargeSet::of(tollgate::Charge::take("k", meter, Cost::ONE));
    let (first, error) = now(scene.gate.take_set(&set));
    assert!(first.is_allowed() && error.is_some());
    let (second, _) = now(scene.gate.take_set(&set));
    assert!(!second.is_allowed());
    assert_eq!(second.provenance(), Provenance::Fallback);
}

#[test]
fn the_sync_twins_agree_with_the_futures() {
    let policy = || build(Policy::builder().rule(Rule::new("r").by("ip").quota("3/min")));
    let store = || MemoryStore::with_clock(ManualClock::at_secs(3_600_000));
    let (one, two) = (Gate::new(policy(), store()), Gate::new(policy(), store()));
    let subject = Subject::new().with("ip", "a");
    for _ in 0..5 {
        let peeked =
            (one.peek_now(&subject, &Costs::default()), now(two.peek(&subject, &Costs::default())));
        assert_eq!(peeked.0.decision(), peeked.1.decision());
        let admitted = (
            one.admit_now(&subject, &Costs::default()),
            now(two.admit(&subject, &Costs::default())),
        );
        assert_eq!(admitted.0.decision(), admitted.1.decision());
    }
}

#[test]
fn a_leaky_buckets_delay_reaches_the_admission() {
    let rule = Rule::new("r").quota("60/min burst 3").algorithm(Algorithm::LeakyBucket);
    let scene = Scene::new(Policy::builder().rule(rule));
    assert_eq!(scene.admit(&[]).delay(), Micros::ZERO);
    assert_eq!(scene.admit(&[]).delay(), Micros::from_secs(1));
}

#[test]
fn every_admission_goes_by_one_policy_while_they_are_swapped() {
    let policy = |version: u64| {
        let rules = (0..version).map(|index| Rule::new(format!("v{version}-{index}")).quota("9/s"));
        build(rules.fold(Policy::builder().version(version), PolicyBuilder::rule))
    };
    let gate = Gate::new(policy(1), MemoryStore::new());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let admission = gate.admit_now(&Subject::new(), &Costs::default());
                    let version = admission.policy().version();
                    let names = admission.outcomes().map(|(rule, _)| rule.name().to_owned());
                    let expected = (0..version).map(|index| format!("v{version}-{index}"));
                    assert!(names.eq(expected));
                }
            });
        }
        for round in 0..2_000 {
            gate.set_policy(policy(1 + round % 3));
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// Servers spawn decisions onto threads.
#[test]
fn admissions_and_their_futures_can_be_sent() {
    fn sendable<T: Send>(value: T) -> T {
        value
    }
    fn shareable<T: Send + Sync + 'static>(_: &T) {}
    let scene = Scene::new(Policy::builder());
    shareable(&scene.gate);
    let admission = now(sendable(scene.gate.admit(&Subject::new(), &Costs::default())));
    shareable(&admission);
}

#[test]
fn a_request_is_held_only_where_every_rule_that_refuses_lets_wait() {
    let scene = Scene::new(
        Policy::builder()
            .rule(
                Rule::new("patient")
                    .by("user")
                    .quota("1/min")
                    .algorithm(Algorithm::SlidingLog)
                    .wait(Micros::from_secs(60)),
            )
            .rule(Rule::new("strict").quota("2/h").algorithm(Algorithm::FixedWindow)),
    );
    let user = [("user", "u")];
    assert_eq!(scene.admit(&user).hold(Micros::ZERO), None, "nothing to wait for");
    let refused = scene.admit(&user);
    assert_eq!(refused.hold(Micros::ZERO), Some(Micros::from_secs(60)));
    assert_eq!(refused.hold(Micros::new(1)), None, "it was held for long enough");
    assert!(scene.admit(&[("user", "v")]).is_allowed());
    let both = scene.admit(&user);
    assert_eq!(both.hold(Micros::ZERO), None, "the other rule does not let wait");
    let never = scene.admit_at(&[("user", "w")], &Costs::requests(cost(5)));
    assert_eq!(never.hold(Micros::ZERO), None, "waiting does not help");
}

#[test]
fn what_is_not_critical_is_charged_behind_and_refuses_nobody() {
    let scene = Scene::new(
        Policy::builder()
            .rule(Rule::new("hard").by("user").quota("2/min"))
            .rule(Rule::new("soft").quota("1/min").missing(Missing::Deny).non_critical()),
    );
    let ask = |values: &[(&str, &str)]| {
        let subject = values.iter().copied().collect();
        now(scene.gate.admit_deferring(&subject, &Costs::default()))
    };
    let user = [("user", "u")];
    for (left, verdict) in [(1, Allow), (0, Deny)] {
        let (admission, deferred) = ask(&user);
        assert_eq!(summary(&admission), [("hard", Allow, Some(left))]);
        let behind = now(scene.gate.charge(deferred.unwrap()));
        assert_eq!(summary(&behind), [("soft", verdict, Some(0))]);
        assert!(behind.is_allowed());
    }
    let (refused, deferred) = ask(&user);
    assert!(!refused.is_allowed());
    assert!(deferred.is_none(), "a refusal charges nothing, not even later");
    // Where nothing has to be waited for the store is not asked.
    let (admission, deferred) = ask(&[]);
    assert!(admission.is_allowed());
    assert_eq!((admission.provenance(), deferred.is_some()), (Provenance::Policy, true));
    // Front ends that put nothing off charge everything at once, and it still refuses nobody.
    assert_eq!(summary(&scene.admit(&[])), [("soft", Deny, Some(0))]);
    assert_eq!(scene.passed(3, &[]), 3);
}

#[test]
fn settling_gives_back_or_takes_what_is_there() {
    let scene = Scene::new(
        Policy::builder()
            .rule(Rule::new("calls").by("user").quota("10/min"))
            .rule(Rule::new("tokens").by("user").unit("tokens").quota("100/min")),
    );
    let tokens = |count| Costs::default().with("tokens", cost(count));
    let user = [("user", "u")];
    let admission = scene.admit_at(&user, &tokens(40));
    let settle = |actual: &Costs<'_>| now(scene.gate.settle(&admission, actual)).unwrap();
    let both = |tokens| [("calls", Allow, Some(9)), ("tokens", Allow, Some(tokens))];
    assert_eq!(summary(&settle(&tokens(40))), both(60));
    assert_eq!(summary(&settle(&tokens(10))), both(90));
    // More than there is: what is there is taken, and the request has run all the same.
    let settled = settle(&tokens(1_000));
    assert_eq!((summary(&settled), settled.is_allowed()), (both(0).to_vec(), true));

    let other = scene.admit_at(&[("user", "v")], &tokens(40));
    let nothing = now(scene.gate.settle(&other, &Costs::none())).unwrap();
    assert_eq!(
        summary(&nothing),
        [("calls", Allow, Some(10)), ("tokens", Allow, Some(100))],
        "a request that shall not count gets everything back"
    );
}

#[test]
fn a_refusal_has_nothing_to_settle_and_an_outage_settles_locally() {
    let rule = |fallback| Rule::new("r").quota("2/min").on_store_failure(fallback);
    let scene = Scene::new(Policy::builder().rule(rule(Fallback::Local)));
    assert_eq!(scene.passed(3, &[]), 2);
    let refused = scene.admit(&[]);
    let settled = now(scene.gate.settle(&refused, &Costs::none())).unwrap();
    assert_eq!(summary(&settled), [("r", Deny, Some(0))]);

    scene.set_down(true);
    let local = scene.admit(&[]);
    assert_eq!(summary(&local), [("r", Allow, Some(1))]);
    let settled = now(scene.gate.settle(&local, &Costs::none())).unwrap();
    assert_eq!(summary(&settled), [("r", Allow, Some(2))]);
    scene.set_down(false);
    assert!(!scene.admit(&[]).is_allowed(), "the store was given nothing back");
    scene.set_down(true);
    let local = scene.admit(&[]);
    scene.set_down(false);
    let elsewhere = now(scene.gate.settle(&local, &Costs::none())).unwrap();
    assert_eq!(elsewhere.provenance(), Provenance::Fallback);
}

/// All that an admission says.
fn all_of(admission: &Admission) -> String {
    let charges: Vec<_> = admission.charges().collect();
    let error = admission.store_error().map(StoreError::kind);
    format!("{:?} {charges:?} {:?} {error:?}", admission.decision(), admission.reason())
}

#[test]
fn an_admission_in_short_says_what_a_whole_one_does() {
    let rules = [
        Rule::new("r").quota("2/min"),
        Rule::new("r").by("ip").quota("2/min").colocate("ip"),
        Rule::new("r").by("ip").quota("2/min").shadow(),
        Rule::new("r").by("ip").quota("1/s").algorithm(Algorithm::LeakyBucket),
        Rule::new("r").by("ip").quota("2/min").on_store_failure(Fallback::Deny),
        Rule::new("r").by("ip").quota("2/min").on_store_failure(Fallback::Allow),
    ];
    for rule in rules {
        let policy = || Policy::builder().rule(rule.clone());
        let [short, whole] = [Scene::new(policy()), Scene::new(policy())];
        let compare = || {
            for ip in ["192.0.2.7", "192.0.2.7", "a b:c=d", "192.0.2.7", "192.0.2.7"] {
                let admitted = short.admit_briefly(&[("ip", ip)]).unwrap();
                assert_eq!(all_of(&admitted), all_of(&whole.admit(&[("ip", ip)])));
            }
        };
        compare();
        for down in [true, false] {
            short.set_down(down);
            whole.set_down(down);
            compare();
        }
        // Another policy, which nobody but the admission may keep.
        for scene in [&short, &whole] {
            scene.gate.set_policy(build(Policy::builder().rule(rule.clone().quota("9/min"))));
        }
        compare();
    }
}

#[test]
fn what_one_value_does_not_settle_is_not_decided_in_short() {
    let by_ip = || Rule::new("r").by("ip").quota("1/min");
    let long = "x".repeat(200);
    let cases = [
        (Policy::builder().rule(by_ip()), vec![]),
        (Policy::builder().rule(by_ip()), vec![("ip", &*long)]),
        (Policy::builder().rule(by_ip().unit("tokens")), vec![("ip", "a")]),
        (Policy::builder().rule(by_ip().non_critical()), vec![("ip", "a")]),
        (Policy::builder().rule(by_ip().hash()), vec![("ip", "a")]),
        (Policy::builder().rule(by_ip()).rule(Rule::new("s").quota("1/min")), vec![("ip", "a")]),
    ];
    for (policy, values) in cases {
        let scene = Scene::new(policy);
        assert!(scene.admit_briefly(&values).is_none(), "{values:?}");
    }
}
