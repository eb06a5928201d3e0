//! The layer over a real Redis: shared, settled, killed, stopped and back again.

use std::time::{Duration, Instant};

use axum::routing::get;
use axum::{Extension, Router};
use http::StatusCode;
use tollgate::{Algorithm, Fallback, Gate, Policy, Rule};
use tollgate_redis::RedisStore;
use tollgate_testkit::redis::Server as Redis;
use tollgate_tower::{Admitted, RateLimitLayer};

use crate::scene::{Reply, Server};

/// How long the store may take to answer.
const DEADLINE: Duration = Duration::from_millis(200);

/// The same where nothing may be late but because of the machine.
const PLENTY: Duration = Duration::from_secs(30);

/// How much longer a request may take on a machine busy with other tests, with connecting, a server
/// and a client in the same process.
const SLACK: Duration = Duration::from_secs(2);

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
async fn in_time(server: &Server, path: &str) -> Reply {
    let start = Instant::now();
    let reply = server.get(path).await;
    let took = start.elapsed();
    assert!(took < DEADLINE + SLACK, "{path} took {took:?}");
    reply
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
    redis.pause();
    for _ in 0..5 {
        assert_eq!(in_time(&server, "/open").await.text, "fallback");
    }
    redis.kill();
    for _ in 0..5 {
        assert_eq!(in_time(&server, "/open").await.text, "fallback");
        let closed = in_time(&server, "/closed").await;
        assert_eq!(closed.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(closed.header("retry-after"), Some("1"));
    }
    let mut local = Vec::new();
    for _ in 0..4 {
        local.push(in_time(&server, "/local").await.status.as_u16());
    }
    assert_eq!(local, [200, 200, 429, 429]);

    redis.restart();
    wait_for_redis(&server).await;
}
