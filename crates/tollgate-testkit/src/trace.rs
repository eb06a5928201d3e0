//! Random traces that go where limiters break: exactly to a promised instant and one microsecond
//! before it, to window edges, to the last unit and one beyond, back in time, and through changes
//! of the limit.
//!
//! A trace says what to do in terms of where the bucket stands ("all that is left", "until the
//! promised instant"), so a short one goes a long way. [`Walk`](crate::walk::Walk) turns it into
//! instants and units.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence, TestCaseResult, TestRunner};
use tollgate::{Algorithm, Meter, Micros, Period, Quota};

/// What happens to one bucket.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The first instant, in µs.
    pub start: u64,
    /// The quotas, all of one period; the first is in force at the start.
    pub quotas: Vec<Quota>,
    /// What happens, in order.
    pub steps: Vec<Step>,
}

/// One thing that happens.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Somebody wants so much.
    Take(Amount),
    /// A lease wants as much as there is of the larger, but at least the smaller.
    Lease(Amount, Amount),
    /// Somebody looks.
    Peek(Amount),
    /// So much of the decision this many takes ago is given back.
    Refund(usize, Amount),
    /// The bucket is forgotten.
    Reset,
    /// Time passes.
    Pause(Pause),
    /// The clock steps back.
    StepBack(Pause),
    /// The quota of this number comes into force.
    Change(usize),
}

/// Units, relative to where the bucket stands.
#[derive(Clone, Copy, Debug)]
pub enum Amount {
    /// So many.
    Units(u64),
    /// So many 256ths of the capacity.
    Share(u64),
    /// All that is left.
    Left,
    /// One more than is left.
    Beyond,
    /// More than the bucket can ever hold.
    TooMuch,
}

/// A span of time, relative to where the bucket stands.
#[derive(Clone, Copy, Debug)]
pub enum Pause {
    /// So many microseconds.
    Micros(u64),
    /// So many 256ths of a period.
    Share(u64),
    /// Until the instant last promised, or this many microseconds before it.
    Promised(u64),
    /// Until the next window edge, or this many microseconds before it.
    Edge(u64),
    /// Until the bucket is as good as fresh, or this many microseconds before it.
    Clear(u64),
}

/// What may happen in a trace beyond taking, looking and waiting.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shape {
    /// Limits and bursts change.
    pub changes: bool,
    /// Units are given back.
    pub refunds: bool,
    /// The clock steps back.
    pub steps_back: bool,
}

impl Shape {
    /// Everything that can happen.
    pub const ALL: Self = Self { changes: true, refunds: true, steps_back: true };
}

/// Random traces for an algorithm.
pub fn traces(algorithm: Algorithm, shape: Shape) -> impl Strategy<Value = Trace> {
    let start = prop_oneof![
        1 => 0..10_000_000_u64,
        4 => 1_700_000_000_000_000..1_700_100_000_000_000_u64,
    ];
    let steps = vec(step(shape), 10..40);
    (start, quotas(algorithm, shape.changes), steps).prop_map(|(start, quotas, steps)| Trace {
        start,
        quotas,
        steps,
    })
}

/// Random quotas of one period that the algorithm can meter; one, or as many as a trace changes
/// between.
pub fn quotas(algorithm: Algorithm, changes: bool) -> impl Strategy<Value = Vec<Quota>> {
    let count = if changes { 2..4_usize } else { 1..2 };
    let numbers = vec((limit(), prop::option::of(limit())), count);
    (period(), numbers).prop_map(move |(period, numbers)| {
        let fit = |(limit, burst)| fitting(algorithm, period, limit, burst);
        numbers.into_iter().map(fit).collect()
    })
}

/// Runs `test` on `cases` random inputs; what failed before, written down in `regressions` (a path
/// within the package), comes first.
///
/// # Panics
///
/// If one of them fails, with the smallest such input.
pub fn check<S: Strategy>(
    cases: u32,
    regressions: &'static str,
    inputs: &S,
    test: impl Fn(S::Value) -> TestCaseResult,
) {
    let mut runner = TestRunner::new(Config {
        cases,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(regressions))),
        ..Config::default()
    });
    if let Err(failure) = runner.run(inputs, test) {
        panic!("{failure}");
    }
}

/// From one unit to more than most algorithms take, small ones most often.
fn limit() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 1..=5_u64,
        4 => 1..=100_u64,
        2 => 1..=10_000_u64,
        1 => 1..=100_000_000_u64,
        1 => 1..=Quota::MAX_LIMIT,
    ]
}

/// Round periods, and some that no limit divides.
fn period() -> impl Strategy<Value = Period> {
    let micros = prop_oneof![
        1 => Just(1_000_u64),
        3 => Just(1_000_000),
        3 => Just(60_000_000),
        1 => Just(86_400_000_000),
        1 => Just(7 * 86_400_000_000),
        1 => Just(1_000_003),
        2 => 1_000..=100_000_u64,
        2 => 1_000..=30 * 86_400_000_000_u64,
    ];
    micros.prop_map(|micros| Period::new(Micros::new(micros)).expect("between 1 ms and 10 years"))
}

/// The nearest quota to these numbers that the algorithm can meter: halved until it fits.
fn fitting(algorithm: Algorithm, period: Period, limit: u64, burst: Option<u64>) -> Quota {
    let bucket = matches!(algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket);
    let (mut limit, mut burst) = (limit, burst.filter(|_| bucket));
    loop {
        let quota = Quota::new(limit, period).expect("limits are in range");
        let quota = burst.map_or(quota, |burst| quota.with_burst(burst).expect("so are bursts"));
        if Meter::new(quota, algorithm).is_ok() {
            return quota;
        }
        match &mut burst {
            Some(burst) if *burst > 1 => *burst /= 2,
            _ => limit = (limit / 2).max(1),
        }
    }
}

fn step(shape: Shape) -> impl Strategy<Value = Step> {
    let odds = |wanted: bool, odds: u32| if wanted { odds } else { 0 };
    // One of weight zero is never chosen.
    prop_oneof![
        12 => amount().prop_map(Step::Take),
        1 => (amount(), amount()).prop_map(|(one, two)| Step::Lease(one, two)),
        1 => amount().prop_map(Step::Peek),
        8 => pause().prop_map(Step::Pause),
        odds(shape.refunds, 3) => (0..4_usize, amount()).prop_map(|(ago, amount)| Step::Refund(ago, amount)),
        odds(shape.refunds, 1) => Just(Step::Reset),
        odds(shape.steps_back, 2) => pause().prop_map(Step::StepBack),
        odds(shape.changes, 3) => (0..4_usize).prop_map(Step::Change),
    ]
}

/// Random amounts.
pub fn amount() -> impl Strategy<Value = Amount> {
    prop_oneof![
        4 => (1..=4_u64).prop_map(Amount::Units),
        4 => (1..=256_u64).prop_map(Amount::Share),
        3 => Just(Amount::Left),
        3 => Just(Amount::Beyond),
        1 => Just(Amount::TooMuch),
    ]
}

/// Random spans of time.
pub fn pause() -> impl Strategy<Value = Pause> {
    prop_oneof![
        2 => (0..=3_u64).prop_map(Pause::Micros),
        2 => (0..=10_000_000_u64).prop_map(Pause::Micros),
        4 => (1..=256_u64).prop_map(Pause::Share),
        1 => (256..=1_024_u64).prop_map(Pause::Share),
        5 => (0..=1_u64).prop_map(Pause::Promised),
        3 => (0..=1_u64).prop_map(Pause::Edge),
        2 => (0..=1_u64).prop_map(Pause::Clear),
    ]
}
