//! Real servers: axum, and plain hyper.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use axum::routing::get;
use axum::{Extension, Router};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response};
use http_body_util::Empty;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tollgate::{Algorithm, Cost, Gate, MemoryStore, Missing, Policy, Rule};
use tollgate_tower::{Admitted, Axes, Check, PeerAddr, RateLimitLayer, ResponseBody};
use tower::ServiceBuilder;

use crate::scene::{Server, clock, gate, gate_on, hello, plain, request, send, with_headers};

#[tokio::test]
async fn the_short_form_limits_each_address() {
    let app = Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(RateLimitLayer::per_ip("2/day").unwrap());
    let server = Server::start(app).await;
    for left in [1, 0] {
        let reply = server.get("/").await;
        assert_eq!((reply.status.as_u16(), reply.text.as_str()), (200, "hello"));
        assert_eq!(reply.header("ratelimit-policy"), Some("\"per-ip\";q=2;w=86400"));
        assert_eq!(reply.remaining(), Some(left));
        assert_eq!(reply.header("retry-after"), None);
    }
    let refused = server.get("/").await;
    assert_eq!(refused.status.as_u16(), 429);
    assert_eq!(refused.remaining(), Some(0));
    let retry: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=2 * 86_400).contains(&retry), "{retry}");
    let other: IpAddr = "127.0.0.9".parse().unwrap();
    assert_eq!(server.send_from(other, request("/")).await.status.as_u16(), 200);
}

#[tokio::test]
async fn other_short_forms_go_by_a_header_or_by_nothing() {
    let tenant = HeaderName::from_static("x-tenant");
    let app = Router::new()
        .route("/one", get(|| async { "" }))
        .route_layer(RateLimitLayer::per_header(tenant, "1/day").unwrap())
        .route("/all", get(|| async { "" }).layer(RateLimitLayer::global("2/day").unwrap()));
    let server = Server::start(app).await;
    let one = async |tenant| {
        server.send(with_headers("/one", &[("x-tenant", tenant)])).await.status.as_u16()
    };
    assert_eq!((one("a").await, one("b").await, one("a").await), (200, 200, 429));
    assert_eq!(server.get("/one").await.status.as_u16(), 200, "those without it share a bucket");
    assert_eq!(server.get("/one").await.status.as_u16(), 429);
    let all = async || server.get("/all").await.status.as_u16();
    assert_eq!((all().await, all().await, all().await), (200, 200, 429));
    assert!(RateLimitLayer::per_ip("2/fortnight").is_err(), "a wrong quota is found when built");
}

#[tokio::test]
async fn a_short_form_with_a_burst_is_a_token_bucket() {
    let tenant = HeaderName::from_static("x-tenant");
    let forms = [
        RateLimitLayer::per_ip("1/day burst 3"),
        RateLimitLayer::per_header(tenant, "1/day burst 3"),
        RateLimitLayer::global("1/day burst 3"),
    ];
    for layer in forms {
        let app = Router::new().route("/", get(|| async { "" })).layer(layer.unwrap());
        let server = Server::start(app).await;
        for left in [2, 1, 0] {
            let reply = server.get("/").await;
            assert_eq!((reply.status.as_u16(), reply.remaining()), (200, Some(left)));
        }
        let refused = server.get("/").await;
        assert_eq!(refused.status.as_u16(), 429);
        let policy = refused.header("ratelimit-policy").unwrap();
        assert!(policy.ends_with(";q=3;w=259200"), "the burst, and three days to refill: {policy}");
    }
    // As the guide writes them.
    for quota in ["100/min", "10/s burst 50", "10/s; 1000/day", "10/s burst 50; 1000/day"] {
        assert!(RateLimitLayer::per_ip(quota).is_ok(), "{quota}");
        assert!(RateLimitLayer::global(quota).is_ok(), "{quota}");
    }
    // In a policy the algorithm is the rule's own, and it is said which.
    let rule = Rule::new("r").quota("10/s burst 50");
    let errors = Policy::builder().rule(rule.clone()).build().unwrap_err().to_string();
    assert!(errors.contains("write \"10/s\", or choose token-bucket"), "{errors}");
    assert!(Policy::builder().rule(rule.algorithm(Algorithm::TokenBucket)).build().is_ok());
}

