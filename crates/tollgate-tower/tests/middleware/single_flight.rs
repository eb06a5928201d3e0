//! One call for many that ask the same.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::OriginalUri;
use axum::routing::get;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::BodyExt;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, sleep};
use tokio_stream::wrappers::ReceiverStream;
use tollgate_tower::SingleFlightLayer;
use tower::{Service, ServiceBuilder, ServiceExt};

use crate::scene::{Reply, plain, send};

/// An expensive service: it counts its calls and answers when it is let.
#[derive(Clone)]
struct Expensive {
    calls: Arc<AtomicUsize>,
    let_go: Arc<Semaphore>,
}

impl Expensive {
    fn new() -> Self {
        Self { calls: Arc::default(), let_go: Arc::new(Semaphore::new(0)) }
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    /// Waits to be let, and says the how many-th call this is.
    async fn work(&self) -> usize {
        let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        self.let_go.acquire().await.unwrap().forget();
        call
    }
}

type Answer = Result<Response<Body>, Infallible>;

/// The expensive service behind a layer, answering each call as `answer` says.
fn behind(
    layer: SingleFlightLayer,
    expensive: &Expensive,
    answer: impl Fn(usize) -> Response<Body> + Clone + Send + Sync + 'static,
) -> impl Service<
    Request<Body>,
    Response = Response<tollgate_tower::single_flight::FlightBody<Body>>,
    Error = Infallible,
    Future: Send,
> + Clone
+ Send
+ Sync
+ 'static {
    let expensive = expensive.clone();
    ServiceBuilder::new().layer(layer).service_fn(move |_: Request<Body>| {
        let (expensive, answer) = (expensive.clone(), answer.clone());
        async move { Answer::Ok(answer(expensive.work().await)) }
    })
}

fn numbered(call: usize) -> Response<Body> {
    Response::builder().header("x-call", call).body(Body::from(format!("call {call}"))).unwrap()
}

/// Asks in tasks of their own, and lets each come as far as it can.
async fn ask<T, R>(service: &T, count: usize) -> Vec<JoinHandle<Reply>>
where
    T: Service<Request<Body>, Response = Response<R>, Error = Infallible, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
    R: http_body::Body<Data = Bytes, Error: std::fmt::Debug> + Send + 'static,
{
    let mut asked = Vec::new();
    for _ in 0..count {
        let service = service.clone();
        asked.push(tokio::spawn(async move { send(&service, plain("/report")).await }));
    }
    for _ in 0..3 {
        yield_now().await;
    }
    asked
}

async fn texts(asked: Vec<JoinHandle<Reply>>) -> Vec<String> {
    let mut texts = Vec::new();
    for reply in asked {
        texts.push(reply.await.unwrap().text);
    }
    texts
}

#[tokio::test]
async fn identical_requests_in_flight_share_one_call() {
    let expensive = Expensive::new();
    let service = behind(SingleFlightLayer::by_address(), &expensive, numbered);
    let asked = ask(&service, 20).await;
    assert_eq!(expensive.calls(), 1);
    expensive.let_go.add_permits(1);
    for reply in asked {
        let reply = reply.await.unwrap();
        assert_eq!((&*reply.text, reply.header("x-call")), ("call 1", Some("1")));
    }
    // It is no cache: whoever comes later asks again.
    expensive.let_go.add_permits(1);
    assert_eq!(texts(ask(&service, 1).await).await, ["call 2"]);
}

/// How many calls are made for requests that are all in flight before any is answered.
async fn calls_for(requests: Vec<Request<Body>>) -> usize {
    let expensive = Expensive::new();
    let service = behind(SingleFlightLayer::by_address(), &expensive, numbered);
    let asked: Vec<_> =
        requests.into_iter().map(|r| tokio::spawn(service.clone().oneshot(r))).collect();
    for _ in 0..3 {
        yield_now().await;
    }
    let calls = expensive.calls();
    expensive.let_go.add_permits(calls);
    for answer in asked {
        let Ok(_) = answer.await.unwrap();
    }
    assert_eq!(expensive.calls(), calls, "nobody calls after all");
    calls
}

fn with_header(name: &str, value: &str) -> Request<Body> {
    Request::builder().uri("/report").header(name, value).body(Body::empty()).unwrap()
}

#[tokio::test]
async fn personal_requests_do_not_share_though_they_are_identical() {
    for name in [
        "authorization",
        "proxy-authorization",
        "cookie",
        "x-api-key",
        "api-key",
        "x-auth-token",
        "range",
        "if-match",
        "if-modified-since",
        "if-range",
        "if-unmodified-since",
        "origin",
        "upgrade",
        "content-length",
        "content-type",
        "transfer-encoding",
    ] {
        assert_eq!(
            calls_for(vec![with_header(name, "a"), with_header(name, "a")]).await,
            2,
            "{name}"
        );
    }
    assert_eq!(calls_for(vec![with_header("x-other", "a"), with_header("x-other", "b")]).await, 1);
}

