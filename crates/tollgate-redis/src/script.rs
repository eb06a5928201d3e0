//! The script, and the command that has it decide a batch of questions.

use std::sync::LazyLock;

use redis::Cmd;
use smallvec::SmallVec;
use tollgate::Timestamp;

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

/// How many of the latest shapes a new charge's is looked for among. One that is sent twice costs a
/// little; looking through all would cost more where they are many.
const SHAPES_LOOKED_AT: usize = 8;

/// Marks the last charge of a set.
const LAST: u16 = 1 << 15;

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

/// The command that decides these questions in their order, each all or nothing.
pub(crate) fn command<'q>(
    form: Form,
    clock: ScriptClock,
    questions: impl IntoIterator<Item = &'q Question>,
) -> Cmd {
    let (mut plan, mut names) = (SmallVec::<[u16; 4]>::new(), SmallVec::<[&[u8]; 4]>::new());
    let mut shapes = Shapes::new();
    for question in questions {
        for (name, shape) in question.charges() {
            names.push(name);
            plan.push(number_of(shape, &mut shapes));
        }
        // A set without charges leaves no trace, and needs no deciding.
        if let (Some(last), true) = (plan.last_mut(), question.len() > 0) {
            *last |= LAST;
        }
    }
    // Most sets of a batch are alike, and then what is true of the first is said once.
    let set = plan.iter().position(|step| step & LAST != 0).map_or(0, |last| last + 1);
    if set > 0 && plan.chunks(set).all(|steps| *steps == plan[..set]) {
        plan.truncate(set);
    }
    let text = if form == Form::Text { TEXT.len() } else { DIGEST.len() };
    let bytes: usize = names.iter().map(|name| name.len()).sum();
    let bytes = text + bytes + 2 * plan.len() + SHAPE * shapes.len() + 64;
    let mut command = Cmd::with_capacity(names.len() + shapes.len() + 5, bytes);
    match form {
        Form::Sha => command.arg("EVALSHA").arg(DIGEST.as_str()),
        Form::Text => command.arg("EVAL").arg(TEXT),
    };
    command.arg(names.len());
    for name in names {
        command.arg(name);
    }
    match clock {
        ScriptClock::Server => command.arg(""),
        ScriptClock::Given(instant) => command.arg(instant.as_micros()),
    };
    let plan: SmallVec<[u8; 8]> = plan.into_iter().flat_map(u16::to_be_bytes).collect();
    command.arg(&plan[..]);
    for shape in shapes {
        command.arg(shape.as_bytes());
    }
    command
}

/// The number of a shape among those sent.
fn number_of<'q>(shape: &'q Shape, shapes: &mut Shapes<'q>) -> u16 {
    let latest = shapes.iter().enumerate().rev().take(SHAPES_LOOKED_AT);
    let known = latest.into_iter().find(|(_, known)| **known == shape);
    let number = known.map_or(shapes.len(), |(number, _)| number);
    if known.is_none() {
        shapes.push(shape);
    }
    u16::try_from(number).expect("a batch has far fewer charges than 2^15")
}
