//! What users can feel, on random traces through the memory store: how much passes in any stretch
//! of time, how long requests are held, and what changed limits and clocks that step back may do.

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use tollgate::algorithm::{Evaluation, State};
use tollgate::{
    Algorithm, Ask, Charge, ChargeSet, Cost, ManualClock, MemoryStore, Meter, Op, Quota, Retry,
    Timestamp,
};
use tollgate_testkit::trace::{Shape, Trace, check, quotas, traces};
use tollgate_testkit::walk::Walk;

const CASES: u32 = 10_000;
const REGRESSIONS: &str = "tests/proptest-regressions/guarantees.txt";
const BUCKETS: [Algorithm; 2] = [Algorithm::TokenBucket, Algorithm::LeakyBucket];

/// Only takes, looks and pauses.
const PLAIN: Shape = Shape { changes: false, refunds: false, steps_back: false };

/// Limits and bursts change on the way.
const CHANGING: Shape = Shape { changes: true, ..PLAIN };

/// Units that passed, when, and for how long they were held; in µs.
#[derive(Clone, Copy, Debug)]
struct Passed {
    at: u64,
    units: u64,
    held: u64,
}

#[test]
fn no_period_of_a_sliding_log_holds_more_than_the_limit() {
    let traces = traces(Algorithm::SlidingLog, CHANGING);
    check(CASES, REGRESSIONS, &traces, |trace| {
        let passed = pass(Algorithm::SlidingLog, &trace)?;
        let (limit, period) = (most(&trace, Quota::limit), period(&trace));
        for last in &passed {
            let within = passed.iter().filter(|one| one.at <= last.at);
            let within = within.filter(|one| one.at + period > last.at);
            let units: u64 = within.map(|one| one.units).sum();
            prop_assert!(units <= limit, "{units} of {limit} within one period");
        }
        Ok(())
    });
}

#[test]
fn no_window_of_a_window_algorithm_holds_more_than_the_limit() {
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow] {
        check(CASES, REGRESSIONS, &traces(algorithm, CHANGING), |trace| {
            let passed = pass(algorithm, &trace)?;
            let (limit, period) = (most(&trace, Quota::limit), period(&trace));
            for last in &passed {
                let within = passed.iter().filter(|one| one.at / period == last.at / period);
                let units: u128 = within.map(|one| u128::from(one.units)).sum();
                prop_assert!(units <= u128::from(limit), "{units} of {limit} in a window");
            }
            Ok(())
        });
    }
}

#[test]
fn a_bucket_passes_at_most_its_burst_and_what_drains_meanwhile() {
    for algorithm in BUCKETS {
        check(CASES, REGRESSIONS, &traces(algorithm, PLAIN), |trace| {
            within_burst_and_rate(algorithm, &trace)
        });
    }
}

#[test]
fn no_sequence_of_changes_passes_more_than_the_most_generous_quota() {
    for algorithm in BUCKETS {
        check(CASES, REGRESSIONS, &traces(algorithm, CHANGING), |trace| {
            within_burst_and_rate(algorithm, &trace)
        });
    }
}

/// In every interval, exactly: units × period ≤ burst × period + limit × length.
fn within_burst_and_rate(algorithm: Algorithm, trace: &Trace) -> TestCaseResult {
    let passed = pass(algorithm, trace)?;
    let burst = u128::from(most(trace, Quota::burst));
    let limit = u128::from(most(trace, Quota::limit));
    let period = u128::from(period(trace));
    for (index, first) in passed.iter().enumerate() {
        let mut units = 0;
        for last in &passed[index..] {
            units += u128::from(last.units);
            let length = u128::from(last.at - first.at);
            prop_assert!(
                units * period <= burst * period + limit * length,
                "{} units in {} µs",
                units,
                length
            );
        }
    }
    Ok(())
}

#[test]
fn a_leaky_bucket_lets_requests_go_at_its_rate() {
    let traces = traces(Algorithm::LeakyBucket, PLAIN);
    check(CASES, REGRESSIONS, &traces, |trace| {
        let (limit, period) = (most(&trace, Quota::limit), period(&trace));
        let (limit, period) = (u128::from(limit), u128::from(period));
        // When the queue is empty if nobody else comes, in 1/limit µs.
        let mut empty: u128 = 0;
        for one in pass(Algorithm::LeakyBucket, &trace)? {
            let now = u128::from(one.at) * limit;
            let waits = empty.saturating_sub(now).div_ceil(limit);
            prop_assert_eq!(u128::from(one.held), waits, "for the queue before it");
            empty = empty.max(now) + u128::from(one.units) * period;
        }
        Ok(())
    });
}

#[test]
fn a_refund_after_a_drastic_lowering_gives_back_all_that_was_asked() {
    let meter = |quota: &str| {
        let quota = quota.parse().expect("a quota");
        Meter::new(quota, Algorithm::TokenBucket).expect("a meter")
    };
    let (before, after) = (meter("10000000/day"), meter("1/day"));
    let store = MemoryStore::with_clock(ManualClock::at_secs(1_700_000_000));
    let all = Cost::new(10_000_000).expect("not zero");
    let taken = store.take("tenant", before, all);
    assert!(taken.is_allowed(), "a fresh bucket is full");
    // At one a day the debt would take 27,000 years, which no instant can say.
    let some = Cost::new(1_000_000).expect("not zero");
    let refund = store.refund("tenant", after, some, taken.at());
    let back = refund.outcomes()[0].reading.expect("numbers").units;
    assert_eq!(back, 1_000_000, "usage less what is given back");
    let seen = store.peek("tenant", before, Cost::ONE);
    let left = seen.outcomes()[0].reading.expect("numbers").remaining;
    assert_eq!(left, 1_000_000, "no more and no less came back");
}

