//! The script, and the command that has it decide a batch of questions.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::LazyLock;

use smallvec::{SmallVec, smallvec};
use tollgate::Timestamp;
use tollgate::hash::TextHasher;

use crate::decimal::Decimal;
use crate::question::{Question, SHAPE, Shape};

/// The text, in the order its parts build on each other.
const TEXT: &str = concat!(
    include_str!("../lua/prologue.lua"),
    include_str!("../lua/short_way.lua"),
    include_str!("../lua/wide.lua"),
    include_str!("../lua/fixed_window.lua"),
    include_str!("../lua/sliding_window.lua"),
    include_str!("../lua/bucket.lua"),
    include_str!("../lua/sliding_log.lua"),
    include_str!("../lua/decide.lua"),
);

/// What a server knows the script by once it has seen the text.
static DIGEST: LazyLock<String> = LazyLock::new(|| redis::Script::new(TEXT).get_hash().to_owned());

/// What keys the hashes that names in a batch are found by.
static HASHER: LazyLock<TextHasher> = LazyLock::new(|| {
    let random = RandomState::new();
    TextHasher::new(|index| random.hash_one(index))
});

/// How many of the latest shapes a new charge's is looked for among. One that is sent twice costs a
/// little; looking through all would cost more where they are many.
const SHAPES_LOOKED_AT: usize = 8;

/// Marks the last charge of a set.
const LAST: u16 = 1 << 15;

/// Marks the first charge of a batch of which it is said where each charge's bucket is.
const PLACES: u16 = 1 << 14;

/// Marks the first charge of a batch of sets that lie together: all charges of each have one key, which no
/// other set has.
const TOGETHER: u16 = 1 << 13;

/// The shapes of a command, in the order of their numbers.
type Shapes<'q> = SmallVec<[&'q Shape; 4]>;

/// How the script is named in a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// By its digest: EVALSHA, which a server that has not seen the text answers with NOSCRIPT.
    Sha,
    /// By its text: EVAL, after which the server knows it.
    Text,
}

/// The clock the script decides by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScriptClock {
    /// The server's own.
    Server,
    /// None: this instant. For tests of the script only; keys then live for an hour.
    Given(Timestamp),
}

/// The command that decides these questions in their order, each all or nothing, as it goes over the
/// wire: of at most 4,000 charges, which is what Lua's stack takes.
pub(crate) fn encode(form: Form, clock: ScriptClock, questions: &[Question]) -> Vec<u8> {
    let (mut plan, mut shapes, mut bytes) = (SmallVec::<[u16; 4]>::new(), Shapes::new(), 0);
    for question in questions {
        for (name, shape) in question.charges() {
            bytes += name.len() + HEAD;
            plan.push(number_of(shape, &mut shapes));
        }
        // A set without charges leaves no trace, and needs no deciding.
        if let (Some(last), true) = (plan.last_mut(), question.len() > 0) {
            *last |= LAST;
        }
    }
    let charges = plan.len();
    // Most sets of a batch are alike, and then what is true of the first is said once.
    let set = plan.iter().position(|step| step & LAST != 0).map_or(0, |last| last + 1);
    let alike = set > 0 && plan.chunks(set).all(|steps| *steps == plan[..set]);
    if alike {
        plan.truncate(set);
    }
    let Keys { names, places } = Keys::of(questions, charges);
    // Where every charge of sets that are alike has a key of its own, or every set, that goes without
    // saying.
    let mut said = None;
    if let (Some(first), true) = (plan.first_mut(), names.len() < charges || !alike) {
        let of_their_own = |(set, places): (usize, &[u16])| {
            places.iter().all(|&place| usize::from(place) == set + 1)
        };
        if alike && places.chunks(set).enumerate().all(of_their_own) {
            *first |= TOGETHER;
        } else {
            *first |= PLACES;
            said = Some(places);
        }
    }
    let (name, script) = match form {
        Form::Sha => ("EVALSHA", DIGEST.as_str()),
        Form::Text => ("EVAL", TEXT),
    };
    bytes += script.len() + 4 * charges + (SHAPE + HEAD) * shapes.len() + 8 * HEAD;
    let mut command = Encoded(Vec::with_capacity(bytes));
    // A plan of one charge by the server's clock goes without saying.
    let short = clock == ScriptClock::Server && shapes.len() == 1 && plan[..] == [LAST];
    let rest = if short { 0 } else { 2 + usize::from(said.is_some()) };
    command.head(b'*', 3 + names.len() + shapes.len() + rest);
    command.argument(name.as_bytes());
    command.argument(script.as_bytes());
    command.argument(Decimal::of(names.len() as u64).as_bytes());
    for name in names {
        command.argument(name);
    }
    for shape in shapes {
        command.argument(shape.as_bytes());
    }
    if !short {
        if let Some(places) = said {
            command.numbers(&places);
        }
        command.numbers(&plan);
        match clock {
            ScriptClock::Server => command.argument(b""),
            ScriptClock::Given(instant) => {
                command.argument(Decimal::of(instant.as_micros()).as_bytes());
            }
        }
    }
    command.0
}

