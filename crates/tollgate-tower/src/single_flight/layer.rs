//! The layer: which requests are the same.

use std::fmt;
use std::sync::Arc;

use http::header::{
    AUTHORIZATION, COOKIE, IF_MATCH, IF_MODIFIED_SINCE, IF_RANGE, IF_UNMODIFIED_SINCE, ORIGIN,
    PROXY_AUTHORIZATION, RANGE, UPGRADE,
};
use http::request::Parts;
use http::{HeaderName, Method};
use tower_layer::Layer;

use super::flights::Flights;
use super::service::SingleFlight;

/// The longest body shared, unless told otherwise.
const MAX_BODY: usize = 1 << 20;

/// The most different calls under way, unless told otherwise.
const MAX_FLIGHTS: usize = 1_024;

/// What makes two requests different though they ask for the same address.
///
/// Credentials have many names; those that are common are here, and answers that are somebody's own
/// are not shared either (see `future.rs`).
const PERSONAL: [HeaderName; 13] = [
    AUTHORIZATION,
    PROXY_AUTHORIZATION,
    COOKIE,
    HeaderName::from_static("x-api-key"),
    HeaderName::from_static("api-key"),
    HeaderName::from_static("x-auth-token"),
    RANGE,
    IF_MATCH,
    IF_MODIFIED_SINCE,
    IF_RANGE,
    IF_UNMODIFIED_SINCE,
    ORIGIN,
    UPGRADE,
];

/// What an answer may be negotiated by.
pub(super) const NEGOTIATED: [&str; 5] =
    ["host", "accept", "accept-encoding", "accept-language", "if-none-match"];

/// What a request asks; `None` if it is not to be shared.
pub(super) type KeyOf = dyn Fn(&Parts) -> Option<String> + Send + Sync;

/// Lets identical requests in flight share one call.
///
/// ```
/// use tollgate_tower::SingleFlightLayer;
///
/// # async fn report() -> &'static str { "expensive" }
/// let app: axum::Router = axum::Router::new()
///     .route("/report", axum::routing::get(report))
///     .layer(SingleFlightLayer::by_address());
/// ```
#[derive(Clone)]
pub struct SingleFlightLayer {
    key_of: Arc<KeyOf>,
    flights: Arc<Flights>,
    max_body: usize,
}

impl SingleFlightLayer {
    /// Requests with the same key are the same; those without one are left alone.
    ///
    /// Everybody gets the leader's answer, so the key must hold all that the answer depends on: who
    /// asks, if it is for them. And only what has no effects may be shared.
    pub fn new(key_of: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Self {
        let flights = Arc::new(Flights::new(MAX_FLIGHTS));
        Self { key_of: Arc::new(key_of), flights, max_body: MAX_BODY }
    }

    /// `GET` and `HEAD` requests for the same address are the same, unless they carry credentials
    /// (`Authorization`, a cookie, `X-Api-Key` and the like), a range, a condition or an origin.
    /// `Accept` and its kin tell them apart too. Credentials of another name make an answer
    /// personal that this cannot know of: use [`new`](SingleFlightLayer::new) with a key that holds
    /// them, or answer with `Cache-Control: private`.
    pub fn by_address() -> Self {
        Self::new(address)
    }

    /// Shares bodies up to so many bytes; a megabyte unless told otherwise.
    pub fn max_body(self, bytes: usize) -> Self {
        Self { max_body: bytes, ..self }
    }

    /// Keeps at most so many different calls in mind; 1024 unless told otherwise. Clones made before
    /// keep theirs.
    pub fn max_flights(self, most: usize) -> Self {
        Self { flights: Arc::new(Flights::new(most)), ..self }
    }
}

/// Method, address and what the answer may be negotiated by.
fn address(request: &Parts) -> Option<String> {
    let is_safe = matches!(request.method, Method::GET | Method::HEAD);
    if !is_safe || PERSONAL.iter().any(|name| request.headers.contains_key(name)) {
        return None;
    }
    let mut key = format!("{} {}", request.method, request.uri);
    for name in NEGOTIATED {
        for value in request.headers.get_all(name) {
            // No value holds a line feed, so none can pass for another field.
            key.push_str(&format!("\n{name}: {value:?}"));
        }
    }
    Some(key)
}

impl<T> Layer<T> for SingleFlightLayer {
    type Service = SingleFlight<T>;

    fn layer(&self, inner: T) -> Self::Service {
        SingleFlight {
            inner,
            key_of: Arc::clone(&self.key_of),
            flights: Arc::clone(&self.flights),
            max_body: self.max_body,
        }
    }
}

impl fmt::Debug for SingleFlightLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SingleFlightLayer")
            .field("max_body", &self.max_body)
            .finish_non_exhaustive()
    }
}
