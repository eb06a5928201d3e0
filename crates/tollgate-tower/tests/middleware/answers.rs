//! What clients are told: fields in every dialect, refusals, and layers inside layers.

use std::future::Future;

use axum::Router;
use axum::body::Body;
use axum::response::AppendHeaders;
use axum::routing::get;
use bytes::Bytes;
use http::{HeaderName, Method, Request, Response, StatusCode, Version};
use sfv::{List, Parser};
use tollgate::store::Answers;
use tollgate::{
    Algorithm, ChargeSet, Cost, Fallback, Gate, Missing, Override, Policy, Rule, Store, StoreError,
    StoreErrorKind,
};
use tollgate_tower::{Axes, Cause, Dialect, RateLimitLayer};
use tower::ServiceBuilder;

use crate::scene::{Reply, Server, clock, gate, gate_on, hello, plain, send, with_headers};

fn app<S: Store + 'static>(layer: RateLimitLayer<S>) -> Router {
    Router::new().route("/", get(|| async { "hello" })).layer(layer)
}

/// The fields about limits, as they are on the wire.
fn fields(reply: &Reply) -> Vec<String> {
    let about = |name: &HeaderName| {
        let name = name.as_str();
        name.contains("ratelimit") || name == "retry-after" || name == "cache-control"
    };
    let fields = reply.headers.iter().filter(|(name, _)| about(name));
    fields.map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect()
}

#[tokio::test]
async fn every_dialect_tells_allowed_and_refused_answers_byte_by_byte() {
    let cases: [(Dialect, &[&str], &[&str]); 7] = [
        (
            Dialect::Draft11,
            &[
                "ratelimit-policy: \"burst\";q=2;w=2, \"daily\";q=5;w=86400",
                "ratelimit: \"burst\";r=1;t=1, \"daily\";r=4;t=86400",
            ],
            &[
                "ratelimit-policy: \"burst\";q=2;w=2, \"daily\";q=5;w=86400",
                "ratelimit: \"burst\";r=0;t=1, \"daily\";r=3;t=86400",
            ],
        ),
        (
            Dialect::Draft7,
            &["ratelimit: limit=2, remaining=1, reset=1", "ratelimit-policy: 2;w=2, 5;w=86400"],
            &["ratelimit: limit=2, remaining=0, reset=1", "ratelimit-policy: 2;w=2, 5;w=86400"],
        ),
        (
            Dialect::Draft6,
            &[
                "ratelimit-limit: 2",
                "ratelimit-remaining: 1",
                "ratelimit-reset: 1",
                "ratelimit-policy: 2;w=2, 5;w=86400",
            ],
            &[
                "ratelimit-limit: 2",
                "ratelimit-remaining: 0",
                "ratelimit-reset: 1",
                "ratelimit-policy: 2;w=2, 5;w=86400",
            ],
        ),
        (
            Dialect::XRateLimitEpoch,
            &["x-ratelimit-limit: 2", "x-ratelimit-remaining: 1", "x-ratelimit-reset: 1763251201"],
            &["x-ratelimit-limit: 2", "x-ratelimit-remaining: 0", "x-ratelimit-reset: 1763251201"],
        ),
        (
            Dialect::XRateLimitDelta,
            &["x-ratelimit-limit: 2", "x-ratelimit-remaining: 1", "x-ratelimit-reset: 1"],
            &["x-ratelimit-limit: 2", "x-ratelimit-remaining: 0", "x-ratelimit-reset: 1"],
        ),
        (
            Dialect::Envoy03,
            &[
                "x-ratelimit-limit: 2, 2;w=2;name=\"burst\", 5;w=86400;name=\"daily\"",
                "x-ratelimit-remaining: 1",
                "x-ratelimit-reset: 1",
            ],
            &[
                "x-ratelimit-limit: 2, 2;w=2;name=\"burst\", 5;w=86400;name=\"daily\"",
                "x-ratelimit-remaining: 0",
                "x-ratelimit-reset: 1",
            ],
        ),
        (Dialect::Off, &[], &[]),
    ];
    assert_eq!(cases.map(|(dialect, ..)| dialect), Dialect::ALL);
    for (dialect, allowed, refused) in cases {
        let policy = Policy::builder()
            .rule(Rule::new("daily").quota("5/day").algorithm(Algorithm::FixedWindow))
            .rule(Rule::new("burst").quota("1/s burst 2").algorithm(Algorithm::TokenBucket))
            .rule(Rule::new("watched").quota("1/day").shadow());
        let layer = RateLimitLayer::new(gate_on(clock(), policy)).dialect(dialect);
        let server = Server::start(app(layer)).await;
        assert_eq!(fields(&server.get("/").await), allowed, "{dialect}");
        server.get("/").await;
        let told = fields(&server.get("/").await);
        let (limits, refusal) = told.split_at(told.len() - 2);
        assert_eq!(limits, refused, "{dialect}");
        assert_eq!(refusal, ["retry-after: 1", "cache-control: no-store"], "{dialect}");
    }
}

