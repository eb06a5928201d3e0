//! What is decided, and how it is told.

use serde_json::json;
use tollgate::Micros;
use tollgate_server::Settings;
use tollgate_tower::Dialect;

use crate::server::{START_SECS, Server};

const AT_US: u64 = START_SECS * 1_000_000;

fn one(key: &str, quota: &str, algorithm: &str, cost: u64) -> String {
    json!({"charges": [{"key": key, "quota": quota, "algorithm": algorithm, "cost": cost}]})
        .to_string()
}

#[tokio::test]
async fn allowed_then_refused_then_allowed_when_promised() {
    let server = Server::start().await;
    let body = one("user:42", "2/min", "token-bucket", 2);
    let allowed = server.post("/v1/take", body.clone()).await;
    assert_eq!(allowed.status, 200);
    assert_eq!(
        allowed.text,
        r#"{"verdict":"allow","provenance":"store","at_us":1763251200000000,"binding":"user:42","outcomes":[{"rule":"user:42","limit":2,"remaining":0,"reset_ms":60000,"retry_ms":null,"delay_ms":0,"enforcement":"enforce","verdict":"allow"}]}"#
    );
    assert_eq!(allowed.header("content-type"), Some("application/json"));
    assert_eq!(allowed.header("ratelimit-policy"), Some("\"user:42\";q=2;w=60"));
    assert_eq!(allowed.header("ratelimit"), Some("\"user:42\";r=0;t=60"));
    assert_eq!(allowed.header("retry-after"), None);
    assert_eq!(allowed.header("cache-control"), None);

    server.clock.advance(Micros::new(1));
    let refused = server.post("/v1/take", body.clone()).await;
    assert_eq!(refused.status, 429);
    assert_eq!(
        refused.text,
        r#"{"verdict":"deny","provenance":"store","at_us":1763251200000001,"binding":"user:42","outcomes":[{"rule":"user:42","limit":2,"remaining":0,"reset_ms":60000,"retry_ms":60000,"delay_ms":0,"enforcement":"enforce","verdict":"deny"}]}"#
    );
    assert_eq!(refused.header("content-type"), Some("application/json"));
    assert_eq!(refused.header("ratelimit"), Some("\"user:42\";r=0;t=60"));
    assert_eq!(refused.header("retry-after"), Some("60"));
    assert_eq!(refused.header("cache-control"), Some("no-store"));

    server.clock.advance(Micros::from_secs(60));
    assert_eq!(server.post("/v1/take", body).await.status, 200);
}

#[tokio::test]
async fn a_charge_is_one_unit_of_a_sliding_window_unless_it_says_otherwise() {
    let server = Server::start().await;
    let plain = r#"{"charges":[{"key":"k","quota":"5/min"}]}"#;
    assert_eq!(server.post("/v1/take", plain).await.remaining(), [4]);
    let spelled = one("k", "5/min", "sliding-window", 1);
    assert_eq!(server.post("/v1/take", spelled).await.remaining(), [3]);
    let other = one("k", "5/min", "fixed-window", 1);
    assert_eq!(server.post("/v1/take", other).await.remaining(), [4]);
}

#[tokio::test]
async fn every_algorithm_is_known_by_name() {
    let server = Server::start().await;
    for name in ["fixed-window", "sliding-log", "sliding-window", "token-bucket", "leaky-bucket"] {
        let reply = server.post("/v1/take", one("k", "5/min", name, 5)).await;
        assert_eq!((reply.status.as_u16(), reply.remaining()), (200, vec![0]), "{name}");
        let reply = server.post("/v1/take", one("k", "5/min", name, 1)).await;
        assert_eq!(reply.status, 429, "{name}");
    }
}

#[tokio::test]
async fn a_leaky_bucket_tells_the_delay_rounded_up() {
    let server = Server::start().await;
    let body = one("k", "3/s", "leaky-bucket", 1);
    assert_eq!(server.post("/v1/take", body.clone()).await.json()["outcomes"][0]["delay_ms"], 0);
    let second = server.post("/v1/take", body).await.json();
    assert_eq!(second["outcomes"][0]["delay_ms"], 334);
}

