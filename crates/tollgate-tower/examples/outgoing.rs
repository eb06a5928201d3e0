//! A client that stays within a vendor's cap: calls wait their turn, and the vendor's `Retry-After`
//! is obeyed.

use std::error::Error;
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tollgate_tower::OutgoingLayer;
use tower::{ServiceBuilder, ServiceExt};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The vendor.
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let vendor = format!("http://{}/", listener.local_addr()?);
    let app = Router::new().route("/", get(|| async { "served" }));
    tokio::spawn(async move { axum::serve(listener, app).await });

    // No more than five calls in any 200 ms, in their order, and none that has to wait for longer
    // than two seconds.
    let layer = OutgoingLayer::per_host("5/200ms")?.longest_wait(Duration::from_secs(2));
    let start = Instant::now();

    // Around a client of hyper's.
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let client = ServiceBuilder::new().layer(layer.clone()).service(client);
    for call in 1..=6 {
        let request = Request::builder().uri(&vendor).body(Empty::new())?;
        let answer = client.clone().oneshot(request).await?;
        println!("call {call} after {:?}: {}", start.elapsed(), answer.status());
    }

    // Around one of reqwest's, under the same limit: a clone shares it.
    let client = reqwest::Client::new();
    let send = move |request: Request<reqwest::Body>| {
        let client = client.clone();
        async move {
            let answer = client.execute(request.try_into()?).await;
            answer.map(Response::<reqwest::Body>::from)
        }
    };
    let client = ServiceBuilder::new().layer(layer).service_fn(send);
    for call in 7..=12 {
        let request = Request::builder().uri(&vendor).body(reqwest::Body::default())?;
        let answer = client.clone().oneshot(request).await?;
        println!("call {call} after {:?}: {}", start.elapsed(), answer.status());
    }
    Ok(())
}
