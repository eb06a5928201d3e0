//! The API described for machines, OpenAPI 3.1. Written by hand: it is the contract, not a
//! reflection of the code; a test holds the two together.

use std::sync::LazyLock;

use serde_json::{Value, json};
use tollgate::{Algorithm, ChargeSet, MAX_EXACT};

/// The document, made once.
pub(super) fn document() -> &'static str {
    static DOCUMENT: LazyLock<String> = LazyLock::new(|| describe().to_string());
    &DOCUMENT
}

fn describe() -> Value {
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tollgate",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "May this request go on? Charges are decided all or nothing.",
        },
        "paths": {
            "/v1/take": decision_call("Take units if all charges fit", "Question"),
            "/v1/peek": decision_call("See what taking would do, and take nothing", "Question"),
            "/v1/refund": decision_call("Give back what a decision took", "Refund"),
            "/healthz": status_call("Whether the server runs"),
            "/readyz": status_call("Whether the server decides"),
            "/openapi.json": status_call("This document"),
        },
        "components": { "schemas": {
            "Question": question(),
            "Refund": refund(),
            "Charge": charge(),
            "Decision": decision(),
            "Outcome": outcome(),
            "Problem": problem(),
        }},
    })
}

fn decision_call(summary: &str, body: &str) -> Value {
    let json = |schema: &str, media: &str, text: &str| {
        let schema = json!({ "$ref": format!("#/components/schemas/{schema}") });
        json!({ "description": text, "content": { media: { "schema": schema } } })
    };
    let decision = |text| json("Decision", "application/json", text);
    let problem = |text| json("Problem", "application/problem+json", text);
    let mut request = json(body, "application/json", "At most 64 KiB");
    request["required"] = true.into();
    let mut responses = json!({
        "200": decision("Allowed"),
        "400": problem("Wrong input; nothing was charged"),
        "408": problem("The body came too slowly; nothing was charged"),
        "413": problem("The body is too large; nothing was charged"),
        "503": problem("The store gave no answer"),
    });
    // A refund is never refused.
    if body == "Question" {
        responses["429"] = decision("Refused; Retry-After says when to come back");
    }
    json!({ "post": { "summary": summary, "requestBody": request, "responses": responses } })
}

fn status_call(summary: &str) -> Value {
    let answer = json!({ "description": "It does", "content": { "application/json": {} } });
    json!({ "get": { "summary": summary, "responses": { "200": answer } } })
}

fn question() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["charges"],
        "properties": { "charges": charges() },
    })
}

fn refund() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["charges", "at_us"],
        "properties": {
            "charges": charges(),
            "at_us": {
                "description": "When they were taken: the decision's at_us",
                "type": "integer", "minimum": 1, "maximum": MAX_EXACT,
            },
        },
    })
}

fn charges() -> Value {
    json!({
        "type": "array", "minItems": 1, "maxItems": ChargeSet::MAX,
        "items": { "$ref": "#/components/schemas/Charge" },
    })
}

fn charge() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["key", "quota"],
        "properties": {
            "key": { "type": "string", "minLength": 1, "examples": ["user:42"] },
            "quota": {
                "description": "LIMIT/PERIOD [burst N], several joined by ;",
                "type": "string",
                "examples": ["100/min", "10/s burst 50", "10/s; 1000/day"],
            },
            "algorithm": {
                "enum": Algorithm::ALL.map(Algorithm::name),
                "default": Algorithm::SlidingWindow.name(),
            },
            "cost": { "type": "integer", "minimum": 1, "maximum": MAX_EXACT, "default": 1 },
        },
    })
}

fn decision() -> Value {
    json!({
        "type": "object",
        "required": ["verdict", "provenance", "at_us", "binding", "outcomes"],
        "properties": {
            "verdict": { "enum": ["allow", "deny"] },
            "provenance": { "enum": ["store", "lease", "deny-cache", "fallback", "policy"] },
            "at_us": { "description": "Microseconds since the epoch", "type": "integer" },
            "binding": { "description": "The rule that decided", "type": ["string", "null"] },
            "outcomes": {
                "type": "array",
                "items": { "$ref": "#/components/schemas/Outcome" },
            },
        },
    })
}

fn outcome() -> Value {
    let number = json!({ "type": ["integer", "null"], "minimum": 0 });
    json!({
        "type": "object",
        "required": [
            "rule", "limit", "remaining", "reset_ms", "retry_ms", "delay_ms", "enforcement",
            "verdict",
        ],
        "properties": {
            "rule": { "description": "The rule, or the charge's key", "type": "string" },
            "limit": { "type": "integer", "minimum": 1 },
            "remaining": number,
            "reset_ms": number,
            "retry_ms": {
                "description": "null: nothing to wait for; never: the cost can never fit",
                "oneOf": [{ "type": ["integer", "null"], "minimum": 0 }, { "const": "never" }],
            },
            "delay_ms": number,
            "enforcement": { "enum": ["enforce", "shadow", "any-of"] },
            "verdict": { "enum": ["allow", "deny"] },
            "returned": { "description": "Units a refund gave back", "type": "integer" },
        },
    })
}

fn problem() -> Value {
    json!({
        "type": "object",
        "required": ["type", "title", "status", "detail"],
        "properties": {
            "type": { "type": "string" },
            "title": { "type": "string" },
            "status": { "type": "integer" },
            "detail": { "type": "string" },
            "field": {
                "description": "Where in the body",
                "type": "string",
                "examples": ["charges[0].quota"],
            },
        },
    })
}
