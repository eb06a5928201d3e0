//! When the turn of a call comes.

use std::time::Duration;

use http::request::Parts;
use tokio::time::{Instant, timeout};
use tollgate::{Admission, Algorithm, Enforcement, Micros, Retry, Rule, Store};

use super::future::TurnedAway;
use super::layer::Desk;
use super::line::First;
use crate::waiters::Place;

/// So much longer a call stands in line than it may wait: its turn may come in the very last moment, and that
/// of others with it.
const LAST_MOMENT: Duration = Duration::from_millis(5);

/// What a call may ask with.
#[derive(Default)]
pub(super) struct Turn {
    /// Nobody else who is counted alike asks meanwhile.
    pub(super) first: Option<First>,
    /// Its place among those who wait, if it had to.
    pub(super) place: Option<Place>,
}

impl<S: Store + 'static> Desk<S> {
    /// Has a call stand in line until it is the first. It is turned away if its turn is too far off.
    pub(super) async fn line_up(
        &self,
        request: &Parts,
        start: Instant,
    ) -> Result<Turn, TurnedAway> {
        let promises = |rule: &Rule| rule.metered_by() == Algorithm::LeakyBucket;
        if self.reception.gate.policy().rules().any(promises) {
            return self.look_ahead(request, start).await.map(|()| Turn::default());
        }
        let name = self.reception.counted_by(request).await;
        let standing = match self.lines.join(&name).step_up() {
            Ok(first) => return Ok(Turn { first: Some(first), place: None }),
            Err(standing) => standing,
        };
        let turn = behind(&self.reception.preview(request).await, standing.ahead);
        if turn > self.time_left(start) {
            return Err(TurnedAway::Until(turn.into()));
        }
        let place = self.reception.waiters.enter().ok_or(TurnedAway::Crowded)?;
        let ahead = standing.ahead;
        let patience = Duration::from(self.time_left(start)) + LAST_MOMENT;
        match timeout(patience, standing.wait()).await {
            Ok(first) => Ok(Turn { first: Some(first), place: Some(place) }),
            Err(_) => {
                // Those ahead took longer than they had to.
                let turn = behind(&self.reception.preview(request).await, ahead);
                Err(TurnedAway::Until(turn.into()))
            }
        }
    }

    /// Turns a call away whose turn is too far off, before it takes a place in a queue it will not
    /// wait in: a leaky bucket takes none back. Between this and the taking others may come; then it
    /// waits for as much longer as their turns take.
    async fn look_ahead(&self, request: &Parts, start: Instant) -> Result<(), TurnedAway> {
        let turn = in_queues(&self.reception.preview(request).await);
        match turn > self.time_left(start) {
            true => Err(TurnedAway::Until(turn.into())),
            false => Ok(()),
        }
    }
}

/// How far off the turn of a call is at least that has so many ahead of it: when there is room again, and
/// then as many periods as they fill.
fn behind(preview: &Admission, ahead: usize) -> Micros {
    let room = match preview.retry() {
        Retry::After(wait) => wait,
        Retry::Now | Retry::Never => Micros::ZERO,
    };
    let enforced =
        preview.charges().filter(|(.., outcome)| outcome.enforcement == Enforcement::Enforce);
    let filled = enforced.map(|(_, charge, _)| {
        let periods = ahead as u64 / charge.meter.limit();
        periods.saturating_mul(charge.meter.period().as_micros())
    });
    Micros::new(room.get().saturating_add(filled.max().unwrap_or_default()))
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