#[tokio::test]
async fn what_can_never_fit_says_never_and_names_no_time() {
    let server = Server::start().await;
    let reply = server.post("/v1/take", one("k", "5/min", "token-bucket", 6)).await;
    assert_eq!(reply.status, 429);
    assert_eq!(reply.json()["outcomes"][0]["retry_ms"], "never");
    assert_eq!(reply.header("retry-after"), None);
    assert_eq!(reply.header("cache-control"), Some("no-store"));
}

#[tokio::test]
async fn a_set_is_taken_whole_or_not_at_all() {
    let server = Server::start().await;
    let set = json!({"charges": [
        {"key": "user:1", "quota": "5/min", "algorithm": "fixed-window", "cost": 1},
        {"key": "all", "quota": "2/h", "algorithm": "fixed-window", "cost": 1},
    ]})
    .to_string();
    assert_eq!(server.post("/v1/take", set.clone()).await.remaining(), [4, 1]);
    let second = server.post("/v1/take", set.clone()).await;
    assert_eq!((second.remaining(), &second.json()["binding"]), (vec![3, 0], &json!("all")));
    assert_eq!(second.header("ratelimit-policy"), Some("\"all\";q=2;w=3600, \"user:1\";q=5;w=60"));

    let refused = server.post("/v1/take", set).await;
    assert_eq!((refused.status.as_u16(), refused.remaining()), (429, vec![3, 0]));
    let refused = refused.json();
    assert_eq!(refused["binding"], "all");
    assert_eq!(refused["outcomes"][0]["verdict"], "allow");
    assert_eq!(refused["outcomes"][0]["retry_ms"], json!(null));
    assert_eq!(refused["outcomes"][1]["verdict"], "deny");
    assert!(refused["outcomes"][1]["retry_ms"].is_u64());
}

#[tokio::test]
async fn a_list_of_quotas_is_one_charge_each() {
    let server = Server::start().await;
    let body =
        r#"{"charges":[{"key":"u","quota":"10/s; 12/min","algorithm":"fixed-window","cost":10}]}"#;
    let reply = server.post("/v1/take", body).await;
    assert_eq!(reply.remaining(), [0, 2]);
    let json = reply.json();
    assert_eq!(
        (&json["outcomes"][0]["rule"], &json["outcomes"][1]["rule"]),
        (&json!("u"), &json!("u"))
    );
    // Headers tell policies apart by name, so each has its own.
    assert_eq!(
        reply.header("ratelimit"),
        Some("\"u 10/s fixed-window\";r=0;t=1, \"u 12/min fixed-window\";r=2;t=60")
    );
    server.clock.advance(Micros::from_secs(1));
    let refused = server.post("/v1/take", body).await;
    assert_eq!((refused.status.as_u16(), refused.remaining()), (429, vec![10, 2]));
    assert_eq!(refused.header("retry-after"), Some("59"));
}

#[tokio::test]
async fn the_same_bucket_twice_is_charged_the_sum() {
    let server = Server::start().await;
    let body = r#"{"charges":[{"key":"k","quota":"5/min","cost":2},{"key":"k","quota":"5/min","cost":3}]}"#;
    assert_eq!(server.post("/v1/take", body).await.remaining(), [0]);
}

#[tokio::test]
async fn peeking_charges_nothing() {
    let server = Server::start().await;
    let body = one("k", "5/min", "sliding-log", 5);
    for _ in 0..3 {
        let peek = server.post("/v1/peek", body.clone()).await;
        assert_eq!((peek.status.as_u16(), peek.remaining()), (200, vec![5]));
    }
    assert_eq!(server.post("/v1/take", body.clone()).await.status, 200);
    let peek = server.post("/v1/peek", body).await;
    assert_eq!((peek.status.as_u16(), peek.header("retry-after")), (429, Some("60")));
    assert_eq!(peek.json()["verdict"], "deny");
}

