//! Fields of one layer joined with those of another, where layers nest.

use http::header::Entry;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::{DRAFT_6, Fields, RATELIMIT, RATELIMIT_POLICY, X_RATELIMIT};

/// Makes one of a list and those it was put behind.
#[cold]
pub(super) fn mend(headers: &mut HeaderMap, name: HeaderName) {
    if let Some(last) = take_last(headers, &name) {
        join(headers, name, last);
    }
}

/// Takes out the last value of a field.
fn take_last(headers: &mut HeaderMap, name: &HeaderName) -> Option<HeaderValue> {
    let Entry::Occupied(mut entry) = headers.entry(name) else {
        return None;
    };
    let mut all: Vec<HeaderValue> = entry.iter().cloned().collect();
    let last = all.pop();
    let mut before = all.into_iter();
    match before.next() {
        Some(first) => {
            entry.insert(first);
            before.for_each(|value| entry.append(value));
        }
        None => drop(entry.remove()),
    }
    last
}

/// Adds `fields` to those an inner layer may have left.
///
/// Lists grow, the inner layer's first, for it was the last to decide. Fields with room for one limit
/// keep the one with less remaining.
pub(crate) fn append(headers: &mut HeaderMap, fields: Fields) {
    let inner_is_closer = inner_is_closer(headers, &fields);
    for (name, value) in fields {
        if name == RATELIMIT_POLICY || (name == RATELIMIT && remaining(&value).is_none()) {
            join(headers, name, value);
        } else if !(inner_is_closer && tells_one_limit(&name)) {
            headers.insert(name, value);
        }
    }
}

fn tells_one_limit(name: &HeaderName) -> bool {
    *name == RATELIMIT || DRAFT_6.contains(name) || X_RATELIMIT.contains(name)
}

/// Whether `headers` already tell of a limit closer than the one in `fields`.
fn inner_is_closer(headers: &HeaderMap, fields: &Fields) -> bool {
    let mut told = fields.iter().filter(|(name, _)| tells_remaining(name));
    told.any(|(name, value)| {
        let inner = headers.get(name).and_then(remaining);
        inner.zip(remaining(value)).is_some_and(|(inner, own)| inner <= own)
    })
}

fn tells_remaining(name: &HeaderName) -> bool {
    [&RATELIMIT, &DRAFT_6[1], &X_RATELIMIT[1]].contains(&name)
}

/// What remains, by a field that tells one limit: a number, or the seventh draft's `remaining=9`.
fn remaining(value: &HeaderValue) -> Option<u64> {
    let text = value.to_str().ok()?;
    let member = text.split(',').find_map(|member| member.trim().strip_prefix("remaining="));
    member.unwrap_or(text).parse().ok()
}

/// Makes two lists one, in one field, so that clients that read only the first see all of it.
fn join(headers: &mut HeaderMap, name: HeaderName, value: HeaderValue) {
    match headers.entry(name) {
        Entry::Vacant(entry) => {
            entry.insert(value);
        }
        Entry::Occupied(mut entry) => {
            let all: Vec<&[u8]> = entry.iter().chain([&value]).map(HeaderValue::as_bytes).collect();
            let joined = all.join(&b", "[..]);
            // Two valid values with a comma between are one.
            if let Ok(joined) = HeaderValue::from_bytes(&joined) {
                entry.insert(joined);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_an_inner_service_sent_is_kept() {
        for put in [append, |headers: &mut HeaderMap, fields: Fields| {
            for (name, value) in fields {
                headers.append(&name, value);
                mend(headers, name);
            }
        }] {
            let mut headers = HeaderMap::new();
            for inner in ["\"a\";q=1;w=1", "\"b\";q=2;w=1"] {
                headers.append(RATELIMIT_POLICY, HeaderValue::from_static(inner));
            }
            let own = HeaderValue::from_static("\"own\";q=3;w=60");
            put(&mut headers, Fields::from_iter([(RATELIMIT_POLICY, own)]));
            let all: Vec<&HeaderValue> = headers.get_all(RATELIMIT_POLICY).iter().collect();
            assert_eq!(all, ["\"a\";q=1;w=1, \"b\";q=2;w=1, \"own\";q=3;w=60"]);
        }
    }
}
