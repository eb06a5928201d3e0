//! Batches as the short way takes them: takes of windows and buckets, in which buckets come again, are
//! refused in between, change their limits, or are something else altogether.

use std::sync::atomic::{AtomicU64, Ordering};

use proptest::collection::vec;
use proptest::prelude::*;
use tollgate::{Algorithm, Charge, ChargeSet, Meter, Prefix, Timestamp};
use tollgate_redis::bare::Batch;
use tollgate_testkit::conformance::{meter, units};
use tollgate_testkit::redis::Server;
use tollgate_testkit::trace::check;

use crate::differential::Pure;
use crate::server::bare;

const TRACES: u32 = 3_000;

const REGRESSIONS: &str = "tests/proptest-regressions/short_way.txt";

/// Limits that divide their periods, so that units last whole microseconds; the last of each period
/// does not.
const QUOTAS: [[&str; 4]; 3] = [
    ["10/s", "10/s burst 3", "20/s", "7/s"],
    ["60/m burst 5", "60/m", "120/m burst 9", "7/m"],
    ["3600/h burst 2", "3600/h burst 9", "60/h burst 4", "7/h"],
];
const WINDOWS: [[&str; 4]; 3] = [
    ["10/s", "3/s", "20/s", "100000000/s"],
    ["5/m", "60/m", "9/m", "100000000/m"],
    ["2/h", "9/h", "4/h", "100000000/h"],
];

/// What no bucket ever held.
const FOREIGN: [&[&str]; 5] = [
    &["SET", "a value that is longer than any"],
    &["SET", "twenty-eight bytes, not more"],
    &["SET", "-7"],
    &["RPUSH", "one", "two"],
    &["SET", "9223372036854775807"],
];

/// What happens at one instant.
#[derive(Clone, Debug)]
struct Round {
    // Since the last, in µs.
    pause: u64,
    // First some bucket becomes something else.
    foreign: Option<(Wish, usize)>,
    sets: Vec<Vec<Wish>>,
}

#[derive(Clone, Copy, Debug)]
struct Wish {
    key: usize,
    period: usize,
    quota: usize,
    cost: u64,
}

fn wish() -> impl Strategy<Value = Wish> {
    // Limits seldom change.
    let quota = prop_oneof![30 => Just(0_usize), 1 => 0..4_usize];
    (0..3_usize, 0..3_usize, quota, 1..4_u64).prop_map(|(key, period, quota, cost)| Wish {
        key,
        period,
        quota,
        cost,
    })
}

/// Sets that differ in their keys only, each of which comes once.
fn alike() -> impl Strategy<Value = Vec<Vec<Wish>>> {
    let keys = Just((0..6_usize).collect::<Vec<_>>()).prop_shuffle();
    let keys = (keys, 1..6_usize).prop_map(|(mut keys, count)| {
        keys.truncate(count);
        keys
    });
    (keys, vec(wish(), 1..4)).prop_map(|(keys, wishes)| {
        let set = |key| wishes.iter().map(|&wish| Wish { key, ..wish }).collect();
        keys.into_iter().map(set).collect()
    })
}

fn rounds() -> impl Strategy<Value = Vec<Round>> {
    let pause = prop_oneof![Just(0), 0..100_000_u64, 0..30_000_000_u64];
    let alone = vec(vec(wish(), 1..2), 1..2);
    let each = vec(vec(wish(), 1..2), 2..12);
    let sets = prop_oneof![alone, each, vec(vec(wish(), 1..4), 1..8), alike()];
    let foreign = prop::option::weighted(0.1, (wish(), 0..FOREIGN.len()));
    let round =
        (pause, foreign, sets).prop_map(|(pause, foreign, sets)| Round { pause, foreign, sets });
    vec(round, 1..8)
}

impl Wish {
    fn meter(self, algorithm: Algorithm) -> Meter {
        let quotas = if algorithm == Algorithm::FixedWindow { WINDOWS } else { QUOTAS };
        meter(quotas[self.period][self.quota], algorithm)
    }

    fn key(self, trace: u64) -> String {
        format!("short {trace} {}", self.key)
    }
}

#[test]
fn fixed_windows_are_decided_as_anywhere() {
    is_the_same(Algorithm::FixedWindow);
}

#[test]
fn token_buckets_are_decided_as_anywhere() {
    is_the_same(Algorithm::TokenBucket);
}

#[test]
fn leaky_buckets_are_decided_as_anywhere() {
    is_the_same(Algorithm::LeakyBucket);
}

fn is_the_same(algorithm: Algorithm) {
    let server = Server::start();
    let bare = bare(&server);
    let next = AtomicU64::new(0);
    check(TRACES, REGRESSIONS, &rounds(), |rounds| {
        let (trace, mut pure) = (next.fetch_add(1, Ordering::Relaxed), Pure::new());
        let mut now = 1_700_000_000_000_000;
        for round in rounds {
            now += round.pause;
            let at = Timestamp::from_micros(now);
            if let Some((wish, what)) = round.foreign {
                let (key, meter) = (wish.key(trace), wish.meter(algorithm));
                let name = |meter: &Meter| Prefix::default().name(&key.as_str().into(), meter);
                replace(&server, &name(&meter), what);
                let periods = (0..QUOTAS.len()).map(|period| Wish { period, ..wish });
                for other in periods.map(|wish| wish.meter(algorithm)) {
                    // Whatever lies there is gone.
                    if name(&other) == name(&meter) {
                        pure.forget(&key, &other);
                    }
                }
            }
            let sets: Vec<ChargeSet<'_>> = round
                .sets
                .iter()
                .map(|wishes| {
                    let mut set = ChargeSet::new();
                    for wish in wishes {
                        let (key, meter) = (wish.key(trace), wish.meter(algorithm));
                        // Two of one bucket that do not go together: the first counts.
                        let _ = set.push(Charge::take(key, meter, units(wish.cost)));
                    }
                    set
                })
                .collect();
            let answers = bare.decide_batches(&[Batch { at: Some(at), sets: &sets }]);
            let answers = answers.expect("answers").remove(0);
            for (set, answer) in sets.iter().zip(answers) {
                prop_assert_eq!(answer, pure.decide(set, at), "{:?}", set);
            }
        }
        Ok(())
    });
    let mut immortal = server.keys_without_expiry();
    immortal.retain(|key| !is_foreign(&server, key));
    assert_eq!(immortal, [""; 0]);
}

/// Puts something else in the place of a bucket.
fn replace(server: &Server, name: &[u8], what: usize) {
    let name = std::str::from_utf8(name).expect("names are ASCII");
    server.command(&["DEL", name]);
    let (command, values) = FOREIGN[what].split_first().expect("a command");
    let command: Vec<&str> = [*command, name].into_iter().chain(values.iter().copied()).collect();
    server.command(&command);
}

/// Whether a key is as [`replace`] left it: nobody was granted anything since.
fn is_foreign(server: &Server, key: &str) -> bool {
    let is_string = server.command(&["TYPE", key]).text().as_deref() == Some("string");
    let value = is_string.then(|| server.command(&["GET", key]).text()).flatten();
    value.is_none_or(|value| FOREIGN.iter().any(|foreign| foreign[1] == value))
}
