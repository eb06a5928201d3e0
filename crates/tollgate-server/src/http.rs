//! The HTTP API: routes, and the one way every question goes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::json;
use tollgate::{Admission, ChargeSet, Decision, Fallback, Gate, Provenance, Store, StoreError};
use tollgate_config::envoy::Charges;
use tollgate_tower::Dialect;

use crate::alarm::Alarm;
use crate::descriptors::Descriptors;
use crate::metrics::{BY_HAND, DESCRIPTORS, Metrics};
use crate::reloads::{Reload, Reloads};
use crate::settings::{AdminToken, Settings, Trouble};

mod answer;
mod body;
mod envoy;
mod object;
mod openapi;
mod problem;
mod question;
mod wire;

use answer::Answer;
pub use answer::decision_json;
use problem::Problem;
use question::{Action, ByHand, ByRules, Question, Verb};

/// The type of every answer that is no problem.
const JSON: &str = "application/json";

/// The type of what Prometheus reads.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What every handler needs.
struct App<S> {
    gate: Arc<Gate<S>>,
    dialect: Dialect,
    body_limit: Duration,
    admin: Option<AdminToken>,
    trouble: Trouble,
    reloads: Reloads,
    reload: Option<Reload>,
    descriptors: Option<Descriptors>,
    alarm: Alarm,
    metrics: Metrics,
}

