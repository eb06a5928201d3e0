//! Whom a call is for.

use std::borrow::Cow;

use http::header::HOST;
use http::request::Parts;

/// The host a call is for, spelled one way: `API.example.com.` and `api.example.com:443` are the same
/// vendor, who counts calls whatever the port.
pub(super) fn host(request: &Parts) -> Option<Cow<'_, str>> {
    let named = || request.headers.get(HOST)?.to_str().ok().map(without_port);
    let host = request.uri.host().or_else(named)?;
    let host = host.strip_suffix('.').unwrap_or(host);
    match host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        true => Some(host.to_ascii_lowercase().into()),
        false => Some(host.into()),
    }
}

/// Addresses of IPv6 have colons too, but stand in brackets.
fn without_port(field: &str) -> &str {
    match field.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => field,
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn however_a_host_is_written_it_is_the_same() {
        for (uri, field, expected) in [
            ("http://api.example.com/", None, "api.example.com"),
            ("http://API.Example.COM/", None, "api.example.com"),
            ("http://api.example.com./", None, "api.example.com"),
            ("http://api.example.com:80/", None, "api.example.com"),
            ("https://me:secret@api.example.com:443/", None, "api.example.com"),
            ("/", Some("api.example.com"), "api.example.com"),
            ("/", Some("API.example.com.:8080"), "api.example.com"),
            ("http://api.example.com/", Some("other"), "api.example.com"),
            ("http://[2001:DB8::1]:80/", None, "[2001:db8::1]"),
            ("/", Some("[2001:db8::1]:80"), "[2001:db8::1]"),
            ("/", Some("[2001:db8::1]"), "[2001:db8::1]"),
        ] {
            let mut request = Request::builder().uri(uri);
            if let Some(field) = field {
                request = request.header("host", field);
            }
            let (parts, ()) = request.body(()).unwrap().into_parts();
            assert_eq!(host(&parts).as_deref(), Some(expected), "{uri} {field:?}");
        }
        let (nobody, ()) = Request::new(()).into_parts();
        assert_eq!(host(&nobody), None);
    }
}
