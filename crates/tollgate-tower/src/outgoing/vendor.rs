//! What a vendor's answer says about when to call again.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{DATE, HeaderName, RETRY_AFTER};
use http::{HeaderMap, StatusCode};

use crate::quoted::split;

/// The longest a vendor is obeyed: a header that says more is more likely wrong than meant.
const MAX_PAUSE: Duration = Duration::from_secs(3_600);

/// Resets beyond this are seconds since the epoch, and below it seconds from now.
const EPOCH_BEYOND: u64 = 1_000_000_000;

/// How long to leave a vendor alone after this answer, if it said.
///
/// `Retry-After` counts on 429 and 503; a limit of which nothing remains counts on any answer, in
/// every dialect of `RateLimit`. Times of day are taken by the vendor's own clock, its `Date`, so
/// that ours does not matter.
pub(super) fn pause(status: StatusCode, headers: &HeaderMap) -> Option<Duration> {
    let turned_away =
        matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    let retry_after = turned_away.then(|| retry_after(headers)).flatten();
    let pauses = [retry_after, list(headers), members(headers), fields(headers)];
    let longest = pauses.into_iter().flatten().max()?;
    Some(longest.min(MAX_PAUSE)).filter(|pause| !pause.is_zero())
}

/// `Retry-After: 120`, or a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = httpdate::parse_http_date(text).ok()?;
    until.duration_since(now(headers)).ok()
}

/// The longest `t` of the items with `r=0`: `RateLimit: "calls";r=0;t=30, "tokens";r=12;t=60`.
fn list(headers: &HeaderMap) -> Option<Duration> {
    let fields = headers.get_all("ratelimit").iter().filter_map(|field| field.to_str().ok());
    let items = fields.flat_map(|field| split(field, ','));
    let spent = items.filter_map(|item| {
        let number = |name: &str| {
            let mut parameters = split(item, ';').skip(1);
            parameters.find_map(|pair| pair.trim().strip_prefix(name)?.parse::<u64>().ok())
        };
        (number("r=")? == 0).then(|| number("t=")).flatten()
    });
    spent.max().map(Duration::from_secs)
}

/// The seventh draft: `RateLimit: limit=100, remaining=0, reset=30`.
fn members(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("ratelimit")?.to_str().ok()?;
    let number = |name: &str| {
        let mut members = text.split(',');
        members.find_map(|pair| pair.trim().strip_prefix(name)?.parse::<u64>().ok())
    };
    (number("remaining=")? == 0).then(|| number("reset=")).flatten().map(Duration::from_secs)
}

/// A field each: `RateLimit-Remaining` and `-Reset`, or the same with `X-`.
fn fields(headers: &HeaderMap) -> Option<Duration> {
    let number = |name: HeaderName| headers.get(name)?.to_str().ok()?.trim().parse::<u64>().ok();
    let families = [
        ["ratelimit-remaining", "ratelimit-reset"],
        ["x-ratelimit-remaining", "x-ratelimit-reset"],
    ];
    let spent = families.into_iter().filter_map(|names| {
        let [remaining, reset] = names.map(HeaderName::from_static);
        let reset = (number(remaining)? == 0).then(|| number(reset)).flatten()?;
        match reset > EPOCH_BEYOND {
            false => Some(Duration::from_secs(reset)),
            true => {
                let end = UNIX_EPOCH.checked_add(Duration::from_secs(reset))?;
                end.duration_since(now(headers)).ok()
            }
        }
    });
    spent.max()
}

/// The time by the vendor's clock, or by ours if it does not say.
fn now(headers: &HeaderMap) -> SystemTime {
    let date = headers.get(DATE).and_then(|date| date.to_str().ok());
    date.and_then(|date| httpdate::parse_http_date(date).ok()).unwrap_or_else(SystemTime::now)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    /// A second after the epoch's two-thousandth million.
    const DATE_FIELD: (&str, &str) = ("date", "Wed, 18 May 2033 03:33:20 GMT");

    #[test]
    fn vendors_are_understood_in_every_dialect() {
        let too_many = StatusCode::TOO_MANY_REQUESTS;
        for (status, fields, expected) in [
            (too_many, &[("retry-after", "7")][..], Some(7)),
            (StatusCode::SERVICE_UNAVAILABLE, &[("retry-after", "7")], Some(7)),
            (StatusCode::OK, &[("retry-after", "7")], None),
            (too_many, &[("retry-after", "0")], None),
            (too_many, &[("retry-after", "soon")], None),
            (too_many, &[("retry-after", "-1")], None),
            (too_many, &[("retry-after", "99999999999")], Some(3_600)),
            (too_many, &[DATE_FIELD, ("retry-after", "Wed, 18 May 2033 03:33:50 GMT")], Some(30)),
            (too_many, &[DATE_FIELD, ("retry-after", "Wed, 18 May 2033 03:33:10 GMT")], None),
            (StatusCode::OK, &[("ratelimit", r#""a";r=0;t=30, "b";r=1;t=60"#)], Some(30)),
            (StatusCode::OK, &[("ratelimit", r#""a";t=30;r=0, "b";r=0;t=60"#)], Some(60)),
            (StatusCode::OK, &[("ratelimit", r#""a,b;r=0;t=9\"";r=5;t=30"#)], None),
            (StatusCode::OK, &[("ratelimit", r#""a";r=1;t=30"#)], None),
            (StatusCode::OK, &[("ratelimit", r#""a";r=0"#)], None),
            (StatusCode::OK, &[("ratelimit", "limit=9, remaining=0, reset=5")], Some(5)),
            (StatusCode::OK, &[("ratelimit", "limit=9, remaining=1, reset=5")], None),
            (StatusCode::OK, &[("ratelimit-remaining", "0"), ("ratelimit-reset", "4")], Some(4)),
            (
                StatusCode::OK,
                &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "3")],
                Some(3),
            ),
            (StatusCode::OK, &[("x-ratelimit-remaining", "2"), ("x-ratelimit-reset", "3")], None),
            (
                StatusCode::OK,
                &[DATE_FIELD, ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "2000000012")],
                Some(12),
            ),
            (
                StatusCode::OK,
                &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "18446744073709551615")],
                None,
            ),
            (too_many, &[("retry-after", "2"), ("ratelimit", r#""a";r=0;t=9"#)], Some(9)),
            (too_many, &[], None),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in fields {
                headers.append(*name, HeaderValue::from_static(value));
            }
            assert_eq!(pause(status, &headers), expected.map(Duration::from_secs), "{fields:?}");
        }
    }
}
