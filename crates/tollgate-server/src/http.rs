//! The HTTP API: routes, and the one way every question goes.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tollgate::{Limiter, Store};
use tollgate_tower::Dialect;

use crate::settings::Settings;

mod answer;
mod body;
mod object;
mod openapi;
mod problem;
mod question;
mod wire;

use problem::Problem;
use question::{Question, Verb};

/// The type of every answer that is no problem.
const JSON: &str = "application/json";

/// What every handler needs.
struct App<S> {
    limiter: Limiter<S>,
    dialect: Dialect,
    body_limit: Duration,
}

/// The API on the store and in the dialect of `settings`.
pub(crate) fn router<S: Store + 'static>(settings: Settings<S>) -> Router {
    let app = App {
        limiter: Limiter::new(settings.store),
        dialect: settings.dialect,
        body_limit: settings.limits.body,
    };
    Router::new()
        .route("/v1/take", post(take::<S>))
        .route("/v1/peek", post(peek::<S>))
        .route("/v1/refund", post(refund::<S>))
        .route("/healthz", get(|| async { json(r#"{"status":"ok"}"#) }))
        .route("/readyz", get(|| async { json(r#"{"status":"ready"}"#) }))
        .route("/openapi.json", get(|| async { json(openapi::document()) }))
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .with_state(Arc::new(app))
}

async fn take<S: Store>(State(app): State<Arc<App<S>>>, request: Request) -> Response {
    app.respond(Verb::Take, request).await
}

async fn peek<S: Store>(State(app): State<Arc<App<S>>>, request: Request) -> Response {
    app.respond(Verb::Peek, request).await
}

async fn refund<S: Store>(State(app): State<Arc<App<S>>>, request: Request) -> Response {
    app.respond(Verb::Refund, request).await
}

impl<S: Store> App<S> {
    async fn respond(&self, verb: Verb, request: Request) -> Response {
        let answer = self.decide(verb, request).await;
        answer.unwrap_or_else(IntoResponse::into_response)
    }

    /// Bytes, JSON, question, decision, answer. Whatever is wrong with the request comes to light
    /// before the store is asked, so nothing is charged for it.
    async fn decide(&self, verb: Verb, request: Request) -> Result<Response, Problem> {
        let bytes = body::read(request, self.body_limit).await?;
        let body = wire::Body::parse(&bytes)?;
        let question = Question::new(&body, verb)?;
        let decision = self.limiter.take_set(&question.set).await;
        let decision = decision.map_err(|error| Problem::store(&error))?;
        Ok(answer::respond(&question, &decision, self.dialect))
    }
}

async fn unknown_path(uri: Uri) -> Problem {
    let path: String = uri.path().chars().take(80).collect();
    let detail = format!("there is nothing at {path}; GET /openapi.json lists what there is");
    Problem::new(StatusCode::NOT_FOUND, detail)
}

async fn wrong_method(request: Request) -> Problem {
    let method = request.method();
    let detail = format!("this path does not answer {method}; the Allow header says what it does");
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
}

fn json(text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, JSON)], text).into_response()
}
