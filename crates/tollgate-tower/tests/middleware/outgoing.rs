//! Calls to a vendor: waiting one's turn, and doing as told.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Empty;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::task::yield_now;
use tokio::time::Instant;
use tollgate::{Algorithm, Cost, MemoryStore, Policy, Retry, Rule};
use tollgate_tower::{CallError, OutgoingLayer};
use tower::{Service, ServiceBuilder, ServiceExt};

use crate::scene::{RuntimeClock, Server, gate_on, plain};

type Layer = OutgoingLayer<MemoryStore<RuntimeClock>>;

fn layer(quota: &str) -> Layer {
    let rule = Rule::new("vendor").by("host").quota(quota).algorithm(Algorithm::SlidingLog);
    OutgoingLayer::new(gate_on(RuntimeClock::new(), Policy::builder().rule(rule)))
}

fn call(host: &str) -> Request<Body> {
    plain(&format!("http://{host}/"))
}

/// A vendor in the same process, which answers as `answer` says.
fn vendor(
    layer: Layer,
    answer: impl Fn() -> Response<Body> + Clone + Send + 'static,
) -> impl Service<Request<Body>, Response = Response<Body>, Error = CallError<Infallible>, Future: Send>
+ Clone
+ Send
+ 'static {
    let answer = move |_: Request<Body>| {
        let answer = answer();
        async move { Ok::<_, Infallible>(answer) }
    };
    ServiceBuilder::new().layer(layer).service_fn(answer)
}

fn ok() -> Response<Body> {
    Response::new(Body::empty())
}

#[tokio::test(start_paused = true)]
async fn calls_wait_their_turn_and_hosts_do_not_wait_for_each_other() {
    let client = vendor(layer("2/s"), ok);
    let start = Instant::now();
    let calls = ["a", "a", "a", "b", "a", "a"].map(|host| {
        let client = client.clone();
        tokio::spawn(async move {
            client.oneshot(call(host)).await.unwrap();
            (host, start.elapsed().as_secs())
        })
    });
    let mut made = Vec::new();
    for call in calls {
        made.push(call.await.unwrap());
    }
    made.sort();
    assert_eq!(made, [("a", 0), ("a", 0), ("a", 1), ("a", 1), ("a", 2), ("b", 0)]);
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_turn_is_too_far_away_is_not_made() {
    let made = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&made);
    let layer = layer("1/min")
        .longest_wait(Duration::from_secs(59))
        .cost("requests", |request| Cost::new(1 + request.headers.len() as u64));
    let client = vendor(layer, move || {
        counted.fetch_add(1, Ordering::Relaxed);
        ok()
    });
    client.clone().oneshot(call("a")).await.unwrap();
    let start = Instant::now();
    let error = client.clone().oneshot(call("a")).await.unwrap_err();
    assert!(start.elapsed().is_zero(), "there is no point in waiting for that");
    assert!(!error.was_made());
    assert_eq!(error.to_string(), "get a turn to call in time: it would come only in 60s");
    let mut greedy = call("b");
    greedy.headers_mut().insert("x", "y".parse().unwrap());
    let error = client.oneshot(greedy).await.unwrap_err();
    assert!(matches!(error, CallError::TooFarAway { retry: Retry::Never }), "{error}");
    assert_eq!(made.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_vendor_that_asks_to_be_left_alone_is() {
    let made = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&made);
    let client = vendor(layer("1000/s"), move || {
        let builder = Response::builder();
        let builder = match counted.fetch_add(1, Ordering::Relaxed) {
            0 => builder.status(StatusCode::TOO_MANY_REQUESTS).header("retry-after", "7"),
            1 => builder.header("ratelimit", "\"calls\";r=0;t=11"),
            _ => builder,
        };
        builder.body(Body::empty()).unwrap()
    });
    let start = Instant::now();
    let ask = async |host: &str| {
        let status = client.clone().oneshot(call(host)).await.unwrap().status();
        (status.as_u16(), start.elapsed().as_secs())
    };
    assert_eq!(ask("a").await, (429, 0), "the answer is handed on");
    assert_eq!(ask("a").await, (200, 7), "but the next call waits");
    assert_eq!(ask("b").await, (200, 7), "another vendor has not asked for anything");
    assert_eq!(ask("a").await, (200, 18), "and nothing remaining is a refusal in advance");
}

/// `http://LOCALHOST` was called while `localhost` was to be left alone.
#[tokio::test(start_paused = true)]
async fn a_vendor_is_left_alone_and_counted_however_its_name_is_written() {
    let made = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&made);
    let client = vendor(layer("2/9s"), move || {
        let builder = Response::builder();
        let builder = match counted.fetch_add(1, Ordering::Relaxed) {
            0 => builder.status(StatusCode::TOO_MANY_REQUESTS).header("retry-after", "2"),
            _ => builder,
        };
        builder.body(Body::empty()).unwrap()
    });
    let start = Instant::now();
    let mut named = plain("/");
    named.headers_mut().insert("host", "Api.example.com:443".parse().unwrap());
    let hosts = ["api.example.com", "API.example.com.", "api.example.com:443"].map(call);
    let mut made = Vec::new();
    for request in hosts.into_iter().chain([named]) {
        client.clone().oneshot(request).await.unwrap();
        made.push(start.elapsed().as_secs());
    }
    assert_eq!(made, [0, 2, 9, 11], "a pause, and two in any nine seconds");
}

