//! Mistakes in the wiring are told once, by a code that stays.

use std::process::Command;
use std::sync::mpsc;

use axum::Router;
use axum::routing::get;
use tollgate::{Policy, Rule, Store};
use tollgate_tower::{Axes, Check, ClientIp, RateLimitLayer};
use tower::ServiceBuilder;

use crate::scene::{Server, clock, gate, gate_on, hello, plain, send, with_headers};

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
async fn whoever_has_no_rule_by_address_is_told_nothing_about_addresses() {
    let all = || Rule::new("all").quota("9/min");
    let each = || Rule::new("each").by("path").quota("9/min");
    let policies = [
        Policy::builder().rule(all()),
        Policy::builder().rule(each()),
        Policy::builder().rule(all()).rule(each()),
    ];
    for policy in policies {
        let (layer, seen) = told(RateLimitLayer::new(gate_on(clock(), policy)));
        let server = Server::start_without_peers(app(layer)).await;
        server.send(with_headers("/", &[("x-forwarded-for", "198.51.100.1")])).await;
        assert_eq!(seen.try_iter().collect::<Vec<_>>(), []);
    }
    let by_list = Policy::builder().rule(all()).allow_network("ip", "10.0.0.0/8");
    let (layer, seen) = told(RateLimitLayer::new(gate_on(clock(), by_list)));
    let server = Server::start_without_peers(app(layer)).await;
    server.send(with_headers("/", &[("x-forwarded-for", "198.51.100.1")])).await;
    let both = [Check::ForwardedButNothingTrusted, Check::PeerAddressMissing];
    assert_eq!(seen.try_iter().collect::<Vec<_>>(), both, "a list goes by address too");
}

/// Sends a request without its peer to a service with a limit by address.
async fn forget_the_peer() {
    let layer = RateLimitLayer::new(gate(Rule::new("per-ip").by("ip").quota("9/min")));
    let service = ServiceBuilder::new().layer(layer).service_fn(hello);
    send(&service, plain("/")).await;
}

/// Run by a test below, in a process of its own.
#[tokio::test]
async fn alone_without_a_subscriber() {
    forget_the_peer().await;
}

/// The same.
#[tokio::test]
async fn alone_with_a_subscriber() {
    let (hear, heard) = mpsc::channel();
    let _listening = tracing::subscriber::set_default(Ears { hear });
    forget_the_peer().await;
    assert_eq!(heard.try_iter().collect::<Vec<_>>(), [tracing::Level::ERROR]);
}

#[test]
fn a_missing_peer_stands_on_stderr_unless_somebody_listens() {
    for (test, expected) in
        [("checks::alone_without_a_subscriber", 1), ("checks::alone_with_a_subscriber", 0)]
    {
        let mut alone = Command::new(std::env::current_exe().unwrap());
        let output = alone.args(["--exact", test, "--nocapture"]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let told = String::from_utf8(output.stderr).unwrap();
        let errors = told.matches("error: TG101: requests come without their peer's address");
        assert_eq!(errors.count(), expected, "{test}: {told}");
    }
}

/// Hears how loud events are.
struct Ears {
    hear: mpsc::Sender<tracing::Level>,
}

impl tracing::Subscriber for Ears {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn event(&self, event: &tracing::Event<'_>) {
        self.hear.send(*event.metadata().level()).unwrap();
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
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
async fn the_remedy_for_a_short_window_is_one() {
    let said = Check::WindowTooShort.to_string();
    let remedy = said.split('"').nth(1).unwrap();
    let (layer, seen) = told(RateLimitLayer::global(remedy).unwrap());
    let server = Server::start(app(layer)).await;
    let refused = async || server.get("/").await.status.as_u16() == 429;
    // It holds twenty, and may refill a few while they are asked for.
    for _ in 0..2_000 {
        if refused().await {
            assert_eq!(seen.try_iter().collect::<Vec<_>>(), []);
            return;
        }
    }
    panic!("\"{remedy}\" never refuses");
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
