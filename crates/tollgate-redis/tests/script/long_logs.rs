//! Logs too long to be read whole, kept in place: the same decisions as in memory, and no more
//! memory than promised.

use std::cell::Cell;

use proptest::collection::vec;
use proptest::prelude::*;
use tollgate::{
    Algorithm, Ask, Charge, ChargeSet, Cost, Decision, ManualClock, MemoryStore, Meter, Micros, Op,
    Timestamp,
};
use tollgate_redis::bare::Batch;
use tollgate_testkit::conformance::{START, meter, units};
use tollgate_testkit::redis::Server;
use tollgate_testkit::trace::check;

use crate::server::bare;

const REGRESSIONS: &str = "tests/proptest-regressions/long_logs.txt";

/// One thing that happens, after so many microseconds.
#[derive(Clone, Copy, Debug)]
struct Step {
    pause: u64,
    limit: usize,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Take(u64),
    Lease(u64),
    Peek(u64),
    /// So many units of the take this many takes ago.
    Refund(usize, u64),
}

/// Traces with a refund in so many of a thousand steps. A refund may write a log anew, so that only
/// where they are few a ring goes round.
fn steps(refunds: u32) -> impl Strategy<Value = Vec<Step>> {
    let what = prop_oneof![
        800 => Just(What::Take(1)),
        160 => (1..=9_u64).prop_map(What::Take),
        10 => (1..=20_u64).prop_map(What::Lease),
        30 => (1..=2_000_u64).prop_map(What::Peek),
        refunds => (0..300_usize, 1..=9_u64).prop_map(|(ago, units)| What::Refund(ago, units)),
    ];
    let pause = prop_oneof![
        100 => Just(0_u64),
        // A second holds more than the lowest limits, so runs expire one by one.
        1_000 => 1..=1_500_u64,
        // Most of the log expires.
        1 => 500_000..=2_000_000_u64,
    ];
    let limit = prop_oneof![100 => Just(0_usize), 1 => 0..3_usize];
    let step = (pause, limit, what).prop_map(|(pause, limit, what)| Step { pause, limit, what });
    vec(step, 1_500..3_000)
}

#[test]
fn long_logs_are_the_same_in_redis() {
    let server = Server::start();
    let bare = bare(&server);
    let next = Cell::new(0);
    // Instants of 32 bits and whole ones.
    for (period, refunds) in [("s", 80), ("s", 2), ("2h", 80)] {
        let limits = [1_000, 300, 100_000];
        let meters = limits.map(|limit| meter(&format!("{limit}/{period}"), Algorithm::SlidingLog));
        check(12, REGRESSIONS, &steps(refunds), |steps| {
            next.set(next.get() + 1);
            let key = format!("client {}", next.get());
            let asked = asked(&key, &meters, &steps);
            let answers = bare.decide_batches(&batches(&asked)).expect("answers");
            for ((at, expected), answer) in in_memory(&asked).into_iter().zip(answers) {
                prop_assert_eq!(&answer[0], &expected, "at {:?}", at);
            }
            Ok(())
        });
    }
    assert_eq!(server.keys_without_expiry(), [""; 0]);
}

fn asked(key: &str, meters: &[Meter], steps: &[Step]) -> Vec<(Timestamp, ChargeSet<'static>)> {
    let (mut now, mut takes, mut asked) = (START, Vec::new(), Vec::new());
    for step in steps {
        now = now + Micros::new(step.pause);
        let op = match step.what {
            What::Take(cost) => {
                takes.push(now);
                Op::Take(Ask::exactly(units(cost)))
            }
            What::Lease(most) => Op::Take(Ask { min: Cost::ONE, max: units(most) }),
            What::Peek(cost) => Op::Peek(units(cost)),
            What::Refund(ago, cost) => {
                let at = takes.iter().rev().copied().nth(ago).unwrap_or(now);
                Op::Refund { cost: units(cost), at }
            }
        };
        let charge = Charge::new(key.to_owned(), meters[step.limit], op);
        asked.push((now, ChargeSet::of(charge)));
    }
    asked
}

