//! When the turn of a call comes.

use http::request::Parts;
use tokio::time::Instant;
use tollgate::{Admission, Algorithm, Enforcement, Micros, Rule, Store};

use super::future::TurnedAway;
use super::layer::Desk;

impl<S: Store + 'static> Desk<S> {
    /// Turns a call away whose turn is too far off, before it takes a place in a queue it will not
    /// wait in: a leaky bucket takes none back. Between this and the taking others may come; then it
    /// waits for as much longer as their turns take.
    pub(super) async fn look_ahead(
        &self,
        request: &Parts,
        start: Instant,
    ) -> Result<(), TurnedAway> {
        let gate = &self.reception.gate;
        let queues = |rule: &Rule| rule.metered_by() == Algorithm::LeakyBucket;
        if !gate.policy().rules().any(queues) {
            return Ok(());
        }
        let turn = in_queues(&self.reception.preview(request).await);
        match turn > self.time_left(start) {
            true => Err(TurnedAway::Until(turn.into())),
            false => Ok(()),
        }
    }
}

/// How far off the turn of a call is for those queues that it stands in or would: where it fits, its
/// delay; and where even the queue is full, as long as it takes those in it.
fn in_queues(preview: &Admission) -> Micros {
    if preview.is_allowed() {
        return preview.delay();
    }
    let full = preview.charges().filter(|(_, charge, outcome)| {
        charge.meter.algorithm() == Algorithm::LeakyBucket
            && outcome.enforcement == Enforcement::Enforce
            && !outcome.verdict.is_allow()
    });
    let resets = full.filter_map(|(.., outcome)| Some(outcome.reading?.reset));
    resets.max().unwrap_or_default()
}