#[tokio::test]
async fn every_kind_of_axis_reaches_the_policy() {
    #[derive(Clone)]
    struct User(&'static str);

    let rule = |axis: &str, value: &str| {
        // Refuses exactly those whose axis has the value: they ask for more than there is.
        Rule::new(format!("{axis} is {value}")).when(axis, value).quota("1/day").unit("impossible")
    };
    let found = [
        ("ip", "127.0.0.1"),
        ("address", "127.0.0.1"),
        ("host", "localhost"),
        ("method", "GET"),
        ("path", "/users/7"),
        ("route", "/users/{id}"),
        ("key", "secret"),
        ("session", "s-1"),
        ("user", "ann"),
        ("version", "users"),
        ("plan", "paid"),
    ];
    let policy = found
        .iter()
        .fold(Policy::builder(), |policy, (axis, value)| policy.rule(rule(axis, value)));
    let axes = Axes::standard()
        .client_address("address")
        .host("host")
        .header("key", HeaderName::from_static("x-key"))
        .cookie("session", "sid")
        .extension("user", |user: &User| Some(user.0.into()))
        .with("version", |request| request.uri.path().split('/').nth(1).map(Into::into))
        .look_up("plan", |request| {
            let key = request.headers.get("x-key").map(|key| key.as_bytes().to_vec());
            async move {
                tokio::task::yield_now().await;
                (key? == b"secret").then(|| "paid".to_owned())
            }
        });
    let layer = RateLimitLayer::new(gate_on(clock(), policy))
        .axes(axes)
        .cost("impossible", |_| Cost::new(2));
    let service = ServiceBuilder::new().layer(Extension(User("ann"))).layer(layer);
    let app = Router::new().route("/users/{id}", get(|| async { "" })).layer(service);
    let server = Server::start(app).await;

    let all = [("x-key", "secret"), ("cookie", "a=b; sid=s-1")];
    let refused = server.send(with_headers("/users/7", &all)).await;
    assert_eq!(refused.status.as_u16(), 429, "{}", refused.text);
    let mut violated: Vec<String> =
        serde_json::from_value(refused.json()["violated-policies"].clone()).unwrap();
    violated.sort();
    let mut expected: Vec<String> =
        found.iter().map(|(axis, value)| format!("{axis} is {value}")).collect();
    expected.sort();
    assert_eq!(violated, expected);
    assert_eq!(refused.json()["retry_ms"], "never");
}

#[tokio::test]
async fn a_host_is_one_host_however_it_is_spelled() {
    let policies = [
        // Asked for by the rule's axis alone, and by more.
        Policy::builder().rule(Rule::new("each").by("host").quota("4/day")),
        Policy::builder().rule(Rule::new("api").when("host", "api.example.com").quota("4/day")),
    ];
    for policy in policies {
        let layer = RateLimitLayer::new(gate_on(clock(), policy)).axes(Axes::new().host("host"));
        let service = ServiceBuilder::new().layer(layer).service_fn(hello);
        let ask = async |host: &str| {
            let mut request = plain("/");
            request.headers_mut().insert("host", host.parse().unwrap());
            send(&service, request).await.status.as_u16()
        };
        assert_eq!(ask("api.example.com").await, 200);
        assert_eq!(ask("API.example.com").await, 200);
        assert_eq!(ask("api.example.com:80").await, 200);
        // As HTTP/2 has it.
        assert_eq!(send(&service, plain("https://api.Example.com:8080/")).await.status, 200);
        assert_eq!(ask("api.example.com.").await, 429);
        assert_eq!(send(&service, plain("http://api.example.com./")).await.status, 429);
        assert_eq!(ask("www.example.com").await, 200);
    }
}

#[tokio::test]
async fn a_value_that_is_no_text_is_a_value() {
    let one = || Rule::new("one").by("key").quota("1/day");
    let policies = [
        Policy::builder().rule(one()),
        Policy::builder().rule(one()).rule(Rule::new("all").quota("99/day")),
    ];
    for policy in policies {
        let key = HeaderName::from_static("x-api-key");
        for axes in [Axes::new().header("key", key), Axes::new().cookie("key", "sid")] {
            let layer = RateLimitLayer::new(gate_on(clock(), policy.clone())).axes(axes);
            let service = ServiceBuilder::new().layer(layer).service_fn(hello);
            let ask = async |key: &[u8]| {
                let mut request = plain("/");
                let cookie = [b"other=\xfe; sid=", key].concat();
                request.headers_mut().insert("x-api-key", HeaderValue::from_bytes(key).unwrap());
                request.headers_mut().insert("cookie", HeaderValue::from_bytes(&cookie).unwrap());
                send(&service, request).await.status.as_u16()
            };
            for key in [&b"\xff"[..], b"\xfe", b"\xff\xff", "schl\u{fc}ssel".as_bytes(), b"key"] {
                assert_eq!((ask(key).await, ask(key).await), (200, 429), "{key:?}");
            }
        }
    }
}

#[tokio::test]
async fn the_path_is_the_whole_path_in_a_nested_router() {
    let layer =
        |axis: &str| RateLimitLayer::new(gate(Rule::new("v1").when(axis, "/v1/*").quota("1/day")));
    for axis in ["path", "route"] {
        let inner = Router::new().route("/a", get(|| async { "" })).layer(layer(axis));
        let server = Server::start(Router::new().nest("/v1", inner)).await;
        assert_eq!(server.get("/v1/a").await.status.as_u16(), 200, "{axis}");
        assert_eq!(server.get("/v1/a").await.status.as_u16(), 429, "{axis}");
        // No route matches, so that is the path too.
        let inner = Router::new().fallback(|| async { "" }).layer(layer(axis));
        let server = Server::start(Router::new().nest("/v1", inner)).await;
        assert_eq!(server.get("/v1/b").await.status.as_u16(), 200, "{axis}");
        assert_eq!(server.get("/v1/b").await.status.as_u16(), 429, "{axis}");
    }
}

#[tokio::test]
async fn who_is_refused_further_out_is_not_looked_up() {
    let looked_up = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&looked_up);
    let axes = Axes::new().look_up("plan", move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        async { Some("paid".to_owned()) }
    });
    let by_plan = RateLimitLayer::new(gate(Rule::new("plan").by("plan").quota("9/day"))).axes(axes);
    let app = Router::new().route("/", get(|| async { "" })).layer(by_plan);
    let server = Server::start(app.layer(RateLimitLayer::per_ip("2/day").unwrap())).await;
    for expected in [200, 200, 429, 429] {
        assert_eq!(server.get("/").await.status.as_u16(), expected);
    }
    assert_eq!(looked_up.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn handlers_see_the_admission() {
    let app = Router::new()
        .route(
            "/",
            get(|Extension(admitted): Extension<Admitted>| async move {
                let (rule, outcome) = admitted.binding().unwrap();
                format!("{} {}", rule.name(), outcome.reading.unwrap().remaining)
            }),
        )
        .layer(RateLimitLayer::new(gate(Rule::new("mine").quota("9/min"))));
    let server = Server::start(app).await;
    assert_eq!(server.get("/").await.text, "mine 8");
}

#[tokio::test]
async fn clones_and_routes_count_together() {
    let layer = RateLimitLayer::new(gate(Rule::new("all").quota("2/min")));
    let app = Router::new()
        .route("/a", get(|| async { "" }).layer(layer.clone()))
        .route("/b", get(|| async { "" }).layer(layer));
    let server = Server::start(app).await;
    assert_eq!(server.get("/a").await.remaining(), Some(1));
    assert_eq!(server.get("/b").await.remaining(), Some(0));
    assert_eq!(server.get("/a").await.status.as_u16(), 429);
}

#[tokio::test]
async fn a_policy_is_swapped_under_the_layer() {
    let gate = Arc::new(gate(Rule::new("all").quota("1/min")));
    let layer = RateLimitLayer::new(Arc::clone(&gate));
    let app = Router::new().route("/", get(|| async { "" })).layer(layer);
    let server = Server::start(app).await;
    assert_eq!(server.get("/").await.status.as_u16(), 200);
    assert_eq!(server.get("/").await.status.as_u16(), 429);
    let raised = Policy::builder().rule(Rule::new("all").quota("3/min")).build().unwrap();
    gate.set_policy(raised);
    assert_eq!(server.get("/").await.remaining(), Some(1), "what was used is still known");
}

/// A server on plain hyper that may tell its service who the peer is.
async fn hyper_server<S: tollgate::Store + 'static>(
    layer: RateLimitLayer<S>,
    tells_peer: bool,
) -> Server {
    let serve = move |listener: TcpListener| async move {
        loop {
            let (stream, peer) = listener.accept().await.unwrap();
            let told = tower::util::MapRequestLayer::new(move |request: Request<_>| {
                let mut request: Request<Body> = request.map(Body::new::<hyper::body::Incoming>);
                if tells_peer {
                    request.extensions_mut().insert(PeerAddr(peer));
                }
                request
            });
            let service = ServiceBuilder::new().layer(told).layer(layer.clone()).service_fn(hello);
            let service = TowerToHyperService::new(service);
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    };
    Server::run(serve).await
}

#[tokio::test]
async fn plain_hyper_works_with_the_peer_put_into_the_request() {
    let server = hyper_server(RateLimitLayer::per_ip("1/day").unwrap(), true).await;
    let from =
        async |ip: &str| server.send_from(ip.parse().unwrap(), request("/")).await.status.as_u16();
    assert_eq!((from("127.0.0.1").await, from("127.0.0.1").await), (200, 429));
    assert_eq!(from("127.0.0.2").await, 200);
}

#[tokio::test]
async fn without_a_peer_all_are_one_client_and_somebody_is_told_once() {
    let (tell, told) = std::sync::mpsc::channel();
    let layer = RateLimitLayer::per_ip("2/day").unwrap().on_check(move |check| {
        tell.send(check).unwrap();
    });
    let server = hyper_server(layer, false).await;
    let from =
        async |ip: &str| server.send_from(ip.parse().unwrap(), request("/")).await.status.as_u16();
    assert_eq!((from("127.0.0.1").await, from("127.0.0.2").await), (200, 200));
    assert_eq!(from("127.0.0.3").await, 429, "limited, not let through, and no 500");
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [Check::PeerAddressMissing]);
}