#[test]
fn a_clock_that_steps_back_grants_nothing_and_denies_for_no_longer_than_the_step() {
    for algorithm in Algorithm::ALL {
        let cases = (traces(algorithm, CHANGING), 0..4_000_u64, 0..=u64::MAX);
        check(CASES, REGRESSIONS, &cases, |(trace, per_mille, draw)| {
            let (state, meter, now) = state_after(algorithm, &trace)?;
            let step = (meter.period().as_micros() / 1_000 * per_mille).min(now.as_micros());
            let back = Timestamp::from_micros(now.as_micros() - step);
            let (left, left_then) = (state.standing(&meter, now), state.standing(&meter, back));
            prop_assert!(left_then.remaining <= left.remaining, "granted by stepping back");
            let cost = Cost::new(draw % meter.capacity() + 1).expect("at least one");
            let (wait, wait_then) =
                (wait(&state, &meter, cost, now), wait(&state, &meter, cost, back));
            prop_assert!(wait_then >= wait, "sooner by stepping back");
            prop_assert!(wait_then <= wait + step, "{wait_then} µs, not {wait} + {step}");
            Ok(())
        });
    }
}

#[test]
fn a_more_generous_quota_acts_at_once_and_a_stricter_one_grants_nothing() {
    for algorithm in Algorithm::ALL {
        let cases = (traces(algorithm, CHANGING), quotas(algorithm, true), 0..=u64::MAX);
        check(CASES, REGRESSIONS, &cases, |(trace, others, draw)| {
            let (state, meter, now) = state_after(algorithm, &trace)?;
            let quota = meter.quota();
            let lower = Quota::new(quota.limit().min(others[0].limit()), quota.period());
            let lower =
                lower.and_then(|lower| lower.with_burst(quota.burst().min(others[0].burst())));
            // A lower rate may take too long to refill; then there is no such meter to ask.
            let Ok(strict) = Meter::new(lower.expect("within both"), algorithm) else {
                return Ok(());
            };
            let (of_strict, of_generous) =
                (state.standing(&strict, now), state.standing(&meter, now));
            prop_assert!(of_strict.remaining <= of_generous.remaining, "granted by lowering");
            let cost = Cost::new(draw % strict.capacity() + 1).expect("at least one");
            let (patience, haste) =
                (wait(&state, &strict, cost, now), wait(&state, &meter, cost, now));
            prop_assert!(patience >= haste, "lowering made {cost:?} come sooner");
            let free = meter.capacity() - of_generous.remaining;
            prop_assert!(
                of_strict.remaining >= strict.capacity().saturating_sub(free)
                    || strict.limit() < meter.limit(),
                "a burst lowered alone takes away more than the difference"
            );
            Ok(())
        });
    }
}

/// Takes along the trace through a memory store; says what passed.
fn pass(algorithm: Algorithm, trace: &Trace) -> Result<Vec<Passed>, TestCaseError> {
    let clock = ManualClock::default();
    let store = MemoryStore::builder().max_keys(8).build_with_clock(clock.clone());
    let mut passed = Vec::new();
    Walk::new(algorithm, trace).run(|turn| {
        clock.set(turn.now);
        let set = ChargeSet::of(Charge::new("bucket", turn.meter, turn.op));
        let decision = store.take_set(&set);
        let reading = decision.outcomes()[0].reading.expect("a store has numbers");
        let took = matches!(turn.op, Op::Take(_)) && decision.is_allowed();
        prop_assert_eq!(reading.units > 0, took, "units only of what was taken");
        if took {
            passed.push(Passed {
                at: turn.now.as_micros(),
                units: reading.units,
                held: reading.delay.get(),
            });
        }
        Ok(())
    })?;
    Ok(passed)
}

/// The state at the end of a trace, with the meter and the instant of its last question.
fn state_after(
    algorithm: Algorithm,
    trace: &Trace,
) -> Result<(State, Meter, Timestamp), TestCaseError> {
    let mut state = State::fresh(algorithm);
    let meter = Meter::new(trace.quotas[0], algorithm).expect("traces have quotas that fit");
    let mut last = (meter, Timestamp::from_micros(trace.start));
    Walk::new(algorithm, trace).run(|turn| {
        if let Op::Take(ask) = turn.op
            && let Evaluation::Fits { delta, .. } = state.evaluate(&turn.meter, ask, turn.now)
        {
            state.apply(delta);
        }
        last = (turn.meter, turn.now);
        Ok(())
    })?;
    Ok((state, last.0, last.1))
}

/// Microseconds until `cost`, which is within the capacity, fits; none if it does at once.
fn wait(state: &State, meter: &Meter, cost: Cost, now: Timestamp) -> u64 {
    match state.evaluate(meter, Ask::exactly(cost), now) {
        Evaluation::Fits { .. } => 0,
        Evaluation::Exceeds { retry: Retry::After(wait), .. } => wait.get(),
        Evaluation::Exceeds { retry, .. } => {
            panic!("{cost:?} within the capacity answered {retry:?}")
        }
    }
}

/// The largest limit, or burst, in force at any time of a trace.
fn most(trace: &Trace, number: impl Fn(Quota) -> u64) -> u64 {
    let numbers = trace.quotas.iter().map(|quota| number(*quota));
    numbers.max().expect("a trace has a quota")
}

fn period(trace: &Trace) -> u64 {
    trace.quotas[0].period().as_micros()
}
