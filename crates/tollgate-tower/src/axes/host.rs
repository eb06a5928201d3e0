//! The host a request is for, which may be spelled in many ways.

use http::header::HOST;

use super::source::{Value, escaped};
use crate::head::Head;

/// The host a request is for, without its port and the dot at its end.
fn find(request: &impl Head) -> Option<&str> {
    let named = || str::from_utf8(request.headers().get(HOST)?.as_bytes()).ok();
    request.uri().host().or_else(named).map(bare)
}

/// The same in small letters, if it is so already.
pub(super) fn value(request: &impl Head) -> Value<'_> {
    match find(request) {
        Some(host) if host.bytes().any(|byte| byte.is_ascii_uppercase()) => Value::Odd,
        Some(host) => Value::Text(host),
        // No text.
        None if request.headers().contains_key(HOST) => Value::Odd,
        None => Value::Missing,
    }
}

/// The same in small letters, whatever was sent.
pub(crate) fn spell(request: &impl Head) -> Option<String> {
    let host = match request.uri().host() {
        Some(host) => host.to_owned(),
        None => escaped(request.headers().get(HOST)?.as_bytes()),
    };
    Some(bare(&host).to_ascii_lowercase())
}

/// A host without what may stand behind it.
fn bare(host: &str) -> &str {
    let without_port = match host.rsplit_once(':') {
        // Not in the midst of an IPv6 address.
        Some((host, port)) if is_port(port) && (!host.contains(':') || host.ends_with(']')) => host,
        _ => host,
    };
    without_port.trim_end_matches('.')
}

fn is_port(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Request};

    use super::*;

    #[test]
    fn a_host_has_one_spelling() {
        for (sent, expected) in [
            ("api.example.com", "api.example.com"),
            ("api.example.com:80", "api.example.com"),
            ("api.example.com:", "api.example.com"),
            ("api.example.com.", "api.example.com"),
            ("API.example.COM.:8080", "api.example.com"),
            ("192.0.2.1:80", "192.0.2.1"),
            ("[2001:DB8::1]:80", "[2001:db8::1]"),
            ("[::1]", "[::1]"),
            ("2001:db8::1", "2001:db8::1"),
            ("api.example.com:http", "api.example.com:http"),
            ("", ""),
        ] {
            let mut request = Request::new(());
            request.headers_mut().insert(HOST, HeaderValue::from_static(sent));
            assert_eq!(spell(&request).unwrap(), expected);
            let has_capitals = sent.to_lowercase() != sent;
            assert_eq!(value(&request).as_text(), (!has_capitals).then_some(expected));
        }
    }
}
