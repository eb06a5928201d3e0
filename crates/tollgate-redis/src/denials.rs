//! What was refused a moment ago is refused again, without asking.
//!
//! Redis said of a charge that it does not fit, and when it would at the earliest. Until then the
//! same charge cannot fit whatever others take, so the answer is known. Only three things could make
//! it wrong: a refund, a reset, and another limit. A limit is part of what an entry is known by;
//! refunds and resets made in this process clear what they concern; those made by others are not
//! seen, which is why nothing is remembered for longer than [`LONGEST`].
//!
//! ```text
//! sent ──────────▶ decided by Redis ──────────▶ answer          sent + retry ≤ decided + retry
//!  └──────────────── remembered until sent + retry ──────────────────┘
//! ```
//!
//! How long it is remembered is counted from when the question was *sent*, so an entry ends a little
//! too early, never too late. What is said of the time left is counted from when the *answer* came,
//! so nobody is told to come back too early. Entries lie in [lines](mod@line) of four; a new one
//! takes the place of the one that ends first, so the whole never grows.

use tollgate::clock::monotonic;
use tollgate::{
    Charge, ChargeSet, Decision, Micros, Op, Outcome, Outcomes, Provenance, Reading, Retry,
    Timestamp, Verdict,
};

mod line;
mod name;

use line::{Denial, Line, NEVER, WAYS};
use name::{Name, Namer};

/// The longest a refusal is remembered, for refunds and resets elsewhere are not seen.
pub(crate) const LONGEST: Micros = Micros::from_secs(1);

/// How much readings of the clock may be out of order, in µs: several times as far as the steepest of its
/// lines and the next part while the first may still be read, a sixty-fourth of a second after its end.
const ASTRAY: u64 = 200;

/// What surely has passed when the clock says `span`, and passes on it before `span` has; in µs. The
/// clock errs by one in 256 and a few microseconds.
#[inline(always)]
const fn surely(span: u64) -> u64 {
    span.saturating_sub(span / 128 + 4)
}

/// Refusals remembered.
pub(crate) struct Denials {
    // A power of two of them.
    lines: Box<[Line]>,
    namer: Namer,
}

impl Denials {
    /// Room for about so many refusals.
    pub(crate) fn new(entries: usize) -> Self {
        let lines = entries.div_ceil(WAYS).next_power_of_two();
        let lines = std::iter::repeat_with(Line::default).take(lines).collect();
        Self { lines, namer: Namer::new() }
    }

    /// The refusal of a set of which a charge is known not to fit.
    #[inline]
    pub(crate) fn find(&self, set: &ChargeSet<'_>, now: Micros) -> Option<Decision> {
        match set.charges() {
            [charge] => self.find_one(charge, now),
            charges => self.find_among(charges, now.get()),
        }
    }

    /// The refusal of a set of this one charge.
    #[inline(always)]
    pub(crate) fn find_one(&self, charge: &Charge<'_>, now: Micros) -> Option<Decision> {
        let (at, outcome) = self.outcome(charge, now.get())?;
        Some(Decision::of_one(outcome, at, Provenance::DenyCache))
    }

    fn find_among(&self, charges: &[Charge<'_>], now: u64) -> Option<Decision> {
        if !charges.iter().all(takes) {
            return None;
        }
        let mut refused_at = None;
        let mut outcome = |charge: &Charge<'_>| match self.outcome(charge, now) {
            Some((at, outcome)) => {
                refused_at = Some(at);
                outcome
            }
            None => {
                Outcome { verdict: Verdict::Allow, enforcement: charge.enforcement, reading: None }
            }
        };
        let outcomes: Outcomes = charges.iter().map(&mut outcome).collect();
        Some(Decision::new(outcomes, refused_at?, Provenance::DenyCache))
    }

    /// Remembers what a store's decision, which has just come, on a question sent at `sent` refused.
    pub(crate) fn learn(&self, set: &ChargeSet<'_>, decision: &Decision, sent: Micros) {
        if decision.is_allowed() {
            return;
        }
        let (sent, answered) = (sent.get(), monotonic().get());
        for (charge, outcome) in set.charges().iter().zip(decision.outcomes()) {
            let (Some(name), Some(reading)) = (self.namer.name(charge), outcome.reading) else {
                continue;
            };
            let retry = match reading.retry {
                Retry::Now => continue,
                Retry::After(span) => span.get(),
                Retry::Never => NEVER,
            };
            let denial = Denial {
                name,
                until: sent + surely(retry.min(LONGEST.get())),
                answered,
                at: decision.at().as_micros(),
                capacity: reading.capacity,
                remaining: reading.remaining,
                retry,
                reset: reading.reset.get(),
            };
            self.line(name.bucket).insert(denial, sent);
        }
    }

    /// Forgets what is known of the buckets a set gives back to or resets.
    pub(crate) fn clear(&self, set: &ChargeSet<'_>) {
        let changed = |charge: &&Charge<'_>| matches!(charge.op, Op::Refund { .. } | Op::Reset);
        for charge in set.charges().iter().filter(changed) {
            let bucket = self.namer.bucket(charge);
            let concerned = |name: Name| name.bucket == bucket;
            self.line(bucket).clear(monotonic().get() + ASTRAY, concerned);
        }
    }

    /// Forgets everything.
    pub(crate) fn clear_all(&self) {
        for line in &self.lines {
            line.clear(monotonic().get() + ASTRAY, |_| true);
        }
    }

    #[inline(always)]
    fn outcome(&self, charge: &Charge<'_>, now: u64) -> Option<(Timestamp, Outcome)> {
        let name = self.namer.name(charge)?;
        let denial = self.line(name.bucket).find(name, now)?;
        let waited = surely(now.saturating_sub(denial.answered));
        let less = |span: u64| Micros::new(span.saturating_sub(waited));
        let retry = match denial.retry {
            NEVER => Retry::Never,
            span => Retry::After(less(span)),
        };
        let reading = Reading {
            capacity: denial.capacity,
            remaining: denial.remaining,
            reset: less(denial.reset),
            retry,
            // What is refused is neither held nor charged.
            delay: Micros::ZERO,
            units: 0,
        };
        let outcome = Outcome {
            verdict: Verdict::Deny,
            enforcement: charge.enforcement,
            reading: Some(reading),
        };
        Some((Timestamp::from_micros(denial.at) + Micros::new(waited), outcome))
    }

    #[inline]
    fn line(&self, bucket: u64) -> &Line {
        &self.lines[bucket as usize & (self.lines.len() - 1)]
    }
}

fn takes(charge: &Charge<'_>) -> bool {
    matches!(charge.op, Op::Take(_))
}
