//! Costs that are known only afterwards, and charges made behind the request.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use axum::routing::get;
use axum::{Extension, Router};
use http::{HeaderMap, StatusCode};
use tokio::sync::Semaphore;
use tollgate::store::Answers;
use tollgate::{
    Algorithm, ChargeSet, Cost, Costs, Gate, ManualClock, MemoryStore, Policy, Rule, Store,
    StoreError, StoreErrorKind, Subject,
};
use tollgate_tower::{Admitted, RateLimitLayer};

use crate::scene::{Server, clock, gate, gate_on, with_headers};

#[tokio::test]
async fn only_failed_log_ins_count() {
    let rule = Rule::new("login").quota("2/day").algorithm(Algorithm::SlidingLog);
    let layer = RateLimitLayer::new(gate(rule))
        .charge_when(|answer| answer.status == StatusCode::UNAUTHORIZED);
    let app = Router::new()
        .route(
            "/",
            get(|headers: HeaderMap| async move {
                match headers.contains_key("x-password") {
                    true => StatusCode::OK,
                    false => StatusCode::UNAUTHORIZED,
                }
            }),
        )
        .layer(layer);
    let server = Server::start(app).await;
    let ask = async |headers: &[(&str, &str)]| server.send(with_headers("/", headers)).await;
    for _ in 0..5 {
        let reply = ask(&[("x-password", "right")]).await;
        assert_eq!((reply.status.as_u16(), reply.remaining()), (200, Some(2)));
    }
    assert_eq!(ask(&[]).await.remaining(), Some(1));
    assert_eq!(ask(&[]).await.remaining(), Some(0));
    assert_eq!(ask(&[("x-password", "right")]).await.status.as_u16(), 429);
}

#[tokio::test]
async fn an_estimate_is_settled_by_the_answer() {
    let tokens = |count| Costs::default().with("tokens", Cost::new(count).unwrap());
    let policy = Policy::builder()
        .rule(Rule::new("calls").quota("100/day"))
        .rule(Rule::new("tokens").unit("tokens").quota("1000/day"));
    let layer = RateLimitLayer::new(gate_on(clock(), policy))
        .cost("tokens", |_| Cost::new(300))
        .settle(move |answer| {
            let used = answer.headers.get("x-tokens")?.to_str().ok()?;
            Some(tokens(used.parse().ok()?))
        });
    let app = Router::new()
        .route(
            "/{used}",
            get(|path: axum::extract::Path<String>| async move { [("x-tokens", path.0)] }),
        )
        .layer(layer);
    let server = Server::start(app).await;
    let left = async |used: &str| {
        let reply = server.get(used).await;
        let list = reply.header("ratelimit").unwrap().to_owned();
        let (_, tokens) = list.split_once("\"tokens\";r=").unwrap();
        tokens.split(';').next().unwrap().parse::<u64>().unwrap()
    };
    assert_eq!(left("/100").await, 900, "what was not used is given back");
    assert_eq!(left("/500").await, 400, "what was used beyond is taken");
    assert_eq!(left("/none").await, 100, "an answer that does not say leaves the estimate");
    assert_eq!(server.get("/1").await.status.as_u16(), 429, "an estimate has to fit");
}

#[tokio::test]
async fn a_handler_settles_what_it_learns_at_the_end() {
    let rule = Rule::new("tokens").unit("tokens").quota("1000/day");
    let layer = RateLimitLayer::new(gate(rule)).cost("tokens", |_| Cost::new(300));
    let handler = |Extension(admitted): Extension<Admitted>| async move {
        let actual = Costs::default().with("tokens", Cost::new(50).unwrap());
        let settled = admitted.settle(&actual).await.unwrap();
        settled.binding().unwrap().1.reading.unwrap().remaining.to_string()
    };
    let app = Router::new().route("/", get(handler)).layer(layer);
    let server = Server::start(app).await;
    assert_eq!(server.get("/").await.text, "950");
    assert_eq!(server.get("/").await.text, "900");
}

/// A store like one far away, which answers only when it is let.
struct Slow {
    store: MemoryStore<ManualClock>,
    let_go: Semaphore,
    asked: AtomicUsize,
}

impl Slow {
    fn new() -> Self {
        let store = MemoryStore::with_clock(clock());
        Self { store, let_go: Semaphore::new(0), asked: AtomicUsize::new(0) }
    }
}

