//! What handlers can learn of the admission of their request.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;

use tollgate::{Admission, Costs, StoreError};

/// The admission of a request, in its extensions. Reads as an [`Admission`].
///
/// Where layers nest it is the innermost one's.
///
/// ```
/// use tollgate_tower::Admitted;
///
/// /// With axum: `async fn handler(Extension(admitted): Extension<Admitted>)`.
/// fn remaining(request: &http::Request<()>) -> Option<u64> {
///     let admitted = request.extensions().get::<Admitted>()?;
///     let (_rule, outcome) = admitted.binding()?;
///     outcome.reading.map(|reading| reading.remaining)
/// }
/// ```
#[derive(Clone)]
pub struct Admitted {
    // On the heap from the start, for it is too large to be handed about.
    pub(super) admission: Box<Admission>,
    pub(super) settler: Arc<dyn Settler>,
}

impl Admitted {
    /// Settles what the request really cost, for handlers that learn it after the head of their
    /// answer is sent: at the end of a stream of tokens, say. See
    /// [`Gate::settle`](tollgate::Gate::settle).
    ///
    /// Clones settle the same admission, each from what it was charged at first: settle once.
    ///
    /// # Errors
    ///
    /// When the store cannot be asked nothing is settled, and the estimate stands.
    pub async fn settle(&self, actual: &Costs<'_>) -> Result<Admission, StoreError> {
        self.settler.settle(&self.admission, actual).await
    }
}

impl Deref for Admitted {
    type Target = Admission;

    fn deref(&self) -> &Admission {
        &self.admission
    }
}

impl fmt::Debug for Admitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Admitted").field(&self.admission).finish()
    }
}

/// A gate that can settle, whatever its store.
pub(super) trait Settler: Send + Sync {
    fn settle<'a, 'c: 'a>(
        &'a self,
        admission: &'a Admission,
        actual: &'a Costs<'c>,
    ) -> Settling<'a>;
}

/// A settlement under way.
pub(super) type Settling<'a> =
    Pin<Box<dyn Future<Output = Result<Admission, StoreError>> + Send + 'a>>;
