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
use tollgate::algorithm::{Delta, Evaluation, Standing, State, decide};
use tollgate::{
    Algorithm, Charge, ChargeSet, Decision, Enforcement, MAX_EXACT, Meter, Micros, Op, Outcome,
    Provenance, Reading, Retry, StoreError, StoreErrorKind, Timestamp, Verdict,
};

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
    held: Held,
}

/// What the buckets of a question's charges held.
#[derive(Clone, Debug)]
enum Held {
    // Numbers that say all there is to say.
    Numbers(SmallVec<[u64; 3]>),
    // Values of any kind, as the server wrote them.
    Spelled(SmallVec<[u8; 32]>),
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
        Some(Head::Bytes(text)) => return packed(text, questions, charges),
        _ => return Err(garbled("no array")),
    };
    // Nothing but an instant, where there should be more.
    if count == 1 && charges > 0 {
        return instant(&mut values).map(Verdicts::Elsewhen);
    }
    let refusals = count.checked_sub(charges + 1).ok_or_else(|| garbled("too few values"))?;
    let mut answers = SmallVec::with_capacity(questions.len());
    for question in questions {
        let held =
            values.take(question.len()).ok_or_else(|| garbled("fewer values than charges"))?;
        answers.push(Answer::to(Held::Spelled(SmallVec::from_slice(held))));
    }
    let now = instant(&mut values)?;
    let refused = (0..refusals).map(|_| match values.next() {
        Some(Head::Integer(set)) => usize::try_from(set).ok(),
        _ => None,
    });
    refuse(questions, &mut answers, refused)?;
    Ok(Verdicts::Decided(now, answers))
}

/// The same out of one string of doubles: what each charge's bucket held, the instant, and the numbers
/// of the sets that were refused.
fn packed(text: &[u8], questions: &[Question], charges: usize) -> Result<Verdicts, StoreError> {
    let (numbers, rest) = text.as_chunks();
    let mut numbers = numbers.iter().copied().map(double);
    if !rest.is_empty() || numbers.len() <= charges {
        return Err(garbled("too few numbers"));
    }
    let mut answers = SmallVec::with_capacity(questions.len());
    for question in questions {
        let held = numbers.by_ref().take(question.len()).map(Option::unwrap_or_default);
        answers.push(Answer::to(Held::Numbers(held.collect())));
    }
    let now = numbers.next().flatten().ok_or_else(|| garbled("no instant"))?;
    refuse(questions, &mut answers, numbers.map(|set| usize::try_from(set?).ok()))?;
    Ok(Verdicts::Decided(Timestamp::from_micros(now), answers))
}

/// Marks the answers to sets that were refused. The script numbers those that have charges, from 1.
fn refuse(
    questions: &[Question],
    answers: &mut [Answer],
    refused: impl Iterator<Item = Option<usize>>,
) -> Result<(), StoreError> {
    let mut sets = questions.iter().zip(answers).filter(|(question, _)| question.len() > 0);
    let mut passed = 0;
    for set in refused {
        let ahead = set.and_then(|set| set.checked_sub(passed + 1));
        let refused = ahead.and_then(|ahead| {
            passed += ahead + 1;
            sets.nth(ahead)
        });
        let (_, answer) = refused.ok_or_else(|| garbled("a refusal of nothing"))?;
        answer.verdict = Verdict::Deny;
    }
    Ok(())
}

impl Answer {
    /// That a set is admitted, until it turns out to be refused.
    const fn to(held: Held) -> Self {
        Self { verdict: Verdict::Allow, held }
    }

