//! What the script answers, made into decisions.
//!
//! The script says what each bucket held before; the numbers of the answer are worked out here, by
//! the algorithms themselves. That the script came to the same verdict is checked: if it did not,
//! nobody should rely on either.

use smallvec::SmallVec;
use tollgate::algorithm::bucket::Debt;
use tollgate::algorithm::fixed_window::Window;
use tollgate::algorithm::sliding_log::Log;
use tollgate::algorithm::sliding_window::Windows;
use tollgate::algorithm::{State, decide};
use tollgate::{
    Algorithm, Charge, ChargeSet, Decision, MAX_EXACT, Meter, StoreError, StoreErrorKind,
    Timestamp, Verdict,
};

use crate::decimal::Decimal;
use crate::question::Question;
use crate::wire::{Head, Values};

/// How the script counts in a fixed window that is one number.
const UNITS: u64 = 1 << 27;
const WINDOWS: u64 = (1 << 26) - 1;
const AHEAD: u64 = 1 << 25;

/// What a fixed window begins with that is packed.
const MARK: u8 = b'w';

/// The most units a sliding window holds: its square is within 2^53.
const MOST_UNITS: u64 = 94_906_265;

/// What the script answers to one question.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    verdict: Verdict,
    // What each charge's bucket held, as the server wrote it.
    held: SmallVec<[u8; 32]>,
}

/// What the script says to a batch of questions.
#[derive(Debug)]
pub(crate) enum Verdicts {
    /// It decided them, at an instant.
    Decided(Timestamp, SmallVec<[Answer; 1]>),
    /// It did nothing: a window of a calendar that was sent is not that of this instant.
    Elsewhen(Timestamp),
}

/// Divides a reply among the questions it answers, and says when they were decided.
pub(crate) fn split(reply: &[u8], questions: &[Question]) -> Result<Verdicts, StoreError> {
    let mut values = Values::of(reply);
    let charges: usize = questions.iter().map(Question::len).sum();
    let count = match values.next() {
        Some(Head::Array(count)) => count,
        Some(Head::Bytes(text)) if charges == 1 => return alone(text, questions),
        _ => return Err(garbled("no array")),
    };
    // Nothing but an instant, where there should be more.
    if count == 1 && charges > 0 {
        return instant(&mut values).map(Verdicts::Elsewhen);
    }
    let refusals = count.checked_sub(charges + 1).ok_or_else(|| garbled("too few values"))?;
    let mut answers = SmallVec::<[Answer; 1]>::with_capacity(questions.len());
    for question in questions {
        let held =
            values.take(question.len()).ok_or_else(|| garbled("fewer values than charges"))?;
        answers.push(Answer { verdict: Verdict::Allow, held: SmallVec::from_slice(held) });
    }
    let now = instant(&mut values)?;
    // The script numbers sets that have charges, from 1.
    let mut sets = questions.iter().zip(&mut answers).filter(|(question, _)| question.len() > 0);
    let mut passed = 0;
    for _ in 0..refusals {
        let ahead = match values.next() {
            Some(Head::Integer(set)) => {
                usize::try_from(set).ok().and_then(|set| set.checked_sub(passed + 1))
            }
            _ => None,
        };
        let refused = ahead.and_then(|ahead| {
            passed += ahead + 1;
            sets.nth(ahead)
        });
        let (_, answer) = refused.ok_or_else(|| garbled("a refusal of nothing"))?;
        answer.verdict = Verdict::Deny;
    }
    Ok(Verdicts::Decided(now, answers))
}

/// The answer to the only charge there is, as one string: the instant, a byte that is 1 if it was
/// refused, and what its bucket held.
fn alone(text: &[u8], questions: &[Question]) -> Result<Verdicts, StoreError> {
    let (head, value) = text.split_at_checked(9).ok_or_else(|| garbled("a short answer"))?;
    let now = double(&head[..8]).ok_or_else(|| garbled("no instant"))?;
    let verdict = if head[8] == 1 { Verdict::Deny } else { Verdict::Allow };
    // Spelled as it stands in an array. No value is so short but a window's number.
    let number = if value.len() == 8 { double(value) } else { None };
    let decimal = Decimal::of(number.unwrap_or(value.len() as u64));
    let parts: [&[u8]; 5] = match (value, number) {
        ([], _) => [b"$-1", b"", b"\r\n", b"", b""],
        (_, Some(_)) => [b":", decimal.as_bytes(), b"\r\n", b"", b""],
        (value, None) => [b"$", decimal.as_bytes(), b"\r\n", value, b"\r\n"],
    };
    let held: SmallVec<[u8; 32]> = parts.into_iter().flatten().copied().collect();
    // Sets without charges may have come with it.
    let answers = questions.iter().map(|question| match question.len() {
        0 => Answer { verdict: Verdict::Allow, held: SmallVec::new() },
        _ => Answer { verdict, held: held.clone() },
    });
    Ok(Verdicts::Decided(Timestamp::from_micros(now), answers.collect()))
}

