//! The layer: what to limit by, and how to answer.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{Extensions, HeaderName, Response, response};
use tollgate::policy::{PolicyErrors, Quotas};
use tollgate::{
    Admission, Algorithm, Cost, Costs, Gate, MemoryStore, Missing, Policy, Rule, Store,
};
use tower_layer::Layer;

use super::guard::Guard;
use super::service::RateLimit;
use crate::axes::Axes;
use crate::checks::Check;
use crate::client_ip::ClientIp;
use crate::headers::Dialect;
use crate::refusal::{Protocol, Refusal};

/// Limits the requests of the services it wraps.
///
/// Cheap to clone; all clones count together.
///
/// One line, in memory. A quota with a burst, such as `10/s burst 50`, is a token bucket there, and any
/// other a sliding window:
///
/// ```
/// use tollgate_tower::RateLimitLayer;
///
/// # async fn hello() -> &'static str { "hello" }
/// let app: axum::Router = axum::Router::new()
///     .route("/", axum::routing::get(hello))
///     .layer(RateLimitLayer::per_ip("100/min")?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Any policy, over any store:
///
/// ```
/// use http::HeaderName;
/// use tollgate::{Gate, MemoryStore, Policy, Rule};
/// use tollgate_tower::{Axes, ClientIp, Dialect, RateLimitLayer};
///
/// let policy = Policy::builder()
///     .allow_network("ip", "10.0.0.0/8")
///     .rule(Rule::new("per-ip").by("ip").quota("120/min"))
///     .rule(Rule::new("search").when("route", "/search").by("key").quota("10/s; 1000/day"))
///     .build()?;
/// let layer = RateLimitLayer::new(Gate::new(policy, MemoryStore::new()))
///     .axes(Axes::standard().header("key", HeaderName::from_static("x-api-key")))
///     .client_ip(ClientIp::behind(["10.0.0.0/8".parse()?]))
///     .dialect(Dialect::Draft7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RateLimitLayer<S = MemoryStore> {
    guard: Arc<Guard<S>>,
}

impl RateLimitLayer {
    /// So much for every client address, in memory.
    ///
    /// Requests whose peer is not known are counted as one client, and
    /// [told](Check::PeerAddressMissing) of once.
    ///
    /// # Errors
    ///
    /// When the quota is none.
    pub fn per_ip(quota: impl Into<Quotas>) -> Result<Self, PolicyErrors> {
        Self::per("per-ip", Axes::new().client_ip("ip"), quota)
    }

    /// So much for every value of a header, in memory; those without it are counted as one.
    ///
    /// # Errors
    ///
    /// When the quota is none.
    pub fn per_header(name: HeaderName, quota: impl Into<Quotas>) -> Result<Self, PolicyErrors> {
        let rule = format!("per-{name}");
        Self::per(&rule, Axes::new().header(name.as_str(), name.clone()), quota)
    }

    /// So much for all requests together, in memory.
    ///
    /// # Errors
    ///
    /// When the quota is none.
    pub fn global(quota: impl Into<Quotas>) -> Result<Self, PolicyErrors> {
        Self::per("global", Axes::new(), quota)
    }

    fn per(name: &str, axes: Axes, quota: impl Into<Quotas>) -> Result<Self, PolicyErrors> {
        let quota = quota.into();
        let algorithm = algorithm_of(&quota);
        let rule = Rule::new(name).quota(quota).algorithm(algorithm).missing(Missing::Share);
        let rule = axes.names().fold(rule, Rule::by);
        let policy = Policy::builder().rule(rule).build()?;
        Ok(Self::new(Gate::new(policy, MemoryStore::new())).axes(axes))
    }
}

/// How a quota of a short form is metered: as a token bucket where it has a burst of its own, which
/// windows cannot have.
fn algorithm_of(quotas: &Quotas) -> Algorithm {
    // What is wrong with them is told when the policy is built.
    let mut parsed = quotas.parsed().unwrap_or_default().iter();
    match parsed.any(|quota| quota.burst() != quota.limit()) {
        true => Algorithm::TokenBucket,
        false => Algorithm::SlidingWindow,
    }
}

