//! A whole set decided on the states of its buckets: what every store does between reading and
//! writing.

use smallvec::SmallVec;

use super::{Ask, Delta, Evaluation, Standing, State};
use crate::charge::{Charge, ChargeSet, Enforcement, Op};
use crate::decision::{Decision, Outcome, Outcomes, Provenance, Reading, Retry, Verdict, refuses};
use crate::meter::Meter;
use crate::time::{Micros, Timestamp};

/// Decides `set` at `now` on the states of its buckets, which become what they are afterwards.
///
/// This is steps 2 to 5 of the [contract](crate::store), for a store that keeps its states somewhere
/// else and has to read a decision off them.
///
/// # Panics
///
/// If there are fewer states than charges.
pub fn decide(set: &ChargeSet<'_>, states: &mut [State], now: Timestamp) -> Decision {
    assert!(set.len() <= states.len(), "each charge has a state");
    let charges = set.charges().iter().zip(states.iter_mut());
    let mut members: SmallVec<[Member<'_>; 4]> = charges
        .map(|(charge, state)| {
            let fresh = State::fresh(charge.meter.algorithm());
            Member::new(charge, std::mem::replace(state, fresh), now)
        })
        .collect();
    let outcomes = carry_out(&mut members, now);
    for (state, member) in states.iter_mut().zip(members) {
        *state = member.state;
    }
    Decision::new(outcomes, now, Provenance::Store)
}

/// Judges a set by its members, makes the changes that follow, and reads the outcomes off.
pub(crate) fn carry_out(members: &mut [Member<'_>], now: Timestamp) -> Outcomes {
    let verdicts: Outcomes = members.iter().map(|member| member.outcome(now)).collect();
    let admitted = !(0..members.len()).any(|index| refuses(&verdicts, index));
    for member in members.iter_mut() {
        member.carry_out(admitted, now);
    }
    members.iter().map(|member| member.outcome(now)).collect()
}

/// One charge of a set, and its bucket.
pub(crate) struct Member<'a> {
    pub(crate) charge: &'a Charge<'a>,
    pub(crate) state: State,
    // Absent for refunds and resets, which always fit.
    evaluation: Option<Evaluation<Delta>>,
    // Units taken or given back.
    units: u64,
    /// Whether the state must be written.
    pub(crate) changed: bool,
}

impl<'a> Member<'a> {
    /// Evaluates a charge on its bucket's state.
    pub(crate) fn new(charge: &'a Charge<'a>, state: State, now: Timestamp) -> Self {
        let ask = match charge.op {
            Op::Take(ask) => Some(ask),
            Op::Peek(cost) => Some(Ask::exactly(cost)),
            Op::Refund { .. } | Op::Reset => None,
        };
        let evaluation = ask.map(|ask| state.evaluate(&charge.meter, ask, now));
        Self { charge, state, evaluation, units: 0, changed: false }
    }

    /// Makes the change a charge asks for, if it is to be made.
    fn carry_out(&mut self, admitted: bool, now: Timestamp) {
        let meter = &self.charge.meter;
        match (self.charge.op, self.evaluation) {
            (Op::Take(_), Some(Evaluation::Fits { units, delta, .. })) if admitted => {
                self.state.apply(delta);
                self.units = units;
                self.changed = true;
            }
            (Op::Take(_) | Op::Peek(_), _) => {}
            (Op::Refund { cost, at }, _) => {
                self.units = self.state.refund(meter, cost, at, now);
                self.changed = self.units > 0;
            }
            (Op::Reset, _) => {
                self.state = State::fresh(meter.algorithm());
                self.changed = true;
            }
        }
    }

    /// The outcome as things stand.
    fn outcome(&self, now: Timestamp) -> Outcome {
        let (verdict, retry, delay) = match self.evaluation {
            Some(evaluation) => evaluation.verdict(),
            None => (Verdict::Allow, Retry::Now, Micros::ZERO),
        };
        let standing = self.state.standing(&self.charge.meter, now);
        let reading = reading(&self.charge.meter, standing, retry, delay, self.units);
        outcome(self.charge.enforcement, verdict, reading)
    }
}

#[inline(always)]
pub(crate) fn reading(
    meter: &Meter,
    standing: Standing,
    retry: Retry,
    delay: Micros,
    units: u64,
) -> Reading {
    Reading {
        capacity: meter.capacity(),
        remaining: standing.remaining,
        reset: standing.reset,
        retry,
        delay,
        units,
    }
}

#[inline(always)]
pub(crate) fn outcome(enforcement: Enforcement, verdict: Verdict, reading: Reading) -> Outcome {
    Outcome { verdict, enforcement, reading: Some(reading) }
}
