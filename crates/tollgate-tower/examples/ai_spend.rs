//! A spend quota for a language model: an estimate is reserved before the call, and settled when the
//! answer says what was used.

use std::error::Error;
use std::net::SocketAddr;

use axum::Router;
use axum::extract::Path;
use axum::response::IntoResponse;
use axum::routing::get;
use http::{HeaderName, HeaderValue, response};
use tokio::net::TcpListener;
use tollgate::{Cost, Costs, Gate, MemoryStore, Policy, Rule};
use tollgate_tower::{Axes, RateLimitLayer};

#[path = "support/demo.rs"]
mod demo;

/// What a call is expected to use at most.
const ESTIMATE: u64 = 400;

const TOKENS_USED: HeaderName = HeaderName::from_static("x-tokens-used");

/// Stands for a model: it uses as many tokens as it is told to.
async fn complete(Path(tokens): Path<u32>) -> impl IntoResponse {
    ([(TOKENS_USED, HeaderValue::from(tokens))], "lorem ipsum\n")
}

/// What a call has cost, by its answer.
fn used(answer: &response::Parts) -> Option<Costs<'static>> {
    let tokens = answer.headers.get(TOKENS_USED)?.to_str().ok()?.parse().ok()?;
    let costs = Costs::default();
    Some(match Cost::new(tokens) {
        Some(tokens) => costs.with("tokens", tokens),
        // None at all: everything is given back but the call itself.
        None => costs,
    })
}

fn limits() -> Result<RateLimitLayer, Box<dyn Error>> {
    let policy = Policy::builder()
        .rule(Rule::new("calls").by("tenant").quota("60/min"))
        .rule(Rule::new("spend").by("tenant").unit("tokens").quota("1000/day"))
        .build()?;
    Ok(RateLimitLayer::new(Gate::new(policy, MemoryStore::new()))
        .axes(Axes::new().header("tenant", HeaderName::from_static("x-tenant")))
        .cost("tokens", |_| Cost::new(ESTIMATE))
        .settle(used))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let app = Router::new().route("/complete/{tokens}", get(complete)).layer(limits()?);
    let listener = TcpListener::bind(demo::address()).await?;
    let address = listener.local_addr()?;
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    demo::serve(async { axum::serve(listener, service).await }, async {
        for tokens in [100, 700, 50] {
            let path = format!("/complete/{tokens}");
            let answer = demo::get(address, &path, &[("x-tenant", "acme")]).await?;
            println!("{tokens} tokens: {answer}");
        }
        Ok(())
    })
    .await
}