/// The most that goes over the wire with an argument of fewer than 10,000 bytes: `$1234\r\n` and
/// `\r\n`. One that is longer makes the buffer grow.
const HEAD: usize = 9;

/// A command in the form it is sent in.
struct Encoded(Vec<u8>);

impl Encoded {
    fn head(&mut self, kind: u8, length: usize) {
        self.0.push(kind);
        self.0.extend_from_slice(Decimal::of(length as u64).as_bytes());
        self.0.extend_from_slice(b"\r\n");
    }

    fn argument(&mut self, bytes: &[u8]) {
        self.head(b'$', bytes.len());
        self.0.extend_from_slice(bytes);
        self.0.extend_from_slice(b"\r\n");
    }

    /// One argument of numbers of two bytes, high first.
    fn numbers(&mut self, numbers: &[u16]) {
        self.head(b'$', 2 * numbers.len());
        self.0.extend(numbers.iter().copied().flat_map(u16::to_be_bytes));
        self.0.extend_from_slice(b"\r\n");
    }
}

/// The keys of a batch, each once, and for each charge the number of its own, from 1. Told apart
/// here and not by the server, which has less time.
struct Keys<'q> {
    names: SmallVec<[&'q [u8]; 4]>,
    places: SmallVec<[u16; 4]>,
}

impl<'q> Keys<'q> {
    fn of(questions: &'q [Question], charges: usize) -> Self {
        let mut keys = Self {
            names: SmallVec::with_capacity(charges),
            places: SmallVec::with_capacity(charges),
        };
        // By hash, the numbers of names. Half of it stays empty, so looking for one is short.
        let mut numbers: SmallVec<[u16; 256]> = smallvec![0; (2 * charges).next_power_of_two()];
        let (most, hasher) = (numbers.len() - 1, &*HASHER);
        for (name, _) in questions.iter().flat_map(Question::charges) {
            let mut at = hasher.one(hasher.ends(name)) as usize & most;
            while numbers[at] != 0 && keys.names[usize::from(numbers[at]) - 1] != name {
                at = (at + 1) & most;
            }
            if numbers[at] == 0 {
                keys.names.push(name);
                numbers[at] = u16::try_from(keys.names.len()).expect("a batch has few charges");
            }
            keys.places.push(numbers[at]);
        }
        keys
    }
}

/// The number of a shape among those sent.
fn number_of<'q>(shape: &'q Shape, shapes: &mut Shapes<'q>) -> u16 {
    let latest = shapes.iter().enumerate().rev().take(SHAPES_LOOKED_AT);
    let known = latest.into_iter().find(|(_, known)| **known == shape);
    let number = known.map_or(shapes.len(), |(number, _)| number);
    if known.is_none() {
        shapes.push(shape);
    }
    let number = u16::try_from(number).ok().filter(|&number| number < TOGETHER);
    number.expect("a batch has at most 4,000 charges")
}

#[cfg(test)]
mod tests {
    use redis::{Value, parse_redis_value};
    use tollgate::{Algorithm, Charge, ChargeSet, Cost, Meter, Prefix};

    use super::*;

    fn question(charges: &[(&str, &str)]) -> Question {
        let mut set = ChargeSet::new();
        for (key, quota) in charges {
            let meter = Meter::new(quota.parse().expect("a quota"), Algorithm::TokenBucket);
            set.push(Charge::take(*key, meter.expect("it fits"), Cost::ONE)).expect("room");
        }
        Question::new(&Prefix::default(), &set, Timestamp::EPOCH)
    }

