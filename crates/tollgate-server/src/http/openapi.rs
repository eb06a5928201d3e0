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
            "/v1/reset": admin_call("Forget what was counted", "Reset"),
            "/v1/reload": reload_call(),
            "/json": envoy_call(),
            "/healthz": status_call("Whether the server runs"),
            "/readyz": status_call("Whether the server decides"),
            "/metrics": metrics_call(),
            "/openapi.json": status_call("This document"),
        },
        "components": { "schemas": {
            "Question": question(),
            "Refund": refund(),
            "Reset": reset(),
            "Charge": charge(),
            "Decision": decision(),
            "Outcome": outcome(),
            "Problem": problem(),
        }, "securitySchemes": { "admin": { "type": "http", "scheme": "bearer" } } },
    })
}

fn decision_call(summary: &str, body: &str) -> Value {
    let json = |schema: &str, media: &str, text: &str| {
        let schema = reference(schema);
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
        "503": json!({
            "description": "The store gave no answer, and the rule refuses then (a decision) or \
                            there is nothing to fall back on (a problem)",
            "content": {
                "application/json": { "schema": reference("Decision") },
                "application/problem+json": { "schema": reference("Problem") },
            },
        }),
    });
    // Only questions are refused.
    if body == "Question" {
        responses["429"] = decision("Refused; Retry-After says when to come back");
    }
    json!({ "post": { "summary": summary, "requestBody": request, "responses": responses } })
}

fn reference(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

/// A call that needs the admin token.
fn admin_call(summary: &str, body: &str) -> Value {
    let mut call = decision_call(summary, body);
    call["post"]["security"] = json!([{ "admin": [] }]);
    let answer = |text: &str| {
        let content = json!({ "application/problem+json": { "schema": reference("Problem") } });
        json!({ "description": text, "content": content })
    };
    call["post"]["responses"]["401"] = answer("The admin token is missing or wrong");
    call["post"]["responses"]["403"] = answer("Admin calls are off");
    call
}

fn reload_call() -> Value {
    let problem = |text: &str| {
        let content = json!({ "application/problem+json": { "schema": reference("Problem") } });
        json!({ "description": text, "content": content })
    };
    json!({ "post": {
        "summary": "Read the file of settings again",
        "security": [{ "admin": [] }],
        "responses": {
            "200": { "description": "It is in force", "content": { "application/json": {} } },
            "401": problem("The admin token is missing or wrong"),
            "403": problem("Admin calls are off"),
            "404": problem("There is no file of settings"),
            "422": problem("The file is wrong, and the policy stays as it was"),
        },
    } })
}

fn envoy_call() -> Value {
    let answer = |text: &str| json!({ "description": text, "content": { "application/json": {} } });
    json!({ "post": {
        "summary": "Decide an envoy.service.ratelimit.v3.RateLimitRequest, in the JSON of protocol \
                    buffers",
        "requestBody": { "required": true, "content": { "application/json": {} } },
        "responses": {
            "200": answer("A RateLimitResponse with OK"),
            "400": answer("Wrong input, or no limits are loaded; nothing was charged"),
            "429": answer("A RateLimitResponse with OVER_LIMIT"),
        },
    } })
}

fn metrics_call() -> Value {
    let answer = json!({
        "description": "Counters for Prometheus",
        "content": { "application/openmetrics-text": {} },
    });
    json!({ "get": { "summary": "What the server counts", "responses": { "200": answer } } })
}

fn status_call(summary: &str) -> Value {
    let answer = json!({ "description": "It does", "content": { "application/json": {} } });
    json!({ "get": { "summary": summary, "responses": { "200": answer } } })
}

fn question() -> Value {
    by_hand_or_by_rules(json!({}), json!({ "cost": cost() }), &[])
}

fn refund() -> Value {
    let at = json!({ "at_us": {
        "description": "When they were taken: the decision's at_us",
        "type": "integer", "minimum": 1, "maximum": MAX_EXACT,
    } });
    by_hand_or_by_rules(at, json!({ "cost": cost() }), &["at_us"])
}

fn reset() -> Value {
    let rule = json!({ "rule": {
        "description": "The only rule whose buckets are forgotten",
        "type": "string",
    } });
    by_hand_or_by_rules(json!({}), rule, &[])
}

/// An object with charges, or with a subject and what goes with one; and with `both` either way.
fn by_hand_or_by_rules(both: Value, with_subject: Value, required: &[&str]) -> Value {
    let object = |own: &str, schema: Value, others: &[&Value]| {
        let mut properties = json!({ own: schema });
        for other in others.iter().filter_map(|other| other.as_object()).flatten() {
            properties[other.0] = other.1.clone();
        }
        let required: Vec<&str> = [own].iter().chain(required).copied().collect();
        json!({
            "type": "object",
            "additionalProperties": false,
            "required": required,
            "properties": properties,
        })
    };
    json!({ "oneOf": [
        object("charges", charges(), &[&both]),
        object("subject", subject(), &[&both, &with_subject]),
    ] })
}

fn subject() -> Value {
    json!({
        "description": "Who asks, axis by axis; the policy's rules decide",
        "type": "object",
        "additionalProperties": { "type": "string" },
        "examples": [{ "user": "42", "route": "/search" }],
    })
}

fn cost() -> Value {
    let units = json!({ "type": "integer", "minimum": 1, "maximum": MAX_EXACT });
    json!({
        "description": "So many requests, or so much of each unit",
        "oneOf": [units.clone(), { "type": "object", "additionalProperties": units }],
        "default": 1,
        "examples": [{ "requests": 1, "tokens": 1200 }],
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
            "reason": {
                "description": "Why the policy decided without asking the store",
                "enum": ["no-rule", "allowlisted", "denylisted", "missing-axis"],
            },
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
