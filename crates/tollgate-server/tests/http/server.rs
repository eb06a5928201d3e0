//! A real server on a free port of the loopback, and a real client for it.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper::{HeaderMap, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tollgate::{ManualClock, MemoryStore};
use tollgate_server::{Limits, Listeners, Settings, Stop, run};
use tollgate_tower::Dialect;

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
        Self::with(Limits::default(), Dialect::default()).await
    }

    pub(crate) async fn with(limits: Limits, dialect: Dialect) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let clock = ManualClock::at_secs(START_SECS);
        let settings =
            Settings { store: Arc::new(MemoryStore::with_clock(clock.clone())), dialect, limits };
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

    /// One request on a connection of its own.
    pub(crate) async fn send(&self, method: &str, path: &str, body: impl Into<Bytes>) -> Reply {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost")
            .body(Full::new(body.into()))
            .unwrap();
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
