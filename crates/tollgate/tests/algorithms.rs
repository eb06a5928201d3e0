//! The algorithms against slow, obvious models, on random traces: the pure states and the memory
//! store give the model's verdicts and numbers, promise exactly, and change nothing by refusing.

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use tollgate::algorithm::{Evaluation, State};
use tollgate::{
    Algorithm, Ask, Charge, ChargeSet, Cost, ManualClock, MemoryStore, Meter, Micros, Op, Reading,
    Retry, Timestamp, Verdict,
};
use tollgate_testkit::trace::{Shape, Trace, check, traces};
use tollgate_testkit::walk::{Turn, Walk};

const CASES: u32 = 10_000;
const REGRESSIONS: &str = "tests/proptest-regressions/algorithms.txt";

#[test]
fn fixed_window_is_its_model() {
    agrees_with_its_model(Algorithm::FixedWindow);
}

#[test]
fn sliding_log_is_its_model() {
    agrees_with_its_model(Algorithm::SlidingLog);
}

#[test]
fn sliding_window_is_its_model() {
    agrees_with_its_model(Algorithm::SlidingWindow);
}

#[test]
fn token_bucket_is_its_model() {
    agrees_with_its_model(Algorithm::TokenBucket);
}

#[test]
fn leaky_bucket_is_its_model() {
    agrees_with_its_model(Algorithm::LeakyBucket);
}

fn agrees_with_its_model(algorithm: Algorithm) {
    let traces = traces(algorithm, Shape::ALL);
    check(CASES, REGRESSIONS, &traces, |trace| {
        walk_state(algorithm, &trace)?;
        walk_store(algorithm, &trace)
    });
}

/// The pure state along a trace, whatever the clock does.
fn walk_state(algorithm: Algorithm, trace: &Trace) -> TestCaseResult {
    let mut state = State::fresh(algorithm);
    Walk::new(algorithm, trace).run(|turn| {
        let before = state.clone();
        let (verdict, reading) = carry_out(&mut state, turn);
        prop_assert_eq!(verdict, turn.verdict, "verdict at {:?}", turn);
        prop_assert_eq!(reading, turn.reading, "reading at {:?}", turn);
        let took = matches!(turn.op, Op::Reset) || reading.units > 0;
        prop_assert!(took || state == before, "changed by nothing at {:?}", turn);
        check_promise(turn, |op, now| {
            let turn = Turn { op, now, ..*turn };
            carry_out(&mut state.clone(), &turn).0
        })?;
        check_stale(&state, turn)
    })
}

/// One question put to a pure state, as a store would.
fn carry_out(state: &mut State, turn: &Turn<'_>) -> (Verdict, Reading) {
    let (meter, now) = (&turn.meter, turn.now);
    let (verdict, retry, delay, units) = match turn.op {
        Op::Take(ask) => match state.evaluate(meter, ask, now) {
            Evaluation::Fits { units, delay, delta, after } => {
                state.apply(delta);
                assert_eq!(state.standing(meter, now), after, "what was foretold of {turn:?}");
                (Verdict::Allow, Retry::Now, delay, units)
            }
            Evaluation::Exceeds { retry, present } => {
                assert_eq!(state.standing(meter, now), present, "what {turn:?} left alone");
                (Verdict::Deny, retry, Micros::ZERO, 0)
            }
        },
        Op::Peek(cost) => match state.evaluate(meter, Ask::exactly(cost), now) {
            Evaluation::Fits { delay, .. } => (Verdict::Allow, Retry::Now, delay, 0),
            Evaluation::Exceeds { retry, .. } => (Verdict::Deny, retry, Micros::ZERO, 0),
        },
        Op::Refund { cost, at } => {
            let back = state.refund(meter, cost, at, now);
            (Verdict::Allow, Retry::Now, Micros::ZERO, back)
        }
        Op::Reset => {
            *state = State::fresh(meter.algorithm());
            (Verdict::Allow, Retry::Now, Micros::ZERO, 0)
        }
    };
    let standing = state.standing(meter, now);
    let reading = Reading {
        capacity: meter.capacity(),
        remaining: standing.remaining,
        reset: standing.reset,
        retry,
        delay,
        units,
    };
    (verdict, reading)
}