#[tokio::test]
async fn only_requests_without_effects_share() {
    for (method, calls) in [("GET", 1), ("HEAD", 1), ("POST", 2), ("PUT", 2), ("DELETE", 2)] {
        let request =
            || Request::builder().method(method).uri("/report").body(Body::empty()).unwrap();
        assert_eq!(calls_for(vec![request(), request()]).await, calls, "{method}");
    }
}

#[tokio::test]
async fn requests_that_may_be_answered_differently_do_not_share() {
    for name in ["host", "accept", "accept-encoding", "accept-language", "if-none-match"] {
        let asked =
            |values: [&str; 2]| calls_for(values.map(|value| with_header(name, value)).into());
        assert_eq!(asked(["a", "a"]).await, 1, "{name}");
        assert_eq!(asked(["a", "b"]).await, 2, "{name}");
        let one = with_header(name, "a");
        assert_eq!(calls_for(vec![one, plain("/report")]).await, 2, "{name}, or none");
    }
    // A field that is there twice is not the same as either.
    let mut twice = with_header("accept", "b");
    twice.headers_mut().append("accept", HeaderValue::from_static("a"));
    assert_eq!(calls_for(vec![with_header("accept", "b"), twice]).await, 2);
    assert_eq!(calls_for(vec![plain("/a"), plain("/b"), plain("/a?c")]).await, 3);
    let mut head = plain("/a");
    *head.method_mut() = Method::HEAD;
    assert_eq!(calls_for(vec![plain("/a"), head]).await, 2);
}

/// A router strips what it nests by, and so `/tenants/acme/report` and `/tenants/globex/report` both
/// come to `/report`: one tenant was handed the other's.
#[tokio::test]
async fn routers_inside_routers_are_told_apart() {
    let expensive = Expensive::new();
    let report = {
        let expensive = expensive.clone();
        move |OriginalUri(sent): OriginalUri| async move {
            expensive.work().await;
            sent.to_string()
        }
    };
    let layer = SingleFlightLayer::by_address();
    let inner = Router::new().route("/report", get(report)).layer(layer);
    let tenants = Router::new().nest("/tenants/{tenant}", inner.clone());
    let app = tenants.nest("/v1", inner.clone()).nest("/v2", Router::new().nest("/v1", inner));
    let app = app.with_state(());
    let paths = ["/tenants/acme/report", "/tenants/globex/report", "/v1/report", "/v2/v1/report"];
    let ask = |path: &'static str| {
        let app = app.clone();
        tokio::spawn(async move { send(&app, plain(path)).await })
    };
    let asked: Vec<_> = paths.into_iter().chain(paths).map(|path| (path, ask(path))).collect();
    for _ in 0..3 {
        yield_now().await;
    }
    assert_eq!(expensive.calls(), paths.len(), "one for each, and one only");
    expensive.let_go.add_permits(paths.len());
    for (path, reply) in asked {
        assert_eq!(reply.await.unwrap().text, path);
    }
}

#[tokio::test]
async fn what_a_layer_further_out_made_of_an_address_counts_too() {
    let expensive = Expensive::new();
    let service = behind(SingleFlightLayer::by_address(), &expensive, numbered);
    for (sent, made) in [("/report", "/acme/report"), ("/report", "/globex/report")] {
        let mut request = plain(made);
        request.extensions_mut().insert(OriginalUri(sent.parse().unwrap()));
        tokio::spawn(service.clone().oneshot(request));
    }
    for _ in 0..3 {
        yield_now().await;
    }
    assert_eq!(expensive.calls(), 2);
}

#[tokio::test]
async fn a_leader_that_goes_away_leaves_the_call_to_another() {
    let expensive = Expensive::new();
    let service = behind(SingleFlightLayer::by_address(), &expensive, numbered);
    let mut asked = ask(&service, 5).await;
    let leader = asked.remove(0);
    leader.abort();
    assert!(leader.await.unwrap_err().is_cancelled());
    for _ in 0..3 {
        yield_now().await;
    }
    assert_eq!(expensive.calls(), 2, "one of the others leads now, and one only");
    expensive.let_go.add_permits(1);
    assert_eq!(texts(asked).await, vec!["call 2"; 4]);
}