#[tokio::test]
async fn without_a_peer_rules_by_address_hold_for_all_together() {
    let strict = || Rule::new("strict").by("ip").quota("9/day").missing(Missing::Deny);
    let skip = || Rule::new("per-ip").by("ip").quota("2/day");
    let cases = [
        // Whether a policy is one rule or several.
        (Policy::builder().rule(skip()), [200, 200, 429]),
        (Policy::builder().rule(Rule::new("all").quota("9/day")).rule(skip()), [200, 200, 429]),
        (Policy::builder().rule(skip().missing(Missing::Share)), [200, 200, 429]),
        // A rule that will have an address has its way.
        (Policy::builder().rule(strict()), [429; 3]),
        (Policy::builder().rule(skip()).rule(strict()), [429; 3]),
        (Policy::builder().rule(skip()).rule(strict().when("path", "/other")), [200, 200, 429]),
        // Lists of addresses hold nobody whose address is not known.
        (Policy::builder().allow_network("ip", "0.0.0.0/0").rule(skip()), [200, 200, 429]),
    ];
    for (policy, expected) in cases {
        for axes in [Axes::standard(), Axes::standard().client_address("ip")] {
            let layer = RateLimitLayer::new(gate_on(clock(), policy.clone())).axes(axes);
            let app = Router::new().route("/", get(|| async { "" })).layer(layer);
            let server = Server::start_without_peers(app).await;
            for expected in expected {
                assert_eq!(server.get("/").await.status.as_u16(), expected, "{policy:?}");
            }
        }
    }
}

