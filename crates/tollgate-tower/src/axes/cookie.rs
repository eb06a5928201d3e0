//! A cookie's value, as RFC 6265 has clients send it.

use http::HeaderMap;
use http::header::COOKIE;

/// The value of the first cookie of this name.
pub(super) fn find<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let fields = headers.get_all(COOKIE).iter().filter_map(|field| field.to_str().ok());
    let mut pairs = fields.flat_map(|field| field.split(';')).filter_map(|pair| {
        let (found, value) = pair.split_once('=')?;
        Some((found.trim(), value.trim()))
    });
    let (_, value) = pairs.find(|(found, _)| *found == name)?;
    let unquoted = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
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
        headers.append(COOKIE, HeaderValue::from_static("other=a=b"));
        for (name, value) in
            [("sid", Some("two")), ("empty", Some("")), ("other", Some("a=b")), ("id", None)]
        {
            assert_eq!(find(&headers, name), value, "{name}");
        }
    }
}
