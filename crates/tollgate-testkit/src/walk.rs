//! Walking a model along a trace: instants and units come out, with what a store should answer.

use proptest::test_runner::TestCaseResult;
use tollgate::{
    Algorithm, Ask, Cost, MAX_EXACT, Meter, Micros, Op, Quota, Reading, Retry, Timestamp, Verdict,
};

use crate::model::{Instants, Model};
use crate::trace::{Amount, Pause, Step, Trace};

/// A model on its way along a trace.
pub struct Walk<'t> {
    trace: &'t Trace,
    algorithm: Algorithm,
    model: Model,
    quota: Quota,
    // In µs.
    now: u64,
    // When something was taken, oldest first.
    takes: Vec<u64>,
    // The instant last promised to somebody refused, in µs.
    promised: u64,
    forgetful: bool,
}

/// One question, and the right answer to it.
#[derive(Debug)]
pub struct Turn<'w> {
    /// When it is asked.
    pub now: Timestamp,
    /// Under which quota.
    pub meter: Meter,
    /// What is asked.
    pub op: Op,
    /// Whether it fits.
    pub verdict: Verdict,
    /// The numbers to be answered.
    pub reading: Reading,
    /// The bucket before.
    pub before: &'w Model,
    /// The bucket after.
    pub after: &'w Model,
}

impl<'t> Walk<'t> {
    /// At the start of the trace, with a fresh bucket.
    pub fn new(algorithm: Algorithm, trace: &'t Trace) -> Self {
        Self {
            trace,
            algorithm,
            model: Model::fresh(algorithm),
            quota: trace.quotas[0],
            now: trace.start,
            takes: Vec::new(),
            promised: trace.start,
            forgetful: false,
        }
    }

    /// A walk for stores, which may drop a stale state at any time: once the bucket is stale, the
    /// clock does not step back to where it was not.
    pub fn forgetful(self) -> Self {
        Self { forgetful: true, ..self }
    }

    /// Goes to the end and calls `visit` at each question.
    pub fn run(mut self, mut visit: impl FnMut(&Turn<'_>) -> TestCaseResult) -> TestCaseResult {
        for step in &self.trace.steps {
            let op = match *step {
                Step::Take(amount) => Op::Take(Ask::exactly(self.cost(amount))),
                Step::Lease(one, two) => {
                    let (one, two) = (self.cost(one), self.cost(two));
                    let (min, max) = (one.min(two), one.max(two));
                    Op::Take(Ask { min, max })
                }
                Step::Peek(amount) => Op::Peek(self.cost(amount)),
                Step::Refund(ago, amount) => self.refund(ago, amount),
                Step::Reset => Op::Reset,
                Step::Pause(pause) => {
                    self.now = (self.now + self.span(pause)).min(Timestamp::MAX.as_micros() / 2);
                    continue;
                }
                Step::StepBack(pause) => {
                    self.step_back(self.span(pause));
                    continue;
                }
                Step::Change(index) => {
                    self.quota = self.trace.quotas[index % self.trace.quotas.len()];
                    continue;
                }
            };
            self.ask(op, &mut visit)?;
        }
        Ok(())
    }

    fn ask(
        &mut self,
        op: Op,
        visit: &mut impl FnMut(&Turn<'_>) -> TestCaseResult,
    ) -> TestCaseResult {
        let before = self.model.clone();
        let (verdict, reading) = self.answer(op);
        let meter = Meter::new(self.quota, self.algorithm).expect("traces have quotas that fit");
        visit(&Turn {
            now: Timestamp::from_micros(self.now),
            meter,
            op,
            verdict,
            reading,
            before: &before,
            after: &self.model,
        })
    }

    /// Carries `op` out on the model and says what a store should say.
    fn answer(&mut self, op: Op) -> (Verdict, Reading) {
        let (quota, now) = (self.quota, self.now);
        let (verdict, retry, delay, units) = match op {
            Op::Take(ask) => {
                let delay = self.model.delay(quota, now);
                match self.model.admit(quota, ask, now) {
                    Some(units) => {
                        self.takes.push(now);
                        (Verdict::Allow, Retry::Now, delay, units)
                    }
                    None => (Verdict::Deny, self.retry(ask.min), 0, 0),
                }
            }
            Op::Peek(cost) => match self.model.grant(quota, Ask::exactly(cost), now) {
                Some(_) => (Verdict::Allow, Retry::Now, self.model.delay(quota, now), 0),
                None => (Verdict::Deny, self.retry(cost), 0, 0),
            },
            Op::Refund { cost, at } => {
                let taken = at.as_micros();
                let back = self.model.refund(quota, cost, Instants { taken, now });
                (Verdict::Allow, Retry::Now, 0, back)
            }
            Op::Reset => {
                self.model = Model::fresh(self.algorithm);
                (Verdict::Allow, Retry::Now, 0, 0)
            }
        };
        let reading =
            Reading { retry, delay: Micros::new(delay), units, ..self.model.reading(quota, now) };
        (verdict, reading)
    }

    /// The promise to somebody refused.
    fn retry(&mut self, cost: Cost) -> Retry {
        match self.model.fits_at(self.quota, cost, self.now) {
            Some(instant) => {
                self.promised = instant;
                Retry::After(Micros::new(instant - self.now))
            }
            None => Retry::Never,
        }
    }

    fn refund(&self, ago: usize, amount: Amount) -> Op {
        let newest_first = self.takes.iter().rev();
        let at = newest_first.copied().nth(ago).unwrap_or(self.now);
        Op::Refund { cost: self.cost(amount), at: Timestamp::from_micros(at) }
    }

    fn step_back(&mut self, span: u64) {
        let earliest = match self.forgetful && self.model.is_stale(self.quota, self.now) {
            true => self.model.stale_at(self.quota),
            false => 0,
        };
        self.now = self.now.saturating_sub(span).max(earliest);
    }

    /// At least one unit, and within what a wire can say.
    fn cost(&self, amount: Amount) -> Cost {
        let capacity = self.quota.burst();
        let left = || self.model.remaining(self.quota, self.now);
        let units = match amount {
            Amount::Units(units) => units,
            Amount::Share(share) => (u128::from(capacity) * u128::from(share) / 256) as u64,
            Amount::Left => left(),
            Amount::Beyond => left() + 1,
            Amount::TooMuch => capacity + 1,
        };
        Cost::new(units.clamp(1, MAX_EXACT)).expect("at least one")
    }

    fn span(&self, pause: Pause) -> u64 {
        let period = self.quota.period().as_micros();
        let until = |instant: u64| instant.saturating_sub(self.now);
        match pause {
            Pause::Micros(micros) => micros,
            Pause::Share(share) => period / 256 * share,
            Pause::Promised(early) => until(self.promised).saturating_sub(early),
            Pause::Edge(early) => (period - self.now % period) - early,
            Pause::Clear(early) => {
                until(self.model.clear_at(self.quota, self.now)).saturating_sub(early)
            }
        }
    }
}
