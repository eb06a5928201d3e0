//! What all clones of a layer share.

use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Extensions, Response, response};
use tollgate::gate::Brief;
use tollgate::{Admission, Costs, Gate, Store};

use super::admitted::{Admitted, Settler, Settling};
use crate::axes::Axes;
use crate::checks::Check;
use crate::head::Head;
use crate::headers::{Dialect, Noted, OneLimit, Told};
use crate::reception::Reception;
use crate::refusal::{self, Cause, Protocol, Refusal};

/// What a request turned out to cost; `None` where the estimate stands.
pub(super) type Actual = dyn Fn(&response::Parts) -> Option<Costs<'static>> + Send + Sync;

/// Whether a request counts.
pub(super) type Counts = dyn Fn(&response::Parts) -> bool + Send + Sync;

/// How requests are received and answered.
pub(super) struct Guard<S> {
    pub(super) reception: Reception<S>,
    pub(super) dialect: Dialect,
    // `None` where each request tells.
    pub(super) protocol: Option<Protocol>,
    pub(super) write: Option<Arc<refusal::Write>>,
    pub(super) actual: Option<Arc<Actual>>,
    pub(super) counts: Option<Arc<Counts>>,
    // Of the only rule of the policy the gate was made with, if it has but one.
    noted: OnceLock<Noted>,
}

impl<S: Store + 'static> Guard<S> {
    pub(super) fn new(gate: Arc<Gate<S>>, axes: Axes) -> Self {
        Self {
            reception: Reception::new(gate, axes),
            dialect: Dialect::default(),
            protocol: None,
            write: None,
            actual: None,
            counts: None,
            noted: OnceLock::new(),
        }
    }

    /// Whether the admission of a request is needed for no more than to tell it.
    #[inline(always)]
    pub(super) fn only_tells(&self) -> bool {
        self.actual.is_none() && self.counts.is_none() && self.reception.inspect.is_none()
    }

    /// An admission as handlers find it.
    pub(super) fn admitted(self: &Arc<Self>, admission: Box<Admission>) -> Admitted {
        Admitted::new(admission, Arc::<Self>::clone(self))
    }

    /// What the answer to a request tells that was admitted in short: one limit, or nothing. `None`
    /// where it tells more.
    #[inline(always)]
    pub(super) fn told_of(&self, brief: &Brief) -> Option<Option<OneLimit>> {
        match self.dialect {
            Dialect::Off => Some(None),
            Dialect::Draft11 => OneLimit::of(&self.reception.gate, brief, &self.noted).map(Some),
            _ => None,
        }
    }

    /// Leaves the admission with a request that goes on.
    #[inline(always)]
    pub(super) fn mark(self: &Arc<Self>, extensions: &mut Extensions, admitted: Admitted) {
        if let Some(before) = extensions.insert(admitted) {
            self.marked_before(&before);
        }
    }

    #[cold]
    fn marked_before(self: &Arc<Self>, before: &Admitted) {
        let before = before.settler.as_ref().map(|settler| Arc::as_ptr(settler).cast::<()>());
        let same = || before == Some(Arc::as_ptr(self).cast::<()>());
        self.reception.checks.look(Check::AppliedTwice, same);
    }

    /// What is to be done once a request that goes on is answered.
    #[inline(always)]
    pub(super) fn after(self: &Arc<Self>, admission: &Admission) -> After<S> {
        match self.actual.is_some() || self.counts.is_some() {
            false => After::Tell(self.told(admission)),
            true => {
                let (guard, admission) = (Arc::clone(self), admission.clone());
                After::Settle(Box::new(Unsettled { guard, admission }))
            }
        }
    }

    /// The answer to a request that does not go on.
    pub(super) fn refuse(
        &self,
        admission: &Admission,
        cause: Cause,
        request: &impl Head,
    ) -> Response<Bytes> {
        let protocol = self.protocol.unwrap_or_else(|| Protocol::of(request));
        let refusal = Refusal { admission, cause };
        refusal::respond(&refusal, protocol, self.dialect, self.write.as_deref())
    }

    /// What the answer to an admitted request tells of the limits.
    #[inline(always)]
    fn told(&self, admission: &Admission) -> Told {
        match self.dialect {
            Dialect::Off => Told::Nothing,
            dialect => Told::of(admission, dialect),
        }
    }

    /// What a request cost by its answer, if that is another than was charged.
    fn actual(&self, answer: &response::Parts) -> Option<Costs<'static>> {
        match &self.counts {
            Some(counts) if !counts(answer) => Some(Costs::none()),
            _ => self.actual.as_ref().and_then(|actual| actual(answer)),
        }
    }
}

/// What is to be done once a request is answered.
///
/// What the answer is told is spelled beforehand: that is all most requests need of their admission,
/// and so it need not be shared with whoever has the request.
pub(super) enum After<S> {
    /// Its limits are told.
    Tell(Told),
    /// Its cost is settled first.
    Settle(Box<Unsettled<S>>),
}

/// An admission whose cost may turn out to be another.
pub(super) struct Unsettled<S> {
    guard: Arc<Guard<S>>,
    admission: Admission,
}

/// An answer whose cost was looked at, and what it is told.
pub(super) enum Settled<R> {
    Now(Told, Response<R>),
    /// The store has to be waited for first.
    Later(Pending, Response<R>),
}

/// A settlement to be waited for.
pub(super) type Pending = Pin<Box<dyn Future<Output = Told> + Send>>;

impl<S: Store + 'static> Unsettled<S> {
    /// Settles what an answer says it cost.
    pub(super) fn settle<R>(&self, response: Response<R>) -> Settled<R> {
        let Self { guard, admission } = self;
        let (parts, body) = response.into_parts();
        let actual = guard.actual(&parts);
        let response = Response::from_parts(parts, body);
        let Some(actual) = actual else {
            return Settled::Now(guard.told(admission), response);
        };
        if S::IMMEDIATE {
            let settlement = pin!(guard.reception.gate.settle(admission, &actual));
            if let Poll::Ready(settled) = settlement.poll(&mut Context::from_waker(Waker::noop())) {
                // Not settled: the estimate stands.
                let admission = settled.as_ref().unwrap_or(admission);
                return Settled::Now(guard.told(admission), response);
            }
        }
        let (guard, admission) = (Arc::clone(guard), admission.clone());
        let told = Box::pin(async move {
            let settled = guard.reception.gate.settle(&admission, &actual).await;
            guard.told(settled.as_ref().unwrap_or(&admission))
        });
        Settled::Later(told, response)
    }
}

impl<S: Store + 'static> Settler for Guard<S> {
    fn whole(&self, brief: &Brief) -> Admission {
        self.reception.gate.whole(brief)
    }

    fn settle<'a, 'c: 'a>(
        &'a self,
        admission: &'a Admission,
        actual: &'a Costs<'c>,
    ) -> Settling<'a> {
        Box::pin(self.reception.gate.settle(admission, actual))
    }
}

impl<S> Clone for Guard<S> {
    fn clone(&self) -> Self {
        Self {
            reception: self.reception.clone(),
            dialect: self.dialect,
            protocol: self.protocol,
            write: self.write.clone(),
            actual: self.actual.clone(),
            counts: self.counts.clone(),
            noted: OnceLock::new(),
        }
    }
}