#[tokio::test(start_paused = true)]
async fn a_pause_beyond_the_longest_wait_fails_at_once_and_waiters_are_bounded() {
    let answer = || {
        let builder = Response::builder().status(StatusCode::SERVICE_UNAVAILABLE);
        builder.header("retry-after", "20").body(Body::empty()).unwrap()
    };
    let layer = layer("1000/s").longest_wait(Duration::from_secs(20)).max_held(1);
    let client = vendor(layer.clone(), answer);
    client.clone().oneshot(call("a")).await.unwrap();
    let waiting = tokio::spawn(client.clone().oneshot(call("a")));
    yield_now().await;
    assert_eq!(layer.held(), 1);
    let crowded = client.clone().oneshot(call("a")).await.unwrap_err();
    assert_eq!(crowded.to_string(), "get a turn to call: too many are waiting");
    waiting.abort();
    let _ = waiting.await;
    assert_eq!(layer.held(), 0);
    let impatient = vendor(layer.longest_wait(Duration::from_secs(19)), answer);
    let error = impatient.oneshot(call("a")).await.unwrap_err();
    assert_eq!(error.to_string(), "get a turn to call in time: it would come only in 20s");
}

/// A vendor over loopback that counts its calls and allows three.
async fn real_vendor() -> Server {
    let made = Arc::new(AtomicUsize::new(0));
    let answer = move || {
        let made = made.fetch_add(1, Ordering::Relaxed);
        async move {
            match made < 3 {
                true => Ok("served"),
                false => Err(StatusCode::TOO_MANY_REQUESTS),
            }
        }
    };
    Server::start(Router::new().route("/", get(answer))).await
}

#[tokio::test]
async fn a_hyper_client_stays_within_its_vendors_cap() {
    let vendor = real_vendor().await;
    let layer = OutgoingLayer::per_host("3/day").unwrap();
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let client = ServiceBuilder::new().layer(layer).service(client);
    let request = || {
        let uri = format!("http://{}/", vendor.address);
        Request::builder().uri(uri).body(Empty::new()).unwrap()
    };
    for _ in 0..3 {
        let answer = client.clone().oneshot(request()).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
    }
    let error = client.clone().oneshot(request()).await.unwrap_err();
    assert!(!error.was_made(), "{error}");
}

#[tokio::test]
async fn reqwest_goes_through_tower() {
    let vendor = real_vendor().await;
    let client = reqwest::Client::new();
    let send = move |request: Request<reqwest::Body>| {
        let client = client.clone();
        async move {
            let request = reqwest::Request::try_from(request)?;
            client.execute(request).await.map(Response::<reqwest::Body>::from)
        }
    };
    let layer = OutgoingLayer::per_host("3/day").unwrap();
    let client = ServiceBuilder::new().layer(layer).service_fn(send);
    let request = || {
        let uri = format!("http://{}/", vendor.address);
        Request::builder().uri(uri).body(reqwest::Body::default()).unwrap()
    };
    for _ in 0..3 {
        let answer = client.clone().oneshot(request()).await.unwrap();
        assert_eq!(reqwest::Response::from(answer).text().await.unwrap(), "served");
    }
    assert!(client.oneshot(request()).await.is_err());
}

#[tokio::test]
async fn an_error_of_the_client_is_handed_on() {
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let layer = OutgoingLayer::per_host("3/day").unwrap();
    let client = ServiceBuilder::new().layer(layer).service(client);
    // Nobody listens on this port: it was free a moment ago, and is not handed out again so soon.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let request = Request::builder().uri(uri).body(Empty::new()).unwrap();
    let error = client.oneshot(request).await.unwrap_err();
    assert!(error.was_made(), "{error}");
}
