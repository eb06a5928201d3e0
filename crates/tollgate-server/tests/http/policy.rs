//! Requests that say who asks and let the rules decide.

use serde_json::json;
use tollgate::policy::PolicyBuilder;
use tollgate::{Algorithm, Missing, Policy, Rule};

use crate::server::Server;

fn tenants() -> PolicyBuilder {
    Policy::builder()
        .rule(Rule::new("all").quota("100/min").algorithm(Algorithm::FixedWindow))
        .rule(Rule::new("per-user").by("user").quota("2/min").algorithm(Algorithm::TokenBucket))
        .rule(Rule::new("spend").by("user").unit("tokens").quota("1000/min"))
}

#[tokio::test]
async fn the_rules_that_apply_decide_together() {
    let server = Server::of(tenants()).await;
    let ask = json!({ "subject": { "user": "42" }, "cost": { "tokens": 400 } }).to_string();
    let allowed = server.post("/v1/take", ask.clone()).await;
    assert_eq!(allowed.status, 200, "{}", allowed.text);
    assert_eq!(allowed.remaining(), [99, 1, 600]);
    let names: Vec<_> = allowed.json()["outcomes"].as_array().unwrap().clone();
    let names: Vec<_> = names.iter().map(|outcome| outcome["rule"].as_str().unwrap()).collect();
    assert_eq!(names, ["all", "per-user", "spend"]);
    assert_eq!(
        allowed.header("ratelimit-policy"),
        Some("\"per-user\";q=2;w=60, \"all\";q=100;w=60, \"spend\";q=1000;w=60")
    );

    // Requests are left for one more, tokens for two: the third is refused, and costs nobody.
    assert_eq!(server.post("/v1/take", ask).await.status, 200);
    let modest = json!({ "subject": { "user": "42" }, "cost": { "tokens": 200 } }).to_string();
    let refused = server.post("/v1/take", modest).await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.json()["binding"], "per-user");
    assert_eq!(refused.remaining(), [98, 0, 200]);

    // Somebody else has buckets of their own, and a plain number is so many requests.
    let other = server.post("/v1/take", r#"{"subject":{"user":"7"},"cost":2}"#).await;
    assert_eq!((other.status.as_u16(), other.remaining()), (200, vec![96, 0]));
}

#[tokio::test]
async fn peeking_takes_nothing_and_a_refund_gives_back() {
    let server = Server::of(tenants()).await;
    let ask = r#"{"subject":{"user":"42"}}"#;
    let peeked = server.post("/v1/peek", ask).await;
    assert_eq!((peeked.status.as_u16(), peeked.remaining()), (200, vec![100, 2]));
    let taken = server.post("/v1/take", ask).await.json();
    let back = json!({ "subject": { "user": "42" }, "at_us": taken["at_us"] }).to_string();
    let refunded = server.post("/v1/refund", back).await;
    assert_eq!((refunded.status.as_u16(), refunded.remaining()), (200, vec![100, 2]));
    assert_eq!(refunded.json()["outcomes"][1]["returned"], 1);
}

#[tokio::test]
async fn what_the_policy_decides_alone_says_why() {
    let rules = Policy::builder()
        .rule(Rule::new("login").by("email").quota("5/min").missing(Missing::Deny))
        .allow_network("ip", "10.0.0.0/8")
        .deny("ip", "192.0.2.66");
    let server = Server::of(rules).await;
    let cases = [
        (r#"{"subject":{"ip":"10.1.2.3"}}"#, 200, "allowlisted", json!(null)),
        (r#"{"subject":{"ip":"192.0.2.66"}}"#, 429, "denylisted", json!(null)),
        (r#"{"subject":{"ip":"192.0.2.7"}}"#, 429, "missing-axis", json!("login")),
    ];
    for (body, status, reason, binding) in cases {
        let reply = server.post("/v1/take", body).await;
        assert_eq!(reply.status, status, "{body}");
        let told = reply.json();
        assert_eq!((&told["reason"], &told["binding"]), (&json!(reason), &binding), "{body}");
        assert_eq!(told["provenance"], "policy");
        // Nothing is known about when it would be otherwise.
        assert_eq!(reply.header("retry-after"), None, "{body}");
    }
}

#[tokio::test]
async fn an_address_is_the_same_however_it_is_written() {
    let rules = Policy::builder().rule(Rule::new("per-ip").by("ip").quota("3/min"));
    let server = Server::of(rules.deny("ip", "198.51.100.7")).await;
    let take = async |ip: &str| {
        server.post("/v1/take", json!({ "subject": { "ip": ip } }).to_string()).await
    };
    for (ip, left) in [("2001:db8::1", 2), ("2001:DB8:0:0::1", 1), ("2001:db8:0::0001", 0)] {
        assert_eq!(take(ip).await.remaining(), [left], "{ip}");
    }
    for (ip, left) in [("192.0.2.1", 2), ("::ffff:192.0.2.1", 1), ("::FFFF:c000:201", 0)] {
        assert_eq!(take(ip).await.remaining(), [left], "{ip}");
    }
    assert_eq!(take("::ffff:198.51.100.7").await.json()["reason"], "denylisted");
}

#[tokio::test]
async fn lists_alone_are_a_policy() {
    let server = Server::of(Policy::builder().deny("user", "mallory")).await;
    let denied = server.post("/v1/take", r#"{"subject":{"user":"mallory"}}"#).await;
    assert_eq!((denied.status.as_u16(), &denied.json()["reason"]), (429, &json!("denylisted")));
    assert_eq!(server.post("/v1/take", r#"{"subject":{"user":"ann"}}"#).await.status, 200);
}

#[tokio::test]
async fn a_subject_that_cannot_be_understood_is_explained_and_charges_nothing() {
    let server = Server::of(tenants()).await;
    let cases = [
        (r#"{"subject":{"user":42}}"#, "subject", "invalid type: integer `42`, expected a string"),
        (r#"{"subject":{"user":"1","user":"2"}}"#, "subject", "\"user\" is given twice"),
        (r#"{"subject":[]}"#, "subject", "an object"),
        (r#"{"subject":{"user":"1"},"cost":0}"#, "cost", "a whole number from 1"),
        (r#"{"subject":{"user":"1"},"cost":{"tokens":0.5}}"#, "cost", "a whole number"),
        (r#"{"subject":{"user":"1"},"charges":[]}"#, "subject", "send either of them"),
        (r#"{"subject":{"user":"1"},"rule":"all"}"#, "rule", "only /v1/reset takes it"),
        (r#"{"subject":{"user":"1"},"at_us":5}"#, "at_us", "only /v1/refund"),
    ];
    for (body, field, detail) in cases {
        let reply = server.post("/v1/take", body).await;
        assert_eq!(reply.status, 400, "{body}");
        let problem = reply.json();
        assert_eq!(problem["field"], field, "{body}: {problem}");
        let told = problem["detail"].as_str().unwrap();
        assert!(told.contains(detail), "{body}: {told}");
    }
    let peeked = server.post("/v1/peek", r#"{"subject":{"user":"1"}}"#).await;
    assert_eq!(peeked.remaining(), [100, 2]);
}