/// The promise of a refusal: refused one microsecond before it, admitted at it.
fn check_promise(
    turn: &Turn<'_>,
    mut ask_again: impl FnMut(Op, Timestamp) -> Verdict,
) -> TestCaseResult {
    let (Verdict::Deny, Retry::After(wait)) = (turn.verdict, turn.reading.retry) else {
        return Ok(());
    };
    prop_assert!(wait > Micros::ZERO, "refused, yet told to come at once");
    let cost = match turn.op {
        Op::Take(ask) => ask.min,
        Op::Peek(cost) => cost,
        Op::Refund { .. } | Op::Reset => unreachable!("these are never refused"),
    };
    if turn.now.as_micros() + wait.get() > Timestamp::MAX.as_micros() {
        // No clock gets there.
        return Ok(());
    }
    let early = turn.now + Micros::new(wait.get() - 1);
    let verdict = ask_again(Op::Peek(cost), early);
    prop_assert_eq!(verdict, Verdict::Deny, "1 µs before the promise");
    let verdict = ask_again(Op::Peek(cost), turn.now + wait);
    prop_assert_eq!(verdict, Verdict::Allow, "at the promise");
    Ok(())
}

/// From the instant it calls itself stale, a state answers as a fresh one would.
fn check_stale(state: &State, turn: &Turn<'_>) -> TestCaseResult {
    let meter = &turn.meter;
    if state.stale_at(meter) > Timestamp::MAX.as_micros() {
        // No clock gets there.
        return Ok(());
    }
    let stale_at = Timestamp::from_micros(state.stale_at(meter)).max(turn.now);
    let fresh = State::fresh(meter.algorithm());
    let standing = state.standing(meter, stale_at);
    prop_assert_eq!(standing, fresh.standing(meter, stale_at));
    for units in [1, meter.capacity(), meter.capacity() + 1] {
        let ask = Ask::exactly(Cost::new(units).expect("not zero"));
        let evaluation = state.evaluate(meter, ask, stale_at);
        let of_fresh = fresh.evaluate(meter, ask, stale_at);
        // The change itself may drop what expired, so only what is said of it can be compared.
        prop_assert_eq!(answer(evaluation), answer(of_fresh));
    }
    Ok(())
}

/// What an evaluation says, apart from the change it proposes: units and delay, or a retry.
fn answer<D>(evaluation: Evaluation<D>) -> Result<(u64, Micros), Retry> {
    match evaluation {
        Evaluation::Fits { units, delay, .. } => Ok((units, delay)),
        Evaluation::Exceeds { retry, .. } => Err(retry),
    }
}

/// The memory store along a trace, by the door its users take.
fn walk_store(algorithm: Algorithm, trace: &Trace) -> TestCaseResult {
    let clock = ManualClock::default();
    let store = MemoryStore::builder().max_keys(8).build_with_clock(clock.clone());
    // Another bucket, so that every second question goes as a set of two.
    let companion = Meter::new("1000/ms".parse().expect("a quota"), Algorithm::FixedWindow);
    let companion = companion.expect("a meter");
    let mut alone = false;
    Walk::new(algorithm, trace).forgetful().run(|turn| {
        alone = !alone;
        let ask = |op: Op, now: Timestamp| {
            clock.set(now);
            let mut set = ChargeSet::of(Charge::new("bucket", turn.meter, op));
            if !alone {
                let companion = Charge::peek("companion", companion, Cost::ONE);
                set.push(companion).expect("another bucket");
            }
            store.take_set(&set).outcomes()[0]
        };
        let glance = Op::Peek(Cost::ONE);
        let before = ask(glance, turn.now);
        let outcome = ask(turn.op, turn.now);
        prop_assert_eq!(outcome.verdict, turn.verdict, "verdict at {:?}", turn);
        prop_assert_eq!(outcome.reading, Some(turn.reading), "reading at {:?}", turn);
        if outcome.verdict == Verdict::Deny {
            prop_assert_eq!(ask(glance, turn.now), before, "a refusal changed something");
        }
        let stale_at = turn.after.stale_at(turn.meter.quota());
        check_promise(turn, |op, now| match now.as_micros() < stale_at {
            true => ask(op, now).verdict,
            // Asking would let the store forget the bucket, which has to be there as the trace
            // goes on. A stale bucket answers as a fresh one, which this is.
            false => ask_fresh(&store, op, turn.meter),
        })
    })
}

/// What a bucket nobody has charged answers.
fn ask_fresh(store: &MemoryStore<ManualClock>, op: Op, meter: Meter) -> Verdict {
    let set = ChargeSet::of(Charge::new("nobody", meter, op));
    store.take_set(&set).verdict()
}