/// The API on the gate and in the dialect of `settings`.
pub(crate) fn router<S: Store + 'static>(settings: Settings<S>) -> Router {
    let app = App {
        gate: settings.gate,
        dialect: settings.dialect,
        body_limit: settings.limits.body,
        admin: settings.admin,
        trouble: settings.trouble,
        alarm: Alarm::default(),
        metrics: Metrics::new(&settings.reloads),
        reloads: settings.reloads,
        reload: settings.reload,
        descriptors: settings.descriptors,
    };
    let metrics = match settings.metrics {
        true => Router::new().route("/metrics", get(metrics::<S>)),
        false => Router::new(),
    };
    Router::new()
        .merge(metrics)
        .route("/v1/take", post(take::<S>))
        .route("/v1/peek", post(peek::<S>))
        .route("/v1/refund", post(refund::<S>))
        .route("/v1/reset", post(reset::<S>))
        .route("/v1/reload", post(reload::<S>))
        .route("/json", post(envoy::<S>))
        .route("/healthz", get(|| async { json(r#"{"status":"ok"}"#) }))
        .route("/readyz", get(ready::<S>))
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

async fn reset<S: Store>(State(app): State<Arc<App<S>>>, request: Request) -> Response {
    match app.authorize(&request) {
        Ok(()) => app.respond(Verb::Reset, request).await,
        Err(problem) => problem.into_response(),
    }
}

async fn reload<S: Store>(State(app): State<Arc<App<S>>>, request: Request) -> Response {
    let reloaded = match app.authorize(&request) {
        Ok(()) => app.reload().await,
        Err(problem) => Err(problem),
    };
    match reloaded {
        Ok(version) => json(json!({ "policy_version": version }).to_string()),
        Err(problem) => problem.into_response(),
    }
}

async fn envoy<S: Store>(State(app): State<Arc<App<S>>>, request: Request) -> Response {
    app.answer_envoy(request).await
}

/// Ready as long as something decides; what is wrong with the store or a new policy is a detail.
async fn ready<S: Store>(State(app): State<Arc<App<S>>>) -> Response {
    let trouble = (app.trouble)().or_else(|| app.alarm.trouble());
    let store = trouble.map(|trouble| format!("fallbacks decide: {trouble}"));
    let details: Vec<String> = store.into_iter().chain(app.reloads.trouble()).collect();
    match details.is_empty() {
        true => json(r#"{"status":"ready"}"#),
        false => json(json!({ "status": "ready", "detail": details.join("; ") }).to_string()),
    }
}

async fn metrics<S: Store>(State(app): State<Arc<App<S>>>) -> Response {
    ([(header::CONTENT_TYPE, OPEN_METRICS)], app.metrics.render()).into_response()
}

impl<S: Store> App<S> {
    /// Lets only those pass who know the secret.
    fn authorize(&self, request: &Request) -> Result<(), Problem> {
        let Some(secret) = &self.admin else {
            let detail = "admin calls are off; start the server with an admin token to allow them";
            return Err(Problem::new(StatusCode::FORBIDDEN, detail));
        };
        let given = request.headers().get(header::AUTHORIZATION);
        let given = given.and_then(|value| {
            let (scheme, token) = value.as_bytes().split_at_checked(b"Bearer ".len())?;
            scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token)
        });
        match given.is_some_and(|given| secret.is(given)) {
            true => Ok(()),
            false => Err(Problem::new(
                StatusCode::UNAUTHORIZED,
                "send the admin token, as in \"Authorization: Bearer TOKEN\"",
            )),
        }
    }

    /// Has the policy read again; the version in force then.
    async fn reload(&self) -> Result<u64, Problem> {
        let Some(reload) = self.reload.clone() else {
            let detail = "the server was started without a file of settings to read again";
            return Err(Problem::new(StatusCode::NOT_FOUND, detail));
        };
        let read = tokio::task::spawn_blocking(move || reload()).await;
        match read.unwrap_or_else(|_| Err("failed to read the file".to_owned())) {
            Ok(()) => Ok(self.gate.policy().version()),
            Err(detail) => Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail)),
        }
    }

    async fn respond(&self, verb: Verb, request: Request) -> Response {
        let answer = self.decide(verb, request).await;
        answer.unwrap_or_else(IntoResponse::into_response)
    }

    /// Bytes, JSON, question, decision, answer. Whatever is wrong with the request comes to light
    /// before the store is asked, so nothing is charged for it.
    async fn decide(&self, verb: Verb, request: Request) -> Result<Response, Problem> {
        let bytes = body::read(request, self.body_limit).await?;
        let body = wire::Body::parse(&bytes)?;
        match Question::new(&body, verb, &self.gate.policy())? {
            Question::ByHand(question) => {
                let decision = self.decide_by_hand(&question).await?;
                Ok(Answer::by_hand(verb, &question, &decision).respond(self.dialect))
            }
            Question::ByRules(question) => {
                let admission = self.decide_by_rules(&question).await?;
                Ok(Answer::by_rules(verb, &admission).respond(self.dialect))
            }
        }
    }

    /// Decides charges no rule speaks of. While the store cannot be asked, what can be decided
    /// without it is; what was taken from it cannot be given back elsewhere.
    async fn decide_by_hand(&self, question: &ByHand<'_>) -> Result<Decision, Problem> {
        match question.action {
            Action::Take | Action::Peek => Ok(self.decide_set(&question.set, BY_HAND).await),
            Action::Refund(_) | Action::Reset => {
                let asked = Instant::now();
                let answer = self.gate.limiter().take_set(&question.set).await;
                let decision = answer.map_err(|error| self.unanswered(error))?;
                self.heard(asked, decision.provenance(), None);
                Ok(decision)
            }
        }
    }

    /// Decides the charges of Envoy's descriptors.
    async fn decide_descriptors(&self, charges: &Charges) -> Decision {
        self.decide_set(&charges.set, DESCRIPTORS).await
    }

    /// Decides a set, without the store if need be, and counts its charges under one name.
    async fn decide_set(&self, set: &ChargeSet<'_>, name: &'static str) -> Decision {
        let asked = Instant::now();
        let (decision, error) = self.gate.take_set(set).await;
        self.heard(asked, decision.provenance(), error.as_ref());
        if error.is_some() {
            for _ in decision.outcomes() {
                self.metrics.count_fallback(name, Fallback::Local);
            }
        }
        self.metrics.count(&decision, std::iter::repeat(name));
        decision
    }

    /// Decides by the policy.
    async fn decide_by_rules(&self, question: &ByRules<'_>) -> Result<Admission, Problem> {
        let asked = Instant::now();
        let ByRules { action, rule, subject, costs } = question;
        let admission = match *action {
            Action::Take => Ok(self.gate.admit(subject, costs).await),
            Action::Peek => Ok(self.gate.peek(subject, costs).await),
            Action::Refund(at) => self.gate.refund_at(subject, costs, at).await,
            Action::Reset => self.gate.reset(*rule, subject).await,
        };
        let admission = admission.map_err(|error| self.unanswered(error))?;
        self.heard(asked, admission.provenance(), admission.store_error());
        if admission.store_error().is_some() {
            for (rule, _) in admission.outcomes() {
                self.metrics.count_fallback(rule.name(), rule.fallback());
            }
        }
        let rules = admission.outcomes().map(|(rule, _)| rule.name());
        self.metrics.count(admission.decision(), rules);
        Ok(admission)
    }

    /// Lets the operator know how the store does.
    fn heard(&self, asked: Instant, by: Provenance, error: Option<&StoreError>) {
        match (error, by) {
            (Some(error), _) => {
                self.metrics.count_error(error);
                self.alarm.raise(error);
            }
            (None, Provenance::Store) => {
                self.metrics.time(asked.elapsed());
                self.alarm.rest();
            }
            (None, _) => {}
        }
    }

    #[cold]
    fn unanswered(&self, error: StoreError) -> Problem {
        self.metrics.count_error(&error);
        self.alarm.raise(&error);
        Problem::store(&error)
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

fn json(text: impl Into<axum::body::Body>) -> Response {
    ([(header::CONTENT_TYPE, JSON)], text.into()).into_response()
}
