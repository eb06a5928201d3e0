//! A refusal as RFC 9457 has it, `application/problem+json`.

use std::fmt::Write;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use tollgate::Retry;

use super::{Cause, Refusal, again, not_admitted};

/// The types of the problems, as registered.
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
const REDUCED_CAPACITY: &str =
    "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";

pub(super) fn respond(refusal: &Refusal<'_>) -> Response<Bytes> {
    let mut response = Response::new(body(refusal).into());
    *response.status_mut() = refusal.status();
    let problem = HeaderValue::from_static("application/problem+json");
    response.headers_mut().insert(CONTENT_TYPE, problem);
    response
}

fn body(refusal: &Refusal<'_>) -> String {
    let (kind, title) = match refusal.cause {
        Cause::Limit | Cause::Policy => (QUOTA_EXCEEDED, "Too many requests"),
        Cause::StoreDown | Cause::Crowded => (REDUCED_CAPACITY, "Reduced capacity"),
    };
    let status = refusal.status().as_u16();
    let mut body = String::with_capacity(256);
    let _ = write!(body, r#"{{"type":"{kind}","title":"{title}","status":{status},"detail":"#);
    push_string(&mut body, &detail(refusal));
    body.push_str(r#","violated-policies":["#);
    for (index, name) in refusal.rules().enumerate() {
        body.push_str(if index == 0 { "" } else { "," });
        push_string(&mut body, name);
    }
    body.push_str(r#"],"retry_ms":"#);
    let _ = match refusal.retry() {
        Retry::Now => body.write_str("null"),
        Retry::After(wait) => write!(body, "{}", wait.as_millis_ceil()),
        Retry::Never => body.write_str(r#""never""#),
    };
    body.push('}');
    body
}

fn detail(refusal: &Refusal<'_>) -> String {
    match (refusal.cause, refusal.rules().next()) {
        (Cause::Limit, Some(rule)) => {
            format!("the limit \"{rule}\" is exceeded; {}", again(refusal.retry()))
        }
        (Cause::Limit | Cause::Policy, _) => not_admitted(refusal, "request"),
        (Cause::StoreDown, _) => {
            "limits cannot be counted at the moment; try again later".to_owned()
        }
        (Cause::Crowded, _) => {
            format!("too many requests are waiting; {}", again(refusal.retry()))
        }
    }
}

/// Writes `text` as a JSON string.
fn push_string(json: &mut String, text: &str) {
    json.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => json.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(json, "\\u{:04x}", u32::from(c));
            }
            c => json.push(c),
        }
    }
    json.push('"');
}