#[tokio::test]
async fn a_leaders_error_is_its_own() {
    let expensive = Expensive::new();
    let counted = expensive.clone();
    let service = ServiceBuilder::new().layer(SingleFlightLayer::by_address()).service_fn(
        move |_: Request<Body>| {
            let expensive = counted.clone();
            async move {
                match expensive.work().await {
                    1 => Err("broken"),
                    call => Ok(numbered(call)),
                }
            }
        },
    );
    let asked: Vec<_> =
        (0..3).map(|_| tokio::spawn(service.clone().oneshot(plain("/report")))).collect();
    for _ in 0..3 {
        yield_now().await;
    }
    expensive.let_go.add_permits(1);
    while expensive.calls() < 2 {
        yield_now().await;
    }
    expensive.let_go.add_permits(1);
    let mut errors = 0;
    for answer in asked {
        match answer.await.unwrap() {
            Err(error) => errors += usize::from(error == "broken"),
            Ok(response) => assert_eq!(Reply::of(response).await.text, "call 2"),
        }
    }
    assert_eq!((errors, expensive.calls()), (1, 2));
}

fn failing_at_first(call: usize) -> Response<Body> {
    let mut response = numbered(call);
    *response.status_mut() = match call {
        1 => StatusCode::INTERNAL_SERVER_ERROR,
        2 => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::NOT_FOUND,
    };
    response
}

/// In axum services do not fail, they answer that they did.
#[tokio::test]
async fn an_answer_that_the_service_failed_is_the_leaders_and_one_other_calls() {
    let expensive = Expensive::new();
    let service = behind(SingleFlightLayer::by_address(), &expensive, failing_at_first);
    let asked = ask(&service, 5).await;
    for calls in 1..=3 {
        assert_eq!(expensive.calls(), calls, "one after another");
        expensive.let_go.add_permits(1);
        for _ in 0..3 {
            yield_now().await;
        }
    }
    assert_eq!(expensive.calls(), 3, "not found is an answer like any other");
    let mut texts = texts(asked).await;
    texts.sort();
    assert_eq!(texts, ["call 1", "call 2", "call 3", "call 3", "call 3"]);
}

#[tokio::test]
async fn failures_are_shared_where_that_is_said() {
    let expensive = Expensive::new();
    let layer = SingleFlightLayer::by_address().share_failures();
    let service = behind(layer, &expensive, failing_at_first);
    let asked = ask(&service, 5).await;
    expensive.let_go.add_permits(5);
    assert_eq!(texts(asked).await, ["call 1"; 5]);
}

#[tokio::test]
async fn what_is_too_long_or_sets_a_cookie_is_the_leaders_alone() {
    let long = |call: usize| Response::new(Body::from(format!("{call}").repeat(100)));
    let cookie = |call: usize| {
        let mut response = numbered(call);
        response.headers_mut().insert("set-cookie", HeaderValue::from_static("sid=leader"));
        response
    };
    let private = |call: usize| {
        let mut response = numbered(call);
        let value = HeaderValue::from_static("max-age=60, private");
        response.headers_mut().insert("cache-control", value);
        response
    };
    let varied = |call: usize| {
        let mut response = numbered(call);
        response.headers_mut().insert("vary", HeaderValue::from_static("accept, x-tenant"));
        response
    };
    let no_store = |call: usize| {
        let mut response = numbered(call);
        response.headers_mut().insert("cache-control", HeaderValue::from_static("No-Store"));
        response
    };
    let events = |call: usize| {
        let mut response = numbered(call);
        let kind = HeaderValue::from_static("text/event-stream; charset=utf-8");
        response.headers_mut().insert("content-type", kind);
        response
    };
    for answer in [long as fn(usize) -> _, cookie, private, varied, no_store, events] {
        let expensive = Expensive::new();
        let layer = SingleFlightLayer::by_address().max_body(99);
        let service = behind(layer, &expensive, answer);
        let asked = ask(&service, 3).await;
        assert_eq!(expensive.calls(), 1);
        expensive.let_go.add_permits(3);
        let mut texts = texts(asked).await;
        texts.dedup();
        assert_eq!(
            (texts.len(), expensive.calls()),
            (3, 3),
            "everybody has an answer of their own"
        );
        assert!(texts.iter().all(|text| text.len() == 100 || text.starts_with("call ")));
    }
}

/// Two frames of data, then trailers or an error.
struct Odd {
    frames: Vec<Result<Frame<Bytes>, axum::Error>>,
}

impl http_body::Body for Odd {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Poll::Ready(self.frames.pop())
    }
}