#[tokio::test]
async fn quotas_of_one_rule_have_names_of_their_own() {
    let layer = RateLimitLayer::new(gate(Rule::new("user").quota("2/min; 9/day")));
    let server = Server::start(app(layer)).await;
    assert_eq!(
        server.get("/").await.header("ratelimit-policy"),
        Some("\"user 2/min\";q=2;w=60, \"user 9/day\";q=9;w=86400")
    );
}

#[tokio::test]
async fn a_refusal_is_a_problem_document() {
    let rule = Rule::new("say \"hi\"").quota("1/min").algorithm(Algorithm::SlidingLog);
    let server = Server::start(app(RateLimitLayer::new(gate(rule)))).await;
    server.get("/").await;
    let refused = server.get("/").await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.header("content-type"), Some("application/problem+json"));
    assert_eq!(
        refused.text,
        concat!(
            r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","#,
            r#""title":"Too many requests","status":429,"#,
            r#""detail":"the limit \"say \"hi\"\" is exceeded; try again in 60s","#,
            r#""violated-policies":["say \"hi\""],"retry_ms":60000}"#,
        )
    );
    assert_eq!(refused.json()["violated-policies"][0], "say \"hi\"");
    let list: List = Parser::new(refused.headers["ratelimit"].as_bytes()).parse().unwrap();
    assert_eq!(list.len(), 1);
}

#[tokio::test]
async fn what_can_never_fit_and_what_is_listed_has_no_retry() {
    let policy = Policy::builder()
        .deny("user", "mallory")
        .rule(Rule::new("bytes").unit("bytes").quota("10/min"))
        .rule(Rule::new("known").by("user").quota("9/min").missing(Missing::Deny));
    let layer = RateLimitLayer::new(gate_on(clock(), policy))
        .axes(Axes::new().header("user", HeaderName::from_static("x-user")))
        .cost("bytes", |request| {
            let length = request.headers.get("x-bytes")?.to_str().ok()?;
            Cost::new(length.parse().ok()?)
        });
    let server = Server::start(app(layer)).await;
    let ask = async |headers: &[(&str, &str)]| server.send(with_headers("/", headers)).await;

    let never = ask(&[("x-user", "ann"), ("x-bytes", "11")]).await;
    assert_eq!((never.status.as_u16(), never.header("retry-after")), (429, None));
    assert_eq!(never.json()["retry_ms"], "never");
    assert_eq!(ask(&[("x-user", "ann"), ("x-bytes", "9")]).await.status.as_u16(), 200);

    for refused in [ask(&[("x-user", "mallory")]).await, ask(&[]).await] {
        assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (429, None));
        assert_eq!(refused.header("cache-control"), Some("no-store"));
        assert_eq!(refused.json()["retry_ms"], serde_json::Value::Null);
    }
    let listed = ask(&[("x-user", "mallory")]).await.json();
    assert_eq!(listed["detail"], "the request is not admitted");
    assert_eq!(listed["violated-policies"], serde_json::json!([]));
    let missing = ask(&[]).await.json();
    assert_eq!(missing["detail"], "the limit \"known\" goes by \"user\", which the request lacks");
    assert_eq!(missing["violated-policies"], serde_json::json!(["known"]));
}