#[tokio::test]
async fn a_refund_gives_back_and_says_how_much() {
    let server = Server::start().await;
    let charges = json!([
        {"key": "k", "quota": "5/min", "algorithm": "token-bucket", "cost": 3},
        {"key": "k", "quota": "5/min", "algorithm": "leaky-bucket", "cost": 3},
    ]);
    let take = json!({"charges": charges}).to_string();
    assert_eq!(server.post("/v1/take", take).await.remaining(), [2, 2]);
    let refund = json!({"charges": charges, "at_us": AT_US}).to_string();
    let reply = server.post("/v1/refund", refund.clone()).await;
    assert_eq!((reply.status.as_u16(), reply.remaining()), (200, vec![5, 2]));
    // A leaky bucket promised the slot and keeps it.
    let returned = reply.json()["outcomes"].clone();
    assert_eq!((&returned[0]["returned"], &returned[1]["returned"]), (&json!(3), &json!(0)));
    let again = server.post("/v1/refund", refund).await.json();
    assert_eq!(again["outcomes"][0]["returned"], 0);
}

#[tokio::test]
async fn keys_may_hold_anything_json_can() {
    let server = Server::start().await;
    let key = "é \"quoted\" \\ \u{0} {tag}\r\n";
    let reply = server.post("/v1/take", one(key, "5/min", "token-bucket", 1)).await;
    assert_eq!(reply.json()["binding"], key);
    let name = r#""%C3%A9 \"quoted\" \\ %00 {tag}%0D%0A";r=4;t=12"#;
    assert_eq!(reply.header("ratelimit"), Some(name));
}

#[tokio::test]
async fn the_largest_set_of_the_longest_keys_is_answered() {
    let server = Server::start().await;
    let charges: Vec<_> = (0..16)
        .map(|index| json!({"key": format!("{}{index:02}", "k".repeat(1022)), "quota": "5/min"}))
        .collect();
    let reply = server.post("/v1/take", json!({"charges": charges}).to_string()).await;
    assert_eq!((reply.status.as_u16(), reply.remaining()), (200, vec![4; 16]));
    assert!(reply.header("ratelimit").unwrap().len() < 2_000);
}

#[tokio::test]
async fn headers_speak_the_chosen_dialect() {
    let server =
        Server::with(|settings| Settings { dialect: Dialect::XRateLimitEpoch, ..settings }).await;
    let reply = server.post("/v1/take", one("k", "5/min", "fixed-window", 1)).await;
    assert_eq!(reply.header("ratelimit"), None);
    assert_eq!(reply.header("x-ratelimit-limit"), Some("5"));
    assert_eq!(reply.header("x-ratelimit-remaining"), Some("4"));
    assert_eq!(reply.header("x-ratelimit-reset"), Some("1763251260"));
}

#[tokio::test]
async fn health_and_readiness_are_told() {
    let server = Server::start().await;
    for (path, text) in [("/healthz", r#"{"status":"ok"}"#), ("/readyz", r#"{"status":"ready"}"#)] {
        let reply = server.get(path).await;
        assert_eq!((reply.status.as_u16(), reply.text.as_str()), (200, text));
        assert_eq!(reply.header("content-type"), Some("application/json"));
    }
}

#[tokio::test]
async fn every_call_the_description_names_exists() {
    let server = Server::start().await;
    let description = server.get("/openapi.json").await.json();
    assert_eq!(description["openapi"], "3.1.0");
    let paths = description["paths"].as_object().unwrap();
    assert_eq!(paths.len(), 10);
    for (path, calls) in paths {
        for method in calls.as_object().unwrap().keys() {
            let reply = server.send(&method.to_uppercase(), path, "").await;
            assert!(![404, 405].contains(&reply.status.as_u16()), "{method} {path}");
        }
    }
    // References lead somewhere.
    let text = description.to_string();
    for (_, rest) in text.match_indices("#/components/schemas/").map(|(at, _)| text.split_at(at)) {
        let name = rest["#/components/schemas/".len()..].split('"').next().unwrap();
        assert!(description["components"]["schemas"][name].is_object(), "{name}");
    }
}
