//! What an operator does and sees.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tollgate::gate::LocalStore;
use tollgate::store::Answers;
use tollgate::{
    ChargeSet, Clock, Fallback, Gate, ManualClock, MemoryStore, Policy, Rule, Store, StoreError,
    StoreErrorKind,
};
use tollgate_server::{AdminToken, Settings};

use crate::server::{START_SECS, Server};

const TOKEN: &str = "a token nobody guesses";

async fn administered() -> Server {
    let server = Server::with(|settings| {
        let policy = Policy::builder()
            .rule(Rule::new("per-user").by("user").quota("2/min"))
            .rule(Rule::new("spend").by("user").unit("tokens").quota("10/min"));
        settings.gate.set_policy(policy.build().unwrap());
        Settings { admin: AdminToken::new(TOKEN), ..settings }
    });
    server.await
}

#[tokio::test]
async fn reset_forgets_what_was_counted() {
    let server = administered().await;
    let bearer = format!("Bearer {TOKEN}");
    let admin = [("authorization", bearer.as_str())];
    let ask = r#"{"subject":{"user":"42"},"cost":{"requests":2,"tokens":10}}"#;
    assert_eq!(server.post("/v1/take", ask).await.status, 200);
    assert_eq!(server.post("/v1/take", ask).await.status, 429);

    // One rule only.
    let reset = r#"{"rule":"per-user","subject":{"user":"42"}}"#;
    let reply = server.send_with("POST", "/v1/reset", &admin, reset).await;
    assert_eq!((reply.status.as_u16(), reply.remaining()), (200, vec![2]), "{}", reply.text);
    assert_eq!(server.post("/v1/take", ask).await.json()["binding"], "spend");
    // All rules, whatever their unit.
    let reply = server.send_with("POST", "/v1/reset", &admin, r#"{"subject":{"user":"42"}}"#).await;
    assert_eq!(reply.remaining(), [2, 10]);
    assert_eq!(server.post("/v1/take", ask).await.status, 200);

    // Charges made by hand.
    let charge = r#"{"charges":[{"key":"k","quota":"1/min"}]}"#;
    assert_eq!(server.post("/v1/take", charge).await.status, 200);
    assert_eq!(server.post("/v1/take", charge).await.status, 429);
    assert_eq!(server.send_with("POST", "/v1/reset", &admin, charge).await.status, 200);
    assert_eq!(server.post("/v1/take", charge).await.status, 200);

    let unknown = r#"{"rule":"par-user","subject":{"user":"42"}}"#;
    let reply = server.send_with("POST", "/v1/reset", &admin, unknown).await;
    assert_eq!(reply.status, 400);
    assert!(reply.text.contains("there are per-user, spend"), "{}", reply.text);
}

#[tokio::test]
async fn reset_is_for_those_who_know_the_token() {
    let body = r#"{"charges":[{"key":"k","quota":"1/min"}]}"#;
    let server = administered().await;
    for wrong in ["", "Bearer ", "Bearer a token nobody guesse", "Basic a token nobody guesses"] {
        let headers = [("authorization", wrong)];
        let reply = server.send_with("POST", "/v1/reset", &headers, body).await;
        assert_eq!(reply.status, 401, "{wrong:?}");
    }
    assert_eq!(server.post("/v1/reset", body).await.status, 401);
    let off = Server::start().await;
    let reply = off.post("/v1/reset", body).await;
    assert_eq!(reply.status, 403);
    assert!(reply.text.contains("admin calls are off"), "{}", reply.text);
}

/// A store that can be switched off.
struct Breakable {
    store: MemoryStore<ManualClock>,
    down: Arc<AtomicBool>,
}

impl Store for Breakable {
    fn decide(&self, sets: &[ChargeSet<'_>]) -> impl Future<Output = Answers> + Send {
        let error = || StoreError::new(StoreErrorKind::Unavailable);
        let answers = match self.down.load(Ordering::Relaxed) {
            true => sets.iter().map(|_| Err(error())).collect(),
            false => self.store.take_sets(sets).into_iter().map(Ok).collect(),
        };
        std::future::ready(answers)
    }
}

#[tokio::test]
async fn a_store_that_is_down_is_seen_and_decided_without() {
    let clock = ManualClock::at_secs(START_SECS);
    let down = Arc::new(AtomicBool::new(false));
    let store =
        Breakable { store: MemoryStore::with_clock(clock.clone()), down: Arc::clone(&down) };
    let rule =
        |name: &str, fallback| Rule::new(name).by(name).quota("4/min").on_store_failure(fallback);
    let policy = Policy::builder()
        .rule(rule("open", Fallback::Allow))
        .rule(rule("closed", Fallback::Deny))
        .rule(rule("local", Fallback::Local));
    let local: Arc<dyn Clock> = Arc::new(clock.clone());
    let gate = Gate::new(policy.build().unwrap(), store)
        .with_local(LocalStore::with_clock(local))
        .with_replicas(NonZeroU32::new(2).unwrap());
    let trouble = {
        let down = Arc::clone(&down);
        move || down.load(Ordering::Relaxed).then(|| "switched off".to_owned())
    };
    let settings = Settings { trouble: Arc::new(trouble), ..Settings::with_gate(Arc::new(gate)) };
    let server = Server::on(settings, clock).await;
    assert_eq!(server.get("/readyz").await.text, r#"{"status":"ready"}"#);

    down.store(true, Ordering::Relaxed);
    let ready = server.get("/readyz").await;
    assert_eq!(ready.status, 200);
    assert_eq!(ready.json()["detail"], "fallbacks decide: switched off");

    let by = |axis: &str| format!(r#"{{"subject":{{"{axis}":"1"}}}}"#);
    let open = server.post("/v1/take", by("open")).await;
    assert_eq!((open.status.as_u16(), &open.json()["provenance"]), (200, &"fallback".into()));
    let closed = server.post("/v1/take", by("closed")).await;
    assert_eq!((closed.status.as_u16(), closed.header("retry-after")), (503, Some("1")));
    for expected in [200, 200, 429] {
        assert_eq!(server.post("/v1/take", by("local")).await.status, expected);
    }
    let by_hand = r#"{"charges":[{"key":"k","quota":"2/min"}]}"#;
    for expected in [200, 429] {
        assert_eq!(server.post("/v1/take", by_hand).await.status, expected);
    }
    // What the store counted cannot be given back elsewhere.
    let refund = r#"{"charges":[{"key":"k","quota":"2/min"}],"at_us":1763251200000000}"#;
    assert_eq!(server.post("/v1/refund", refund).await.status, 503);

    let metrics = server.get("/metrics").await.text;
    for line in [
        r#"tollgate_decisions_total{rule="closed",verdict="deny",provenance="fallback"} 1"#,
        r#"tollgate_decisions_total{rule="local",verdict="allow",provenance="fallback"} 2"#,
        r#"tollgate_fallback_total{rule="open",fallback="allow"} 1"#,
        r#"tollgate_fallback_total{rule="local",fallback="local"} 3"#,
        r#"tollgate_fallback_total{rule="ad-hoc",fallback="local"} 2"#,
        r#"tollgate_store_errors_total{kind="unavailable"} 8"#,
        "tollgate_store_seconds_count 0",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line}\n{metrics}");
    }

    // Rules may have any name; what Prometheus reads stays well-formed.
    let odd = Policy::builder().rule(Rule::new("a \"b\" \\").quota("5/min"));
    let quoted = Server::of(odd).await;
    quoted.post("/v1/take", r#"{"subject":{}}"#).await;
    let text = quoted.get("/metrics").await.text;
    assert!(text.contains(r#"{rule="a \"b\" \\",verdict="allow""#), "{text}");

    down.store(false, Ordering::Relaxed);
    let back = server.post("/v1/take", by("closed")).await;
    assert_eq!((back.status.as_u16(), &back.json()["provenance"]), (200, &"store".into()));
    assert!(server.get("/metrics").await.text.contains("tollgate_store_seconds_count 1"));
}
