//! From a request to its admission: what the gate is told, and how long a request is held.
//!
//! ```text
//! request ──▶ client address, values of axes, costs ──▶ Gate ─┬─ allowed ──▶ held for its delay ──▶ pass
//!    ▲                                                        └─ refused ─┬─ may not wait ───────▶ refuse
//!    └──────────────── held until it would fit ◀──────────────────────────┘
//! ```

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use http::request::Parts;
use http::{Extensions, HeaderMap};
use tokio::time::{Instant, sleep};
use tollgate::gate::Brief;
use tollgate::{Admission, Cost, Costs, Deferred, Gate, Micros, Resolution, Retry, Store, Subject};

use crate::axes::{Axes, Client, Found, LookedUp, Spelled};
use crate::behind::Behind;
use crate::checks::{Check, Checks};
use crate::client_ip::{self, ClientIp, PeerFn};
use crate::head::Head;
use crate::refusal::Cause;
use crate::waiters::{Place, Waiters};

/// The most requests held at once, unless told otherwise: each has a socket, and some kilobytes.
const MAX_HELD: usize = 1_024;

/// The most charges under way behind requests.
const MAX_BEHIND: usize = 1_024;

/// What a request costs in a unit.
pub(crate) type CostOf = dyn Fn(&Parts) -> Option<Cost> + Send + Sync;

/// Sees every admission.
pub(crate) type Inspect = dyn Fn(&Admission) + Send + Sync;

/// What all clones of a layer have in common.
pub(crate) struct Reception<S> {
    pub(crate) gate: Arc<Gate<S>>,
    pub(crate) axes: Axes,
    pub(crate) client_ip: ClientIp,
    pub(crate) peer: Option<PeerFn>,
    pub(crate) costs: Vec<(Box<str>, Arc<CostOf>)>,
    pub(crate) inspect: Option<Arc<Inspect>>,
    pub(crate) checks: Checks,
    pub(crate) waiters: Waiters,
    pub(crate) behind: Behind,
}

/// What becomes of a request.
#[derive(Debug)]
pub(crate) enum Passage {
    /// It goes on.
    Pass(Box<Admission>),
    /// It does not.
    Refuse(Box<Admission>, Cause),
}

/// What is clear of a request at once.
#[derive(Debug)]
pub(crate) enum Prompt {
    /// It goes on.
    Pass,
    /// It does not.
    Refuse(Cause),
    /// The store has answered, and the request has to wait; with what is to be charged behind it.
    Hold(Option<Deferred>),
    /// The store, or a function, has to be waited for. Nothing was asked.
    Ask,
}

/// What a request is decided by, as long as that takes.
struct Known<'r> {
    client: Client,
    found: Found<'r>,
    looked_up: LookedUp<'r>,
    costs: Costs<'r>,
}

/// An admission, and what is to be charged behind it.
pub(crate) type Asked = (Box<Admission>, Option<Deferred>);

/// How long refused requests are held.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    /// As the rules that refuse them say.
    OfRules,
    /// Up to so long, whatever refuses them.
    UpTo(Micros),
}

