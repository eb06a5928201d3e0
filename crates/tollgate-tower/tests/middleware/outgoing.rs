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
use hyper_util::client::legacy::Client as Hyper;
use hyper_util::rt::TokioExecutor;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, sleep};
use tollgate::{Algorithm, Cost, MemoryStore, Policy, Retry, Rule, Store};
use tollgate_tower::{Axes, CallError, OutgoingLayer};
use tower::{Service, ServiceBuilder, ServiceExt};

use crate::scene::{RuntimeClock, Server, gate_on, plain};

type Layer = OutgoingLayer<MemoryStore<RuntimeClock>>;

fn layer(quota: &str) -> Layer {
    layer_of(Rule::new("vendor").by("host").quota(quota).algorithm(Algorithm::SlidingLog))
}

fn queue(quota: &str) -> Layer {
    layer_of(Rule::new("vendor").by("host").quota(quota).algorithm(Algorithm::LeakyBucket))
}

fn layer_of(rule: Rule) -> Layer {
    OutgoingLayer::new(gate_on(RuntimeClock::new(), Policy::builder().rule(rule)))
}

fn call(host: &str) -> Request<Body> {
    plain(&format!("http://{host}/"))
}

/// What the tests call with.
trait Client:
    Service<Request<Body>, Response = Response<Body>, Error = CallError<Infallible>, Future: Send>
    + Clone
    + Send
    + 'static
{
}

impl<T> Client for T where
    T: Service<
            Request<Body>,
            Response = Response<Body>,
            Error = CallError<Infallible>,
            Future: Send,
        > + Clone
        + Send
        + 'static
{
}

/// A vendor in the same process, which answers as `answer` says.
fn vendor<S: Store + 'static>(
    layer: OutgoingLayer<S>,
    answer: impl Fn() -> Response<Body> + Clone + Send + 'static,
) -> impl Client {
    let answer = move |_: Request<Body>| {
        let answer = answer();
        async move { Ok::<_, Infallible>(answer) }
    };
    ServiceBuilder::new().layer(layer).service_fn(answer)
}

fn ok() -> Response<Body> {
    Response::new(Body::empty())
}

/// One that takes half a second for its first answer, and asks in it to be left alone.
fn late_vendor(layer: Layer, seconds: u64) -> impl Client {
    let made = Arc::new(AtomicUsize::new(0));
    let answer = move |_: Request<Body>| {
        let is_first = made.fetch_add(1, Ordering::Relaxed) == 0;
        async move {
            if !is_first {
                return Ok::<_, Infallible>(ok());
            }
            sleep(Duration::from_millis(500)).await;
            let builder = Response::builder().status(StatusCode::TOO_MANY_REQUESTS);
            Ok(builder.header("retry-after", seconds).body(Body::empty()).unwrap())
        }
    };
    ServiceBuilder::new().layer(layer).service_fn(answer)
}

/// What became of a call, how many milliseconds after `start`.
type Outcome = (Result<(), CallError<Infallible>>, u128);

/// Makes a call in a task of its own.
fn make(client: &impl Client, host: &str, start: Instant) -> JoinHandle<Outcome> {
    let made = client.clone().oneshot(call(host));
    tokio::spawn(async move { (made.await.map(drop), start.elapsed().as_millis()) })
}

async fn outcomes(calls: Vec<JoinHandle<Outcome>>) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for call in calls {
        outcomes.push(call.await.unwrap());
    }
    outcomes
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