fn instant(values: &mut Values<'_>) -> Result<Timestamp, StoreError> {
    match values.next() {
        Some(Head::Integer(now)) => u64::try_from(now)
            .map(Timestamp::from_micros)
            .map_err(|_| garbled("an instant before 1970")),
        _ => Err(garbled("no instant")),
    }
}

/// The decision on `set`, made at `at`, that an answer tells of.
pub(crate) fn decision(
    set: &ChargeSet<'_>,
    at: Timestamp,
    answer: &Answer,
) -> Result<Decision, StoreError> {
    let mut held = Values::of(&answer.held);
    let states = set.charges().iter();
    let states =
        states.map(|charge| state(charge, &mut held, at).ok_or_else(|| garbled("no state")));
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

/// The state a charge's bucket was in; `None` if the script does not answer so.
fn state(charge: &Charge<'_>, held: &mut Values<'_>, at: Timestamp) -> Option<State> {
    let algorithm = charge.meter.algorithm();
    let value = match (algorithm, held.next()?) {
        (_, Head::Nil) => return Some(State::fresh(algorithm)),
        (Algorithm::SlidingLog, Head::Array(count)) => {
            return log(count, held).map(State::SlidingLog);
        }
        (Algorithm::FixedWindow, Head::Integer(number)) => {
            let number = u64::try_from(number).ok()?;
            return Some(State::FixedWindow(numbered(number, &charge.meter, at)));
        }
        (_, Head::Bytes(value)) => value,
        _ => return None,
    };
    let state = match (algorithm, value.len()) {
        (Algorithm::FixedWindow, 17) => window(value).map(State::FixedWindow),
        (Algorithm::FixedWindow, _) => {
            number(value).map(|number| State::FixedWindow(numbered(number, &charge.meter, at)))
        }
        (Algorithm::SlidingWindow, 15) => windows(value).map(State::SlidingWindow),
        (Algorithm::TokenBucket | Algorithm::LeakyBucket, 20) => whole(value).map(State::Bucket),
        (Algorithm::TokenBucket | Algorithm::LeakyBucket, 28) => debt(value).map(State::Bucket),
        _ => None,
    };
    // The script takes what it would not have written for nothing.
    Some(state.unwrap_or_else(|| State::fresh(algorithm)))
}

fn window(value: &[u8]) -> Option<Window> {
    let [end, used] = [&value[1..9], &value[9..]].map(integer);
    let sound = value[0] == MARK && end <= MAX_EXACT && used <= MAX_EXACT;
    sound.then(|| Window::new(end, used))
}

/// A number as Redis writes it: digits and nothing else.
fn number(value: &[u8]) -> Option<u64> {
    let digits = value.iter().all(u8::is_ascii_digit);
    str::from_utf8(value).ok().filter(|_| digits)?.parse().ok()
}

/// A window that is one number: which it is, counted modulo [`WINDOWS`] from 1, times [`UNITS`], and
/// the units taken in it. One that is neither this nor ahead is over.
fn numbered(number: u64, meter: &Meter, at: Timestamp) -> Window {
    let period = meter.period().as_micros();
    let present = at.as_micros() / period;
    let ahead = (number / UNITS + 2 * WINDOWS - 1 - present % WINDOWS) % WINDOWS;
    match ahead < AHEAD && (1..=MAX_EXACT).contains(&number) {
        true => Window::new((present + ahead + 1) * period, number % UNITS),
        false => Window::default(),
    }
}

fn windows(value: &[u8]) -> Option<Windows> {
    let [start, current, previous] = [&value[..7], &value[7..11], &value[11..]].map(integer);
    let sound = start <= MAX_EXACT && current.max(previous) <= MOST_UNITS;
    sound.then(|| Windows::new(start, current, previous))
}

/// A debt of whole microseconds.
fn whole(value: &[u8]) -> Option<Debt> {
    let (clear, lasts) = (double(&value[..8])?, double(&value[8..16])?);
    let limit = integer(&value[16..]);
    (lasts <= clear && limit > 0).then(|| Debt::new(limit, clear - lasts, clear, 0))
}

fn debt(value: &[u8]) -> Option<Debt> {
    let [limit, charged, clear, fraction] =
        [&value[..7], &value[7..14], &value[14..21], &value[21..]].map(integer);
    let sound = charged <= clear && clear <= MAX_EXACT && fraction < limit;
    sound.then(|| Debt::new(limit, charged, clear, fraction))
}

/// A log out of `count` values, instants and units in turn.
fn log(count: usize, values: &mut Values<'_>) -> Option<Log> {
    let runs = (0..count / 2).map(|_| match (values.next()?, values.next()?) {
        (Head::Integer(at), Head::Integer(units)) => {
            let at = Timestamp::from_micros(u64::try_from(at).ok()?);
            Some((at, u32::try_from(units).ok()?))
        }
        _ => None,
    });
    runs.collect()
}

/// A little-endian double that is an integer within the exact ones.
fn double(bytes: &[u8]) -> Option<u64> {
    let number = f64::from_le_bytes(bytes.try_into().ok()?);
    let exact = number.fract() == 0.0 && (0.0..=MAX_EXACT as f64).contains(&number);
    exact.then_some(number as u64)
}

/// A little-endian integer.
fn integer(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use tollgate::{Cost, Prefix};

    use super::*;

    fn question(keys: &[&str]) -> Question {
        let mut set = ChargeSet::new();
        for key in keys {
            let meter = Meter::new("5/s".parse().expect("a quota"), Algorithm::FixedWindow);
            set.push(Charge::take(*key, meter.expect("it fits"), Cost::ONE)).expect("room");
        }
        Question::new(&Prefix::default(), &set, Timestamp::EPOCH)
    }

    fn answers(reply: &[u8], questions: &[Question]) -> Option<Vec<(Verdict, Vec<u8>)>> {
        match split(reply, questions).ok()? {
            Verdicts::Decided(at, answers) => {
                assert_eq!(at, Timestamp::from_micros(7));
                Some(answers.into_iter().map(|one| (one.verdict, one.held.to_vec())).collect())
            }
            Verdicts::Elsewhen(_) => None,
        }
    }

    /// What a charge that came by itself is answered.
    fn alone(refused: u8, value: &[u8]) -> Vec<u8> {
        let text = [&7_f64.to_le_bytes()[..], &[refused], value].concat();
        [format!("${}\r\n", text.len()).as_bytes(), &text, b"\r\n"].concat()
    }

    #[test]
    fn a_string_says_what_an_array_would() {
        let one = [question(&["a"])];
        for (string, array) in [
            (alone(0, b""), &b"*2\r\n$-1\r\n:7\r\n"[..]),
            (alone(1, b"value"), b"*3\r\n$5\r\nvalue\r\n:7\r\n:1\r\n"),
            (alone(0, &134_217_729_f64.to_le_bytes()), b"*2\r\n:134217729\r\n:7\r\n"),
        ] {
            assert!(answers(array, &one).is_some());
            assert_eq!(answers(&string, &one), answers(array, &one));
        }
    }

    #[test]
    fn refusals_are_numbered_by_sets_that_have_charges() {
        let questions = [question(&["a"]), question(&[]), question(&["b", "c"]), question(&["d"])];
        let reply = b"*7\r\n:1\r\n:2\r\n:3\r\n:4\r\n:7\r\n:2\r\n:3\r\n";
        let verdicts = answers(reply, &questions).expect("answers");
        let verdicts: Vec<Verdict> = verdicts.into_iter().map(|(verdict, _)| verdict).collect();
        assert_eq!(verdicts, [Verdict::Allow, Verdict::Allow, Verdict::Deny, Verdict::Deny]);
    }

    #[test]
    fn what_was_not_asked_is_no_answer() {
        let one = [question(&["a"])];
        for reply in [
            &b":7\r\n"[..],
            b"$3\r\nabc\r\n",
            b"*0\r\n",
            b"*3\r\n:1\r\n:7\r\n:2\r\n",
            b"*4\r\n:1\r\n:7\r\n:1\r\n:1\r\n",
            b"*2\r\n:1\r\n:-7\r\n",
        ] {
            assert!(answers(reply, &one).is_none(), "{reply:?}");
        }
        let elsewhen = split(b"*1\r\n:7\r\n", &one).expect("it is said");
        assert!(matches!(elsewhen, Verdicts::Elsewhen(_)));
    }
}