#[tokio::test]
async fn bodies_that_break_off_or_have_trailers_reach_the_leader_as_they_are() {
    let expensive = Expensive::new();
    expensive.let_go.add_permits(100);
    let data = |text: &'static str| Ok(Frame::data(Bytes::from_static(text.as_bytes())));
    let trailers = || HeaderMap::from_iter([("x-sum".parse().unwrap(), HeaderValue::from(7))]);

    let body = move |_| {
        let frames = vec![Ok(Frame::trailers(trailers())), data("b"), data("a")];
        Response::new(Body::new(Odd { frames }))
    };
    let service = behind(SingleFlightLayer::by_address(), &expensive, body);
    let Ok(answer) = service.oneshot(plain("/")).await;
    let collected = answer.into_body().collect().await.unwrap();
    assert_eq!(collected.trailers().unwrap()["x-sum"], "7");
    assert_eq!(collected.to_bytes(), "ab");

    let body = move |_| {
        let frames = vec![Err(axum::Error::new("cut")), data("b"), data("a")];
        Response::new(Body::new(Odd { frames }))
    };
    let service = behind(SingleFlightLayer::by_address(), &expensive, body);
    let Ok(answer) = service.oneshot(plain("/")).await;
    let mut body = answer.into_body();
    let mut frames = Vec::new();
    while let Some(frame) = body.frame().await {
        frames.push(frame.map(|frame| frame.into_data().unwrap()).map_err(|e| e.to_string()));
    }
    assert_eq!(frames, [Ok("a".into()), Ok("b".into()), Err("cut".to_owned())]);
}

/// JSON lines without end, one every 200 ms, that say which call they answer.
fn lines_without_end(call: usize) -> Response<Body> {
    let (send, lines) = mpsc::channel(1);
    tokio::spawn(async move {
        for line in 0.. {
            sleep(Duration::from_millis(200)).await;
            if send.send(Ok::<_, Infallible>(format!("{call}:{line}\n"))).await.is_err() {
                return;
            }
        }
    });
    let lines = Body::from_stream(ReceiverStream::new(lines));
    Response::builder().header("x-call", call).body(lines).unwrap()
}

/// Neither the leader nor anybody else got as much as the head.
#[tokio::test(start_paused = true)]
async fn an_answer_without_end_is_handed_on_when_its_time_is_up() {
    let bounded = SingleFlightLayer::by_address().longest_read(Duration::from_millis(500));
    for (layer, longest) in [(SingleFlightLayer::by_address(), 1_000), (bounded, 500)] {
        let expensive = Expensive::new();
        expensive.let_go.add_permits(100);
        let service = behind(layer, &expensive, lines_without_end);
        let start = Instant::now();
        let asked = [(); 3].map(|()| tokio::spawn(service.clone().oneshot(plain("/report"))));
        let mut answers = Vec::new();
        for answer in asked {
            let Ok(answer) = answer.await.unwrap();
            answers.push(answer);
        }
        let late = start.elapsed().as_millis();
        assert!((longest..longest + 5).contains(&late), "{late} ms until the heads were there");
        assert_eq!(expensive.calls(), 3, "each has a stream of its own");
        for answer in answers {
            let call = answer.headers()["x-call"].to_str().unwrap().to_owned();
            let mut body = answer.into_body();
            for line in 0..10 {
                let data = body.frame().await.unwrap().unwrap().into_data().unwrap();
                let expected = format!("{call}:{line}\n");
                assert_eq!(data, expected, "what was read ahead, and what follows");
            }
        }
    }
}

/// However slowly it comes: what ends in time is shared.
#[tokio::test(start_paused = true)]
async fn an_answer_that_ends_in_time_is_shared() {
    let expensive = Expensive::new();
    expensive.let_go.add_permits(1);
    let service = behind(SingleFlightLayer::by_address(), &expensive, |_| {
        let (send, lines) = mpsc::channel(1);
        tokio::spawn(async move {
            for line in ["a", "b", "c", "d"] {
                sleep(Duration::from_millis(240)).await;
                let _ = send.send(Ok::<_, Infallible>(line)).await;
            }
        });
        Response::new(Body::from_stream(ReceiverStream::new(lines)))
    });
    assert_eq!(texts(ask(&service, 3).await).await, ["abcd"; 3]);
}

#[tokio::test]
async fn keys_are_the_users_to_choose_and_flights_are_bounded() {
    let expensive = Expensive::new();
    let layer =
        SingleFlightLayer::new(|request| Some(request.uri.path().to_owned())).max_flights(1);
    let service = behind(layer, &expensive, numbered);
    let query = |text: &str| {
        let service = service.clone();
        let request = plain(text);
        tokio::spawn(async move { send(&service, request).await })
    };
    let asked = vec![query("/a?1"), query("/a?2"), query("/b"), query("/b")];
    for _ in 0..3 {
        yield_now().await;
    }
    assert_eq!(
        expensive.calls(),
        3,
        "the first two share, and there is no room for another flight"
    );
    expensive.let_go.add_permits(3);
    let texts = texts(asked).await;
    assert_eq!(texts[0], texts[1]);
    assert_ne!(texts[2], texts[3]);
}
