//! The layer: whom to go easy on, and how long to wait.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use tollgate::policy::{PolicyErrors, Quotas};
use tollgate::{
    Algorithm, Cost, Gate, MemoryStore, Meter, Micros, Missing, Policy, Quota, Rule, Store,
};
use tower_layer::Layer;

use super::line::Lines;
use super::pause::Pauses;
use super::service::Outgoing;
use crate::axes::Axes;
use crate::reception::Reception;

/// The longest a call waits, unless told otherwise: that long, and people have gone.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// As long as a queue is let become: nobody waits for a day.
const LONGEST_QUEUE: Micros = Micros::from_secs(86_400);

/// Limits the calls of the clients it wraps.
///
/// ```
/// use std::time::Duration;
/// use tollgate_tower::OutgoingLayer;
///
/// let layer = OutgoingLayer::per_host("60/min")?.longest_wait(Duration::from_secs(10));
/// # Ok::<(), tollgate::policy::PolicyErrors>(())
/// ```
pub struct OutgoingLayer<S = MemoryStore> {
    desk: Arc<Desk<S>>,
}

/// What all clones of a layer share.
pub(super) struct Desk<S> {
    pub(super) reception: Reception<S>,
    pub(super) longest_wait: Micros,
    // Shared even by layers that were changed after they were cloned: it is the same vendor.
    pub(super) pauses: Arc<Pauses>,
    pub(super) lines: Arc<Lines>,
}

impl OutgoingLayer {
    /// So much for every host called, in memory.
    ///
    /// Calls go at once while they fit, and else in the order they were made in, unless their turn is further
    /// away than the [longest wait](Self::longest_wait). No span of a period holds more of them than the
    /// quota, by a sliding log; give or take those few that a timer or the network brings some milliseconds
    /// closer together: stay a little below a cap that is strict. Of `10/s; 1000/day` neither is exceeded.
    ///
    /// A quota with a burst, as `10/s burst 50`, is a token bucket: so many go at once, and then at that pace.
    /// What is too large for a log, more than 100,000 in a period, is a leaky bucket: calls go evenly.
    ///
    /// # Errors
    ///
    /// When the quota is none.
    pub fn per_host(quota: impl Into<Quotas>) -> Result<Self, PolicyErrors> {
        let rule = Rule::new("per-host").by("host").missing(Missing::Share);
        let quotas = quota.into();
        // What is wrong with them is told when the policy is built.
        let parsed = quotas.parsed().unwrap_or_default();
        let is_logged = |quota: &Quota| Meter::new(*quota, Algorithm::SlidingLog).is_ok();
        let rule = if parsed.iter().any(|quota| quota.burst() != quota.limit()) {
            rule.quota(quotas).algorithm(Algorithm::TokenBucket)
        } else if parsed.iter().all(is_logged) {
            rule.quota(quotas).algorithm(Algorithm::SlidingLog)
        } else {
            let queues: Vec<Quota> = parsed.iter().map(|quota| queue(*quota)).collect();
            rule.quota(queues).algorithm(Algorithm::LeakyBucket)
        };
        let policy = Policy::builder().rule(rule).build()?;
        Ok(Self::new(Gate::new(policy, MemoryStore::new())))
    }
}

/// The quota with room for all who may wait: how long they do is bounded before they are let into the
/// queue.
fn queue(quota: Quota) -> Quota {
    let periods = LONGEST_QUEUE.get() / quota.period().as_micros();
    // What arithmetic has room for. A quota without room for itself stays the error it is.
    let most = (1 << 53) / quota.limit();
    let burst = quota.limit().saturating_mul(periods).min(most).max(quota.burst());
    quota.with_burst(burst).unwrap_or(quota)
}

impl<S: Store + 'static> OutgoingLayer<S> {
    /// What a gate says, about the [axes of calls](Axes::outgoing). `host` is spelled one way: in small
    /// letters, without a port or a dot at its end.
    pub fn new(gate: impl Into<Arc<Gate<S>>>) -> Self {
        Self {
            desk: Arc::new(Desk {
                reception: Reception::new(gate.into(), Axes::outgoing()),
                longest_wait: LONGEST_WAIT.into(),
                pauses: Arc::default(),
                lines: Arc::default(),
            }),
        }
    }

    /// What the gate is told of calls, instead of those axes.
    pub fn axes(self, axes: Axes) -> Self {
        self.with(|desk| desk.reception.axes = axes)
    }

    /// What a call costs in a unit; `None` costs nothing.
    pub fn cost(
        self,
        unit: impl Into<Box<str>>,
        cost: impl Fn(&Parts) -> Option<Cost> + Send + Sync + 'static,
    ) -> Self {
        self.with(|desk| desk.reception.costs.push((unit.into(), Arc::new(cost))))
    }

    /// The longest a call waits for its turn, or for the end of a pause the vendor asked for; 30 s
    /// unless told otherwise. Calls whose turn is further away are not made.
    pub fn longest_wait(self, longest: Duration) -> Self {
        self.with(|desk| desk.longest_wait = longest.into())
    }

    /// Lets at most so many calls wait at once; 1024 unless told otherwise.
    pub fn max_held(self, most: usize) -> Self {
        self.with(|desk| desk.reception.waiters.set_most(most))
    }

    /// Calls waiting at present.
    pub fn held(&self) -> usize {
        self.desk.reception.waiters.held()
    }

    fn with(mut self, change: impl FnOnce(&mut Desk<S>)) -> Self {
        change(Arc::make_mut(&mut self.desk));
        self
    }
}

impl<T, S> Layer<T> for OutgoingLayer<S> {
    type Service = Outgoing<T, S>;

    fn layer(&self, inner: T) -> Self::Service {
        Outgoing::new(inner, Arc::clone(&self.desk))
    }
}

impl<S> Clone for OutgoingLayer<S> {
    fn clone(&self) -> Self {
        Self { desk: Arc::clone(&self.desk) }
    }
}

impl<S> Clone for Desk<S> {
    fn clone(&self) -> Self {
        Self {
            reception: self.reception.clone(),
            longest_wait: self.longest_wait,
            pauses: Arc::clone(&self.pauses),
            lines: Arc::clone(&self.lines),
        }
    }
}

impl<S> fmt::Debug for OutgoingLayer<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutgoingLayer")
            .field("axes", &self.desk.reception.axes)
            .field("longest_wait", &self.desk.longest_wait)
            .finish_non_exhaustive()
    }
}
