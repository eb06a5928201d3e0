//! What the script answers, made into decisions.
//!
//! The script says what each bucket held before; the numbers of the answer are worked out here, by
//! the algorithms themselves. That the script came to the same verdict is checked: if it did not,
//! nobody should rely on either.

use redis::Value;
use smallvec::SmallVec;
use tollgate::algorithm::bucket::Debt;
use tollgate::algorithm::fixed_window::Window;
use tollgate::algorithm::sliding_log::Log;
use tollgate::algorithm::sliding_window::Windows;
use tollgate::algorithm::{State, decide};
use tollgate::{
    Algorithm, Charge, ChargeSet, Decision, MAX_EXACT, StoreError, StoreErrorKind, Timestamp,
    Verdict,
};

use crate::question::Question;

/// What the script answers to one question.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    verdict: Verdict,
    // What each charge's bucket held.
    held: SmallVec<[Value; 1]>,
}

/// Divides a reply among the questions it answers, and says when they were decided.
pub(crate) fn split<'q>(
    reply: Value,
    questions: impl IntoIterator<Item = &'q Question>,
) -> Result<(Timestamp, Vec<Answer>), StoreError> {
    let Value::Array(reply) = reply else {
        return Err(garbled("no array"));
    };
    let mut values = reply.into_iter();
    let (Some(Value::Int(now)), Some(Value::Array(refusals))) = (values.next(), values.next())
    else {
        return Err(garbled("no instant or no refusals"));
    };
    let now = u64::try_from(now).map_err(|_| garbled("an instant before 1970"))?;
    let mut refusals = refusals.into_iter().peekable();
    let mut answers = Vec::new();
    // The script numbers sets that have charges, from 1.
    let mut set = 0;
    for question in questions {
        let held: SmallVec<[Value; 1]> = values.by_ref().take(question.len()).collect();
        if held.len() < question.len() {
            return Err(garbled("fewer values than charges"));
        }
        set += i64::from(question.len() > 0);
        let refused = question.len() > 0 && refusals.next_if_eq(&Value::Int(set)).is_some();
        let verdict = if refused { Verdict::Deny } else { Verdict::Allow };
        answers.push(Answer { verdict, held });
    }
    match (values.next(), refusals.next()) {
        (None, None) => Ok((Timestamp::from_micros(now), answers)),
        _ => Err(garbled("more than was asked")),
    }
}

/// The decision on `set`, made at `at`, that an answer tells of.
pub(crate) fn decision(
    set: &ChargeSet<'_>,
    at: Timestamp,
    answer: Answer,
) -> Result<Decision, StoreError> {
    if answer.held.len() != set.len() {
        return Err(garbled("an answer to another set"));
    }
    let states = set.charges().iter().zip(&answer.held);
    let states =
        states.map(|(charge, held)| state(charge, held).ok_or_else(|| garbled("no state")));
    let mut states = states.collect::<Result<SmallVec<[State; 1]>, _>>()?;
    let decision = decide(set, &mut states, at);
    match decision.verdict() == answer.verdict {
        true => Ok(decision),
        false => Err(garbled("the script and the algorithms disagree")),
    }
}

fn garbled(what: &'static str) -> StoreError {
    StoreError::caused_by(StoreErrorKind::Protocol, what)
}

/// The state a charge's bucket was in; `None` if the value is none the script writes.
fn state(charge: &Charge<'_>, held: &Value) -> Option<State> {
    let algorithm = charge.meter.algorithm();
    let value = match held {
        Value::Nil => return Some(State::fresh(algorithm)),
        Value::Array(runs) => return log(runs).map(State::SlidingLog),
        Value::BulkString(value) => value.as_slice(),
        _ => return None,
    };
    match (algorithm, value.len()) {
        (Algorithm::FixedWindow, 14) => Some(State::FixedWindow(window(value))),
        (Algorithm::SlidingWindow, 15) => Some(State::SlidingWindow(windows(value))),
        (Algorithm::TokenBucket | Algorithm::LeakyBucket, 35) => debt(value).map(State::Bucket),
        (Algorithm::SlidingLog, _) => None,
        // The script takes a value of another length for nothing.
        _ => Some(State::fresh(algorithm)),
    }
}

fn window(value: &[u8]) -> Window {
    let [end, used] = [&value[..7], &value[7..]].map(integer);
    Window::new(end, used)
}

fn windows(value: &[u8]) -> Windows {
    let [start, current, previous] = [&value[..7], &value[7..11], &value[11..]].map(integer);
    Windows::new(start, current, previous)
}

fn debt(value: &[u8]) -> Option<Debt> {
    // Before them stands when the key expires, which is no part of the state.
    let [limit, charged, clear, fraction] =
        [&value[7..14], &value[14..21], &value[21..28], &value[28..]].map(integer);
    let sound = charged <= clear && clear <= MAX_EXACT && fraction < limit;
    sound.then(|| Debt::new(limit, charged, clear, fraction))
}

/// A log out of instants and units in turn.
fn log(runs: &[Value]) -> Option<Log> {
    let runs = runs.chunks(2).map(|run| match run {
        [Value::Int(at), Value::Int(units)] => {
            let at = Timestamp::from_micros(u64::try_from(*at).ok()?);
            Some((at, u32::try_from(*units).ok()?))
        }
        _ => None,
    });
    runs.collect()
}

/// A little-endian integer.
fn integer(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}
