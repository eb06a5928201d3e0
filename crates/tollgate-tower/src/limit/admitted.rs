//! What handlers can learn of the admission of their request.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use tollgate::gate::Brief;
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
    // What the whole is made of when somebody looks, unless it is there from the start.
    pub(super) brief: Brief,
    // On the heap, for it is too large to be handed about.
    whole: OnceLock<Box<Admission>>,
    // Missing only until the request goes on.
    pub(super) settler: Option<Arc<dyn Settler>>,
}

impl Admitted {
    /// One to be decided in short.
    #[inline(always)]
    pub(super) fn open() -> Self {
        Self { brief: Brief::default(), whole: OnceLock::new(), settler: None }
    }

    pub(super) fn new(admission: Box<Admission>, settler: Arc<dyn Settler>) -> Self {
        Self { brief: Brief::default(), whole: admission.into(), settler: Some(settler) }
    }

    fn settler(&self) -> &dyn Settler {
        self.settler.as_deref().expect("the request goes on")
    }

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
        self.settler().settle(self, actual).await
    }
}

impl Deref for Admitted {
    type Target = Admission;

    fn deref(&self) -> &Admission {
        self.whole.get_or_init(|| Box::new(self.settler().whole(&self.brief)))
    }
}

impl fmt::Debug for Admitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Admitted").field(&**self).finish()
    }
}

/// A gate that can tell the whole of an admission, and settle it, whatever its store.
pub(super) trait Settler: Send + Sync {
    fn whole(&self, brief: &Brief) -> Admission;

    fn settle<'a, 'c: 'a>(
        &'a self,
        admission: &'a Admission,
        actual: &'a Costs<'c>,
    ) -> Settling<'a>;
}

/// A settlement under way.
pub(super) type Settling<'a> =
    Pin<Box<dyn Future<Output = Result<Admission, StoreError>> + Send + 'a>>;
