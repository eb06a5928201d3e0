//! Windows of a calendar, whose lengths differ.

use std::sync::LazyLock;

use tollgate::quota::{Calendar, Period};
use tollgate::{Algorithm, Cost, ManualClock, MemoryStore, Meter, Micros, Quota, Retry, Timestamp};

const HOUR: u64 = 3_600_000_000;

/// Days around a change of clocks: 24 hours, 23, 25, 24.
static DAYS: LazyLock<Calendar> = LazyLock::new(|| {
    let edges = [0, 24, 47, 72, 96].map(|hours| Timestamp::from_micros(hours * HOUR));
    Calendar::new("calendar-day@Test", edges.to_vec()).unwrap()
});

fn per_day(limit: u64) -> Meter {
    let quota = Quota::new(limit, Period::calendar(&DAYS)).unwrap();
    Meter::new(quota, Algorithm::FixedWindow).unwrap()
}

#[test]
fn a_day_lasts_as_long_as_the_calendar_says() {
    let clock = ManualClock::at_secs(0);
    let store = MemoryStore::with_clock(clock.clone());
    let meter = per_day(3);
    for (start, end) in [(0, 24), (24, 47), (47, 72), (72, 96), (96, 120)] {
        for at in [start * HOUR, start * HOUR + 1, end * HOUR - 1] {
            clock.set(Timestamp::from_micros(at));
            let decision = store.take("k", meter, Cost::ONE);
            let reading = decision.outcomes()[0].reading.unwrap();
            assert!(decision.is_allowed(), "{at}");
            assert_eq!(reading.reset, Micros::new(end * HOUR - at));
        }
        let refused = store.take("k", meter, Cost::ONE);
        assert_eq!(refused.retry(), Retry::After(Micros::new(1)));
    }
}

#[test]
fn units_go_back_to_the_day_they_were_taken_from() {
    let clock = ManualClock::at_secs(0);
    let store = MemoryStore::with_clock(clock.clone());
    let meter = per_day(5);
    // The last instant of a day, the first of the short one, its last, the first of the next.
    let [before, first, last, after] =
        [24 * HOUR - 1, 24 * HOUR, 47 * HOUR - 1, 47 * HOUR].map(Timestamp::from_micros);
    clock.set(last);
    store.take("k", meter, Cost::new(4).unwrap());
    let back = |at| {
        let decision = store.refund("k", meter, Cost::ONE, at);
        decision.outcomes()[0].reading.unwrap().units
    };
    assert_eq!([back(before), back(first), back(last), back(after)], [0, 1, 1, 0]);
    clock.set(after);
    assert_eq!(back(last), 0);
}

#[test]
fn a_calendar_is_a_bucket_of_its_own_and_for_fixed_windows_only() {
    let store = MemoryStore::with_clock(ManualClock::at_secs(0));
    let fixed = Meter::new("1/day".parse().unwrap(), Algorithm::FixedWindow).unwrap();
    assert!(store.take("k", per_day(1), Cost::ONE).is_allowed());
    assert!(store.take("k", fixed, Cost::ONE).is_allowed());
    assert!(!store.take("k", per_day(1), Cost::ONE).is_allowed());

    let quota = Quota::new(1, Period::calendar(&DAYS)).unwrap();
    assert_eq!(quota.to_string(), "1/calendar-day@Test");
    for algorithm in Algorithm::ALL.into_iter().filter(|one| *one != Algorithm::FixedWindow) {
        let error = Meter::new(quota, algorithm).unwrap_err().to_string();
        assert!(error.contains("only fixed windows follow a calendar"), "{error}");
    }
}
