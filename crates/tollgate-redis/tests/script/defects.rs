//! Defects found in popular limiters on Redis. Each is a story that must not happen here.

use tollgate::{
    Algorithm, Ask, Charge, ChargeSet, Cost, Decision, Micros, Op, Prefix, Retry, Timestamp,
};
use tollgate_redis::bare::{Bare, Batch};
use tollgate_testkit::conformance::{START, meter, reading, set, units};
use tollgate_testkit::redis::Server;

use crate::server::bare;

fn take(bare: &Bare, quota: &str, algorithm: Algorithm, cost: u64) -> Decision {
    let set = [ChargeSet::of(Charge::take("client", meter(quota, algorithm), units(cost)))];
    bare.decide_batches(&[Batch { at: Some(START), sets: &set }])
        .expect("answers")
        .remove(0)
        .remove(0)
}

#[test]
fn a_refused_weighted_call_still_raises_the_counter() {
    // Limit 10, used 8, a cost of 5 is refused, and the counter becomes 13.
    let server = Server::start();
    let bare = bare(&server);
    for algorithm in Algorithm::ALL {
        assert!(take(&bare, "10/min", algorithm, 8).is_allowed());
        assert!(!take(&bare, "10/min", algorithm, 5).is_allowed());
        let rest = take(&bare, "10/min", algorithm, 2);
        assert!(rest.is_allowed(), "{algorithm}: 8 are used");
        assert_eq!(reading(&rest, 0).remaining, 0, "{algorithm}");
    }
}

#[test]
fn keys_without_a_time_to_live() {
    // A script compares a number with a string, and keys stay for ever.
    let server = Server::start();
    let bare = bare(&server);
    for algorithm in Algorithm::ALL {
        for cost in [1, 9, 1, 11] {
            let sets =
                [ChargeSet::of(Charge::take("client", meter("10/min", algorithm), units(cost)))];
            bare.decide_batches(&[Batch { at: None, sets: &sets }]).expect("answers");
            assert_eq!(server.keys_without_expiry(), [""; 0], "{algorithm}, {cost}");
        }
    }
    assert_eq!(server.keys().len(), 5);
}

#[test]
fn large_numbers_turn_into_exponents() {
    // A number beyond 10^14 reaches Redis as 1e+15, and comes back as another.
    let server = Server::start();
    let bare = bare(&server);
    let most = tollgate::MAX_EXACT;
    assert!(take(&bare, &format!("{most}/day"), Algorithm::FixedWindow, most - 3).is_allowed());
    for left in [2, 1, 0] {
        let decision = take(&bare, &format!("{most}/day"), Algorithm::FixedWindow, 1);
        assert_eq!(reading(&decision, 0).remaining, left);
    }
    assert!(!take(&bare, &format!("{most}/day"), Algorithm::FixedWindow, 1).is_allowed());
    // And under a lower limit nothing of it is forgotten.
    assert!(!take(&bare, "10/day", Algorithm::FixedWindow, 1).is_allowed());
}

#[test]
fn two_requests_in_one_microsecond_are_one() {
    // A sorted set scored and named by the instant counts them once.
    let server = Server::start();
    let bare = bare(&server);
    for algorithm in Algorithm::ALL {
        let sets: Vec<ChargeSet<'_>> = (0..12)
            .map(|_| ChargeSet::of(Charge::take("client", meter("10/min", algorithm), Cost::ONE)))
            .collect();
        let answers = bare.decide_batches(&[Batch { at: Some(START), sets: &sets }]);
        let allowed = answers.expect("answers")[0].iter().filter(|one| one.is_allowed()).count();
        assert_eq!(allowed, 10, "{algorithm}");
    }
}

#[test]
fn raising_the_rate_leaves_a_client_refused() {
    // After raising a rate 100×, a client was still refused for 19.7 s.
    let server = Server::start();
    let bare = bare(&server);
    for algorithm in Algorithm::ALL {
        assert!(take(&bare, "3/min", algorithm, 3).is_allowed());
        assert!(!take(&bare, "3/min", algorithm, 1).is_allowed());
        assert!(take(&bare, "300/min", algorithm, 1).is_allowed(), "{algorithm}: acts at once");
    }
}

