//! The layer over a real Redis: shared, settled, killed, stopped and back again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use axum::routing::get;
use axum::{Extension, Router};
use http::StatusCode;
use tollgate::{Algorithm, Fallback, Gate, Policy, Rule};
use tollgate_redis::RedisStore;
use tollgate_testkit::redis::Server as Redis;
use tollgate_tower::{Admitted, RateLimitLayer};
use tonic_types::StatusExt;

use crate::scene::{Reply, Server};
use crate::tonic;

/// How long the store may take to answer.
const DEADLINE: Duration = Duration::from_millis(500);

/// The same where nothing may be late but because of the machine.
const PLENTY: Duration = Duration::from_secs(30);

/// How much longer a request may take on a machine busy with other tests, with connecting, a server
/// and a client in the same process. What the machine itself loses meanwhile is measured and comes on
/// top.
const SLACK: Duration = Duration::from_millis(400);

/// Whoever waits for two deadlines is late.
const _: () = assert!(SLACK.as_millis() < DEADLINE.as_millis());

/// How long a thread slept too long, at worst: for so long nobody can be blamed.
struct Stalls {
    worst: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

impl Stalls {
    fn watch() -> Self {
        const NAP: Duration = Duration::from_millis(5);
        let (worst, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let stalls = Self { worst: Arc::clone(&worst), is_over: Arc::clone(&is_over) };
        thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                let start = Instant::now();
                thread::sleep(NAP);
                let overslept = start.elapsed().saturating_sub(NAP);
                worst.fetch_max(overslept.as_millis() as u64, Ordering::Relaxed);
            }
        });
        stalls
    }

    /// The worst since it was asked before.
    fn worst(&self) -> Duration {
        Duration::from_millis(self.worst.swap(0, Ordering::Relaxed))
    }
}

