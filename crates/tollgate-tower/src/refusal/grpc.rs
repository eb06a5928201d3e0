//! A refusal as gRPC has it: no body, a status in the headers, and in its details when to retry.
//!
//! The details are a `google.rpc.Status` that holds a `google.rpc.RetryInfo`. Both are so small that
//! they are spelled out here; the tests read them back with tonic's own types.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Response};
use tollgate::{Micros, Retry};

use super::{Cause, Refusal, again, not_admitted};

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");

const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";

/// The codes of gRPC that fit.
const RESOURCE_EXHAUSTED: u8 = 8;
const UNAVAILABLE: u8 = 14;

pub(super) fn respond(refusal: &Refusal<'_>) -> Response<Bytes> {
    let (code, message) = match refusal.cause {
        Cause::Limit => (RESOURCE_EXHAUSTED, format!("limit exceeded; {}", again(refusal.retry()))),
        Cause::Policy => (RESOURCE_EXHAUSTED, not_admitted(refusal, "call")),
        Cause::StoreDown => (UNAVAILABLE, "limits cannot be counted at the moment".to_owned()),
        Cause::Crowded => (UNAVAILABLE, "too many calls are waiting".to_owned()),
    };
    let mut response = Response::new(Bytes::new());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(GRPC_STATUS, u16::from(code).into());
    if let Retry::After(wait) = refusal.retry() {
        let details = base64(&status(code, &message, wait));
        headers.extend(HeaderValue::try_from(details).ok().map(|value| (GRPC_DETAILS, value)));
    }
    headers
        .extend(HeaderValue::try_from(escaped(&message)).ok().map(|value| (GRPC_MESSAGE, value)));
    response
}

/// Percent-encodes what a status message must not hold as it is: everything but printable ASCII.
fn escaped(message: &str) -> String {
    let mut escaped = String::with_capacity(message.len());
    for byte in message.bytes() {
        match byte {
            b' '..=b'$' | b'&'..=b'~' => escaped.push(char::from(byte)),
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

/// `Status { code = 1, message = 2, details = 3: Any { type_url = 1, value = 2: RetryInfo } }`.
fn status(code: u8, message: &str, wait: Micros) -> Vec<u8> {
    let mut any = Vec::new();
    push_bytes(&mut any, 1, RETRY_INFO.as_bytes());
    push_bytes(&mut any, 2, &retry_info(wait));
    let mut status = Vec::new();
    push_integer(&mut status, 1, code.into());
    push_bytes(&mut status, 2, message.as_bytes());
    push_bytes(&mut status, 3, &any);
    status
}

/// `RetryInfo { retry_delay = 1: Duration { seconds = 1, nanos = 2 } }`, exact to the microsecond.
fn retry_info(wait: Micros) -> Vec<u8> {
    let wait = std::time::Duration::from(wait);
    let mut duration = Vec::new();
    push_integer(&mut duration, 1, wait.as_secs());
    push_integer(&mut duration, 2, wait.subsec_nanos().into());
    let mut info = Vec::new();
    push_bytes(&mut info, 1, &duration);
    info
}

/// A field of wire type 0. Zero is the default and left out.
fn push_integer(message: &mut Vec<u8>, field: u8, value: u64) {
    if value != 0 {
        message.push(field << 3);
        push_varint(message, value);
    }
}

/// A field of wire type 2: its length, then its bytes.
fn push_bytes(message: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    message.push(field << 3 | 2);
    push_varint(message, bytes.len() as u64);
    message.extend_from_slice(bytes);
}

/// Seven bits a byte, the lowest first, the top bit says that more follow.
fn push_varint(message: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        message.push(value as u8 | 0x80);
        value >>= 7;
    }
    message.push(value as u8);
}

/// Base64 without padding, as gRPC has binary metadata.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..=chunk.len() {
            let index = bits >> (18 - 6 * place) & 63;
            text.push(char::from(ALPHABET[index as usize]));
        }
    }
    text
}
