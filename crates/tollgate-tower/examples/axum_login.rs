//! Log-ins guarded by address and by account: guessing is stopped, and nobody who knows the password
//! is locked out by somebody who does not, beyond fifteen minutes.
//!
//! Only failed attempts count. E-mail addresses stand in no key, for the rule hashes them.

use std::error::Error;
use std::net::SocketAddr;

use axum::Router;
use axum::extract::{Query, Request};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::get;
use http::StatusCode;
use serde::Deserialize;
use tokio::net::TcpListener;
use tollgate::{Algorithm, Fallback, Gate, MemoryStore, Policy, Rule};
use tollgate_tower::{Axes, RateLimitLayer};

#[path = "support/demo.rs"]
mod demo;

/// What a log-in brings. A real one would come in the body of a `POST`.
#[derive(Clone, Deserialize)]
struct Login {
    email: String,
    password: String,
}

/// Reads the log-in before the limits are asked, and leaves it where they find it.
async fn read_login(Query(login): Query<Login>, mut request: Request, next: Next) -> Response {
    request.extensions_mut().insert(login);
    next.run(request).await
}

async fn log_in(Query(login): Query<Login>) -> StatusCode {
    match login.password == "correct horse" {
        true => StatusCode::OK,
        false => StatusCode::UNAUTHORIZED,
    }
}

fn limits() -> Result<RateLimitLayer, Box<dyn Error>> {
    let rule = |name, axis, quota: &str| {
        Rule::new(name)
            .by(axis)
            .quota(quota)
            .algorithm(Algorithm::SlidingLog)
            .on_store_failure(Fallback::Deny)
            .hash()
    };
    let policy = Policy::builder()
        .rule(rule("account", "email", "3/15m"))
        .rule(rule("address", "ip", "20/15m"))
        .build()?;
    let axes = Axes::new()
        .client_ip("ip")
        // Upper and lower case are one account.
        .extension("email", |login: &Login| Some(login.email.to_lowercase().into()));
    Ok(RateLimitLayer::new(Gate::new(policy, MemoryStore::new()))
        .axes(axes)
        .charge_when(|answer| answer.status == StatusCode::UNAUTHORIZED))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let app =
        Router::new().route("/login", get(log_in)).layer(limits()?).layer(from_fn(read_login));
    let listener = TcpListener::bind(demo::address()).await?;
    let address = listener.local_addr()?;
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    demo::serve(async { axum::serve(listener, service).await }, async {
        for (email, password) in [
            ("ann@example.com", "correct%20horse"),
            ("ann@example.com", "guess1"),
            ("Ann@example.com", "guess2"),
            ("ann@example.com", "guess3"),
            ("ann@example.com", "guess4"),
            ("bob@example.com", "guess1"),
        ] {
            let path = format!("/login?email={email}&password={password}");
            println!("{email} {password}: {}", demo::get(address, &path, &[]).await?);
        }
        Ok(())
    })
    .await
}