impl Store for Slow {
    async fn decide(&self, sets: &[ChargeSet<'_>]) -> Answers {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.let_go.acquire().await.unwrap().forget();
        self.store.take_sets(sets).into_iter().map(Ok).collect()
    }
}

#[tokio::test]
async fn what_is_not_critical_is_charged_behind_the_request_and_bounded() {
    let store = Arc::new(Slow::new());
    let policy = Policy::builder().rule(Rule::new("interest").quota("9/min").non_critical());
    let gate = Gate::new(policy.build().unwrap(), Arc::clone(&store));
    let (see, seen) = mpsc::channel();
    let layer = RateLimitLayer::new(gate).max_behind(2).inspect(move |admission| {
        if let Some((rule, outcome)) = admission.binding() {
            let left = outcome.reading.unwrap().remaining;
            see.send((rule.name().to_owned(), left)).unwrap();
        }
    });
    let app = Router::new().route("/", get(|| async { "" })).layer(layer.clone());
    let server = Server::start(app).await;
    for _ in 0..5 {
        assert_eq!(
            server.get("/").await.status.as_u16(),
            200,
            "the store has not answered anybody"
        );
    }
    assert_eq!(layer.skipped_behind(), 3, "two are under way, the others were left unmade");
    assert_eq!(seen.try_iter().count(), 0);
    store.let_go.add_permits(2);
    let both = tokio::task::spawn_blocking(move || [seen.recv(), seen.recv()].map(Result::unwrap));
    let interest = |left| ("interest".to_owned(), left);
    assert_eq!(both.await.unwrap(), [interest(8), interest(7)]);
    assert_eq!(store.asked.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn what_only_watches_is_settled_and_what_is_charged_behind_stands_at_the_estimate() {
    let tokens = |name: &str| Rule::new(name).unit("tokens").quota("1000/day");
    let policy =
        Policy::builder().rule(tokens("watched").shadow()).rule(tokens("behind").non_critical());
    let gate = Arc::new(gate_on(clock(), policy));
    let layer = RateLimitLayer::new(Arc::clone(&gate))
        .cost("tokens", |_| Cost::new(300))
        .settle(|_| Some(Costs::only("tokens", Cost::ONE)));
    let app = Router::new().route("/", get(|| async { "" })).layer(layer);
    assert_eq!(Server::start(app).await.get("/").await.status, StatusCode::OK);
    let left = || {
        let costs = Costs::only("tokens", Cost::ONE);
        let admission = gate.peek_now(&Subject::new(), &costs);
        let outcomes = admission.outcomes().map(|(_, outcome)| outcome.reading.unwrap().remaining);
        outcomes.collect::<Vec<_>>()
    };
    while left()[1] == 1_000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(left(), [999, 700]);
}

#[tokio::test]
async fn a_store_far_away_is_settled_before_the_answer_goes_out() {
    let store = Arc::new(Slow::new());
    store.let_go.add_permits(100);
    let policy = Policy::builder().rule(Rule::new("failures").quota("2/day"));
    let gate = Gate::new(policy.build().unwrap(), Arc::clone(&store));
    let layer = RateLimitLayer::new(gate).charge_when(|answer| !answer.status.is_success());
    let app = Router::new().route("/", get(|| async { "" })).layer(layer);
    let server = Server::start(app).await;
    for _ in 0..5 {
        assert_eq!(server.get("/").await.remaining(), Some(2));
    }
    assert_eq!(store.asked.load(Ordering::Relaxed), 10, "a question and a settlement each");
}

/// A store that answers so many questions and then is gone, at once or as one far away.
struct Leaving<const AT_ONCE: bool> {
    store: MemoryStore<ManualClock>,
    left: AtomicUsize,
}

impl<const AT_ONCE: bool> Store for Leaving<AT_ONCE> {
    const IMMEDIATE: bool = AT_ONCE;

    async fn decide(&self, sets: &[ChargeSet<'_>]) -> Answers {
        let one_less = |left: usize| left.checked_sub(1);
        match self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less) {
            Ok(_) => self.store.take_sets(sets).into_iter().map(Ok).collect(),
            Err(_) => {
                let gone = || StoreError::new(StoreErrorKind::Unavailable);
                sets.iter().map(|_| Err(gone())).collect()
            }
        }
    }
}

/// What remains by the answer, and whether the handler could settle, of a request whose store goes
/// away once it is admitted.
async fn answer_of_who_was_left<const AT_ONCE: bool>() -> (u16, Option<u64>, String) {
    let store = MemoryStore::with_clock(clock());
    let store = Leaving::<AT_ONCE> { store, left: AtomicUsize::new(1) };
    let policy = Policy::builder().rule(Rule::new("failures").quota("9/day")).build().unwrap();
    let layer = RateLimitLayer::new(Gate::new(policy, store)).charge_when(|_| false);
    let handler = |Extension(admitted): Extension<Admitted>| async move {
        admitted.settle(&Costs::none()).await.is_ok().to_string()
    };
    let app = Router::new().route("/", get(handler)).layer(layer);
    let reply = Server::start(app).await.get("/").await;
    (reply.status.as_u16(), reply.remaining(), reply.text)
}

#[tokio::test]
async fn when_the_store_goes_away_in_between_the_estimate_stands() {
    let expected = (200, Some(8), "false".to_owned());
    assert_eq!(answer_of_who_was_left::<true>().await, expected);
    assert_eq!(answer_of_who_was_left::<false>().await, expected);
}
