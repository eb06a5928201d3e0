//! What is wrong with a request, as RFC 9457 has it.

use std::fmt::Display;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tollgate::StoreError;

const PROBLEM_JSON: &str = "application/problem+json";

/// Why a request was not decided.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    // Where in the body, as a path: `charges[0].quota`.
    field: Option<String>,
    detail: String,
}

impl Problem {
    /// A problem with the request as a whole.
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, field: None, detail: detail.into() }
    }

    /// A problem with one field of the body; `detail` says what is accepted.
    #[cold]
    pub(super) fn field(field: impl Into<String>, detail: impl Display) -> Self {
        let field = field.into();
        Self {
            status: StatusCode::BAD_REQUEST,
            detail: format!("{field}: {detail}"),
            field: Some(field),
        }
    }

    /// The store gave no answer.
    #[cold]
    pub(super) fn store(error: &StoreError) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, format!("failed to {error}"))
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut problem = json!({
            "type": "about:blank",
            "title": self.status.canonical_reason(),
            "status": self.status.as_u16(),
            "detail": self.detail,
        });
        if let Some(field) = self.field {
            problem["field"] = field.into();
        }
        let headers = [(header::CONTENT_TYPE, PROBLEM_JSON)];
        (self.status, headers, problem.to_string()).into_response()
    }
}
