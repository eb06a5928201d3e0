//! The same hello server with another layer, or none, each on a thread of its own.

use std::fs;
use std::future::IntoFuture;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use core_affinity::CoreId;
use futures_util::future::select;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tollgate::policy::{Missing, Rule};
use tollgate::{Algorithm, Gate, MemoryStore, Policy};
use tollgate_tower::{Axes, RateLimitLayer};
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;

/// What stands before the handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing.
    Bare,
    /// `tower_governor` by peer address, with headers.
    TowerGovernor,
    /// Ours by client address, in memory, with headers; the algorithm is the default one.
    Tollgate,
    /// The same by token buckets, which is what `tower_governor` has.
    TollgateBucket,
}

impl Kind {
    /// All, the one to compare with first.
    pub(crate) const ALL: [Self; 4] =
        [Self::Bare, Self::TowerGovernor, Self::Tollgate, Self::TollgateBucket];

    /// What it is called.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::TowerGovernor => "tower_governor",
            Self::Tollgate => "tollgate-tower",
            Self::TollgateBucket => "tollgate-tower, token-bucket",
        }
    }

    fn router(self) -> Router {
        let router = Router::new().route("/", get(|| async { "hello" }));
        match self {
            Self::Bare => router,
            Self::TowerGovernor => {
                // So generous that everything is granted.
                let config = GovernorConfigBuilder::default()
                    .per_nanosecond(1)
                    .burst_size(1_000_000_000)
                    .use_headers()
                    .finish()
                    .expect("neither is zero");
                router.layer(GovernorLayer::new(Arc::new(config)))
            }
            Self::Tollgate => {
                let layer = RateLimitLayer::per_ip("90000000/h").expect("it is a quota");
                router.layer(layer)
            }
            Self::TollgateBucket => {
                let rule = Rule::new("per-ip").by("ip").quota("1000/s burst 1000000000");
                let rule = rule.algorithm(Algorithm::TokenBucket).missing(Missing::Share);
                let policy = Policy::builder().rule(rule).build().expect("it is a policy");
                let layer = RateLimitLayer::new(Gate::new(policy, MemoryStore::new()));
                router.layer(layer.axes(Axes::new().client_ip("ip")))
            }
        }
    }
}

/// A server that runs until it is dropped.
pub(crate) struct Server {
    address: SocketAddr,
    // Dropped to stop it.
    _stop: oneshot::Sender<()>,
    // Where the system says how long its thread has run.
    schedstat: String,
}

impl Server {
    /// Starts one, on a core if one is named.
    pub(crate) fn start(kind: Kind, core: Option<CoreId>) -> Self {
        let (send, started) = mpsc::channel();
        thread::spawn(move || {
            core.map(core_affinity::set_for_current);
            let thread = fs::read_link("/proc/thread-self").unwrap_or_default();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime starts").block_on(async move {
                let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
                let address = listener.local_addr().expect("it is bound");
                let schedstat = format!("/proc/{}/schedstat", thread.display());
                let (stop, stopped) = oneshot::channel();
                send.send(Self { address, _stop: stop, schedstat }).expect("somebody waits");
                let service = kind.router().into_make_service_with_connect_info::<SocketAddr>();
                // What it has under way ends with the runtime.
                select(stopped, axum::serve(listener, service).into_future()).await;
            });
        });
        started.recv().expect("the thread says where it listens")
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// How long its thread has been on a processor; zero where the system does not say.
    pub(crate) fn cpu_time(&self) -> Duration {
        let text = fs::read_to_string(&self.schedstat).unwrap_or_default();
        let nanos = text.split(' ').next().and_then(|first| first.parse().ok());
        Duration::from_nanos(nanos.unwrap_or(0))
    }
}
