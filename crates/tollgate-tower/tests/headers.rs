//! Header fields, byte by byte, and against an independent reader of structured fields.

use proptest::prelude::*;
use sfv::{BareItem, Item, List, ListEntry, Parser};
use tollgate::{
    Algorithm, Charge, ChargeSet, Cost, Decision, Enforcement, ManualClock, MemoryStore, Meter,
    Micros, Outcome, Provenance, Reading, Retry, Timestamp, Verdict,
};
use tollgate_tower::{Dialect, NamedMeter, render};

fn meter(quota: &str, algorithm: Algorithm) -> Meter {
    Meter::new(quota.parse().unwrap(), algorithm).unwrap()
}

fn window(quota: &str) -> Meter {
    meter(quota, Algorithm::FixedWindow)
}

/// Fields as a client sees them, one per line.
fn lines(decision: &Decision, policies: &[NamedMeter<'_>], dialect: Dialect) -> Vec<String> {
    let fields = render(decision, policies, dialect);
    let line = |(name, value): &(http::HeaderName, http::HeaderValue)| {
        format!("{name}: {}", value.to_str().unwrap())
    };
    fields.iter().map(line).collect()
}

fn outcome(reading: Reading) -> Outcome {
    Outcome {
        verdict: match reading.retry {
            Retry::Now => Verdict::Allow,
            _ => Verdict::Deny,
        },
        enforcement: Enforcement::Enforce,
        reading: Some(reading),
    }
}

fn reading(capacity: u64, remaining: u64, reset: Micros, retry: Retry) -> Reading {
    Reading { capacity, remaining, reset, retry, delay: Micros::ZERO, units: 0 }
}

fn decision(outcomes: Vec<Outcome>) -> Decision {
    let at = Timestamp::from_micros(1_000_000_500_000);
    Decision::new(outcomes.into(), at, Provenance::Store)
}

/// Two policies, of which the second is the closer to its limit, and their allowed decision.
fn two_allowed() -> (Decision, [NamedMeter<'static>; 2]) {
    let outcomes = vec![
        outcome(reading(1_000, 900, Micros::from_secs(50_000), Retry::Now)),
        outcome(reading(100, 50, Micros::new(29_000_001), Retry::Now)),
    ];
    let policies = [
        NamedMeter { name: "daily", meter: window("1000/day") },
        NamedMeter { name: "per-user", meter: window("100/min") },
    ];
    (decision(outcomes), policies)
}

fn one<'a>(name: &'a str, quota: &str, reading: Reading) -> (Decision, [NamedMeter<'a>; 1]) {
    let meter = window(quota);
    (decision(vec![outcome(reading)]), [NamedMeter { name, meter }])
}

#[test]
fn draft_11_lists_every_enforced_policy_with_the_binding_one_first() {
    let (decision, policies) = two_allowed();
    assert_eq!(
        lines(&decision, &policies, Dialect::Draft11),
        [
            "ratelimit-policy: \"per-user\";q=100;w=60, \"daily\";q=1000;w=86400",
            "ratelimit: \"per-user\";r=50;t=30, \"daily\";r=900;t=50000",
        ]
    );
    assert_eq!(Dialect::default(), Dialect::Draft11);
}

#[test]
fn older_dialects_tell_the_binding_one() {
    let (decision, policies) = two_allowed();
    for (dialect, expected) in [
        (
            Dialect::Draft7,
            &[
                "ratelimit: limit=100, remaining=50, reset=30",
                "ratelimit-policy: 100;w=60, 1000;w=86400",
            ][..],
        ),
        (
            Dialect::Draft6,
            &[
                "ratelimit-limit: 100",
                "ratelimit-remaining: 50",
                "ratelimit-reset: 30",
                "ratelimit-policy: 100;w=60, 1000;w=86400",
            ],
        ),
        (
            // At 1,000,000.5 s with 29.000001 s to go.
            Dialect::XRateLimitEpoch,
            &["x-ratelimit-limit: 100", "x-ratelimit-remaining: 50", "x-ratelimit-reset: 1000030"],
        ),
        (
            Dialect::XRateLimitDelta,
            &["x-ratelimit-limit: 100", "x-ratelimit-remaining: 50", "x-ratelimit-reset: 30"],
        ),
        (Dialect::Off, &[]),
    ] {
        assert_eq!(lines(&decision, &policies, dialect), expected, "{dialect}");
    }
}

#[test]
fn a_refusal_says_when_to_come_back_in_every_dialect() {
    for (retry, after) in [
        (Micros::new(1), 1),
        (Micros::from_secs(1), 1),
        (Micros::new(1_000_001), 2),
        (Micros::from_secs(59), 59),
    ] {
        let reading = reading(100, 0, Micros::from_secs(60), Retry::After(retry));
        let (decision, policies) = one("per-user", "100/min", reading);
        for dialect in Dialect::ALL {
            let lines = lines(&decision, &policies, dialect);
            let last = &lines[lines.len() - 2..];
            let expected = [format!("retry-after: {after}"), "cache-control: no-store".into()];
            assert_eq!(last, expected, "{dialect}");
        }
        let standing = format!("ratelimit: \"per-user\";r=0;t={after}");
        assert_eq!(lines(&decision, &policies, Dialect::Draft11)[1], standing);
    }
}

#[test]
fn what_can_never_fit_has_no_retry_after() {
    let reading = reading(100, 70, Micros::from_secs(7), Retry::Never);
    let (decision, policies) = one("per-user", "100/min", reading);
    assert_eq!(
        lines(&decision, &policies, Dialect::Draft11),
        [
            "ratelimit-policy: \"per-user\";q=100;w=60",
            "ratelimit: \"per-user\";r=70;t=7",
            "cache-control: no-store",
        ]
    );
}

#[test]
fn shadow_charges_are_not_told() {
    let store = MemoryStore::with_clock(ManualClock::at_secs(6_000));
    let (hard, soft) = (window("10/min"), window("1/min"));
    let mut set = ChargeSet::new();
    set.push(Charge::take("a", soft, Cost::ONE).enforced(Enforcement::Shadow)).unwrap();
    set.push(Charge::take("b", hard, Cost::ONE)).unwrap();
    let decision = store.take_set(&set);
    let policies = [("soft", soft), ("hard", hard)].map(|(name, meter)| NamedMeter { name, meter });
    assert_eq!(
        lines(&decision, &policies, Dialect::Draft11),
        ["ratelimit-policy: \"hard\";q=10;w=60", "ratelimit: \"hard\";r=9;t=60"]
    );
    let shadow = store.take_set(&ChargeSet::of(set.charges()[0].clone()));
    for dialect in Dialect::ALL {
        assert!(lines(&shadow, &policies[..1], dialect).is_empty(), "{dialect}");
    }
}

#[test]
fn a_decision_without_numbers_tells_the_policy_alone() {
    let outcome =
        Outcome { verdict: Verdict::Deny, enforcement: Enforcement::Enforce, reading: None };
    let decision = decision(vec![outcome]);
    let policies = [NamedMeter { name: "login", meter: window("5/15m") }];
    assert_eq!(
        lines(&decision, &policies, Dialect::Draft11),
        ["ratelimit-policy: \"login\";q=5;w=900", "retry-after: 1", "cache-control: no-store",]
    );
    let none = Decision::without_charges(Verdict::Allow, Timestamp::EPOCH, Provenance::Policy);
    for dialect in Dialect::ALL {
        assert!(lines(&none, &[], dialect).is_empty(), "{dialect}");
    }
}

#[test]
fn a_window_is_the_whole_refill_and_never_zero() {
    for (quota, algorithm, expected) in [
        ("10/s burst 50", Algorithm::TokenBucket, "\"k\";q=50;w=5"),
        ("3/s burst 10", Algorithm::TokenBucket, "\"k\";q=10;w=4"),
        ("1/250ms", Algorithm::SlidingLog, "\"k\";q=1;w=1"),
        ("9000000/ms", Algorithm::LeakyBucket, "\"k\";q=9000000;w=1"),
    ] {
        let store = MemoryStore::with_clock(ManualClock::at_secs(6_000));
        let meter = meter(quota, algorithm);
        let decision = store.peek("k", meter, Cost::ONE);
        let fields = render(&decision, &[NamedMeter { name: "k", meter }], Dialect::Draft11);
        assert_eq!(fields[0].1, expected, "{quota}");
    }
}

#[test]
fn names_and_integers_stay_within_the_grammar() {
    let long = "x".repeat(65);
    let huge = reading(1 << 53, u64::MAX, Micros::new(u64::MAX), Retry::Now);
    for (name, expected) in [
        (r#"say "hi" \ now"#, r#""say \"hi\" \\ now""#.to_owned()),
        ("tab\té\u{7f}", r#""tab%09%C3%A9%7F""#.to_owned()),
        ("", r#""""#.to_owned()),
        (&long, format!("\"{}~0\"", &long[..64])),
        (&long[..64], format!("\"{}\"", &long[..64])),
    ] {
        let (decision, policies) = one(name, "100/min", huge);
        let expected = format!("ratelimit: {expected};r=999999999999999;t=18446744073710");
        assert_eq!(lines(&decision, &policies, Dialect::Draft11)[1], expected);
    }
}

#[test]
fn dialects_read_back_by_name() {
    for dialect in Dialect::ALL {
        assert_eq!(dialect.name().parse(), Ok(dialect));
    }
    let error = "draft-3".parse::<Dialect>().unwrap_err().to_string();
    assert!(error.contains("\"draft-3\""), "{error}");
    assert!(error.contains("draft-11, draft-7, draft-6, x-ratelimit"), "{error}");
}

/// A name and two parameters, as an independent reader sees them.
fn item(entry: &ListEntry) -> (String, Vec<(String, i64)>) {
    let ListEntry::Item(Item { bare_item: BareItem::String(name), params }) = entry else {
        panic!("not a named item: {entry:?}");
    };
    let params = params.iter().map(|(key, value)| match value {
        BareItem::Integer(value) => (key.to_string(), i64::from(*value)),
        other => panic!("{key} is not an integer: {other:?}"),
    });
    (name.as_str().to_owned(), params.collect())
}

fn any_retry() -> impl Strategy<Value = Retry> {
    prop_oneof![
        Just(Retry::Now),
        Just(Retry::Never),
        any::<u64>().prop_map(|wait| Retry::After(Micros::new(wait))),
    ]
}

proptest! {
    /// Whatever is decided about whatever names, both fields are lists of equal length that an
    /// independent reader reads back.
    #[test]
    fn any_decision_reads_back_as_structured_lists(
        charges in prop::collection::vec((any::<String>(), any::<[u64; 3]>(), any_retry()), 1..16),
    ) {
        let outcomes = charges.iter().map(|(_, [capacity, remaining, reset], retry)| {
            outcome(reading(*capacity, *remaining, Micros::new(*reset), *retry))
        });
        let decision = decision(outcomes.collect());
        let policies: Vec<_> = charges
            .iter()
            .map(|(name, ..)| NamedMeter { name, meter: window("9007199254740991/min") })
            .collect();
        let fields = render(&decision, &policies, Dialect::Draft11);
        let read = |index: usize| {
            let list: List = Parser::new(fields[index].1.as_bytes()).parse().unwrap();
            list.iter().map(item).collect::<Vec<_>>()
        };
        let (limits, standings) = (read(0), read(1));
        prop_assert_eq!(limits.len(), charges.len());
        for (limit, standing) in limits.iter().zip(&standings) {
            prop_assert_eq!(&limit.0, &standing.0);
            prop_assert_eq!(&limit.1, &[("q".to_owned(), 999_999_999_999_999), ("w".to_owned(), 60)]);
            let [(r, remaining), (t, wait)] = &standing.1[..] else { panic!("{standing:?}") };
            prop_assert_eq!((r.as_str(), t.as_str()), ("r", "t"));
            prop_assert!(*remaining >= 0 && *wait >= 0);
        }
        prop_assert_eq!(limits.len(), standings.len());
    }
}