impl<S: Store + 'static> RateLimitLayer<S> {
    /// What a gate says, about the [standard axes](Axes::standard).
    pub fn new(gate: impl Into<Arc<Gate<S>>>) -> Self {
        Self { guard: Arc::new(Guard::new(gate.into(), Axes::standard())) }
    }

    /// What the gate is told of requests, instead of the standard axes.
    pub fn axes(self, axes: Axes) -> Self {
        self.with(|guard| guard.reception.axes = axes)
    }

    /// How clients' addresses are found: behind which proxies, in which header, and grouped how.
    pub fn client_ip(self, client_ip: ClientIp) -> Self {
        self.with(|guard| guard.reception.client_ip = client_ip)
    }

    /// Where the peer's address is found, for servers that keep it where nobody else does.
    pub fn peer(
        self,
        peer: impl Fn(&Extensions) -> Option<IpAddr> + Send + Sync + 'static,
    ) -> Self {
        self.with(|guard| guard.reception.peer = Some(Arc::new(peer)))
    }

    /// What a request costs in a unit: tokens estimated, bytes announced. `None` costs nothing, and
    /// rules that count the unit do not apply then. Every request costs one of `requests` unless this
    /// says otherwise.
    pub fn cost(
        self,
        unit: impl Into<Box<str>>,
        cost: impl Fn(&Parts) -> Option<Cost> + Send + Sync + 'static,
    ) -> Self {
        let unit = unit.into();
        self.with(|guard| {
            let costs = &mut guard.reception.costs;
            costs.retain(|(known, _)| *known != unit);
            costs.push((unit, Arc::new(cost)));
        })
    }

    /// What a request has cost, by its answer, in all units; `None` where it cost what was charged.
    ///
    /// What was charged too much is given back and what was charged too little is taken, as
    /// [`Gate::settle`] has it, before the answer goes out. Costs known only at the end of a body are
    /// settled by the handler, with [`Admitted::settle`](crate::Admitted::settle).
    ///
    /// A client that hangs up before its answer is there has paid the estimate: estimate the most and
    /// give back. Charges of [non-critical](Rule::non_critical) rules are not settled.
    pub fn settle(
        self,
        actual: impl Fn(&response::Parts) -> Option<Costs<'static>> + Send + Sync + 'static,
    ) -> Self {
        self.with(|guard| guard.actual = Some(Arc::new(actual)))
    }

    /// Counts only requests whose answer says so: failed log-ins, say.
    ///
    /// Requests are charged first and given back what did not count, so that no number of them at
    /// once gets past the limit. While they are under way they count, so a `Retry-After` may be later
    /// than need be. Leaky buckets give nothing back, and [non-critical](Rule::non_critical) rules
    /// count every request.
    pub fn charge_when(
        self,
        counts: impl Fn(&response::Parts) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.with(|guard| guard.counts = Some(Arc::new(counts)))
    }

    /// The header fields limits are told in.
    pub fn dialect(self, dialect: Dialect) -> Self {
        self.with(|guard| guard.dialect = dialect)
    }

    /// Refuses every request as a gRPC call. Without this those are that are `POST`ed over HTTP/2 with
    /// gRPC's content type; those that something further out has translated, such as tonic's layer for
    /// gRPC-Web, may come otherwise.
    pub fn grpc(self) -> Self {
        self.with(|guard| guard.protocol = Some(Protocol::Grpc))
    }

    /// Writes refusals, instead of `application/problem+json`. Headers that tell the limits are
    /// added. Refusals of gRPC calls stay what they are.
    pub fn refuse_with(
        self,
        write: impl Fn(&Refusal<'_>) -> Response<Bytes> + Send + Sync + 'static,
    ) -> Self {
        self.with(|guard| guard.write = Some(Arc::new(write)))
    }

    /// Sees every admission, those made behind requests too: for metrics and logs. It is called on
    /// the way of the request, and should not take long.
    pub fn inspect(self, inspect: impl Fn(&Admission) + Send + Sync + 'static) -> Self {
        self.with(|guard| guard.reception.inspect = Some(Arc::new(inspect)))
    }

    /// Is told of each mistake in the wiring once, beside the log.
    pub fn on_check(self, tell: impl Fn(Check) + Send + Sync + 'static) -> Self {
        self.with(|guard| guard.reception.checks.set_tell(Arc::new(tell)))
    }

    /// Holds at most so many requests at once; 1024 unless told otherwise. Those beyond are refused.
    pub fn max_held(self, most: usize) -> Self {
        self.with(|guard| guard.reception.waiters.set_most(most))
    }

    /// Makes at most so many charges of [non-critical](Rule::non_critical) rules at once; 1024
    /// unless told otherwise. Those beyond are left unmade.
    pub fn max_behind(self, most: usize) -> Self {
        self.with(|guard| guard.reception.behind = crate::behind::Behind::new(most))
    }

    /// Requests held at present.
    pub fn held(&self) -> usize {
        self.guard.reception.waiters.held()
    }

    /// Charges of non-critical rules left unmade for want of room, since the start.
    pub fn skipped_behind(&self) -> u64 {
        self.guard.reception.behind.skipped()
    }

    /// The gate.
    pub fn gate(&self) -> &Arc<Gate<S>> {
        &self.guard.reception.gate
    }

    fn with(mut self, change: impl FnOnce(&mut Guard<S>)) -> Self {
        change(Arc::make_mut(&mut self.guard));
        self
    }
}

impl<T, S> Layer<T> for RateLimitLayer<S> {
    type Service = RateLimit<T, S>;

    fn layer(&self, inner: T) -> Self::Service {
        RateLimit::new(inner, Arc::clone(&self.guard))
    }
}

impl<S> Clone for RateLimitLayer<S> {
    fn clone(&self) -> Self {
        Self { guard: Arc::clone(&self.guard) }
    }
}

impl<S> fmt::Debug for RateLimitLayer<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let axes = &self.guard.reception.axes;
        f.debug_struct("RateLimitLayer")
            .field("axes", axes)
            .field("client_ip", &self.guard.reception.client_ip)
            .field("dialect", &self.guard.dialect)
            .finish_non_exhaustive()
    }
}
