//! A real tonic server, asked by a real tonic client.

use std::time::Duration;

use http::HeaderName;
use tollgate::{Algorithm, Fallback, Missing, Policy, Rule, Store};
use tollgate_tower::{Axes, RateLimitLayer};
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Server as Transport};
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt;

use crate::scene::{Server, clock, gate, gate_on};

pub(crate) async fn server<S: Store + 'static>(
    layer: RateLimitLayer<S>,
) -> (Server, HealthClient<Channel>) {
    let (_, health) = tonic_health::server::health_reporter();
    let server = Server::run(move |listener| async move {
        let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
        let serve = Transport::builder().layer(layer).add_service(health);
        serve.serve_with_incoming(incoming).await.unwrap();
    });
    let server = server.await;
    let channel = Channel::from_shared(format!("http://{}", server.address)).unwrap();
    let client = HealthClient::new(channel.connect().await.unwrap());
    (server, client)
}

pub(crate) async fn ask(client: &mut HealthClient<Channel>, tenant: &str) -> Result<(), Status> {
    let mut request = Request::new(HealthCheckRequest::default());
    request.metadata_mut().insert("tenant", MetadataValue::try_from(tenant).unwrap());
    client.check(request).await.map(|_| ())
}

#[tokio::test]
async fn calls_are_limited_by_metadata_and_refused_with_retry_info() {
    let rule = Rule::new("per-tenant").by("tenant").quota("1/2s").algorithm(Algorithm::SlidingLog);
    let layer = RateLimitLayer::new(gate(rule))
        .axes(Axes::new().header("tenant", HeaderName::from_static("tenant")));
    let (_server, mut client) = server(layer).await;
    ask(&mut client, "a").await.unwrap();
    ask(&mut client, "b").await.unwrap();
    let refused = ask(&mut client, "a").await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(refused.message(), "limit exceeded; try again in 2s");
    let details = refused.get_error_details();
    let retry = details.retry_info().expect("it can succeed later").retry_delay;
    assert_eq!(retry, Some(Duration::from_secs(2)));
    let told = refused.metadata().get("ratelimit").unwrap();
    assert_eq!(told.to_str().unwrap(), "\"per-tenant\";r=0;t=2");
    assert_eq!(refused.metadata().get("retry-after").unwrap().to_str().unwrap(), "2");
}

#[tokio::test]
async fn calls_are_limited_by_peer_and_method() {
    let policy = Policy::builder().rule(
        Rule::new("check").when("path", "/grpc.health.v1.Health/Check").by("ip").quota("1/day"),
    );
    let (_server, mut client) = server(RateLimitLayer::new(gate_on(clock(), policy))).await;
    ask(&mut client, "a").await.unwrap();
    let refused = ask(&mut client, "a").await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    // Another method is another matter.
    let watched = client.watch(Request::new(HealthCheckRequest::default())).await;
    assert!(watched.is_ok(), "{watched:?}");
}

#[tokio::test]
async fn a_call_that_lacks_what_a_rule_goes_by_is_told_what() {
    let rule = Rule::new("per-user").by("user").quota("9/day").missing(Missing::Deny);
    let axes = Axes::new().header("user", HeaderName::from_static("user"));
    let (_server, mut client) = server(RateLimitLayer::new(gate(rule)).axes(axes)).await;
    let refused = ask(&mut client, "a").await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(refused.message(), "the limit \"per-user\" goes by \"user\", which the call lacks");
}

#[tokio::test]
async fn a_store_that_is_down_is_unavailable() {
    let rule = Rule::new("r").quota("1/day").on_store_failure(Fallback::Deny);
    let policy = Policy::builder().rule(rule).build().unwrap();
    let gate = tollgate::Gate::new(policy, crate::answers::Down);
    let (_server, mut client) = server(RateLimitLayer::new(gate)).await;
    let refused = ask(&mut client, "a").await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert_eq!(refused.metadata().get("retry-after").unwrap().to_str().unwrap(), "1");
}