    /// The arguments of a command.
    fn arguments(command: &[u8]) -> Vec<Vec<u8>> {
        let Ok(Value::Array(values)) = parse_redis_value(command) else {
            panic!("{command:?} is no command");
        };
        let bytes = |value| match value {
            Value::BulkString(bytes) => bytes,
            other => panic!("{other:?} is no argument"),
        };
        values.into_iter().map(bytes).collect()
    }

    #[test]
    fn a_command_says_how_many_keys_it_has_and_what_is_asked_of_each() {
        let questions =
            [question(&[("a", "5/s"), ("b", "9/m")]), question(&[]), question(&[("c", "5/s")])];
        let clock = ScriptClock::Given(Timestamp::from_micros(1_234));
        let arguments = arguments(&encode(Form::Sha, clock, &questions));
        assert_eq!(arguments[0], b"EVALSHA");
        assert_eq!(arguments[2], b"3");
        assert_eq!(arguments[5], b"tollgate:{c}::tb");
        assert_eq!(arguments[6..8].iter().map(Vec::len).collect::<Vec<_>>(), [SHAPE; 2]);
        assert_eq!(arguments[8], [0, 1, 0, 2, 0, 3]);
        assert_eq!(arguments[9], [0x40, 0, 0x80, 1, 0x80, 0]);
        assert_eq!(arguments[10], b"1234");
        assert_eq!(arguments.len(), 11);
    }

    #[test]
    fn sets_that_are_alike_have_one_plan() {
        let alike =
            [question(&[("a", "5/s"), ("b", "9/m")]), question(&[("c", "5/s"), ("d", "9/m")])];
        let arguments = arguments(&encode(Form::Sha, ScriptClock::Server, &alike));
        assert_eq!(arguments[9], [0, 0, 0x80, 1]);
        assert_eq!(arguments[10], b"");
    }

    #[test]
    fn a_key_of_several_buckets_is_named_once() {
        let of = |key| question(&[(key, "5/s"), (key, "9/m")]);
        let command = arguments(&encode(Form::Sha, ScriptClock::Server, &[of("a"), of("b")]));
        assert_eq!(command[2], b"2");
        assert_eq!(command[7..], [&[0x20, 0, 0x80, 1][..], b""]);
        // Not where another set has it as well, or other buckets of it.
        let command = arguments(&encode(Form::Sha, ScriptClock::Server, &[of("a"), of("a")]));
        assert_eq!(command[2], b"1");
        assert_eq!(command[6..], [&[0, 1, 0, 1, 0, 1, 0, 1][..], &[0x40, 0, 0x80, 1], b""]);
        let other = question(&[("b", "9/m"), ("b", "5/s")]);
        let command = arguments(&encode(Form::Sha, ScriptClock::Server, &[of("a"), other]));
        assert_eq!(command[7], [0, 1, 0, 1, 0, 2, 0, 2]);
        assert_eq!(command[8], [0x40, 0, 0x80, 1, 0, 1, 0x80, 0]);
    }

    #[test]
    fn a_bucket_that_comes_again_is_named_once() {
        let again =
            [question(&[("a", "5/s")]), question(&[("b", "5/s")]), question(&[("a", "5/s")])];
        let command = arguments(&encode(Form::Sha, ScriptClock::Server, &again));
        assert_eq!(command[2], b"2");
        assert_eq!(command[6..], [&[0, 1, 0, 2, 0, 1][..], &[0xc0, 0], b""]);
        for charges in [2, 100, 1_000] {
            let names: Vec<String> = (0..charges).map(|number| format!("user {number}")).collect();
            let mut questions: Vec<Question> =
                names.iter().map(|name| question(&[(name, "5/s")])).collect();
            questions.push(question(&[("user 1", "5/s")]));
            let Keys { names, places } = Keys::of(&questions, charges + 1);
            assert_eq!((names.len(), places.len()), (charges, charges + 1));
            assert!(places[..charges].iter().copied().eq(1..=u16::try_from(charges).unwrap()));
            assert_eq!(places[charges], 2);
        }
    }

    #[test]
    fn the_usual_plan_goes_without_saying() {
        let usual = [question(&[("a", "5/s")]), question(&[("b", "5/s")])];
        assert_eq!(arguments(&encode(Form::Sha, ScriptClock::Server, &usual)).len(), 6);
        let given = ScriptClock::Given(Timestamp::EPOCH);
        assert_eq!(arguments(&encode(Form::Sha, given, &usual)).len(), 8);
    }
}
