//! What the tests share: gates on driven clocks, servers on free ports, and a client.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tollgate::gate::LocalStore;
use tollgate::policy::PolicyBuilder;
use tollgate::{Clock, Gate, ManualClock, MemoryStore, Micros, Rule, Timestamp};
use tower::{Service, ServiceExt};

/// When every test begins: a round day.
pub(crate) const START_SECS: u64 = 1_763_251_200;

pub(crate) fn clock() -> ManualClock {
    ManualClock::at_secs(START_SECS)
}

/// A gate with one rule on a clock that stands still.
pub(crate) fn gate(rule: Rule) -> Gate<MemoryStore<ManualClock>> {
    gate_on(clock(), tollgate::Policy::builder().rule(rule))
}

pub(crate) fn gate_on<C: Clock + Clone + 'static>(
    clock: C,
    policy: PolicyBuilder,
) -> Gate<MemoryStore<C>> {
    let policy = policy.build().unwrap_or_else(|errors| panic!("{errors}"));
    let local: Arc<dyn Clock> = Arc::new(clock.clone());
    Gate::new(policy, MemoryStore::with_clock(clock)).with_local(LocalStore::with_clock(local))
}

/// The runtime's clock, which stands still in tests with paused time unless everybody waits.
#[derive(Clone, Debug)]
pub(crate) struct RuntimeClock {
    start: Instant,
}

impl RuntimeClock {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Clock for RuntimeClock {
    fn now(&self) -> Timestamp {
        let start = Timestamp::from_micros(START_SECS * 1_000_000);
        start + Micros::from(self.start.elapsed())
    }
}

/// An axum server on a free port; gone when dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    running: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.running.abort();
    }
}

impl Server {
    pub(crate) async fn start(router: Router) -> Self {
        let listener = listener().await;
        let address = listener.local_addr().unwrap();
        let service = router.into_make_service_with_connect_info::<SocketAddr>();
        let running = tokio::spawn(async move { axum::serve(listener, service).await.unwrap() });
        Self { address, running }
    }

    /// The same, and nobody tells who the peers are.
    pub(crate) async fn start_without_peers(router: Router) -> Self {
        let service = router.into_make_service();
        Self::run(async |listener| axum::serve(listener, service).await.unwrap()).await
    }

    /// Any other server, given its listener.
    pub(crate) async fn run<F>(serve: impl FnOnce(TcpListener) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = listener().await;
        let address = listener.local_addr().unwrap();
        Self { address, running: tokio::spawn(serve(listener)) }
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send(request(path)).await
    }

    pub(crate) async fn send(&self, request: Request<Empty<Bytes>>) -> Reply {
        self.send_from(Ipv4Addr::LOCALHOST.into(), request).await
    }

    /// One request on a connection of its own, from another address of the loopback.
    pub(crate) async fn send_from(&self, from: IpAddr, request: Request<Empty<Bytes>>) -> Reply {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::new(from, 0)).unwrap();
        let stream = socket.connect(self.address).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Reply::of(sender.send_request(request).await.unwrap()).await
    }
}

async fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.unwrap()
}

pub(crate) fn request(path: &str) -> Request<Empty<Bytes>> {
    with_headers(path, &[])
}

pub(crate) fn with_headers(path: &str, headers: &[(&str, &str)]) -> Request<Empty<Bytes>> {
    let builder = Request::builder().uri(path).header("host", "localhost");
    let builder =
        headers.iter().fold(builder, |builder, (name, value)| builder.header(*name, *value));
    builder.body(Empty::new()).unwrap()
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Reply {
    pub(crate) async fn of<B>(response: Response<B>) -> Self
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: std::fmt::Debug,
    {
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        Self { status: parts.status, headers: parts.headers, text }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// What remains of the limit told first.
    pub(crate) fn remaining(&self) -> Option<u64> {
        let (_, rest) = self.header("ratelimit")?.split_once(";r=")?;
        rest.split(';').next()?.parse().ok()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }
}

/// A request sent straight to a service, without sockets, for tests on paused time.
pub(crate) async fn send<T, R>(service: &T, request: Request<Body>) -> Reply
where
    T: Service<Request<Body>, Response = Response<R>, Error = Infallible> + Clone,
    R: http_body::Body<Data = Bytes>,
    R::Error: std::fmt::Debug,
{
    let Ok(response) = service.clone().oneshot(request).await;
    Reply::of(response).await
}

/// An empty request as axum has them.
pub(crate) fn plain(path: &str) -> Request<Body> {
    Request::builder().uri(path).body(Body::empty()).unwrap()
}

/// Answers everything with "hello".
pub(crate) async fn hello(_: Request<Body>) -> Result<Response<Body>, Infallible> {
    Ok(Response::new(Body::from("hello")))
}