/// Of 120 calls at 20 a second, a sliding window and a log made 40 within two seconds, not in their
/// order, and failed the others up to two seconds later.
#[tokio::test(start_paused = true)]
async fn calls_in_a_queue_go_evenly_and_in_their_order_or_fail_at_once() {
    let client = vendor(queue("20/s burst 1000").longest_wait(Duration::from_secs(2)), ok);
    let start = Instant::now();
    let calls = (0..120).map(|_| make(&client, "a", start)).collect();
    for (index, (outcome, at)) in outcomes(calls).await.into_iter().enumerate() {
        match outcome {
            // So in no second are there more than twenty.
            Ok(()) => assert_eq!(at, 50 * index as u128),
            Err(error) => {
                assert_eq!(at, 0, "it is known at once");
                let expected = "get a turn to call in time: it would come only in 2.05s";
                assert_eq!((index > 40, error.to_string()), (true, expected.to_owned()));
            }
        }
    }
}

/// Offered 8 a second where 5 may go, older calls failed while younger ones were made.
#[tokio::test(start_paused = true)]
async fn nobody_is_overtaken_in_a_queue() {
    let client = vendor(queue("5/s burst 1000").longest_wait(Duration::from_secs(1)), ok);
    let start = Instant::now();
    let mut calls = Vec::new();
    for _ in 0..80 {
        let asked = start.elapsed().as_millis();
        calls.push((asked, make(&client, "a", start)));
        sleep(Duration::from_millis(125)).await;
    }
    let (asked, calls): (Vec<_>, Vec<_>) = calls.into_iter().unzip();
    let mut made = Vec::new();
    for (asked, (outcome, at)) in asked.into_iter().zip(outcomes(calls).await) {
        match outcome {
            Ok(()) => made.push(at),
            Err(_) => assert_eq!(at, asked, "it is known at once"),
        }
    }
    let evenly: Vec<u128> = (0..made.len() as u128).map(|call| 200 * call).collect();
    assert_eq!(made, evenly, "in the order they were asked, and no turn is wasted");
    assert!((50..=55).contains(&made.len()), "{} in 10 s, and those waiting then", made.len());
}

/// Of 120 calls at 20 a second, 40 were made within two seconds, not in their order.
#[tokio::test(start_paused = true)]
async fn calls_go_in_their_order_and_as_many_as_fit_whatever_the_algorithm() {
    for (algorithm, most) in [
        (Algorithm::SlidingLog, 60),
        (Algorithm::FixedWindow, 60),
        // Which gives room back evenly over the next window.
        (Algorithm::SlidingWindow, 40),
        (Algorithm::TokenBucket, 60),
    ] {
        let rule = Rule::new("vendor").by("host").quota("20/s").algorithm(algorithm);
        let client = vendor(layer_of(rule).longest_wait(Duration::from_secs(2)), ok);
        let start = Instant::now();
        let calls = (0..120).map(|_| make(&client, "a", start)).collect();
        let (mut made, mut late) = (Vec::new(), 0);
        for (outcome, at) in outcomes(calls).await {
            match outcome {
                Ok(()) => made.push(at),
                Err(_) => {
                    assert!(made.len() >= most, "{algorithm}: {} were made", made.len());
                    late += usize::from(at > 0);
                }
            }
        }
        assert!(made.is_sorted() && made[19] == 0, "{algorithm}: {made:?}");
        assert!(made.len() <= 61, "{algorithm}: {} were made", made.len());
        assert!(late <= 20, "{algorithm}: {late} were told only when they had waited");
    }
}

