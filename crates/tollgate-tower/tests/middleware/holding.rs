//! Requests that are held instead of refused, on paused time.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::Instant;
use tollgate::{Algorithm, Costs, Gate, MemoryStore, Policy, Rule, Subject};
use tollgate_tower::{Axes, RateLimitLayer};
use tower::{Service, ServiceBuilder, ServiceExt};

use crate::scene::{Reply, RuntimeClock, gate_on, hello, plain, send};

type Layer = RateLimitLayer<MemoryStore<RuntimeClock>>;

fn layer(rule: Rule) -> Layer {
    RateLimitLayer::new(gate(rule))
}

fn gate(rule: Rule) -> Gate<MemoryStore<RuntimeClock>> {
    gate_on(RuntimeClock::new(), Policy::builder().rule(rule))
}

fn service(
    layer: &Layer,
) -> impl Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ Sync
+ 'static {
    ServiceBuilder::new().layer(layer.clone()).service_fn(hello)
}

/// Sends so many requests at once; for each its status and when it was answered, in milliseconds.
async fn answers(layer: &Layer, count: usize) -> Vec<(u16, u128)> {
    let start = Instant::now();
    let mut sent = Vec::new();
    for _ in 0..count {
        sent.push(ask(layer));
        // Each has asked before the next does.
        yield_now().await;
    }
    let mut answers = Vec::new();
    for reply in sent {
        let (reply, at) = reply.await.unwrap();
        answers.push((reply.status.as_u16(), (at - start).as_millis()));
    }
    answers
}

fn ask(layer: &Layer) -> JoinHandle<(Reply, Instant)> {
    let service = service(layer);
    tokio::spawn(async move {
        let reply = send(&service, plain("/")).await;
        (reply, Instant::now())
    })
}