#[tokio::test]
async fn without_a_peer_a_request_that_has_to_wait_is_counted_too() {
    let rule = Rule::new("per-ip").by("ip").quota("2/day");
    let axes = Axes::standard().look_up("plan", |_| async { None });
    let layer = RateLimitLayer::new(gate(rule)).axes(axes);
    let app = Router::new().route("/", get(|| async { "" })).layer(layer);
    let server = Server::start_without_peers(app).await;
    for expected in [200, 200, 429] {
        assert_eq!(server.get("/").await.status.as_u16(), expected);
    }
}

#[tokio::test]
async fn errors_of_the_service_pass_through() {
    let layer = RateLimitLayer::<MemoryStore>::new(Gate::new(
        Policy::builder().build().unwrap(),
        MemoryStore::new(),
    ));
    let service = ServiceBuilder::new()
        .layer(layer)
        .service_fn(|_: Request<Body>| async { Err::<Response<Body>, _>("broken") });
    let answer = tower::ServiceExt::oneshot(service, plain("/")).await;
    assert_eq!(answer.map(|_| ()).unwrap_err(), "broken");
}

#[tokio::test]
async fn a_body_that_cannot_be_a_refusal_becomes_one_that_can() {
    // Spelled as the compiler says to whoever left it out.
    let service = ServiceBuilder::new()
        .layer(RateLimitLayer::global("1/day").unwrap())
        .map_response(|response: Response<_>| response.map(ResponseBody::new))
        .service_fn(async |_: Request<Body>| {
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        });
    let admitted = send(&service, plain("/")).await;
    assert_eq!((admitted.status.as_u16(), admitted.text.as_str()), (200, ""));
    let refused = send(&service, plain("/")).await;
    assert_eq!(refused.status.as_u16(), 429);
    assert_eq!(refused.json()["violated-policies"][0], "global");
}