#[test]
fn lowering_the_limit_of_an_emptied_bucket_grants_units() {
    // Lowering the limit of an empty bucket gave 9 units at once.
    let server = Server::start();
    let bare = bare(&server);
    for algorithm in Algorithm::ALL {
        assert!(take(&bare, "100/min", algorithm, 100).is_allowed());
        assert!(!take(&bare, "10/min", algorithm, 1).is_allowed(), "{algorithm}");
        assert!(!take(&bare, "100/min", algorithm, 1).is_allowed(), "{algorithm}");
    }
}

#[test]
fn a_cost_that_can_never_fit_is_told_to_retry() {
    // Eleven of ten, answered with "retry in 9 s".
    let server = Server::start();
    let bare = bare(&server);
    for algorithm in Algorithm::ALL {
        assert!(take(&bare, "10/min", algorithm, 10).is_allowed());
        assert_eq!(take(&bare, "10/min", algorithm, 11).retry(), Retry::Never, "{algorithm}");
    }
}

#[test]
fn a_refused_composite_charges_the_others() {
    // The per-user limit refuses, and the global counter is raised all the same.
    let server = Server::start();
    let bare = bare(&server);
    let everybody = meter("100/min", Algorithm::FixedWindow);
    for algorithm in Algorithm::ALL {
        let sets: Vec<ChargeSet<'_>> = (0..30)
            .map(|_| {
                set([
                    Charge::take(format!("everybody {algorithm}"), everybody, Cost::ONE),
                    Charge::take("client", meter("1/min", algorithm), Cost::ONE),
                ])
            })
            .collect();
        let answers = bare.decide_batches(&[Batch { at: Some(START), sets: &sets }]);
        let answers = answers.expect("answers").remove(0);
        assert_eq!(answers.iter().filter(|one| one.is_allowed()).count(), 1, "{algorithm}");
        let last = answers.last().expect("thirty answers");
        assert_eq!(reading(last, 0).remaining, 99, "{algorithm}: one request passed");
    }
}

#[test]
fn undoing_one_request_deletes_its_neighbours() {
    // A failed request is removed with "delete everything at this timestamp".
    let server = Server::start();
    let bare = bare(&server);
    let meter = meter("10/min", Algorithm::SlidingLog);
    let charge = |op| ChargeSet::of(Charge::new("client", meter, op));
    let sets = [
        ChargeSet::of(Charge::take("client", meter, units(3))),
        ChargeSet::of(Charge::take("client", meter, units(4))),
        charge(Op::Refund { cost: units(3), at: START }),
        charge(Op::Peek(Cost::ONE)),
    ];
    let answers = bare.decide_batches(&[Batch { at: Some(START), sets: &sets }]);
    let answers = answers.expect("answers").remove(0);
    assert_eq!(reading(&answers[2], 0).units, 3);
    assert_eq!(reading(&answers[3], 0).remaining, 6, "4 stay");
    assert_eq!(reading(&answers[3], 0).reset, Micros::from_secs(60));
}

#[test]
fn one_foreign_key_fails_the_whole_batch() {
    // Somebody's list, page or number lies where a bucket would, and nobody gets an answer.
    let server = Server::start();
    let bare = bare(&server);
    let mut foreign: Vec<[String; 2]> = ["", "hello", "-5", "1.5", "1e10", "0x10", " 7", "nan"]
        .into_iter()
        .chain(["9007199254740993", "9223372036854775806", "99999999999999999999"])
        .map(|text| ["SET".to_owned(), text.to_owned()])
        .collect();
    for letter in ["\0", "w", "\u{1}"] {
        let lengths = [15, 17, 19, 20, 25, 28, 36, 56, 64, 1_023, 1_024, 5_040];
        foreign.extend(lengths.map(|length| ["SET".to_owned(), letter.repeat(length)]));
    }
    foreign.extend(["RPUSH", "SADD"].map(|command| [command.to_owned(), "x".to_owned()]));
    for algorithm in Algorithm::ALL {
        let meter = meter("10/min", algorithm);
        let names = ["theirs", "ours"].map(|key| Prefix::default().name(&key.into(), &meter));
        let [theirs, ours] = names.map(|name| String::from_utf8(name).expect("names are ASCII"));
        let ask = |ops: [Op; 2]| {
            let charge = |(key, op)| ChargeSet::of(Charge::new(key, meter, op));
            let sets = ["theirs", "ours"].into_iter().zip(ops).map(charge);
            let sets: Vec<ChargeSet<'_>> = sets.collect();
            let answers = bare.decide_batches(&[Batch { at: Some(START), sets: &sets }]);
            answers.map(|mut answers| answers.remove(0))
        };
        let take = Op::Take(Ask::exactly(units(2)));
        let others = [Op::Peek(units(2)), Op::Refund { cost: units(2), at: START }, Op::Reset];
        for [command, text] in &foreign {
            for first in others.into_iter().chain([take]) {
                server.command(&["DEL", &theirs, &ours]);
                server.command(&[command, &theirs, text]);
                let about = format!("{algorithm}, {first:?}: {command} {text:?}");
                let decisions = ask([first, take]).expect(&about);
                assert_eq!(reading(&decisions[1], 0).remaining, 8, "{about}");
                let decisions = ask([take, take]).expect(&about);
                let left = if first == take { 6 } else { 8 };
                assert_eq!(reading(&decisions[0], 0).remaining, left, "{about}");
                assert_eq!(server.keys_without_expiry(), [""; 0], "{about}");
            }
        }
    }
}