#[test]
fn one_instant_holds_as_many_units_as_the_limit() {
    let server = Server::start();
    let bare = bare(&server);
    let meter = meter("100000/min", Algorithm::SlidingLog);
    let refund = |cost| Op::Refund { cost: units(cost), at: START };
    let take = |cost| Op::Take(Ask::exactly(units(cost)));
    let ops = [take(60_000), take(30_000), refund(40_000), take(49_999), take(1), take(1)];
    let ops = ops.into_iter().chain([refund(100_000), take(100_000), refund(99_999)]);
    let asked: Vec<(Timestamp, ChargeSet<'_>)> =
        ops.map(|op| (START, ChargeSet::of(Charge::new("client", meter, op)))).collect();
    let sets: Vec<ChargeSet<'_>> = asked.iter().map(|(_, set)| set.clone()).collect();
    let answers = bare.decide_batches(&[Batch { at: Some(START), sets: &sets }]);
    let expected: Vec<Decision> = in_memory(&asked).into_iter().map(|(_, one)| one).collect();
    assert_eq!(answers.expect("answers"), [expected]);
}

fn in_memory(asked: &[(Timestamp, ChargeSet<'static>)]) -> Vec<(Timestamp, Decision)> {
    let clock = ManualClock::default();
    let store = MemoryStore::with_clock(clock.clone());
    let decide = |(at, set): &(Timestamp, ChargeSet<'static>)| {
        clock.set(*at);
        (*at, store.take_set(set))
    };
    asked.iter().map(decide).collect()
}

#[test]
fn a_log_of_100_000_instants_is_kept_and_bounded() {
    let server = Server::start();
    let bare = bare(&server);
    let meter = meter("100000/h", Algorithm::SlidingLog);
    let set = [ChargeSet::of(Charge::take("client", meter, Cost::ONE))];
    let instants: Vec<Timestamp> = (0..100_001).map(|micros| START + Micros::new(micros)).collect();
    let mut last = None;
    for instants in instants.chunks(2_000) {
        let batches = instants.iter().map(|at| Batch { at: Some(*at), sets: &set });
        let batches: Vec<Batch<'_, '_>> = batches.collect();
        for (at, answer) in instants.iter().zip(bare.decide_batches(&batches).expect("answers")) {
            let full = last == Some(START + Micros::new(99_999));
            assert_eq!(answer[0].is_allowed(), !full, "at {at:?}");
            last = Some(*at);
        }
    }
    let name = "tollgate:{client}::sl:3600s";
    let bytes = server.command(&["MEMORY", "USAGE", name]).integer().expect("bytes");
    assert!(bytes <= 8 * 100_000, "{bytes} bytes");
}

/// The most commands a visit to a long log may run. 100,000 runs are halved 17 times; a search is as
/// many steps out and as many back, a refund searches twice, and a few commands read and write. To
/// look at every run, or at every expired one, takes hundreds.
const MOST_COMMANDS: u64 = 4 * 17 + 12;

#[test]
fn a_visit_does_not_look_at_every_run() {
    let server = Server::start();
    let bare = bare(&server);
    let meter = meter("100000/s", Algorithm::SlidingLog);
    let op_at = |micros, op| {
        let at = START + Micros::new(micros);
        (at, ChargeSet::of(Charge::new("client", meter, op)))
    };
    let take = |cost| Op::Take(Ask::exactly(units(cost)));
    let refund = |cost, micros| Op::Refund { cost: units(cost), at: START + Micros::new(micros) };
    // Units of one kind and of two, in runs 10 µs apart.
    for (kinds, runs) in [([1, 1], 100_000), ([2, 1], 66_666)] {
        server.command(&["FLUSHALL"]);
        let full = (0..runs).map(|run| op_at(10 * run, take(kinds[run as usize % 2])));
        let full: Vec<_> = full.collect();
        for asked in full.chunks(2_000) {
            bare.decide_batches(&batches(asked)).expect("answers");
        }
        let visits = [
            op_at(999_999, take(50_000)),
            op_at(999_999, Op::Peek(units(99_999))),
            op_at(1_300_000, Op::Peek(units(100_000))),
            op_at(1_300_000, Op::Peek(Cost::ONE)),
            op_at(1_300_000, refund(1, 500_000)),
            op_at(1_300_000, refund(2, 500_010)),
            op_at(1_300_000, refund(2, 500_000)),
            op_at(1_300_000, take(3)),
            op_at(1_300_001, take(90_000)),
            op_at(1_300_001, refund(1, 400_010)),
            op_at(1_300_001, refund(3, 1_300_000)),
            op_at(1_400_000, take(80_000)),
        ];
        let expected = in_memory(&[full.as_slice(), &visits].concat()).split_off(full.len());
        for ((visit, batch), (_, expected)) in visits.iter().zip(batches(&visits)).zip(expected) {
            let before = commands(&server);
            let answer = bare.decide_batches(&[batch]).expect("answers");
            let ran = commands(&server) - before;
            assert_eq!(answer, [[expected]], "{visit:?}");
            assert!(ran <= MOST_COMMANDS, "{ran} commands for {visit:?}");
        }
    }
}

fn batches<'a>(asked: &'a [(Timestamp, ChargeSet<'static>)]) -> Vec<Batch<'a, 'static>> {
    let batch = |(at, set): &'a (Timestamp, ChargeSet<'static>)| Batch {
        at: Some(*at),
        sets: std::slice::from_ref(set),
    };
    asked.iter().map(batch).collect()
}

/// How many commands that touch values a server has run, those of scripts included.
fn commands(server: &Server) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]).text().expect("statistics");
    let calls = stats.lines().filter_map(|line| {
        let (name, numbers) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let counts = !["info", "evalsha"].contains(&name);
        numbers.split(',').next().filter(|_| counts)?.parse::<u64>().ok()
    });
    calls.sum()
}
