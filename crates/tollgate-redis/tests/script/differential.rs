//! The same trace gives the same decisions in Redis as in memory, bit for bit.

use std::sync::atomic::{AtomicU64, Ordering};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestCaseResult};
use tollgate::algorithm::{State, decide};
use tollgate::{
    Algorithm, Charge, ChargeSet, Decision, ManualClock, MemoryStore, Meter, Timestamp,
};
use tollgate_redis::bare::{Bare, Batch};
use tollgate_testkit::redis::Server;
use tollgate_testkit::trace::{Shape, Trace, check, traces};
use tollgate_testkit::walk::Walk;

use crate::composites::composites;
use crate::server::bare;

/// Traces of each kind, and how many are sent at once.
const TRACES: usize = 10_000;
const AT_ONCE: usize = 20;

const REGRESSIONS: &str = "tests/proptest-regressions/differential.txt";

#[test]
fn fixed_window_is_the_same_in_redis() {
    is_the_same(Algorithm::FixedWindow);
}

#[test]
fn sliding_log_is_the_same_in_redis() {
    is_the_same(Algorithm::SlidingLog);
}

#[test]
fn sliding_window_is_the_same_in_redis() {
    is_the_same(Algorithm::SlidingWindow);
}

#[test]
fn token_bucket_is_the_same_in_redis() {
    is_the_same(Algorithm::TokenBucket);
}

#[test]
fn leaky_bucket_is_the_same_in_redis() {
    is_the_same(Algorithm::LeakyBucket);
}

#[test]
fn composites_are_the_same_in_redis() {
    hold(composites(), |composite| composite.walk(&unused()));
}

fn is_the_same(algorithm: Algorithm) {
    hold(traces(algorithm, Shape::ALL), |trace| walked(algorithm, trace));
}

/// One question of a trace.
pub(crate) struct Question {
    pub(crate) now: Timestamp,
    pub(crate) set: ChargeSet<'static>,
    /// What the pure algorithms say, if they were asked.
    pub(crate) expected: Option<Decision>,
}

/// Walks random traces, and puts their questions to the pure algorithms, to a memory store and to
/// the script. In the end every key has a lifetime.
fn hold<S: Strategy>(traces: S, questions: impl Fn(&S::Value) -> Vec<Question>) {
    let server = Server::start();
    let bare = bare(&server);
    let cases = u32::try_from(TRACES / AT_ONCE).expect("a few hundred");
    check(cases, REGRESSIONS, &vec(traces, AT_ONCE), |traces| {
        let walked: Vec<Vec<Question>> = traces.iter().map(&questions).collect();
        agree(&bare, &walked)
    });
    assert_eq!(server.keys_without_expiry(), [""; 0]);
}

/// A key nobody has used.
fn unused() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("trace {}", NEXT.fetch_add(1, Ordering::Relaxed))
}

fn walked(algorithm: Algorithm, trace: &Trace) -> Vec<Question> {
    let (key, mut questions) = (unused(), Vec::new());
    let walk = Walk::new(algorithm, trace).forgetful().run(|turn| {
        let charge = Charge::new(key.clone(), turn.meter, turn.op);
        questions.push(Question { now: turn.now, set: ChargeSet::of(charge), expected: None });
        Ok(())
    });
    walk.expect("nothing to fail at");
    questions
}

fn agree(bare: &Bare, traces: &[Vec<Question>]) -> TestCaseResult {
    let mut batches = Vec::new();
    for questions in traces {
        // What is asked at one instant goes in one call.
        batches.extend(questions.chunk_by(|one, two| one.now == two.now));
    }
    let sets: Vec<Vec<ChargeSet<'_>>> =
        batches.iter().map(|batch| batch.iter().map(|one| one.set.clone()).collect()).collect();
    let asked: Vec<Batch<'_, '_>> = sets
        .iter()
        .zip(&batches)
        .map(|(sets, batch)| Batch { at: Some(batch[0].now), sets })
        .collect();
    let answers = bare.decide_batches(&asked).map_err(|error| {
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        TestCaseError::fail(format!("{error}: {cause:?}"))
    })?;
    let mut answers = answers.into_iter().flatten();
    for questions in traces {
        for (question, expected) in questions.iter().zip(in_memory(questions)) {
            let pure = question.expected.as_ref().unwrap_or(&expected);
            prop_assert_eq!(pure, &expected, "the memory store at {:?}", question.now);
            let answer = answers.next();
            prop_assert_eq!(answer, Some(expected), "at {:?}: {:?}", question.now, question.set);
        }
    }
    prop_assert_eq!(answers.next(), None);
    Ok(())
}

fn in_memory(questions: &[Question]) -> Vec<Decision> {
    let clock = ManualClock::default();
    let store = MemoryStore::builder().max_keys(64).build_with_clock(clock.clone());
    let decide = |question: &Question| {
        clock.set(question.now);
        store.take_set(&question.set)
    };
    questions.iter().map(decide).collect()
}

/// Buckets and their states by the pure algorithms, for traces that depend on how those stand.
pub(crate) struct Pure(Vec<(String, Meter, State)>);

impl Pure {
    pub(crate) fn new() -> Self {
        Self(Vec::new())
    }

    /// The state of a bucket.
    pub(crate) fn state(&self, key: &str, meter: &Meter) -> State {
        let known = self.0.iter().find(|(name, other, _)| {
            name == key
                && other.algorithm() == meter.algorithm()
                && other.period() == meter.period()
        });
        known.map_or_else(|| State::fresh(meter.algorithm()), |(_, _, state)| state.clone())
    }

    /// Decides a set.
    pub(crate) fn decide(&mut self, set: &ChargeSet<'_>, now: Timestamp) -> Decision {
        let charges = set.charges().iter();
        let named = |charge: &Charge<'_>| charge.key.to_string();
        let mut states: Vec<State> =
            charges.clone().map(|charge| self.state(&named(charge), &charge.meter)).collect();
        let decision = decide(set, &mut states, now);
        for (charge, state) in charges.zip(states) {
            let name = named(charge);
            self.0.retain(|(other, meter, _)| {
                *other != name
                    || meter.algorithm() != charge.meter.algorithm()
                    || meter.period() != charge.meter.period()
            });
            self.0.push((name, charge.meter, state));
        }
        decision
    }

    /// Forgets a bucket.
    pub(crate) fn forget(&mut self, key: &str, meter: &Meter) {
        self.0.retain(|(name, other, _)| name != key || other.period() != meter.period());
    }

    /// The earliest instant a clock may step back to from `now` if stale buckets may have been
    /// forgotten.
    pub(crate) fn earliest(&self, now: u64) -> u64 {
        let stale_at = self.0.iter().map(|(_, meter, state)| state.stale_at(meter));
        stale_at.filter(|&instant| instant <= now).max().unwrap_or(0)
    }
}
