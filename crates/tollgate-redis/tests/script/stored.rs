//! What is in Redis: lifetimes, what a refusal leaves alone, and how much memory it takes.

use tollgate::{Algorithm, Ask, Charge, ChargeSet, Cost, Decision, Key, Meter, Micros, Op, Prefix};
use tollgate_redis::bare::Batch;
use tollgate_testkit::conformance::{START, meter, set, units};
use tollgate_testkit::redis::{Reply, Server};

use crate::server::bare;

/// The longest a key outlives its state, with a second for the tests themselves.
const SLACK_MILLIS: i64 = 61_000;

fn name(key: &Key<'_>, meter: &Meter) -> String {
    String::from_utf8(Prefix::default().name(key, meter)).expect("names are ASCII")
}

#[test]
fn every_write_sets_a_lifetime_that_covers_the_state() {
    let server = Server::start();
    let bare = bare(&server);
    for algorithm in Algorithm::ALL {
        for quota in ["10/s", "10/min", "10/day"] {
            let meter = meter(quota, algorithm);
            let set = [ChargeSet::of(Charge::take("client", meter, Cost::ONE))];
            for _ in 0..3 {
                let answers = bare.decide_batches(&[Batch { at: None, sets: &set }]);
                let reading = answers.expect("answers")[0][0].outcomes()[0].reading;
                let reset = reading.expect("numbers").reset.as_millis_ceil();
                let reset = i64::try_from(reset).expect("days at most");
                let name = name(&"client".into(), &meter);
                let left = server.command(&["PTTL", &name]).integer().expect("a lifetime");
                assert!(left > 0, "{name}: {left}");
                // A window's state may count for a period longer than it is told of.
                let period = i64::try_from(meter.period().as_micros() / 1_000).expect("days");
                assert!(left <= reset + period + SLACK_MILLIS, "{name}: {left} ms for {reset} ms");
                assert!(left + 1_000 >= reset, "{name}: {left} ms for {reset} ms");
            }
        }
    }
    assert_eq!(server.keys_without_expiry(), [""; 0]);
}

/// Quotas that go the short way, and some that do not because units last no whole microseconds.
const SEVERAL: [[&str; 3]; 2] = [["10/s", "10/min", "10/day"], ["7/s", "7/min", "7/day"]];

#[test]
fn buckets_of_one_key_lie_together_and_live_as_long_as_the_last() {
    let server = Server::start();
    let bare = bare(&server);
    let ask = |sets: &[ChargeSet<'_>]| {
        let answers = bare.decide_batches(&[Batch { at: None, sets }]);
        answers.expect("answers").remove(0)
    };
    for algorithm in [Algorithm::TokenBucket, Algorithm::LeakyBucket] {
        for meters in SEVERAL.map(|quotas| quotas.map(|quota| meter(quota, algorithm))) {
            server.command(&["FLUSHALL"]);
            let take = |meter: Meter| Charge::take("client", meter, Cost::ONE);
            let covers = |what: &str| {
                let name = name(&"client".into(), &meters[0]);
                assert_eq!(server.keys(), [name.as_str()], "{what}");
                let left = server.command(&["PTTL", &name]).integer().expect("a lifetime");
                for meter in meters {
                    let peeked = ask(&[ChargeSet::of(Charge::peek("client", meter, Cost::ONE))]);
                    let reset = peeked[0].outcomes()[0].reading.expect("numbers").reset;
                    let reset = i64::try_from(reset.as_millis_ceil()).expect("days at most");
                    assert!(left + 1_000 >= reset, "{what}, {meter:?}: {left} ms for {reset} ms");
                }
            };
            // All in one set, each alone, several in a batch, in another order, and once more.
            assert!(ask(&[set(meters.map(take))])[0].is_allowed());
            covers("all");
            for meter in meters {
                assert!(ask(&[ChargeSet::of(take(meter))])[0].is_allowed());
                covers("one alone");
            }
            assert!(ask(&meters.map(|meter| ChargeSet::of(take(meter))))[2].is_allowed());
            covers("three sets");
            let [second, minute, day] = meters;
            assert!(ask(&[set([day, second, minute].map(take))])[0].is_allowed());
            covers("in another order");
            assert!(ask(&[set(meters.map(take))])[0].is_allowed());
            covers("all again");
            let peek = ChargeSet::of(Charge::peek("client", day, Cost::ONE));
            let reading = ask(&[peek])[0].outcomes()[0].reading.expect("numbers");
            assert_eq!(reading.remaining, day.capacity() - 5, "nothing was lost on the way");
        }
    }
}

