//! Addresses of stores, as far as they can be judged without one.

use crate::fields::shortened;
use crate::nearest::nearest;

/// Why an address leads to no store, and what to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongUrl {
    /// What is wrong, in a few lowercase words that quote no password.
    pub wrong: String,
    /// What to write instead, in a few more.
    pub help: String,
}

/// Tells addresses that lead to a store from others.
pub(crate) type Check = fn(&str) -> Result<(), WrongUrl>;

/// Schemes of stores, with an address of each.
const SCHEMES: [(&str, &str); 7] = [
    ("redis", "redis://user:password@127.0.0.1:6379/0"),
    ("rediss", "rediss://user:password@redis.example:6379/0"),
    ("redis+sentinel", "redis+sentinel://10.0.0.1:26379,10.0.0.2:26379/service/0"),
    ("rediss+sentinel", "rediss+sentinel://10.0.0.1:26379,10.0.0.2:26379/service/0"),
    ("redis+cluster", "redis+cluster://10.0.0.1:6379,10.0.0.2:6379"),
    ("rediss+cluster", "rediss+cluster://10.0.0.1:6379,10.0.0.2:6379"),
    ("unix", "unix:///run/redis/redis.sock?database=0"),
];

/// An address of a kind there is. What follows the scheme is for the store to read.
pub(crate) fn has_scheme(url: &str) -> Result<(), WrongUrl> {
    let found = url.split_once("://").map(|(scheme, _)| scheme);
    // What is no scheme may be the beginning of a login.
    let is_scheme = |text: &&str| text.chars().all(|c| c.is_ascii_alphanumeric() || c == '+');
    let quoted = found.filter(is_scheme);
    let known = || SCHEMES.iter().map(|(scheme, _)| *scheme);
    if quoted.iter().any(|found| known().any(|scheme| scheme.eq_ignore_ascii_case(found))) {
        return Ok(());
    }
    let wrong = match (quoted, found) {
        (Some(scheme), _) => format!("the scheme {:?} is that of no store", shortened(scheme)),
        (None, Some(_)) => "its scheme is that of no store".to_owned(),
        (None, None) => "it has no scheme".to_owned(),
    };
    let meant = quoted.and_then(|found| {
        // `redis` is the beginning of most, and one of them.
        nearest(found, known().filter(|known| known.contains('+') == found.contains('+')))
    });
    let example = SCHEMES.iter().find(|(scheme, _)| Some(*scheme) == meant).unwrap_or(&SCHEMES[0]);
    let others: Vec<String> = known().map(|scheme| format!("{scheme}://")).collect();
    let help = format!("write it like {:?}; there are {}", example.1, others.join(", "));
    Err(WrongUrl { wrong, help })
}
