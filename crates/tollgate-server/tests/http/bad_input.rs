//! What is wrong with a request is said, and costs nobody anything.

use crate::server::{Reply, Server};

/// How every complaint about a body's shape ends.
const SHAPE: &str = r#"accepted: {"charges":[{"key""#;

/// A body with this one charge.
fn charge(text: &str) -> String {
    format!(r#"{{"charges":[{text}]}}"#)
}

fn assert_problem(reply: &Reply, status: u16, words: &[&str], of: &str) {
    assert_eq!(reply.status, status, "{of}: {}", reply.text);
    assert_eq!(reply.header("content-type"), Some("application/problem+json"), "{of}");
    let problem = reply.json();
    assert_eq!(problem["status"], status, "{of}");
    assert!(problem["title"].is_string() && problem["type"].is_string(), "{of}");
    let detail = problem["detail"].as_str().unwrap();
    for word in words {
        assert!(detail.contains(word), "{of}: no {word:?} in {detail:?}");
    }
    assert_eq!(reply.header("ratelimit"), None, "{of}");
}

#[tokio::test]
async fn a_wrong_body_is_refused_with_the_field_and_the_remedy() {
    let long_key = format!(r#"{{"key":"{}","quota":"5/min"}}"#, "k".repeat(1025));
    let long_quota = format!(r#"{{"key":"k","quota":"{}"}}"#, "1/s;".repeat(300));
    let many = vec![r#"{"key":"k","quota":"5/min"}"#; 17].join(",");
    let many_quotas = (1..=17).map(|count| format!("5/{count}s")).collect::<Vec<_>>().join(";");
    let table: Vec<(String, &str, &[&str])> = vec![
        // No JSON, or not the right kind.
        (String::new(), "body", &["not JSON", SHAPE]),
        ("hello".into(), "body", &["not JSON", SHAPE]),
        ("{".into(), "body", &["not JSON"]),
        (r#"{"charges":["#.into(), "charges", &["not JSON"]),
        (r#"{"charges":[]} trailing"#.into(), "body", &["not JSON", "trailing"]),
        ("[]".into(), "body", &["sequence", "expected an object", SHAPE]),
        ("null".into(), "body", &["null", "expected an object"]),
        ("{}".into(), "charges", &["missing", r#""key":"user:42""#]),
        (r#"{"charges":{}}"#.into(), "charges", &["map", "expected a sequence", SHAPE]),
        (r#"{"charges":null}"#.into(), "charges", &["missing"]),
        (
            r#"{"charges":[["k","5/min"]]}"#.into(),
            "charges[0]",
            &["sequence", "expected an object"],
        ),
        // How many.
        (r#"{"charges":[]}"#.into(), "charges", &["from 1 to 16", "not 0"]),
        (charge(&many), "charges", &["from 1 to 16", "not 17"]),
        (charge(&format!(r#"{{"key":"k","quota":"{many_quotas}"}}"#)), "charges", &["at most 16"]),
        // Unknown and misplaced fields.
        (r#"{"charge":[]}"#.into(), "charge", &["unknown field", "`charges`", SHAPE]),
        (
            charge(r#"{"key":"k","quota":"5/min","shadow":true}"#),
            "charges[0].shadow",
            &["unknown field `shadow`", "`algorithm`", "`cost`"],
        ),
        (
            r#"{"charges":[{"key":"k","quota":"5/min"}],"cost":2}"#.into(),
            "cost",
            &["charges[0].cost"],
        ),
        (
            r#"{"charges":[{"key":"k","quota":"5/min"}],"at_us":2}"#.into(),
            "at_us",
            &["only /v1/refund"],
        ),
        (charge(r#"{"key":"k","key":"k","quota":"5/min"}"#), "charges[0]", &["duplicate"]),
        (r#"{"subject":{"user":"42"},"cost":1}"#.into(), "subject", &["no policy", "\"charges\""]),
        // Keys.
        (charge(r#"{"quota":"5/min"}"#), "charges[0]", &["missing field `key`", SHAPE]),
        (charge(r#"{"key":"","quota":"5/min"}"#), "charges[0].key", &["empty", "user:42"]),
        (charge(r#"{"key":42,"quota":"5/min"}"#), "charges[0].key", &["expected a string"]),
        (charge(&long_key), "charges[0].key", &["at most 1024 bytes", "1025", "hash"]),
        // Quotas.
        (charge(r#"{"key":"k"}"#), "charges[0]", &["missing field `quota`"]),
        (charge(r#"{"key":"k","quota":"lots"}"#), "charges[0].quota", &["\"lots\"", "100/min"]),
        (charge(r#"{"key":"k","quota":"0/s"}"#), "charges[0].quota", &["from 1 to"]),
        (charge(r#"{"key":"k","quota":"5/month"}"#), "charges[0].quota", &["30d or 31d"]),
        (charge(r#"{"key":"k","quota":5}"#), "charges[0].quota", &["expected a string"]),
        (charge(r#"{"key":"k","quota":"1/s; 2/s"}"#), "charges[0].quota", &["same period"]),
        (charge(r#"{"key":"k","quota":"1/s;"}"#), "charges[0].quota", &["no quota on one side"]),
        (charge(&long_quota), "charges[0].quota", &["at most 1024 bytes"]),
        (
            charge(r#"{"key":"k","quota":"5/min"},{"key":"l","quota":"5/min burst 9"}"#),
            "charges[1].quota",
            &["write \"5/min\""],
        ),
        (
            charge(r#"{"key":"k","quota":"100001/s","algorithm":"sliding-log"}"#),
            "charges[0].quota",
            &["100000"],
        ),
        // Algorithms.
        (
            charge(r#"{"key":"k","quota":"5/min","algorithm":"gcra"}"#),
            "charges[0].algorithm",
            &["\"gcra\"", "token-bucket"],
        ),
        (
            charge(r#"{"key":"k","quota":"5/min","algorithm":null}"#),
            "charges[0].algorithm",
            &["null", "expected a string"],
        ),
        // Costs.
        (cost("0"), "charges[0].cost", &["`0`", "from 1 to 9007199254740991"]),
        (cost("-1"), "charges[0].cost", &["`-1`", "a whole number from 1"]),
        (cost("1.5"), "charges[0].cost", &["`1.5`", "a whole number from 1"]),
        (cost("1.0"), "charges[0].cost", &["`1.0`", "a whole number from 1"]),
        (cost("\"1\""), "charges[0].cost", &["string", "a whole number from 1"]),
        (cost("null"), "charges[0].cost", &["null", "a whole number from 1"]),
        (cost("9007199254740992"), "charges[0].cost", &["to 9007199254740991"]),
        (cost("1e400"), "charges[0].cost", &["number out of range"]),
        // The same bucket with two limits.
        (
            charge(r#"{"key":"k","quota":"5/min"},{"key":"k","quota":"6/min"}"#),
            "charges[1]",
            &["key \"k\"", "charged twice", "different keys"],
        ),
    ];
    let server = Server::start().await;
    for (body, field, words) in &table {
        for path in ["/v1/take", "/v1/peek"] {
            let reply = server.post(path, body.clone()).await;
            assert_problem(&reply, 400, words, body);
            assert_eq!(reply.json()["field"], *field, "{body}: {}", reply.text);
            assert!(reply.text.contains(&format!("\"{field}: ")), "{}", reply.text);
        }
    }
    let untouched = server.post("/v1/peek", charge(r#"{"key":"k","quota":"5/min"}"#)).await;
    assert_eq!(untouched.remaining(), [5]);
}

fn cost(text: &str) -> String {
    charge(&format!(r#"{{"key":"k","quota":"5/min","cost":{text}}}"#))
}

#[tokio::test]
async fn a_refund_needs_to_know_of_when() {
    let server = Server::start().await;
    let take = charge(r#"{"key":"k","quota":"5/min"}"#);
    assert_eq!(server.post("/v1/take", take.clone()).await.remaining(), [4]);
    let reply = server.post("/v1/refund", take.clone()).await;
    assert_problem(&reply, 400, &["at_us", "missing", "decision"], "no at_us");
    for at in ["0", "-5", "\"now\"", "1.5"] {
        let body = format!(r#"{{"charges":[{{"key":"k","quota":"5/min"}}],"at_us":{at}}}"#);
        let reply = server.post("/v1/refund", body).await;
        assert_problem(&reply, 400, &["at_us", "whole number"], at);
    }
    assert_eq!(server.post("/v1/peek", take).await.remaining(), [4]);
}

#[tokio::test]
async fn a_body_too_large_is_refused_whatever_it_says() {
    let server = Server::start().await;
    let body = charge(r#"{"key":"k","quota":"5/min"}"#);
    let padded = |size: usize| format!("{body}{}", " ".repeat(size - body.len()));
    assert_eq!(server.post("/v1/take", padded(65_536)).await.remaining(), [4]);
    for size in [65_537, 500_000] {
        let reply = server.post("/v1/take", padded(size)).await;
        assert_problem(&reply, 413, &["65536 bytes"], "large");
    }
    assert_eq!(server.post("/v1/peek", body).await.remaining(), [4]);
}

#[tokio::test]
async fn a_path_nobody_knows_is_named() {
    let server = Server::start().await;
    for path in ["/", "/v1/takes", "/v1/take/", "/v2/take"] {
        let reply = server.post(path, "{}").await;
        assert_problem(&reply, 404, &[path, "/openapi.json"], path);
    }
}

#[tokio::test]
async fn a_wrong_method_is_told_the_right_one() {
    let server = Server::start().await;
    for (method, path, allow) in [
        ("GET", "/v1/take", "POST"),
        ("PUT", "/v1/peek", "POST"),
        ("DELETE", "/v1/refund", "POST"),
        ("POST", "/healthz", "GET,HEAD"),
        ("POST", "/openapi.json", "GET,HEAD"),
    ] {
        let reply = server.send(method, path, "").await;
        assert_problem(&reply, 405, &[method, "Allow"], path);
        assert_eq!(reply.header("allow"), Some(allow), "{method} {path}");
    }
}
