//! What all clones of a layer share.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Extensions, HeaderMap, Response, response};
use tollgate::{Admission, Costs, Gate, Store};

use super::admitted::{Admitted, Settler, Settling};
use crate::axes::Axes;
use crate::checks::Check;
use crate::headers::{self, Dialect};
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
    pub(super) write: Option<Arc<refusal::Write>>,
    pub(super) actual: Option<Arc<Actual>>,
    pub(super) counts: Option<Arc<Counts>>,
}

impl<S: Store + 'static> Guard<S> {
    pub(super) fn new(gate: Arc<Gate<S>>, axes: Axes) -> Self {
        Self {
            reception: Reception::new(gate, axes),
            dialect: Dialect::default(),
            write: None,
            actual: None,
            counts: None,
        }
    }

    /// Leaves the admission with a request that goes on.
    pub(super) fn mark(self: &Arc<Self>, extensions: &mut Extensions, admission: &Arc<Admission>) {
        let settler: Arc<dyn Settler> = Arc::<Self>::clone(self);
        let admission = Arc::clone(admission);
        let before = extensions.insert(Admitted { admission, settler });
        let again = |before: Admitted| {
            Arc::as_ptr(&before.settler).cast::<()>() == Arc::as_ptr(self).cast::<()>()
        };
        self.reception.checks.look(Check::AppliedTwice, || before.is_some_and(again));
    }

    /// The answer to a request that does not go on.
    pub(super) fn refuse(
        &self,
        admission: &Admission,
        cause: Cause,
        protocol: Protocol,
    ) -> Response<Bytes> {
        let refusal = Refusal { admission, cause };
        refusal::respond(&refusal, protocol, self.dialect, self.write.as_deref())
    }

    /// What a request cost by its answer, if that is another than was charged.
    pub(super) fn actual(&self, answer: &response::Parts) -> Option<Costs<'static>> {
        match &self.counts {
            Some(counts) if !counts(answer) => Some(Costs::none()),
            _ => self.actual.as_ref().and_then(|actual| actual(answer)),
        }
    }

    /// Whether answers have to be looked at before they are sent.
    pub(super) fn settles(&self) -> bool {
        self.actual.is_some() || self.counts.is_some()
    }

    /// Tells the limits in the headers of an answer.
    pub(super) fn tell(&self, headers: &mut HeaderMap, admission: &Admission) {
        if self.dialect != Dialect::Off {
            headers::tell(headers, admission, self.dialect);
        }
    }

    /// Settles at once where the store can; otherwise hands over what is to be waited for.
    pub(super) fn settle(
        self: &Arc<Self>,
        admission: &Arc<Admission>,
        actual: Costs<'static>,
    ) -> Result<Arc<Admission>, Pending> {
        if S::IMMEDIATE {
            let settlement = pin!(self.reception.gate.settle(admission, &actual));
            if let Poll::Ready(settled) = settlement.poll(&mut Context::from_waker(Waker::noop())) {
                return Ok(settled.map_or_else(|_| Arc::clone(admission), Arc::new));
            }
        }
        let (guard, admission) = (Arc::clone(self), Arc::clone(admission));
        Err(Box::pin(async move {
            let settled = guard.reception.gate.settle(&admission, &actual).await;
            // Not settled: the estimate stands.
            settled.map_or(admission, Arc::new)
        }))
    }
}

/// A settlement to be waited for.
pub(super) type Pending = std::pin::Pin<Box<dyn Future<Output = Arc<Admission>> + Send>>;

impl<S: Store + 'static> Settler for Guard<S> {
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
            write: self.write.clone(),
            actual: self.actual.clone(),
            counts: self.counts.clone(),
        }
    }
}