#[test]
fn a_bucket_that_is_forgotten_or_long_stale_leaves_the_others_alone() {
    let server = Server::start();
    let bare = bare(&server);
    for meters in SEVERAL.map(|quotas| quotas.map(|quota| meter(quota, Algorithm::TokenBucket))) {
        let [second, minute, day] = meters;
        let at = |later: u64, charges: &[Charge<'_>]| {
            let sets = charges.iter().cloned().map(ChargeSet::of).collect::<Vec<_>>();
            let at = Some(START + Micros::from_secs(later));
            let answers = bare.decide_batches(&[Batch { at, sets: &sets }]).expect("answers");
            let reading = |decision: &Decision| decision.outcomes()[0].reading.expect("numbers");
            answers[0].iter().map(|decision| reading(decision).remaining).collect::<Vec<_>>()
        };
        let take = |meter: Meter| Charge::take("client", meter, units(2));
        let peek = |meter: Meter| Charge::peek("client", meter, Cost::ONE);
        let length = || {
            let name = name(&"client".into(), &second);
            server.command(&["STRLEN", &name]).integer().expect("a length")
        };
        let most = second.capacity();
        assert_eq!(at(0, &meters.map(take)), [most - 2; 3]);
        let all = length();
        let reset = Charge::new("client", minute, Op::Reset);
        at(0, &[reset]);
        assert_eq!(at(0, &meters.map(peek)), [most - 2, most, most - 2]);
        assert_eq!(length(), all / 3 * 2);
        // The whole refund of the one frees its place; an hour later the other is long stale.
        at(0, &[Charge::new("client", second, Op::Refund { cost: units(2), at: START })]);
        assert_eq!(length(), all / 3);
        at(0, &[take(second), take(minute)]);
        assert_eq!(length(), all);
        assert_eq!(at(3_600, &[take(day), take(day)])[1], most - 6);
        assert_eq!(length(), all / 3);
        at(3_600, &meters.map(|meter| Charge::new("client", meter, Op::Reset)));
        assert_eq!(server.keys(), [""; 0]);
    }
}

#[test]
fn somebody_who_makes_up_periods_makes_no_long_value_and_harms_nobody() {
    let server = Server::start();
    let bare = bare(&server);
    let take = |key: &'static str, quota: &str| {
        ChargeSet::of(Charge::take(key, meter(quota, Algorithm::TokenBucket), Cost::ONE))
    };
    // Whole, so that they go the short way as long as there are few; and all at once, then one by one.
    let made_up = |from: u64, count: u64| {
        (from..from + count).map(|number| take("many", &format!("1/{}ms", 3_600_000 + number)))
    };
    let mut sets = vec![take("innocent", "10/min")];
    sets.extend(made_up(0, 2_500));
    sets.push(take("later", "10/min"));
    let answers = bare.decide_batches(&[Batch { at: Some(START), sets: &sets }]);
    assert!(answers.expect("answers")[0].iter().all(Decision::is_allowed));
    for set in made_up(2_500, 100) {
        let sets = [take("innocent", "1000/min"), set, take("later", "1000/min")];
        let answers = bare.decide_batches(&[Batch { at: Some(START), sets: &sets }]);
        assert!(answers.expect("answers")[0].iter().all(Decision::is_allowed));
    }
    let meter = meter("1/h", Algorithm::TokenBucket);
    let length = server.command(&["STRLEN", &name(&"many".into(), &meter)]).integer();
    assert_eq!(length, Some(64 * 28));
    // Those that are clear last are still there.
    for set in made_up(2_540, 60) {
        let answers = bare.decide_batches(&[Batch { at: Some(START), sets: &[set] }]);
        assert!(!answers.expect("answers")[0][0].is_allowed());
    }
}

