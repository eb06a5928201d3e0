//! Mistakes in the wiring are told once, by a code that stays.

use std::sync::mpsc;

use axum::Router;
use axum::routing::get;
use tollgate::{Rule, Store};
use tollgate_tower::{Axes, Check, ClientIp, RateLimitLayer};

use crate::scene::{Server, gate, with_headers};

fn told<S: Store + 'static>(
    layer: RateLimitLayer<S>,
) -> (RateLimitLayer<S>, mpsc::Receiver<Check>) {
    let (tell, told) = mpsc::channel();
    (layer.on_check(move |check| tell.send(check).unwrap()), told)
}

fn app<S: Store + 'static>(layer: RateLimitLayer<S>) -> Router {
    Router::new().route("/", get(|| async { "" })).layer(layer)
}

#[test]
fn codes_and_links_are_distinct_and_stay() {
    let codes = Check::ALL.map(Check::code);
    assert_eq!(codes, ["TG101", "TG102", "TG103", "TG104", "TG105"]);
    assert!(Check::AppliedTwice.link().ends_with("/enum.Check.html#variant.AppliedTwice"));
}

#[tokio::test]
async fn a_forwarding_header_nobody_is_trusted_with_is_told() {
    let forwarded = || with_headers("/", &[("x-forwarded-for", "198.51.100.1")]);
    let (layer, seen) = told(RateLimitLayer::per_ip("9/min").unwrap());
    let server = Server::start(app(layer)).await;
    server.get("/").await;
    assert_eq!(seen.try_iter().count(), 0);
    server.send(forwarded()).await;
    server.send(forwarded()).await;
    assert_eq!(seen.try_iter().collect::<Vec<_>>(), [Check::ForwardedButNothingTrusted]);

    let layer = RateLimitLayer::per_ip("9/min").unwrap();
    let (layer, seen) = told(layer.client_ip(ClientIp::behind(["10.0.0.0/8".parse().unwrap()])));
    let server = Server::start(app(layer)).await;
    server.send(forwarded()).await;
    assert_eq!(seen.try_iter().count(), 0, "whoever trusts somebody has thought about it");
}

#[tokio::test]
async fn a_layer_applied_twice_is_told() {
    let (layer, seen) = told(RateLimitLayer::new(gate(Rule::new("all").quota("9/min"))));
    let once = Server::start(app(layer.clone())).await;
    once.get("/").await;
    assert_eq!(seen.try_iter().count(), 0);
    let twice = Server::start(app(layer.clone()).layer(layer)).await;
    twice.get("/").await;
    twice.get("/").await;
    assert_eq!(seen.try_iter().collect::<Vec<_>>(), [Check::AppliedTwice]);

    let (inner, seen) = told(RateLimitLayer::new(gate(Rule::new("inner").quota("9/min"))));
    let outer = RateLimitLayer::new(gate(Rule::new("outer").quota("9/min")));
    Server::start(app(inner).layer(outer)).await.get("/").await;
    assert_eq!(seen.try_iter().count(), 0, "two layers may nest");
}

#[tokio::test]
async fn a_window_too_short_for_whole_seconds_is_told_when_it_refuses() {
    for (quota, expected) in [("1/s", &[Check::WindowTooShort][..]), ("1/min", &[])] {
        let (layer, seen) = told(RateLimitLayer::new(gate(Rule::new("short").quota(quota))));
        let server = Server::start(app(layer)).await;
        server.get("/").await;
        assert_eq!(seen.try_iter().count(), 0);
        let refused = server.get("/").await;
        assert_eq!(refused.status.as_u16(), 429);
        assert_eq!(seen.try_iter().collect::<Vec<_>>(), expected, "{quota}");
    }
}

#[tokio::test]
async fn an_axis_nobody_fills_is_told() {
    let rule = || Rule::new("per-user").by("user").quota("9/min");
    let (layer, seen) = told(RateLimitLayer::new(gate(rule())));
    Server::start(app(layer)).await.get("/").await;
    assert_eq!(seen.try_iter().collect::<Vec<_>>(), [Check::AxisWithoutSource]);
    let (layer, seen) = told(RateLimitLayer::new(gate(rule())));
    Server::start(app(layer.axes(Axes::new().cookie("user", "u")))).await.get("/").await;
    assert_eq!(seen.try_iter().count(), 0);
}