#[tokio::test]
async fn refusals_can_be_written_by_hand() {
    let rule = Rule::new("all").quota("1/min").algorithm(Algorithm::SlidingLog);
    let layer = RateLimitLayer::new(gate(rule)).refuse_with(|refusal| {
        assert_eq!(refusal.cause(), Cause::Limit);
        let names: Vec<_> = refusal.rules().collect();
        let mut response = Response::new(Bytes::from(format!("slow down: {names:?}")));
        *response.status_mut() = StatusCode::from_u16(420).unwrap();
        response
    });
    let server = Server::start(app(layer)).await;
    server.get("/").await;
    let refused = server.get("/").await;
    assert_eq!((refused.status.as_u16(), &*refused.text), (420, "slow down: [\"all\"]"));
    assert_eq!(refused.header("retry-after"), Some("60"));
}

#[tokio::test]
async fn only_calls_of_grpc_are_refused_as_such() {
    let layer = || RateLimitLayer::new(gate(Rule::new("all").quota("1/min")));
    let service = |layer| ServiceBuilder::new().layer(layer).service_fn(hello);
    let custom = service(layer().refuse_with(|_| {
        let mut response = Response::new(Bytes::from("slow down"));
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        response
    }));
    let told = service(layer().grpc());
    for service in [&custom, &told] {
        assert_eq!(send(service, plain("/")).await.status, 200);
    }
    let call = |method: Method, version, content_type: &str| {
        let request = Request::builder().method(method).version(version);
        request.header("content-type", content_type).body(Body::empty()).unwrap()
    };
    for (method, version, content_type, is_grpc) in [
        (Method::POST, Version::HTTP_2, "application/grpc", true),
        (Method::POST, Version::HTTP_2, "application/grpc+proto", true),
        (Method::POST, Version::HTTP_2, "Application/gRPC;charset=utf-8", true),
        (Method::POST, Version::HTTP_2, "application/grpc-web", false),
        (Method::POST, Version::HTTP_2, "application/grpc-web+proto", false),
        (Method::POST, Version::HTTP_2, "application/json", false),
        (Method::POST, Version::HTTP_11, "application/grpc", false),
        (Method::GET, Version::HTTP_2, "application/grpc", false),
    ] {
        let request = || call(method.clone(), version, content_type);
        let case = format!("{method} {version:?} {content_type}");
        let refused = send(&custom, request()).await;
        match is_grpc {
            true => assert_eq!(refused.header("grpc-status"), Some("8"), "{case}"),
            false => assert_eq!((refused.status.as_u16(), &*refused.text), (429, "slow down")),
        }
        assert_eq!(refused.header("grpc-status").is_some(), is_grpc, "{case}");
        assert_eq!(send(&told, request()).await.header("grpc-status"), Some("8"), "{case}");
    }
}

#[tokio::test]
async fn nested_layers_are_told_together() {
    let layer = |name: &str, quota: &str, dialect| {
        let rule = Rule::new(name).quota(quota).algorithm(Algorithm::FixedWindow);
        RateLimitLayer::new(gate(rule)).dialect(dialect)
    };
    let nested = async |inner, outer| {
        let server = Server::start(app(inner).layer(outer)).await;
        server.get("/").await
    };
    let reply =
        nested(layer("inner", "5/min", Dialect::Draft11), layer("outer", "9/h", Dialect::Draft11))
            .await;
    assert_eq!(
        fields(&reply),
        [
            "ratelimit-policy: \"inner\";q=5;w=60, \"outer\";q=9;w=3600",
            "ratelimit: \"inner\";r=4;t=60, \"outer\";r=8;t=3600",
        ]
    );
    let list: List = Parser::new(reply.headers["ratelimit"].as_bytes()).parse().unwrap();
    assert_eq!(list.len(), 2);

    // Where there is room for one limit, it is the one with less left.
    for (dialect, field, value) in [
        (Dialect::XRateLimitDelta, "x-ratelimit-remaining", "4"),
        (Dialect::Draft6, "ratelimit-remaining", "4"),
        (Dialect::Draft7, "ratelimit", "limit=5, remaining=4, reset=60"),
    ] {
        for quotas in [["5/min", "9/h"], ["9/h", "5/min"]] {
            let [inner, outer] = quotas.map(|quota| layer("l", quota, dialect));
            let reply = nested(inner, outer).await;
            assert_eq!(reply.header(field), Some(value), "{dialect} {quotas:?}");
            assert_eq!(reply.headers.get_all(field).iter().count(), 1, "{dialect}");
        }
    }
}