#[test]
fn a_count_is_taken_for_a_window_that_is_far_ahead() {
    // Somebody's number lies where a window would, and keeps a client out for months.
    let server = Server::start();
    let bare = bare(&server);
    let meter = meter("10/s", Algorithm::FixedWindow);
    let name = Prefix::default().name(&"client".into(), &meter);
    let name = String::from_utf8(name).expect("names are ASCII");
    // Windows are counted in a circle: once while the number's would be over, once while it would come.
    for at in [1_700_000_000_000_000, 1_730_000_000_000_000].map(Timestamp::from_micros) {
        // Of no window, and of more units than are ever counted so.
        let none = ["0", "7", "134217727"];
        let many = ["9007199187632128", "9007199254740989", "9007199254740991", "9007199254740992"];
        for (number, cost) in none.into_iter().chain(many).flat_map(|n| [(n, 1), (n, 3)]) {
            let take = ChargeSet::of(Charge::take("client", meter, units(cost)));
            let peek = ChargeSet::of(Charge::peek("client", meter, units(cost)));
            // The short way, and the long one.
            for sets in [vec![take.clone()], vec![peek, take]] {
                server.command(&["SET", &name, number]);
                let answers = bare.decide_batches(&[Batch { at: Some(at), sets: &sets }]);
                let answers = answers.unwrap_or_else(|error| panic!("{number}: {error}"));
                assert!(answers[0].iter().all(Decision::is_allowed), "{number}");
                let taken = reading(answers[0].last().expect("an answer"), 0);
                assert_eq!(taken.remaining, 10 - cost, "{number}");
                assert_eq!(taken.reset, Micros::from_secs(1), "{number}");
                assert_eq!(server.keys_without_expiry(), [""; 0], "{number}");
            }
        }
    }
}

#[test]
fn a_debt_from_before_there_was_time_goes_unanswered() {
    // Of what looks like a debt eight bytes say that it was clear before 1970.
    let server = Server::start();
    let (bare, mut client) = (bare(&server), server.client());
    let meter = meter("10/s", Algorithm::TokenBucket);
    let [theirs, odd] = ["theirs", "odd"].map(|key| Prefix::default().name(&key.into(), &meter));
    for clear in [-1.0, -5.5, f64::MIN, f64::NEG_INFINITY] {
        let [period, instant] = [1e6, clear].map(f64::to_le_bytes);
        let debt = [&period[..], &instant, &[0; 8], &10_u32.to_le_bytes()].concat();
        // All of the batch goes the short way, or what comes behind it the long one.
        for behind in ["", "no debt"] {
            client.send(&[b"SET", &theirs[..], &debt]).expect("a reply");
            client.send(&[b"SET", &odd[..], behind.as_bytes()]).expect("a reply");
            let sets = ["theirs", "odd"];
            let sets = sets.map(|key| ChargeSet::of(Charge::take(key, meter, Cost::ONE)));
            let sets = if behind.is_empty() { &sets[..1] } else { &sets };
            let answers = bare.decide_batches(&[Batch { at: Some(START), sets }]);
            for decision in answers.expect("answers").remove(0) {
                assert_eq!(reading(&decision, 0).remaining, 9, "{clear}, {behind:?}");
            }
        }
    }
}
