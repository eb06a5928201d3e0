//! A real server on a free port of the loopback, and a real client for it.

use std::net::SocketAddr;

use axum::body::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper::{HeaderMap, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tollgate::policy::PolicyBuilder;
use tollgate::{ManualClock, MemoryStore, Store};
use tollgate_server::{Limits, Listeners, Settings, Stop, run};

/// When every test begins: a round minute.
pub(crate) const START_SECS: u64 = 1_763_251_200;

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) clock: ManualClock,
    stop: oneshot::Sender<()>,
    running: JoinHandle<Stop>,
}

/// What came back.
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::with(|settings| settings).await
    }

    /// A server whose settings are the defaults, changed by `change`.
    pub(crate) async fn with(
        change: impl FnOnce(Settings<MemoryStore<ManualClock>>) -> Settings<MemoryStore<ManualClock>>,
    ) -> Self {
        let clock = ManualClock::at_secs(START_SECS);
        let settings = change(Settings::new(MemoryStore::with_clock(clock.clone())));
        Self::on(settings, clock).await
    }

    /// A server with other limits.
    pub(crate) async fn limited(limits: Limits) -> Self {
        Self::with(|settings| Settings { limits, ..settings }).await
    }

    /// A server with a policy.
    pub(crate) async fn of(policy: PolicyBuilder) -> Self {
        let policy = policy.build().unwrap_or_else(|errors| panic!("{errors}"));
        Self::with(|settings| {
            settings.gate.set_policy(policy);
            settings
        })
        .await
    }

    /// A server with these settings.
    pub(crate) async fn on<S: Store + 'static>(settings: Settings<S>, clock: ManualClock) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(run(Listeners { http: listener }, settings, async {
            let _ = stopped.await;
        }));
        Self { address, clock, stop, running }
    }

    /// Tells the server to stop and hands over what tells when it has.
    pub(crate) fn stop(self) -> JoinHandle<Stop> {
        self.stop.send(()).unwrap();
        self.running
    }

    pub(crate) async fn post(&self, path: &str, body: impl Into<Bytes>) -> Reply {
        self.send("POST", path, body).await
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send("GET", path, "").await
    }

    pub(crate) async fn send(&self, method: &str, path: &str, body: impl Into<Bytes>) -> Reply {
        self.send_with(method, path, &[], body).await
    }

    /// One request on a connection of its own.
    pub(crate) async fn send_with(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Reply {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let request = Request::builder().method(method).uri(path).header("host", "localhost");
        let request =
            headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let request = request.body(Full::new(body.into())).unwrap();
        let (head, body) = sender.send_request(request).await.unwrap().into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Reply {
            status: head.status,
            headers: head.headers,
            text: String::from_utf8(bytes.to_vec()).unwrap(),
        }
    }
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// What is left of each charge.
    pub(crate) fn remaining(&self) -> Vec<u64> {
        let outcomes = self.json()["outcomes"].as_array().unwrap().clone();
        let remaining = outcomes.iter().map(|outcome| outcome["remaining"].as_u64());
        remaining.map(Option::unwrap).collect()
    }
}
