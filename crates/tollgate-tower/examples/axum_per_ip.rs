//! An axum server that allows each client address so many requests.
//!
//! `cargo run -p tollgate-tower --example axum_per_ip`, then ask it a few times:
//! `curl -i http://127.0.0.1:3000/`. With `demo` as argument it asks itself and ends.

use std::error::Error;
use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;
use tollgate_tower::RateLimitLayer;

#[path = "support/demo.rs"]
mod demo;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .layer(RateLimitLayer::per_ip("3/min")?);
    let listener = TcpListener::bind(demo::address()).await?;
    let address = listener.local_addr()?;
    // Without the peer's address all clients would be one; the layer would say so.
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    demo::serve(async { axum::serve(listener, service).await }, async {
        for _ in 0..4 {
            println!("GET / → {}", demo::get(address, "/", &[]).await?);
        }
        Ok(())
    })
    .await
}