impl Drop for Stalls {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

fn layer(
    redis: &Redis,
    deadline: Duration,
    rules: impl IntoIterator<Item = Rule>,
) -> RateLimitLayer<RedisStore> {
    let store = RedisStore::builder(&redis.url()).unwrap().deadline(deadline).build().unwrap();
    let policy = rules.into_iter().fold(Policy::builder(), |policy, rule| policy.rule(rule));
    RateLimitLayer::new(Gate::new(policy.build().unwrap(), store))
}

/// A server that answers with who decided.
async fn server(layer: RateLimitLayer<RedisStore>) -> Server {
    let handler = |Extension(admitted): Extension<Admitted>| async move {
        admitted.provenance().name().to_owned()
    };
    let app = Router::new()
        .route("/fail", get(|| async { StatusCode::UNAUTHORIZED }))
        .route("/{route}", get(handler))
        .layer(layer);
    Server::start(app).await
}

/// Asks on a path no rule is strict about until Redis decides.
async fn wait_for_redis(server: &Server) {
    let start = Instant::now();
    while server.get("/probe").await.text != "store" {
        assert!(start.elapsed() < Duration::from_secs(60), "Redis is not adopted");
        tokio::task::yield_now().await;
    }
}

fn probe() -> Rule {
    let rule = Rule::new("probe").when("path", "/probe").quota("1000000/day");
    rule.on_store_failure(Fallback::Allow)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_share_limits_and_settle_them() {
    let redis = Redis::start();
    let rules = || {
        [
            probe(),
            Rule::new("shared").when("path", "/shared").quota("4/day"),
            Rule::new("failures")
                .when("path", "/f*")
                .quota("2/day")
                .algorithm(Algorithm::SlidingLog),
        ]
    };
    let one = server(layer(&redis, PLENTY, rules())).await;
    let two = server(layer(&redis, PLENTY, rules())).await;
    wait_for_redis(&one).await;
    wait_for_redis(&two).await;
    let mut served = 0;
    for _ in 0..5 {
        for server in [&one, &two] {
            served += usize::from(server.get("/shared").await.status == StatusCode::OK);
        }
    }
    assert_eq!(served, 4);
    let refused = one.get("/shared").await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.header("ratelimit-policy"), Some("\"shared\";q=4;w=86400"));

    let only_failures = layer(&redis, PLENTY, rules())
        .charge_when(|answer| answer.status == StatusCode::UNAUTHORIZED);
    let server = server(only_failures).await;
    wait_for_redis(&server).await;
    for _ in 0..3 {
        let fine = server.get("/fine").await;
        assert_eq!((fine.status, fine.remaining()), (StatusCode::OK, Some(2)));
    }
    assert_eq!(server.get("/fail").await.remaining(), Some(1));
    assert_eq!(server.get("/fail").await.remaining(), Some(0));
    assert_eq!(server.get("/fine").await.status, StatusCode::TOO_MANY_REQUESTS);
    assert!(redis.keys_without_expiry().is_empty());
}

/// An answer, which must have come in time.
async fn in_time(server: &Server, stalls: &Stalls, path: &str) -> Reply {
    stalls.worst();
    let start = Instant::now();
    let reply = server.get(path).await;
    let (took, lost) = (start.elapsed(), stalls.worst());
    assert!(took < DEADLINE + SLACK + lost, "{path} took {took:?}, and {lost:?} were lost");
    reply
}

/// Asks under every fallback while Redis does not answer; the local one counts on from `local`.
async fn ask_without_redis(server: &Server, stalls: &Stalls, local: [u16; 3]) {
    for _ in 0..3 {
        assert_eq!(in_time(server, stalls, "/open").await.text, "fallback");
        let closed = in_time(server, stalls, "/closed").await;
        assert_eq!(closed.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(closed.header("retry-after"), Some("1"));
    }
    for expected in local {
        assert_eq!(in_time(server, stalls, "/local").await.status.as_u16(), expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_redis_each_rule_falls_back_and_nobody_waits() {
    let mut redis = Redis::start();
    let rule = |path: &str, fallback| {
        Rule::new(path).when("path", path).quota("2/day").on_store_failure(fallback)
    };
    let rules = [
        probe(),
        rule("/open", Fallback::Allow),
        rule("/closed", Fallback::Deny),
        rule("/local", Fallback::Local),
    ];
    let server = server(layer(&redis, DEADLINE, rules)).await;
    wait_for_redis(&server).await;

    // First it hangs, then it is gone; both are the same to whoever asks.
    let stalls = Stalls::watch();
    redis.pause();
    ask_without_redis(&server, &stalls, [200, 200, 429]).await;
    redis.kill();
    ask_without_redis(&server, &stalls, [429; 3]).await;

    redis.restart();
    wait_for_redis(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_to_tonic_servers_share_limits() {
    let redis = Redis::start();
    let rules = || [probe(), Rule::new("calls").when("path", "/grpc.*").quota("2/day")];
    let (one, two) = (layer(&redis, PLENTY, rules()), layer(&redis, PLENTY, rules()));
    // Probed by HTTP, for calls do not say who decided.
    for layer in [&one, &two] {
        wait_for_redis(&server(layer.clone()).await).await;
    }
    let (_one, mut one) = tonic::server(one).await;
    let (_two, mut two) = tonic::server(two).await;
    tonic::ask(&mut one, "a").await.unwrap();
    tonic::ask(&mut two, "a").await.unwrap();
    for client in [&mut one, &mut two] {
        let refused = tonic::ask(client, "a").await.unwrap_err();
        assert_eq!(refused.code(), ::tonic::Code::ResourceExhausted);
        let retry = refused.get_error_details().retry_info().unwrap().retry_delay.unwrap();
        assert!(retry > Duration::ZERO, "{retry:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_held_until_redis_admits_them() {
    const PERIOD: Duration = Duration::from_millis(300);
    let redis = Redis::start();
    let rules = [
        probe(),
        Rule::new("patient")
            .when("path", "/patient")
            .quota("1/300ms")
            .algorithm(Algorithm::SlidingLog)
            .wait(PLENTY),
        Rule::new("paced")
            .when("path", "/paced")
            .quota("1/300ms burst 9")
            .algorithm(Algorithm::LeakyBucket),
    ];
    let layer = layer(&redis, PLENTY, rules);
    let server = server(layer.clone()).await;
    wait_for_redis(&server).await;
    for path in ["/patient", "/paced"] {
        let start = Instant::now();
        for nth in 0..3 {
            assert_eq!(server.get(path).await.text, "store", "{path}");
            let took = start.elapsed();
            // The first of them came after the start, and timers may be a millisecond early.
            let least = (PERIOD * nth).saturating_sub(Duration::from_millis(2));
            assert!(took >= least, "{path} {nth} took {took:?}");
        }
    }
    assert_eq!(layer.held(), 0);
}