#[tokio::test]
async fn what_a_service_told_several_times_is_kept_whole_or_not_at_all() {
    const FIELD: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
    for (told, expected) in [(["1", "20"], &["1", "20"][..]), (["20", "1"], &["8"])] {
        let rule = Rule::new("l").quota("9/h").algorithm(Algorithm::FixedWindow);
        let layer = RateLimitLayer::new(gate(rule)).dialect(Dialect::XRateLimitDelta);
        let handler = async move || (AppendHeaders(told.map(|value| (FIELD, value))), "hello");
        let server = Server::start(Router::new().route("/", get(handler)).layer(layer)).await;
        let reply = server.get("/").await;
        let values: Vec<_> = reply.headers.get_all(FIELD).iter().collect();
        assert_eq!(values, expected);
    }
}

/// A store that cannot be asked.
pub(crate) struct Down;

impl Store for Down {
    fn decide(&self, sets: &[ChargeSet<'_>]) -> impl Future<Output = Answers> + Send {
        let error = || StoreError::new(StoreErrorKind::Unavailable);
        std::future::ready(sets.iter().map(|_| Err(error())).collect())
    }
}

#[tokio::test]
async fn without_a_store_each_rule_does_what_it_says() {
    for (fallback, expected) in
        [(Fallback::Allow, [200, 200]), (Fallback::Local, [200, 429]), (Fallback::Deny, [503, 503])]
    {
        let rule = Rule::new("r").quota("1/day").on_store_failure(fallback);
        let gate = Gate::new(Policy::builder().rule(rule).build().unwrap(), Down);
        let server = Server::start(app(RateLimitLayer::new(gate))).await;
        for expected in expected {
            let reply = server.get("/").await;
            assert_eq!(reply.status.as_u16(), expected, "{fallback:?}");
            if expected == 503 {
                assert_eq!(reply.header("retry-after"), Some("1"));
                assert_eq!(
                    reply.json()["type"],
                    "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
                );
            }
        }
    }
}

#[tokio::test]
async fn everything_decided_can_be_seen() {
    let (see, seen) = std::sync::mpsc::channel();
    let policy = Policy::builder()
        .rule(Rule::new("hard").quota("2/min"))
        .rule(Rule::new("watched").quota("1/min").shadow());
    let layer = RateLimitLayer::new(gate_on(clock(), policy)).inspect(move |admission| {
        let verdicts = admission.outcomes().map(|(_, outcome)| outcome.verdict.name());
        see.send((admission.verdict().name(), verdicts.collect::<Vec<_>>())).unwrap();
    });
    let server = Server::start(app(layer)).await;
    for _ in 0..3 {
        server.get("/").await;
    }
    assert_eq!(
        seen.try_iter().collect::<Vec<_>>(),
        [
            ("allow", vec!["allow", "allow"]),
            ("allow", vec!["allow", "deny"]),
            ("deny", vec!["deny", "deny"]),
        ]
    );
}

#[tokio::test]
async fn whoever_has_another_quota_is_told_that_one() {
    let policy = Policy::builder()
        .rule(Rule::new("plan").by("plan").quota("9/min"))
        .overriding(Override::new("plan", "20/min").when("plan", "more"))
        .overriding(Override::new("plan", "9/h").when("plan", "slower"));
    let layer = RateLimitLayer::new(gate_on(clock(), policy))
        .axes(Axes::new().header("plan", HeaderName::from_static("x-plan")));
    let server = Server::start(app(layer)).await;
    for (plan, limit, left) in [
        ("usual", "\"plan\";q=9;w=60", 8),
        ("more", "\"plan\";q=20;w=60", 19),
        ("slower", "\"plan\";q=9;w=3600", 8),
        ("usual", "\"plan\";q=9;w=60", 7),
    ] {
        let reply = server.send(with_headers("/", &[("x-plan", plan)])).await;
        assert_eq!(reply.header("ratelimit-policy"), Some(limit), "{plan}");
        assert_eq!(reply.remaining(), Some(left), "{plan}");
    }
}

#[tokio::test]
async fn a_rule_that_only_watches_is_told_nobody() {
    let layer = RateLimitLayer::new(gate(Rule::new("watch").quota("9/min").shadow()));
    let server = Server::start(app(layer)).await;
    assert_eq!(fields(&server.get("/").await), [] as [String; 0]);
}