impl<S: Store + 'static> Reception<S> {
    pub(crate) fn new(gate: Arc<Gate<S>>, axes: Axes) -> Self {
        Self {
            gate,
            axes,
            client_ip: ClientIp::new(),
            peer: None,
            costs: Vec::new(),
            inspect: None,
            checks: Checks::default(),
            waiters: Waiters::new(MAX_HELD),
            behind: Behind::new(MAX_BEHIND),
        }
    }

    /// Whether anybody wants to see requests without their bodies.
    pub(crate) fn wants_parts(&self) -> bool {
        self.axes.wants_parts() || !self.costs.is_empty()
    }

    /// Admits a request in short, where one value is all that counts of it. False, with nothing asked,
    /// where it takes [more](Self::ask_now).
    #[inline(always)]
    pub(crate) fn ask_briefly(&self, request: &impl Head, brief: &mut Brief) -> bool {
        if self.axes.must_wait() || self.waiters.is_full() {
            return false;
        }
        let peer = || self.plain_peer(request);
        let value_of = |axis: &[u8]| self.axes.value_of(axis, request, peer);
        let is_asked = self.gate.admit_briefly_now(value_of, brief);
        if is_asked && self.checks.are_early() {
            self.look_early(request);
        }
        is_asked
    }

    /// What is clear of a request without waiting, where the store is one that
    /// [answers at once](Store::IMMEDIATE); its `admission` is decided unless nothing was asked.
    /// Its body has to be set aside if [somebody wants that](Self::wants_parts).
    #[inline(never)]
    pub(crate) fn ask_now(&self, request: &impl Head, admission: &mut Admission) -> Prompt {
        if self.axes.must_wait() || self.waiters.is_full() {
            return Prompt::Ask;
        }
        if self.checks.are_early() {
            self.look_early(request);
        }
        let (known, mut spelled) = (self.know(request), Spelled::new());
        let subject = self.subject(request, &known, &mut spelled);
        match self.gate.admit_deferring_now(&subject, &known.costs, admission) {
            Ok(deferred) => self.follow(admission, deferred),
            Err(_) => Prompt::Ask,
        }
    }

    /// What follows from the first answer.
    pub(crate) fn follow(&self, admission: &Admission, deferred: Option<Deferred>) -> Prompt {
        match Patience::OfRules.next(admission, Micros::ZERO) {
            Next::Pass => {
                self.pass(admission, deferred);
                Prompt::Pass
            }
            Next::Refuse => Prompt::Refuse(self.refuse(admission)),
            Next::Hold(_) => Prompt::Hold(deferred),
        }
    }

    /// The passage of a request that may have to wait. It was asked about already if there is a
    /// `first` answer, and has waited if there is a `place`.
    pub(crate) async fn ask(
        &self,
        request: &Parts,
        mut first: Option<Asked>,
        patience: Patience,
        mut place: Option<Place>,
    ) -> Passage {
        // One that was asked about was looked at then.
        if first.is_none() && self.checks.are_early() {
            self.look_early(request);
        }
        let (known, mut spelled) = (self.know_all(request).await, Spelled::new());
        let subject = self.subject(request, &known, &mut spelled);
        let start = Instant::now();
        loop {
            let (admission, deferred) = match first.take() {
                Some(asked) => asked,
                None => match self.question(&subject, &known.costs, place.as_ref()).await {
                    Ok(asked) => asked,
                    Err(preview) => return Passage::Refuse(preview, Cause::Crowded),
                },
            };
            match patience.next(&admission, start.elapsed().into()) {
                Next::Pass => return self.pass_on(admission, deferred),
                Next::Refuse => return self.turn_away(admission),
                Next::Hold(wait) => {
                    if place.is_none() {
                        place = self.waiters.enter();
                    }
                    match (place.is_some(), admission.is_allowed()) {
                        (true, _) => sleep(wait.into()).await,
                        (false, false) => return self.turn_away(admission),
                        (false, true) => {
                            // Best effort; what was promised a place in a leaky bucket stays taken.
                            let _ = self.gate.refund(&subject, &known.costs, &admission).await;
                            return Passage::Refuse(admission, Cause::Crowded);
                        }
                    }
                    if admission.is_allowed() {
                        return self.pass_on(admission, deferred);
                    }
                }
            }
        }
    }

    /// Gives back what a request took that goes no further.
    pub(crate) async fn give_back(&self, request: &Parts, admission: &Admission) {
        let (known, mut spelled) = (self.know_all(request).await, Spelled::new());
        let subject = self.subject(request, &known, &mut spelled);
        // Best effort: what cannot be given back wears off by itself.
        let _ = self.gate.refund(&subject, &known.costs, admission).await;
    }

    /// What would be answered, with nothing taken.
    pub(crate) async fn preview(&self, request: &Parts) -> Admission {
        let (known, mut spelled) = (self.know_all(request).await, Spelled::new());
        let subject = self.subject(request, &known, &mut spelled);
        self.gate.peek(&subject, &known.costs).await
    }

    /// All that a request is counted by, in one text.
    pub(crate) async fn counted_by(&self, request: &Parts) -> String {
        let (known, mut spelled) = (self.know_all(request).await, Spelled::new());
        let subject = self.subject(request, &known, &mut spelled);
        let policy = self.gate.policy();
        let mut text = String::new();
        for value in policy.axes().map(|axis| subject.value(axis)) {
            // By their lengths values are told apart, whatever is in them.
            text.push_str(
                &value.map_or_else(String::new, |value| format!("{}:{value}", value.len())),
            );
            text.push(';');
        }
        text
    }

    /// What there is to know of a request at once.
    #[inline(always)]
    fn know<'r>(&'r self, request: &'r impl Head) -> Known<'r> {
        let parts = request.parts();
        Known {
            client: self.client(request),
            found: parts.map_or_else(Found::new, |parts| self.axes.find_all(parts)),
            looked_up: LookedUp::new(),
            costs: parts.map_or_else(Costs::default, |parts| self.costs(parts)),
        }
    }

    /// The same, and what has to be waited for.
    async fn know_all<'r>(&'r self, request: &'r Parts) -> Known<'r> {
        let looked_up = self.axes.look_all_up(request).await;
        Known { looked_up, ..self.know(request) }
    }

    /// What policies see of a request. What has to be spelled anew is kept in `spelled`.
    #[inline(always)]
    fn subject<'k, 'r: 'k>(
        &'r self,
        request: &'r impl Head,
        known: &'k Known<'r>,
        spelled: &'k mut Spelled<'r>,
    ) -> Subject<'k> {
        let mut subject = Subject::new();
        if self.axes.describe(&mut subject, request, &known.client) {
            *spelled = self.axes.spell(request);
        }
        subject.extend(spelled.iter().map(|(axis, value)| (*axis, value.as_str())));
        subject.extend(known.found.iter().map(|(axis, value)| (*axis, &**value)));
        subject.extend(known.looked_up.iter().map(|(axis, value)| (*axis, value.as_str())));
        if known.client.is_unknown {
            self.describe_unknown(&mut subject, &known.costs);
        }
        subject
    }

    /// Asks the gate. While no more can be held, those who would have to be are turned away before
    /// they take a place in a queue they cannot wait in.
    async fn question(
        &self,
        subject: &Subject<'_>,
        costs: &Costs<'_>,
        place: Option<&Place>,
    ) -> Result<Asked, Box<Admission>> {
        if place.is_none() && self.waiters.is_full() {
            let preview = self.gate.peek(subject, costs).await;
            if preview.is_allowed() && preview.delay() > Micros::ZERO {
                return Err(Box::new(preview));
            }
        }
        let (admission, deferred) = self.gate.admit_deferring(subject, costs).await;
        Ok((Box::new(admission), deferred))
    }

    /// Sees to what is to be done for a request that goes on.
    #[inline(always)]
    fn pass(&self, admission: &Admission, deferred: Option<Deferred>) {
        if let Some(inspect) = &self.inspect {
            inspect(admission);
        }
        if let Some(deferred) = deferred {
            self.behind.charge(&self.gate, deferred, self.inspect.as_ref());
        }
    }

    fn pass_on(&self, admission: Box<Admission>, deferred: Option<Deferred>) -> Passage {
        self.pass(&admission, deferred);
        Passage::Pass(admission)
    }

    /// Sees to what is to be done for a request that does not, and says why.
    fn refuse(&self, admission: &Admission) -> Cause {
        if let Some(inspect) = &self.inspect {
            inspect(admission);
        }
        self.checks.look(Check::WindowTooShort, || {
            let mut refusing =
                admission.charges().filter(|(.., outcome)| !outcome.verdict.is_allow());
            refusing.any(|(_, charge, _)| charge.meter.refill() <= Micros::from_secs(1))
        });
        crate::Refusal::of(admission).cause
    }

    fn turn_away(&self, admission: Box<Admission>) -> Passage {
        let cause = self.refuse(&admission);
        Passage::Refuse(admission, cause)
    }

    /// Looks at one of the first requests for mistakes that show early.
    #[cold]
    #[inline(never)]
    fn look_early(&self, request: &impl Head) {
        self.checks.looked();
        self.checks.look_once(Check::AxisWithoutSource, || {
            let policy = self.gate.policy();
            policy.axes().any(|axis| !self.axes.names().any(|known| known == axis))
        });
        if self.axes.has_address() && !self.client_ip.trusts_anybody() {
            self.checks.look(Check::ForwardedButNothingTrusted, || {
                client_ip::is_forwarded(request.headers()) && self.goes_by_address()
            });
        }
    }

    /// Whether the policy asks for an address at all.
    fn goes_by_address(&self) -> bool {
        self.gate.policy().axes().any(|axis| self.axes.is_address(axis))
    }

    /// The address of whoever sent a request, where that is the peer's and left for all to see.
    #[inline(always)]
    fn plain_peer(&self, request: &impl Head) -> Option<Ipv4Addr> {
        if self.peer.is_some() || self.client_ip.trusts_anybody() {
            return None;
        }
        match client_ip::find_peer_left(request.extensions())? {
            SocketAddr::V4(peer) => Some(*peer.ip()),
            SocketAddr::V6(_) => None,
        }
    }

    /// The address of whoever sent a request.
    fn client(&self, request: &impl Head) -> Client {
        match self.axes.has_address() {
            true => self.find_client(request.extensions(), request.headers()),
            false => Client::default(),
        }
    }

    /// The same, wherever its address has to be looked for.
    fn find_client(&self, extensions: &Extensions, headers: &HeaderMap) -> Client {
        let peer = match &self.peer {
            Some(peer) => peer(extensions),
            None => client_ip::find_peer(extensions),
        };
        let Some(peer) = peer else {
            return self.unknown_client();
        };
        let address = self.client_ip.find(peer, headers);
        self.axes.client(address, self.client_ip.group(address))
    }

    /// Whoever sent a request without its peer's address, which matters where a rule asks for it.
    #[cold]
    fn unknown_client(&self) -> Client {
        if !self.goes_by_address() {
            return Client::default();
        }
        self.checks.look(Check::PeerAddressMissing, || true);
        Client::unknown()
    }

    /// Makes one client of all whose address is not known, lest no limit by address holds for them.
    /// Where a rule refuses them it stays missing.
    #[cold]
    #[inline(never)]
    fn describe_unknown<'r>(&'r self, subject: &mut Subject<'r>, costs: &Costs<'_>) {
        let policy = self.gate.policy();
        if !matches!(policy.resolve(subject, costs), Resolution::MissingAxis { .. }) {
            self.axes.describe_unknown(subject);
        }
    }

    fn costs(&self, request: &Parts) -> Costs<'_> {
        let mut costs = Costs::default();
        for (unit, cost_of) in &self.costs {
            if let Some(cost) = cost_of(request) {
                costs = costs.with(unit, cost);
            }
        }
        costs
    }
}

