//! When the turn of a call comes.

use http::request::Parts;
use tokio::time::Instant;
use tollgate::{Admission, Algorithm, Costs, Enforcement, Micros, Store, Subject};

use super::future::TurnedAway;
use super::layer::Desk;
use crate::axes::Client;

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
        let queues = |rule: &tollgate::Rule| rule.metered_by() == Algorithm::LeakyBucket;
        if !gate.policy().rules().any(queues) {
            return Ok(());
        }
        let axes = &self.reception.axes;
        let looked_up = axes.look_all_up(request).await;
        // A call that goes out has no client but this process.
        let (client, found) = (Client::default(), axes.find_all(request));
        let mut subject = Subject::new();
        axes.describe(&mut subject, request, &client);
        subject.extend(found.iter().map(|(axis, value)| (*axis, &**value)));
        subject.extend(looked_up.iter().map(|(axis, value)| (*axis, value.as_str())));
        let mut costs = Costs::default();
        for (unit, cost_of) in &self.reception.costs {
            if let Some(cost) = cost_of(request) {
                costs = costs.with(unit, cost);
            }
        }
        let turn = in_queues(&gate.peek(&subject, &costs).await);
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