#[tokio::test(start_paused = true)]
async fn calls_that_are_counted_apart_do_not_wait_for_each_other() {
    let rule = Rule::new("vendor").by("key").quota("1/s").algorithm(Algorithm::SlidingLog);
    let axes = Axes::new().header("key", http::HeaderName::from_static("x-key"));
    let client = vendor(layer_of(rule).axes(axes), ok);
    let start = Instant::now();
    let calls = ["a", "a", "a", "b", "c"].map(|key| {
        let mut call = call("vendor");
        call.headers_mut().insert("x-key", key.parse().unwrap());
        let made = client.clone().oneshot(call);
        tokio::spawn(async move { (made.await.map(drop), start.elapsed().as_millis()) })
    });
    let made: Vec<u128> = outcomes(calls.into()).await.into_iter().map(|(_, at)| at).collect();
    assert_eq!(made, [0, 1_000, 2_000, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn who_leaves_the_line_keeps_nobody_waiting() {
    let client = vendor(layer("1/s"), ok);
    let start = Instant::now();
    let calls: Vec<_> = (0..4).map(|_| make(&client, "a", start)).collect();
    sleep(Duration::from_millis(500)).await;
    calls[1].abort();
    calls[2].abort();
    let mut made = Vec::new();
    for call in calls {
        made.extend(call.await.map(|(_, at)| at));
    }
    assert_eq!(made, [0, 1_000]);
}

/// The gate goes by the machine's clock here, and so do the calls.
#[tokio::test]
async fn a_quota_per_host_is_never_exceeded_and_nobody_is_overtaken() {
    let cases = [
        ("2/500ms", [0, 0, 1, 1, 2, 2]),
        ("2/500ms; 5/2s", [0, 0, 1, 1, 2, 4]),
        ("1/500ms burst 3", [0, 0, 0, 1, 2, 3]),
        ("200001/500ms", [0, 0, 0, 0, 0, 0]),
    ];
    let cases = cases.map(|(quota, turns)| {
        tokio::spawn(async move {
            let client = vendor(OutgoingLayer::per_host(quota).unwrap(), ok);
            let start = Instant::now();
            let calls = (0..6).map(|_| make(&client, "a", start)).collect();
            let outcomes = outcomes(calls).await;
            assert!(outcomes.iter().all(|(outcome, _)| outcome.is_ok()), "{quota}");
            let made: Vec<u128> = outcomes.into_iter().map(|(_, at)| at).collect();
            // Late on a busy machine, early by no more than a timer is coarse.
            let early = made.iter().zip(turns).any(|(at, turn)| at + 5 < 500 * turn);
            assert!(made.is_sorted() && !early, "{quota}: {made:?}");
        })
    });
    for case in cases {
        case.await.unwrap();
    }
}

#[tokio::test]
async fn several_quotas_per_host_let_calls_go_at_once() {
    let layer = OutgoingLayer::per_host("2/min; 3/day").unwrap().longest_wait(Duration::ZERO);
    let client = vendor(layer, ok);
    for _ in 0..2 {
        client.clone().oneshot(call("a")).await.unwrap();
    }
    let error = client.oneshot(call("a")).await.unwrap_err();
    assert!(matches!(error, CallError::TooFarAway { retry: Retry::After(_) }), "{error}");
}

#[tokio::test]
async fn what_is_no_quota_of_calls_is_an_error() {
    assert!(OutgoingLayer::per_host("many").is_err());
    let error = OutgoingLayer::per_host("94906266/s").unwrap_err();
    assert!(error.to_string().contains("largest limit that fits is 94906265"), "{error}");
    for quota in ["94906265/s", "1/ms", "1/3652d", "1000000/day"] {
        assert!(OutgoingLayer::per_host(quota).is_ok(), "{quota}");
    }
}

/// A queue whose length is its own: what it has no room for may wait outside, if it would still be in
/// time.
#[tokio::test(start_paused = true)]
async fn a_turn_behind_a_full_queue_is_as_far_away_as_the_queue_is_long() {
    for (longest, expected) in [(2_000, [0, 1_000, 2_000]), (1_999, [0, 1_000, 0])] {
        let layer = queue("1/s burst 2").longest_wait(Duration::from_millis(longest));
        let client = vendor(layer, ok);
        let start = Instant::now();
        let calls = (0..3).map(|_| make(&client, "a", start)).collect();
        let outcomes = outcomes(calls).await;
        let at: Vec<u128> = outcomes.iter().map(|(_, at)| *at).collect();
        assert_eq!(at, expected);
        assert_eq!(outcomes[2].0.is_ok(), longest == 2_000);
    }
}

#[tokio::test(start_paused = true)]
async fn the_turn_looked_at_is_that_of_the_calls_own_queue() {
    let rule = Rule::new("spend").by("key").unit("tokens").quota("1/s burst 10");
    let layer = layer_of(rule.algorithm(Algorithm::LeakyBucket))
        .axes(Axes::new().look_up("key", |_| async { Some("ours".to_owned()) }))
        .cost("tokens", |_| Cost::new(5))
        .longest_wait(Duration::from_secs(4));
    let client = vendor(layer, ok);
    let start = Instant::now();
    client.clone().oneshot(call("a")).await.unwrap();
    let error = client.oneshot(call("b")).await.unwrap_err();
    assert_eq!(error.to_string(), "get a turn to call in time: it would come only in 5s");
    assert!(start.elapsed().is_zero(), "it is known at once");
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_turn_falls_into_a_pause_gets_another() {
    let client = late_vendor(layer("1/s"), 3);
    let start = Instant::now();
    let calls = (0..3).map(|_| make(&client, "a", start)).collect();
    let at: Vec<u128> = outcomes(calls).await.into_iter().map(|(_, at)| at).collect();
    assert_eq!(
        at,
        [500, 3_500, 4_500],
        "the first was answered, the others not made before its end"
    );

    // Not all at once at its end either.
    let client = late_vendor(queue("2/s burst 100"), 5);
    let start = Instant::now();
    let calls = (0..6).map(|_| make(&client, "a", start)).collect();
    let at: Vec<u128> = outcomes(calls).await.into_iter().map(|(_, at)| at).collect();
    assert_eq!(at, [500, 5_500, 6_000, 6_500, 7_000, 7_500]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_gives_up_in_a_pause_gives_its_turn_back() {
    let rule = Rule::new("all").quota("1/s").algorithm(Algorithm::SlidingLog);
    let client = late_vendor(layer_of(rule), 60);
    let start = Instant::now();
    let calls = vec![make(&client, "a", start), make(&client, "a", start)];
    let [(first, _), (second, gave_up)] = outcomes(calls).await.try_into().unwrap();
    assert!(first.is_ok());
    let error = second.unwrap_err();
    assert_eq!(error.to_string(), "get a turn to call in time: it would come only in 59.5s");
    assert_eq!(gave_up, 1_000);
    client.oneshot(call("b")).await.unwrap();
    assert_eq!(start.elapsed().as_millis(), 1_000, "another host has the turn");
}

#[tokio::test(start_paused = true)]
async fn time_spent_in_a_pause_is_part_of_the_longest_wait() {
    let pausing = || {
        let builder = Response::builder().status(StatusCode::TOO_MANY_REQUESTS);
        builder.header("retry-after", "4").body(Body::empty()).unwrap()
    };
    for (longest, layer) in [(5, layer("1/6s")), (5, queue("1/6s burst 9")), (6, layer("1/6s"))] {
        let client = vendor(layer.longest_wait(Duration::from_secs(longest)), pausing);
        let start = Instant::now();
        client.clone().oneshot(call("a")).await.unwrap();
        let outcome = client.oneshot(call("a")).await;
        let waited = start.elapsed().as_secs();
        match outcome {
            Ok(_) => assert_eq!((longest, waited), (6, 6)),
            Err(error) => {
                let expected = "get a turn to call in time: it would come only in 2s";
                assert_eq!((longest, waited, &*error.to_string()), (5, 4, expected));
            }
        }
    }
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
    let client = Hyper::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let client = ServiceBuilder::new().layer(layer("3/day")).service(client);
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
    let client = ServiceBuilder::new().layer(layer("3/day")).service_fn(send);
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
    let client = Hyper::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let client = ServiceBuilder::new().layer(layer("3/day")).service(client);
    // Nobody listens on this port: it was free a moment ago, and is not handed out again so soon.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let request = Request::builder().uri(uri).body(Empty::new()).unwrap();
    let error = client.oneshot(request).await.unwrap_err();
    assert!(error.was_made(), "{error}");
}
