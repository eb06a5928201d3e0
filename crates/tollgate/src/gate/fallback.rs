//! Deciding without the store.
//!
//! Every charge answers as its rule says: `Deny` as if it did not fit, `Allow` as if it did, `Local`
//! by the local store. The set is then judged as always: one enforced charge that does not fit
//! refuses it, a group only if none of it fits. Nothing is taken locally from a refused set.

use smallvec::SmallVec;

use super::Local;
use crate::algorithm::Ask;
use crate::charge::{Charge, ChargeSet, Enforcement, Op};
use crate::decision::{Decision, Outcome, Provenance, Verdict};
use crate::meter::Meter;
use crate::policy::Fallback;
use crate::time::Timestamp;

/// The fallback of every charge of a set.
pub(super) type Fallbacks = SmallVec<[Fallback; 4]>;

/// Decides a set by its rules' fallbacks.
pub(super) fn decide(set: &ChargeSet<'_>, fallbacks: &Fallbacks, local: &Local) -> Decision {
    let pairs = || set.charges().iter().zip(fallbacks);
    let mut outcomes: Vec<Outcome> = pairs().map(|(charge, &by)| assumed(charge, by)).collect();
    // Refused even if everything local fits: then nothing local may be taken.
    let refused = !Decision::new(outcomes.clone().into(), Timestamp::EPOCH, Provenance::Fallback)
        .is_allowed();
    let excused = |charge: &Charge<'_>| {
        matches!(charge.enforcement, Enforcement::AnyOf(_))
            && pairs().any(|(other, &by)| {
                by == Fallback::Allow && other.enforcement == charge.enforcement
            })
    };

    let mut asked = ChargeSet::new();
    for (charge, _) in pairs().filter(|(_, by)| **by == Fallback::Local) {
        let mut charge = Charge { meter: local.share_of(charge), ..charge.clone() };
        if let (true, Op::Take(ask)) = (refused, charge.op) {
            charge.op = Op::Peek(ask.max);
        }
        if excused(&charge) {
            charge.enforcement = Enforcement::Shadow;
        }
        // It came out of a set in which nothing conflicted, and there is room for as many.
        let pushed = asked.push(charge);
        debug_assert!(pushed.is_ok(), "{pushed:?}");
    }
    let answer = local.store.take_set(&asked);
    let places = (0..fallbacks.len()).filter(|&place| fallbacks[place] == Fallback::Local);
    for (place, known) in places.zip(answer.outcomes()) {
        outcomes[place] = Outcome { enforcement: outcomes[place].enforcement, ..*known };
    }
    Decision::new(outcomes.into(), answer.at(), Provenance::Fallback)
}

impl Local {
    /// The meter a charge goes by here: this gate's share of the quota.
    ///
    /// A request that asks for more than the share, but for no more than the quota, is not told that
    /// it can never fit: it goes by the whole quota. So it can be granted once by each gate.
    fn share_of(&self, charge: &Charge<'_>) -> Meter {
        let whole = charge.meter;
        let share = Meter::new(whole.quota().divided_by(self.replicas), whole.algorithm());
        match (share, charge.op) {
            (Ok(share), Op::Take(Ask { min: cost, .. }) | Op::Peek(cost)) => {
                if cost.get() <= share.capacity() { share } else { whole }
            }
            (Ok(share), Op::Refund { .. } | Op::Reset) => share,
            // A share so small that its bucket would take a century to refill.
            (Err(_), _) => whole,
        }
    }
}

/// A charge's outcome before the local store was asked, which is taken to say yes.
fn assumed(charge: &Charge<'_>, by: Fallback) -> Outcome {
    let verdict = match by {
        Fallback::Allow | Fallback::Local => Verdict::Allow,
        Fallback::Deny => Verdict::Deny,
    };
    Outcome { verdict, enforcement: charge.enforcement, reading: None }
}