#[test]
fn a_refusal_and_a_peek_leave_value_and_lifetime_alone() {
    let server = Server::start();
    let bare = bare(&server);
    let one_of_each = |cost: u64| {
        let meters = Algorithm::ALL.map(|algorithm| meter("10/day", algorithm));
        let take = |meter: Meter| Charge::take("client", meter, units(cost));
        meters.map(take)
    };
    let stored = || -> Vec<(Reply, Reply)> {
        let keys = server.keys();
        assert_eq!(keys.len(), 5);
        let of =
            |key: &String| (server.command(&["DUMP", key]), server.command(&["PEXPIRETIME", key]));
        keys.iter().map(of).collect()
    };
    let ask = |sets: &[ChargeSet<'_>]| {
        let answers = bare.decide_batches(&[Batch { at: None, sets }]);
        answers.expect("answers").remove(0)
    };
    assert!(ask(&[set(one_of_each(6))])[0].is_allowed());
    let before = stored();
    for charge in one_of_each(5) {
        // Alone, twice in a batch, and in a set whose other charges fit.
        let alone = ChargeSet::of(charge.clone());
        let others = one_of_each(1).into_iter().filter(|other| other.meter != charge.meter);
        let composite = set(others.chain([charge.clone()]));
        let asks = [alone.clone(), alone, composite];
        assert!(ask(&asks).iter().all(|decision| !decision.is_allowed()));
        let never =
            ChargeSet::of(Charge { op: Op::Take(Ask::exactly(units(11))), ..charge.clone() });
        assert!(!ask(&[never])[0].is_allowed());
        let peek = ChargeSet::of(Charge { op: Op::Peek(units(4)), ..charge });
        assert!(ask(&[peek])[0].is_allowed());
    }
    assert_eq!(stored(), before);
}

#[test]
fn a_key_takes_at_most_200_bytes() {
    let server = Server::start();
    let bare = bare(&server);
    let key = Key::of_rule("per-user", [("tenant", "acme"), ("user", "b2a0c5e8f1d34567")]);
    for algorithm in Algorithm::ALL {
        // The last has nothing round about it.
        for quota in ["100/min", "1000000/day", "99991/59s"] {
            let Ok(meter) = Meter::new(quota.parse().expect("a quota"), algorithm) else {
                continue;
            };
            let set = [ChargeSet::of(Charge::take(key.clone(), meter, Cost::ONE))];
            for _ in 0..3 {
                bare.decide_batches(&[Batch { at: None, sets: &set }]).expect("answers");
            }
            let name = name(&key, &meter);
            let bytes = server.command(&["MEMORY", "USAGE", &name]).integer().expect("bytes");
            assert!(bytes <= 200, "{name}: {bytes} bytes");
        }
    }
}

#[test]
fn a_logged_request_takes_at_most_8_bytes() {
    let server = Server::start();
    let bare = bare(&server);
    let key = Key::of_rule("login", [("ip", "2001:db8:85a3::8a2e:370:7334")]);
    for limit in [100, 1_000] {
        let meter = meter(&format!("{limit}/h"), Algorithm::SlidingLog);
        let set = [ChargeSet::of(Charge::take(key.clone(), meter, Cost::ONE))];
        for request in 0..limit {
            let at = Some(START + Micros::from_millis(request));
            bare.decide_batches(&[Batch { at, sets: &set }]).expect("answers");
        }
        let name = name(&key, &meter);
        let bytes = server.command(&["MEMORY", "USAGE", &name]).integer().expect("bytes");
        let limit = i64::try_from(limit).expect("a small number");
        assert!(bytes <= 8 * limit, "{name}: {bytes} bytes for {limit}");
        server.command(&["DEL", &name]);
    }
}

#[test]
fn the_buckets_of_a_rule_are_found_by_its_pattern() {
    let server = Server::start();
    let bare = bare(&server);
    let meter = meter("10/min", Algorithm::FixedWindow);
    let keys = [
        Key::of_rule("login", [("ip", "10.0.0.1")]),
        Key::of_rule_near("login", [("tenant", "acme"), ("ip", "10.0.0.1")], Some("tenant")),
        Key::of_rule("login-2", [("ip", "10.0.0.1")]),
        Key::new("login:ip=10.0.0.1"),
    ];
    let sets = keys.map(|key| ChargeSet::of(Charge::take(key, meter, Cost::ONE)));
    bare.decide_batches(&[Batch { at: None, sets: &sets }]).expect("answers");
    assert_eq!(server.keys().len(), 4);
    let pattern = String::from_utf8(Prefix::default().names_of_rule("login")).expect("ASCII");
    let reply = server.command(&["SCAN", "0", "MATCH", &pattern, "COUNT", "1000"]);
    assert_eq!(reply.elements()[1].elements().len(), 2, "{reply:?}");
}
