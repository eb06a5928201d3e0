//! The layer: which requests are the same.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::header::{
    AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, IF_MATCH, IF_MODIFIED_SINCE, IF_RANGE,
    IF_UNMODIFIED_SINCE, ORIGIN, PROXY_AUTHORIZATION, RANGE, TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::{HeaderName, Method, Uri};
use tower_layer::Layer;

use super::flights::Flights;
use super::service::SingleFlight;

/// The longest body shared, unless told otherwise.
const MAX_BODY: usize = 1 << 20;

/// The longest a body is read before it is handed on unshared, unless told otherwise: what is at hand
/// comes at once, and whoever asked for a stream without end waits that long for its beginning.
const LONGEST_READ: Duration = Duration::from_secs(1);

/// The most different calls under way, unless told otherwise.
const MAX_FLIGHTS: usize = 1_024;

/// What makes two requests different though they ask for the same address.
///
/// Credentials have many names; those that are common are here, and answers that are somebody's own
/// are not shared either (see `future.rs`). Neither are requests that bring a body, which nobody looks
/// into.
const PERSONAL: [HeaderName; 16] = [
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
    CONTENT_LENGTH,
    CONTENT_TYPE,
    TRANSFER_ENCODING,
];

/// What an answer may be negotiated by.
pub(super) const NEGOTIATED: [&str; 5] =
    ["host", "accept", "accept-encoding", "accept-language", "if-none-match"];

/// What a request asks; `None` if it is not to be shared.
pub(super) type KeyOf = dyn Fn(&Parts) -> Option<String> + Send + Sync;

/// Lets identical requests in flight share one call.
///
/// A layer and its clones share calls, whatever they are put around: routes of one service, or places
/// where it is nested. Services that answer the same address differently, on two ports of a process,
/// need a layer made anew for each.
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
    bounds: Bounds,
}

/// What of an answer is shared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) max_body: usize,
    pub(super) longest_read: Duration,
    // Whether answers of the service that it failed are.
    pub(super) failures: bool,
}

impl SingleFlightLayer {
    /// Requests with the same key are the same; those without one are left alone.
    ///
    /// Everybody gets the leader's answer, so the key must hold all that the answer depends on: who
    /// asks, if it is for them. And only what has no effects may be shared. Where axum nests a router,
    /// `uri` is what is left of the address inside; the whole is in the extension
    /// `axum::extract::OriginalUri`.
    pub fn new(key_of: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Self {
        let flights = Arc::new(Flights::new(MAX_FLIGHTS));
        let bounds = Bounds { max_body: MAX_BODY, longest_read: LONGEST_READ, failures: false };
        Self { key_of: Arc::new(key_of), flights, bounds }
    }

    /// `GET` and `HEAD` requests for the same address are the same, unless they carry credentials
    /// (`Authorization`, a cookie, `X-Api-Key` and the like), a range, a condition, an origin or a
    /// body. `Accept` and its kin tell them apart too. The address is the whole one, as the client
    /// sent it, also inside a router that axum nests (with the feature `axum`), and what was made of
    /// it since. Credentials of another name make an answer personal that this cannot know of, and so
    /// do a client's address and its certificate: use [`new`](SingleFlightLayer::new) with a key that
    /// holds them, or answer with `Cache-Control: private`.
    pub fn by_address() -> Self {
        Self::new(address)
    }

    /// Shares bodies up to so many bytes; a megabyte unless told otherwise.
    pub fn max_body(mut self, bytes: usize) -> Self {
        self.bounds.max_body = bytes;
        self
    }

    /// Shares bodies that end within so long of their head; a second unless told otherwise. Then the
    /// leader is handed its head, what has come of its body and what follows, and the others call for
    /// themselves. So a stream without end is late by that long; better leave its route out.
    pub fn longest_read(mut self, longest: Duration) -> Self {
        self.bounds.longest_read = longest;
        self
    }

    /// Shares answers of 500 and above too, which otherwise are their leaders' alone.
    ///
    /// Without this each failure leaves the call to the next who waits, one after another, so that a
    /// service in trouble is asked once at a time; but where it takes long to fail, the last waits for
    /// all before. With it they fail together.
    pub fn share_failures(mut self) -> Self {
        self.bounds.failures = true;
        self
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
    // Both, for a layer further out may have sent on two requests for one address to two places.
    if let Some(sent) = sent_uri(request).filter(|sent| **sent != request.uri) {
        key.push_str(&format!("\n{sent}"));
    }
    for name in NEGOTIATED {
        for value in request.headers.get_all(name) {
            // No value holds a line feed, so none can pass for another field.
            key.push_str(&format!("\n{name}: {value:?}"));
        }
    }
    Some(key)
}

/// The address as it was sent: axum hands a nested router what is left of it.
#[cfg(feature = "axum")]
fn sent_uri(request: &Parts) -> Option<&Uri> {
    request.extensions.get::<axum::extract::OriginalUri>().map(|sent| &sent.0)
}

#[cfg(not(feature = "axum"))]
fn sent_uri(_: &Parts) -> Option<&Uri> {
    None
}

impl<T> Layer<T> for SingleFlightLayer {
    type Service = SingleFlight<T>;

    fn layer(&self, inner: T) -> Self::Service {
        SingleFlight {
            inner,
            key_of: Arc::clone(&self.key_of),
            flights: Arc::clone(&self.flights),
            bounds: self.bounds,
        }
    }
}

impl fmt::Debug for SingleFlightLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SingleFlightLayer").field("bounds", &self.bounds).finish_non_exhaustive()
    }
}
