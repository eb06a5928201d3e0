//! Windows of a calendar: the same decisions as in memory, and by the server's own clock.

use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use tollgate::quota::{Calendar, Period};
use tollgate::{
    Algorithm, Ask, Charge, ChargeSet, Cost, Key, Limiter, ManualClock, MemoryStore, Meter, Op,
    Provenance, Quota, Timestamp,
};
use tollgate_redis::RedisStore;
use tollgate_redis::bare::Batch;
use tollgate_testkit::redis::Server;

use crate::server::bare;

const HOUR: u64 = 3_600_000_000;

/// Days of 24, 23, 25 and 24 hours, again and again.
static DAYS: LazyLock<Calendar> = LazyLock::new(|| {
    let lengths = [24, 23, 25, 24].into_iter().cycle().take(40);
    let mut edges = vec![Timestamp::EPOCH];
    edges.extend(lengths.scan(0, |end, hours| {
        *end += hours * HOUR;
        Some(Timestamp::from_micros(*end))
    }));
    Calendar::new("calendar-day@Test", edges).unwrap()
});

fn meter(limit: u64, period: Period) -> Meter {
    Meter::new(Quota::new(limit, period).unwrap(), Algorithm::FixedWindow).unwrap()
}

/// One step: how long after the one before, and what is asked.
fn steps() -> impl Strategy<Value = Vec<(u64, u8, u64, u64)>> {
    // Mostly within a day, often to an edge and beyond, and to the microsecond.
    let pause = prop_oneof![0..3 * HOUR, Just(0), Just(1), Just(23 * HOUR), 20 * HOUR..60 * HOUR];
    prop::collection::vec((pause, 0..10_u8, 1..6_u64, 1..30_u64), 1..24)
}

fn set_of(op: u8, cost: u64, limit: u64, now: Timestamp, last: Timestamp) -> ChargeSet<'static> {
    let cost = Cost::new(cost).unwrap();
    let op = match op {
        0..=5 => Op::Take(Ask::exactly(cost)),
        6 => Op::Peek(cost),
        7 => Op::Refund { cost, at: now },
        8 => Op::Refund { cost, at: last },
        _ => Op::Reset,
    };
    let mut set = ChargeSet::new();
    set.push(Charge::new(Key::new("k"), meter(limit, Period::calendar(&DAYS)), op)).unwrap();
    // Beside one of a fixed day, whose bucket is another.
    set.push(Charge::new(Key::new("k"), meter(2 * limit, Period::DAY), op)).unwrap();
    set
}

#[test]
fn redis_and_memory_agree_on_calendars() {
    let server = Server::start();
    let bare = bare(&server);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    runner
        .run(&steps(), |steps| {
            server.command(&["FLUSHALL"]);
            let clock = ManualClock::at_secs(0);
            let memory = MemoryStore::with_clock(clock.clone());
            let (mut now, mut last) = (Timestamp::EPOCH, Timestamp::EPOCH);
            for (pause, op, cost, limit) in steps {
                now = Timestamp::from_micros(now.as_micros() + pause);
                let sets = [set_of(op, cost, limit, now, last)];
                clock.set(now);
                let batch = Batch { at: Some(now), sets: &sets };
                let found = bare.decide_batches(&[batch]).unwrap().remove(0).remove(0);
                prop_assert_eq!(&found, &memory.take_set(&sets[0]), "at {:?}", now);
                last = now;
            }
            Ok(())
        })
        .unwrap();
    assert_eq!(server.keys_without_expiry(), Vec::<String>::new());
}

/// A store that has never heard from its server does not know what day it is there. It is told, and
/// nothing is charged for the asking.
#[tokio::test]
async fn a_store_learns_the_servers_day_from_the_server() {
    static EVERY_DAY: LazyLock<Calendar> = LazyLock::new(|| {
        let day = |day: u64| Timestamp::from_micros(day * 24 * HOUR);
        Calendar::new("calendar-day", (18_000..40_000).map(day).collect()).unwrap()
    });
    let server = Server::start();
    let builder = RedisStore::builder(&server.url()).unwrap().deadline(Duration::from_secs(5));
    let limiter = Limiter::new(builder.build().unwrap());
    let meter = meter(3, Period::calendar(&EVERY_DAY));
    let mut remaining = Vec::new();
    for _ in 0..4 {
        let decision = limiter.take("k", meter, Cost::ONE).await.unwrap();
        assert_eq!(decision.provenance(), Provenance::Store);
        let reading = decision.outcomes()[0].reading.unwrap();
        remaining.push((decision.is_allowed(), reading.remaining));
        let ends = decision.at().as_micros() + reading.reset.get();
        assert_eq!(ends % (24 * HOUR), 0);
    }
    // Unless the day ended in between, which would grant more and not less.
    let today =
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() % 86_400;
    if (10..86_390).contains(&today) {
        assert_eq!(remaining, [(true, 2), (true, 1), (true, 0), (false, 0)]);
    }
    let names = server.keys();
    assert!(names.iter().any(|name| name.ends_with(":fw:calendar-day")), "{names:?}");
}
