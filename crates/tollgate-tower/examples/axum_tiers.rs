//! Tiers by API key: the plan of a key is looked up before the limits are asked.

use std::collections::HashMap;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use http::HeaderName;
use tokio::net::TcpListener;
use tollgate::{Gate, MemoryStore, Missing, Policy, Rule};
use tollgate_tower::{Axes, RateLimitLayer};

#[path = "support/demo.rs"]
mod demo;

/// Who has which plan. Stands for a database, with a cache in front of it.
struct Plans {
    by_key: HashMap<&'static str, &'static str>,
}

impl Plans {
    async fn of(&self, key: &str) -> Option<String> {
        tokio::task::yield_now().await;
        self.by_key.get(key).map(|plan| (*plan).to_owned())
    }
}

fn limits(plans: Arc<Plans>) -> Result<RateLimitLayer, Box<dyn Error>> {
    let policy = Policy::builder()
        .rule(
            Rule::new("plan")
                .by("key")
                // Keys nobody knows get the strictest.
                .tier("plan", [("free", "2/min"), ("paid", "100/min")])
                // Requests without a key are refused.
                .missing(Missing::Deny)
                .hash(),
        )
        .build()?;
    let axes = Axes::new().header("key", HeaderName::from_static("x-api-key")).look_up(
        "plan",
        move |request| {
            let key = request.headers.get("x-api-key").and_then(|key| key.to_str().ok());
            let (plans, key) = (Arc::clone(&plans), key.map(str::to_owned));
            async move { plans.of(&key?).await }
        },
    );
    Ok(RateLimitLayer::new(Gate::new(policy, MemoryStore::new())).axes(axes))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let by_key = HashMap::from([("k-1", "free"), ("k-2", "paid")]);
    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .layer(limits(Arc::new(Plans { by_key }))?);
    let listener = TcpListener::bind(demo::address()).await?;
    let address = listener.local_addr()?;
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    demo::serve(async { axum::serve(listener, service).await }, async {
        for key in ["k-1", "k-1", "k-1", "k-2", "stranger"] {
            let answer = demo::get(address, "/", &[("x-api-key", key)]).await?;
            println!("{key}: {answer}");
        }
        println!("no key: {}", demo::get(address, "/", &[]).await?);
        Ok(())
    })
    .await
}