#[tokio::test(start_paused = true)]
async fn a_leaky_bucket_spaces_requests_out() {
    let rule = Rule::new("paced").quota("2/s burst 4").algorithm(Algorithm::LeakyBucket);
    let layer = layer(rule);
    let expected = [(200, 0), (200, 500), (200, 1_000), (200, 1_500), (429, 0)];
    assert_eq!(answers(&layer, 5).await, expected);
    assert_eq!(layer.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_waits_asks_again_when_it_would_fit() {
    let rule = Rule::new("patient")
        .quota("1/s")
        .algorithm(Algorithm::SlidingLog)
        .wait(Duration::from_millis(2_500));
    let layer = layer(rule);
    let mut answers = answers(&layer, 4).await;
    answers.sort_by_key(|(_, at)| *at);
    // One passes each second. The last finds out then that another would be too long.
    answers[2..].sort();
    assert_eq!(answers, [(200, 0), (200, 1_000), (200, 2_000), (429, 2_000)]);
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_does_not_wait_refuses_at_once() {
    for rule in [
        Rule::new("strict").quota("1/s"),
        Rule::new("hasty").quota("1/s").wait(Duration::from_millis(900)),
    ] {
        let rule = rule.algorithm(Algorithm::SlidingLog);
        assert_eq!(answers(&layer(rule), 2).await, [(200, 0), (429, 0)]);
    }
}

#[tokio::test(start_paused = true)]
async fn so_many_are_held_and_no_more() {
    let rule = Rule::new("patient")
        .quota("1/s")
        .algorithm(Algorithm::SlidingLog)
        .wait(Duration::from_secs(60));
    let layer = layer(rule).max_held(2);
    let mut answers = answers(&layer, 5).await;
    answers.sort();
    assert_eq!(answers, [(200, 0), (200, 1_000), (200, 2_000), (429, 0), (429, 0)]);
}

#[tokio::test(start_paused = true)]
async fn who_cannot_be_held_takes_no_place_in_the_queue() {
    let rule = Rule::new("paced").quota("1/s burst 9").algorithm(Algorithm::LeakyBucket);
    let layer = layer(rule).max_held(1);
    let (first, second) = (ask(&layer), ask(&layer));
    yield_now().await;
    assert_eq!(layer.held(), 1);
    let third = send(&service(&layer), plain("/")).await;
    assert_eq!(third.status.as_u16(), 503, "it is not the client who asked too much");
    assert_eq!(third.header("retry-after"), Some("2"));
    assert_eq!(third.json()["detail"], "too many requests are waiting; try again in 2s");
    assert_eq!(third.remaining(), Some(7), "and it was not charged");
    for ask in [first, second] {
        assert_eq!(ask.await.unwrap().0.status.as_u16(), 200);
    }
    // At one second: the first has drained, the second goes now, and one may be held behind it.
    let (reply, _) = ask(&layer).await.unwrap();
    assert_eq!(reply.status.as_u16(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_goes_away_frees_its_place() {
    let rule = Rule::new("patient")
        .quota("1/min")
        .algorithm(Algorithm::SlidingLog)
        .wait(Duration::from_secs(3_600));
    let layer = layer(rule).max_held(1);
    assert_eq!(ask(&layer).await.unwrap().0.status.as_u16(), 200);
    let waiting = ask(&layer);
    yield_now().await;
    assert_eq!(layer.held(), 1);
    assert_eq!(ask(&layer).await.unwrap().0.status.as_u16(), 429, "no room");
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    assert_eq!(layer.held(), 0);
    let start = Instant::now();
    let (reply, at) = ask(&layer).await.unwrap();
    assert_eq!((reply.status.as_u16(), (at - start).as_secs()), (200, 60));
}

#[tokio::test(start_paused = true)]
async fn who_finds_no_place_after_all_is_given_back_what_was_taken() {
    let policy = Policy::builder()
        .rule(Rule::new("paced").quota("1/s burst 9").algorithm(Algorithm::LeakyBucket))
        .rule(Rule::new("daily").quota("10/day").algorithm(Algorithm::FixedWindow));
    let layer = RateLimitLayer::new(gate_on(RuntimeClock::new(), policy)).max_held(1);
    let mut service = service(&layer);
    // All three have been admitted before any of them looks for a place.
    let [first, second, third] = [(); 3].map(|()| service.call(plain("/")));
    let (first, second, third) = tokio::join!(first, second, third);
    let statuses = [first, second, third].map(|answer| answer.unwrap().status().as_u16());
    assert_eq!(statuses, [200, 200, 503]);
    let left = layer.gate().peek_now(&Subject::new(), &Costs::default());
    let (_, daily) = left.outcomes().find(|(rule, _)| rule.name() == "daily").unwrap();
    assert_eq!(daily.reading.unwrap().remaining, 8);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_finds_no_place_is_unavailable() {
    let rule = Rule::new("paced").quota("1/s burst 9").algorithm(Algorithm::LeakyBucket);
    let layer = layer(rule).max_held(1).grpc();
    let held = [ask(&layer), ask(&layer)];
    yield_now().await;
    let refused = send(&service(&layer), plain("/")).await;
    assert_eq!(refused.header("grpc-status"), Some("14"));
    assert_eq!(refused.header("grpc-message"), Some("too many calls are waiting"));
    for held in held {
        assert_eq!(held.await.unwrap().0.header("grpc-status"), None);
    }
}

/// A service that must be asked whether it is ready, as those with room for so many calls are.
#[derive(Debug)]
struct Careful {
    is_ready: bool,
}

impl Clone for Careful {
    fn clone(&self) -> Self {
        Self { is_ready: false }
    }
}

impl Service<Request<Body>> for Careful {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.is_ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        assert!(std::mem::take(&mut self.is_ready), "it was not asked");
        ready(Ok(Response::new(Body::empty())))
    }
}

#[tokio::test(start_paused = true)]
async fn the_service_that_is_ready_is_the_one_that_is_called() {
    let paced = || Rule::new("paced").quota("1/s burst 9").algorithm(Algorithm::LeakyBucket);
    let looked_up = Axes::new().look_up("plan", |_| async { None });
    // Those that are held, and those that are looked up first.
    for layer in [layer(paced()), layer(paced()).axes(looked_up)] {
        let mut service = ServiceBuilder::new().layer(layer).service(Careful { is_ready: false });
        for _ in 0..3 {
            let answer = service.ready().await.unwrap().call(plain("/")).await;
            assert_eq!(answer.unwrap().status().as_u16(), 200);
        }
    }
}