    /// The states the buckets of these charges were in at `at`, each `None` if the script does not
    /// answer so.
    fn states(&self, charges: &[Charge<'_>], at: Timestamp) -> Option<SmallVec<[State; 1]>> {
        match &self.held {
            Held::Numbers(numbers) => {
                let states = charges.iter().zip(numbers);
                states.map(|(charge, &number)| numeric(charge, number, at)).collect()
            }
            Held::Spelled(values) => {
                let mut values = Values::of(values);
                charges.iter().map(|charge| state(charge, &mut values, at)).collect()
            }
        }
    }
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
    let mut states = answer.states(set.charges(), at).ok_or_else(|| garbled("no state"))?;
    let decision = match (set.charges(), &states[..]) {
        ([Charge { meter, op: Op::Take(ask), enforcement: Enforcement::Enforce, .. }], [state]) => {
            let outcome = taken(meter, state.evaluate(meter, *ask, at));
            Decision::of_one(outcome, at, Provenance::Store)
        }
        _ => decide(set, &mut states, at),
    };
    match decision.verdict() == answer.verdict {
        true => Ok(decision),
        false => Err(garbled("the script and the algorithms disagree")),
    }
}

/// The outcome of a charge that is all there is to its set: it is taken if it fits.
fn taken(meter: &Meter, evaluation: Evaluation<Delta>) -> Outcome {
    let (verdict, retry, delay, units, standing) = match evaluation {
        Evaluation::Fits { units, delay, after, .. } => {
            (Verdict::Allow, Retry::Now, delay, units, after)
        }
        Evaluation::Exceeds { retry, present } => (Verdict::Deny, retry, Micros::ZERO, 0, present),
    };
    let Standing { remaining, reset } = standing;
    let reading = Reading { capacity: meter.capacity(), remaining, reset, retry, delay, units };
    Outcome { verdict, enforcement: Enforcement::Enforce, reading: Some(reading) }
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
        (_, Head::Integer(number)) => {
            // Clear before there was time: the script does not look closer at what is clear.
            return numeric(charge, u64::try_from(number).unwrap_or_default(), at);
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

/// The state of a bucket that was decided the short way: a window that is one number, with the units of
/// the charge on it, or when a debt is clear that was written under the limit of the charge, and so
/// needs nothing else.
fn numeric(charge: &Charge<'_>, number: u64, at: Timestamp) -> Option<State> {
    let algorithm = charge.meter.algorithm();
    match algorithm {
        Algorithm::FixedWindow => {
            let Op::Take(ask) = charge.op else { return None };
            let before = number.checked_sub(ask.max.get())?;
            Some(State::FixedWindow(numbered(before, &charge.meter, at)))
        }
        Algorithm::TokenBucket | Algorithm::LeakyBucket if number == 0 => {
            Some(State::fresh(algorithm))
        }
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            let charged = at.as_micros().min(number);
            Some(State::Bucket(Debt::new(charge.meter.limit(), charged, number, 0)))
        }
        Algorithm::SlidingLog | Algorithm::SlidingWindow => None,
    }
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
/// the units taken in it, fewer than half of [`UNITS`]. One that is neither this nor ahead is over.
fn numbered(number: u64, meter: &Meter, at: Timestamp) -> Window {
    let period = meter.period().as_micros();
    let present = at.as_micros() / period;
    let ahead = (number / UNITS + 2 * WINDOWS - 1 - present % WINDOWS) % WINDOWS;
    let used = number % UNITS;
    match ahead < AHEAD && (UNITS..=MAX_EXACT).contains(&number) && used < UNITS / 2 {
        true => Window::new((present + ahead + 1) * period, used),
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
    let (clear, rest) = value.split_first_chunk()?;
    let (lasts, limit) = rest.split_first_chunk()?;
    let (clear, lasts, limit) = (double(*clear)?, double(*lasts)?, integer(limit));
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
fn double(bytes: [u8; 8]) -> Option<u64> {
    let number = f64::from_le_bytes(bytes);
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

    fn charge(key: &str) -> Charge<'_> {
        let meter = Meter::new("5/s".parse().expect("a quota"), Algorithm::FixedWindow);
        Charge::take(key, meter.expect("it fits"), Cost::ONE)
    }

    fn question(keys: &[&str]) -> Question {
        let mut set = ChargeSet::new();
        for key in keys {
            set.push(charge(key)).expect("room");
        }
        Question::new(&Prefix::default(), &set, Timestamp::EPOCH)
    }

    fn answers(reply: &[u8], questions: &[Question]) -> Option<Vec<Answer>> {
        match split(reply, questions).ok()? {
            Verdicts::Decided(at, answers) => {
                assert_eq!(at, Timestamp::from_micros(7));
                Some(answers.into_vec())
            }
            Verdicts::Elsewhen(_) => None,
        }
    }

    /// Numbers as the script packs them.
    fn doubles(numbers: &[f64]) -> Vec<u8> {
        let text: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        [format!("${}\r\n", text.len()).as_bytes(), &text, b"\r\n"].concat()
    }

    #[test]
    fn a_string_says_what_an_array_would() {
        let questions = [question(&["a"]), question(&[]), question(&["b", "c"])];
        let number = 134_217_729;
        for (string, array) in [
            (&[1.0, 1.0, 1.0, 7.0][..], "*4\r\n$-1\r\n:1\r\n$-1\r\n:7\r\n".to_owned()),
            (
                &[number as f64 + 1.0, 1.0, number as f64 + 1.0, 7.0, 2.0],
                format!("*5\r\n:{}\r\n$-1\r\n$9\r\n{number}\r\n:7\r\n:2\r\n", number + 1),
            ),
        ] {
            let both = [doubles(string), array.into_bytes()];
            let [string, array] = both.map(|reply| answers(&reply, &questions).expect("answers"));
            for ((question, string), array) in questions.iter().zip(string).zip(array) {
                let charges: Vec<Charge<'_>> = (0..question.len()).map(|_| charge("any")).collect();
                let at = Timestamp::from_micros(7);
                assert_eq!(string.verdict, array.verdict);
                assert_eq!(string.states(&charges, at), array.states(&charges, at));
                assert!(string.states(&charges, at).is_some());
            }
        }
    }

    #[test]
    fn refusals_are_numbered_by_sets_that_have_charges() {
        let questions = [question(&["a"]), question(&[]), question(&["b", "c"]), question(&["d"])];
        let reply = b"*7\r\n:1\r\n:2\r\n:3\r\n:4\r\n:7\r\n:2\r\n:3\r\n";
        let verdicts = answers(reply, &questions).expect("answers");
        let verdicts: Vec<Verdict> = verdicts.iter().map(|answer| answer.verdict).collect();
        assert_eq!(verdicts, [Verdict::Allow, Verdict::Allow, Verdict::Deny, Verdict::Deny]);
    }

    #[test]
    fn what_was_not_asked_is_no_answer() {
        let one = [question(&["a"])];
        for reply in [
            &b":7\r\n"[..],
            b"$3\r\nabc\r\n",
            &doubles(&[7.0]),
            &doubles(&[0.0, -7.0]),
            &doubles(&[0.0, 7.5]),
            &doubles(&[0.0, 7.0, 2.0]),
            &doubles(&[0.0, 7.0, 1.0, 1.0]),
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
