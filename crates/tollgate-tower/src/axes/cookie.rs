//! A cookie's value, as RFC 6265 has clients send it.

use http::HeaderMap;
use http::header::COOKIE;

/// The value of the first cookie of this name, whatever bytes it or any other is of.
pub(super) fn find<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h [u8]> {
    let fields = headers.get_all(COOKIE).iter().map(|field| field.as_bytes());
    let mut pairs = fields.flat_map(|field| field.split(|byte| *byte == b';')).filter_map(|pair| {
        let equals = pair.iter().position(|byte| *byte == b'=')?;
        Some((pair[..equals].trim_ascii(), pair[equals + 1..].trim_ascii()))
    });
    let (_, value) = pairs.find(|(found, _)| *found == name.as_bytes())?;
    let unquoted = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
    Some(unquoted.unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn cookies_are_found_by_their_whole_name() {
        let mut headers = HeaderMap::new();
        headers.append(COOKIE, HeaderValue::from_static("asid=1; sid=\"two\" ;empty="));
        headers.append(COOKIE, HeaderValue::from_bytes(b"odd=\xff; other=a=b").unwrap());
        for (name, value) in [
            ("sid", Some(&b"two"[..])),
            ("empty", Some(b"")),
            ("other", Some(b"a=b")),
            ("odd", Some(b"\xff")),
            ("id", None),
        ] {
            assert_eq!(find(&headers, name), value, "{name}");
        }
    }
}