/// What follows from an answer.
enum Next {
    Pass,
    Refuse,
    /// For so long; then it goes on if it is admitted, and is asked about again if not.
    Hold(Micros),
}

impl Patience {
    /// What follows from an answer, for a request that was held for `waited`.
    #[inline]
    fn next(self, admission: &Admission, waited: Micros) -> Next {
        if !admission.is_allowed() {
            return self.hold(admission, waited).map_or(Next::Refuse, Next::Hold);
        }
        match admission.delay() {
            Micros::ZERO => Next::Pass,
            delay => Next::Hold(delay),
        }
    }

    fn hold(self, admission: &Admission, waited: Micros) -> Option<Micros> {
        match (self, admission.retry()) {
            (Self::OfRules, _) => admission.hold(waited),
            (Self::UpTo(longest), Retry::After(wait)) => {
                (waited.get().saturating_add(wait.get()) <= longest.get()).then_some(wait)
            }
            (Self::UpTo(_), Retry::Now | Retry::Never) => None,
        }
    }
}

impl<S> Clone for Reception<S> {
    fn clone(&self) -> Self {
        Self {
            gate: Arc::clone(&self.gate),
            axes: self.axes.clone(),
            client_ip: self.client_ip.clone(),
            peer: self.peer.clone(),
            costs: self.costs.clone(),
            inspect: self.inspect.clone(),
            checks: self.checks.clone(),
            waiters: self.waiters.clone(),
            behind: self.behind.clone(),
        }
    }
}
