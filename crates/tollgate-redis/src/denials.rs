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
//! so nobody is told to come back too early. Entries lie in lines of four, each behind a lock of its own; a new one takes the place of
//! the one that ends first, so the whole never grows.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ahash::RandomState;
use tollgate::{
    Ask, Charge, ChargeSet, Decision, Enforcement, Micros, Op, Outcome, Outcomes, Provenance,
    Reading, Retry, Timestamp, Verdict,
};

/// The longest a refusal is remembered, for refunds and resets elsewhere are not seen.
pub(crate) const LONGEST: Duration = Duration::from_secs(1);

/// Entries that share a lock.
const WAYS: usize = 4;

/// Refusals remembered.
pub(crate) struct Denials {
    lines: Box<[Mutex<Line>]>,
    // Two independent keyed hashes: 128 bits nobody outside can aim at.
    hashers: [RandomState; 2],
}

struct Line {
    denials: [Option<Denial>; WAYS],
    // A question sent before may have been answered out of a state that is gone.
    cleared: Option<Instant>,
}

#[derive(Clone, Copy)]
struct Denial {
    name: Name,
    sent: Instant,
    answered: Instant,
    until: Instant,
    at: Timestamp,
    reading: Reading,
}

/// What a charge is known by: its bucket, and the bucket with limit and cost.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Name {
    bucket: u64,
    terms: u64,
}

impl Denials {
    /// Room for about so many refusals.
    pub(crate) fn new(entries: usize) -> Self {
        let line = || Mutex::new(Line { denials: [None; WAYS], cleared: None });
        let lines = entries.div_ceil(WAYS).next_power_of_two();
        let hashers = [RandomState::new(), RandomState::new()];
        Self { lines: std::iter::repeat_with(line).take(lines).collect(), hashers }
    }

    /// The refusal of a set of which a charge is known not to fit.
    pub(crate) fn find(&self, set: &ChargeSet<'_>, now: Instant) -> Option<Decision> {
        match set.charges() {
            [charge] => self
                .outcome(charge, now)
                .map(|(at, outcome)| Decision::new(outcome.into(), at, Provenance::DenyCache)),
            charges if charges.iter().all(takes) => self.find_among(charges, now),
            _ => None,
        }
    }

    fn find_among(&self, charges: &[Charge<'_>], now: Instant) -> Option<Decision> {
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
    pub(crate) fn learn(&self, set: &ChargeSet<'_>, decision: &Decision, sent: Instant) {
        if decision.is_allowed() {
            return;
        }
        let answered = Instant::now();
        for (charge, outcome) in set.charges().iter().zip(decision.outcomes()) {
            let (Some(name), Some(reading)) = (self.name(charge), outcome.reading) else {
                continue;
            };
            let span = match reading.retry {
                Retry::Now => continue,
                Retry::After(span) => Duration::from(span).min(LONGEST),
                Retry::Never => LONGEST,
            };
            let until = sent + span;
            let at = decision.at();
            self.line(name).insert(Denial { name, sent, answered, until, at, reading });
        }
    }

    /// Forgets what is known of the buckets a set gives back to or resets.
    pub(crate) fn clear(&self, set: &ChargeSet<'_>) {
        let changed = |charge: &&Charge<'_>| matches!(charge.op, Op::Refund { .. } | Op::Reset);
        for charge in set.charges().iter().filter(changed) {
            let bucket = self.bucket(charge);
            self.line_of(bucket).clear(|denial| denial.name.bucket == bucket);
        }
    }

    /// Forgets everything.
    pub(crate) fn clear_all(&self) {
        for line in &self.lines {
            lock(line).clear(|_| true);
        }
    }

    fn outcome(&self, charge: &Charge<'_>, now: Instant) -> Option<(Timestamp, Outcome)> {
        let name = self.name(charge)?;
        let line = self.line(name);
        let denial = line.find(name, now)?;
        let waited = Micros::from(now.saturating_duration_since(denial.answered));
        let less = |span: Micros| Micros::new(span.get().saturating_sub(waited.get()));
        let retry = match denial.reading.retry {
            Retry::After(span) => Retry::After(less(span)),
            other => other,
        };
        let reading = Reading { retry, reset: less(denial.reading.reset), ..denial.reading };
        let outcome = Outcome {
            verdict: Verdict::Deny,
            enforcement: charge.enforcement,
            reading: Some(reading),
        };
        Some((denial.at + waited, outcome))
    }

    /// The name of a charge whose refusal is worth remembering: one that takes and is enforced.
    fn name(&self, charge: &Charge<'_>) -> Option<Name> {
        let Op::Take(Ask { min, max }) = charge.op else {
            return None;
        };
        if charge.enforcement != Enforcement::Enforce {
            return None;
        }
        let terms = self.hashers[1].hash_one((&charge.key, charge.meter.quota(), min, max));
        Some(Name { bucket: self.bucket(charge), terms })
    }

    fn bucket(&self, charge: &Charge<'_>) -> u64 {
        let (algorithm, period) = (charge.meter.algorithm(), charge.meter.period());
        self.hashers[0].hash_one((&charge.key, algorithm, period))
    }

    fn line(&self, name: Name) -> MutexGuard<'_, Line> {
        self.line_of(name.bucket)
    }

    fn line_of(&self, bucket: u64) -> MutexGuard<'_, Line> {
        // The number of lines is a power of two.
        lock(&self.lines[bucket as usize & (self.lines.len() - 1)])
    }
}

impl Line {
    fn find(&self, name: Name, now: Instant) -> Option<&Denial> {
        let known = self.denials.iter().flatten().find(|denial| denial.name == name)?;
        (now < known.until).then_some(known)
    }

    fn insert(&mut self, denial: Denial) {
        if self.cleared.is_some_and(|cleared| denial.sent <= cleared) {
            return;
        }
        let same = |known: &Option<Denial>| known.is_some_and(|known| known.name == denial.name);
        let ends = |known: &Option<Denial>| known.map(|known| known.until);
        let place = self.denials.iter().position(same);
        let place = place.or_else(|| (0..WAYS).min_by_key(|&place| ends(&self.denials[place])));
        if let Some(place) = place {
            self.denials[place] = Some(denial);
        }
    }

    fn clear(&mut self, concerned: impl Fn(&Denial) -> bool) {
        self.cleared = Some(Instant::now());
        for place in &mut self.denials {
            if place.as_ref().is_some_and(&concerned) {
                *place = None;
            }
        }
    }
}

fn takes(charge: &Charge<'_>) -> bool {
    matches!(charge.op, Op::Take(_))
}

/// Nothing panics while holding the lock, and what it guards is never half written.
fn lock(line: &Mutex<Line>) -> MutexGuard<'_, Line> {
    line.lock().unwrap_or_else(PoisonError::into_inner)
}
