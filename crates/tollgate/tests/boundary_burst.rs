//! The boundary burst: what passes around the edge of a window, and within any stretch of one
//! period.
//!
//! A limit of 100 a minute, and a client that spends all it can in the last second of one minute
//! and again in the first of the next.

use tollgate::{Algorithm, Cost, ManualClock, MemoryStore, Meter, Micros, Timestamp};
use tollgate_testkit::conformance::meter;

const LIMIT: u64 = 100;
/// A minute begins here.
const EDGE: u64 = 1_700_000_040_000_000;
const SECOND: i64 = 1_000_000;
const MINUTE: i64 = 60 * SECOND;

/// A client that takes one unit after another until it is refused, and remembers when.
struct Client {
    clock: ManualClock,
    store: MemoryStore<ManualClock>,
    meter: Meter,
    passed: Vec<i64>,
}

impl Client {
    fn of(algorithm: Algorithm) -> Self {
        let clock = ManualClock::default();
        Self {
            store: MemoryStore::with_clock(clock.clone()),
            clock,
            meter: meter("100/min", algorithm),
            passed: Vec::new(),
        }
    }

    /// Takes up to `most` units, so many µs from the edge; says how many passed.
    fn spend(&mut self, from_edge: i64, most: u64) -> u64 {
        let now = EDGE.checked_add_signed(from_edge).expect("after the epoch");
        self.clock.set(Timestamp::from_micros(now));
        let mut passed = 0;
        while passed < most && self.store.take("client", self.meter, Cost::ONE).is_allowed() {
            self.passed.push(from_edge);
            passed += 1;
        }
        passed
    }

    /// The most units that passed within any stretch of a minute.
    fn most_in_a_minute(&self) -> usize {
        let ends = self.passed.iter();
        let within = |end: i64| {
            let stretch = self.passed.iter().filter(|at| **at <= end && **at > end - MINUTE);
            stretch.count()
        };
        ends.map(|end| within(*end)).max().unwrap_or(0)
    }
}

/// What passes within two seconds around the edge.
fn around_the_edge(algorithm: Algorithm) -> u64 {
    let mut client = Client::of(algorithm);
    client.spend(-SECOND, u64::MAX) + client.spend(SECOND - 1, u64::MAX)
}

#[test]
fn a_fixed_window_lets_twice_the_limit_through_around_an_edge() {
    assert_eq!(around_the_edge(Algorithm::FixedWindow), 2 * LIMIT);
}

#[test]
fn the_others_let_no_more_through_than_the_limit_and_what_two_seconds_restore() {
    assert_eq!(around_the_edge(Algorithm::SlidingLog), LIMIT);
    // A sixtieth of the previous window is out of view, less a microsecond.
    assert_eq!(around_the_edge(Algorithm::SlidingWindow), LIMIT + 1);
    // 3⅓ units drain in two seconds.
    assert_eq!(around_the_edge(Algorithm::TokenBucket), LIMIT + 3);
    assert_eq!(around_the_edge(Algorithm::LeakyBucket), LIMIT + 3);
}

#[test]
fn only_a_sliding_log_keeps_every_minute_within_the_limit() {
    for algorithm in Algorithm::ALL {
        let mut client = Client::of(algorithm);
        // Greedy for three minutes, every 100 ms, starting in the middle of one.
        for tick in -300..1_500 {
            client.spend(tick * SECOND / 10, u64::MAX);
        }
        let most = client.most_in_a_minute() as u64;
        match algorithm {
            Algorithm::SlidingLog => assert_eq!(most, LIMIT, "never more, never less"),
            _ => assert!(most > LIMIT, "{algorithm}: {most} in a minute"),
        }
    }
}

#[test]
fn two_counters_can_be_gamed_a_little() {
    // All of the limit at the very end of a window is taken to be spread over all of it: half a
    // window later half is forgotten, though all of it is but half a minute old.
    let mut client = Client::of(Algorithm::SlidingWindow);
    assert_eq!(client.spend(-1, u64::MAX), LIMIT);
    assert_eq!(client.spend(MINUTE / 2, u64::MAX), LIMIT / 2);
    assert_eq!(client.most_in_a_minute() as u64, LIMIT + LIMIT / 2);
}

#[test]
fn a_bucket_gives_its_burst_and_a_limit_beside() {
    for algorithm in [Algorithm::TokenBucket, Algorithm::LeakyBucket] {
        let mut client = Client::of(algorithm);
        assert_eq!(client.spend(0, u64::MAX), LIMIT, "{algorithm}: the burst");
        // And then a unit as often as one drains, every 600 ms.
        for unit in 1..100 {
            assert_eq!(client.spend(unit * 600_000, u64::MAX), 1, "{algorithm}");
        }
        let most = client.most_in_a_minute() as u64;
        assert_eq!(most, 2 * LIMIT - 1, "{algorithm}: limit + burst, less one");
    }
}

#[test]
fn a_small_burst_keeps_a_bucket_near_its_limit() {
    // Who minds limit + burst gives the bucket a small one.
    let clock = ManualClock::at_secs(1_700_000_000);
    let store = MemoryStore::with_clock(clock.clone());
    let meter = meter("100/min burst 5", Algorithm::TokenBucket);
    let mut passed = 0;
    for _ in 0..600 {
        while store.take("client", meter, Cost::ONE).is_allowed() {
            passed += 1;
        }
        clock.advance(Micros::from_millis(100));
    }
    assert_eq!(passed, 104, "in one minute: 5 at once, and 99 that drained");
}
