//! The settings of a server beside its policy.

use std::num::NonZeroU32;

use tollgate::{Network, Prefix};

use crate::fields;
use crate::report::Problems;
use crate::settings::{Listen, Secret, StoreSettings};
use crate::source::Spanned;
use crate::typed;
use crate::url::{self, WrongUrl};

pub(super) fn store(
    typed: &typed::Store,
    check: url::Check,
    problems: &mut Problems,
) -> StoreSettings {
    let default = StoreSettings::default();
    let count = |typed: &Option<Spanned<u64>>, default: usize| {
        typed.as_ref().map_or(default, |found| found.value as usize)
    };
    if let Some(deadline) = &typed.deadline
        && !(1..=10_000).contains(&deadline.value.as_millis())
    {
        let message = "the deadline must be from 1ms to 10s";
        problems.error(deadline.span, message, "write deadline = \"50ms\" or the like");
    }
    StoreSettings {
        url: typed.url.as_ref().and_then(|url| store_url(url, check, problems)),
        deadline: typed.deadline.as_ref().map_or(default.deadline, |found| found.value),
        prefix: (typed.prefix.as_ref())
            .and_then(|found| prefix(found, problems))
            .unwrap_or(default.prefix),
        connections: count(&typed.connections, default.connections),
        max_in_flight: count(&typed.max_in_flight, default.max_in_flight),
        deny_cache: count(&typed.deny_cache, default.deny_cache),
        max_keys: count(&typed.max_keys, default.max_keys),
        max_log_entries: count(&typed.max_log_entries, default.max_log_entries),
        replicas: (typed.replicas.as_ref())
            .and_then(|found| u32::try_from(found.value).ok().and_then(NonZeroU32::new))
            .unwrap_or(default.replicas),
    }
}

/// The shortest secret that is hard to guess over a network.
const LEAST_TOKEN: usize = 16;

/// The bearer token of administrative calls.
pub(super) fn admin_token(
    token: Option<&Spanned<String>>,
    problems: &mut Problems,
) -> Option<Secret> {
    let token = token?;
    if token.value.len() < LEAST_TOKEN {
        problems.hide(token.span);
        let message = "the admin token is too short to be a secret";
        let help = format!("write at least {LEAST_TOKEN} characters nobody can guess");
        problems.error(token.span, message, help);
    }
    Some(Secret::new(token.value.as_str()))
}

/// A URL that leads to a store; none if it says that there is none.
fn store_url(url: &Spanned<String>, check: url::Check, problems: &mut Problems) -> Option<Secret> {
    if matches!(url.value.as_str(), "" | "memory") {
        return None;
    }
    if let Err(WrongUrl { wrong, mut help }) = check(&url.value) {
        if !url.value.contains("://") {
            help += ", or \"memory\"";
        }
        problems.error(url.span, format!("the store's URL: {wrong}"), help);
    }
    Some(Secret::new(url.value.as_str()))
}

fn prefix(text: &Spanned<String>, problems: &mut Problems) -> Option<Prefix> {
    let read = text.value.parse::<Prefix>();
    if read.is_err() {
        let most = Prefix::MAX;
        let message = format!("{:?} does not begin keys", fields::shortened(&text.value));
        let help =
            format!("write 1 to {most} letters, digits or \"-_./@+~,!$:\", such as \"shop\"");
        problems.error(text.span, message, help);
    }
    read.ok()
}

pub(super) fn listen(typed: &typed::Listen, problems: &mut Problems) -> Listen {
    let default = Listen::default();
    let mut address = |typed: &Option<Spanned<String>>, default: Option<String>| match typed {
        None => default,
        Some(found) if found.value == "off" => None,
        Some(found) => {
            if !is_address(&found.value) {
                let message = format!("{:?} is no address", fields::shortened(&found.value));
                let help =
                    "write HOST:PORT, such as \"127.0.0.1:8080\" or \"[::1]:8080\", or \"off\"";
                problems.error(found.span, message, help);
            }
            Some(found.value.clone())
        }
    };
    Listen {
        http: address(&typed.http, default.http),
        grpc: address(&typed.grpc, default.grpc),
        resp: address(&typed.resp, default.resp),
    }
}

fn is_address(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| {
        let bracketed = host.starts_with('[') && host.ends_with(']');
        let host_fits = !host.is_empty() && (bracketed || !host.contains(':'));
        host_fits && port.parse::<u16>().is_ok()
    })
}

pub(super) fn networks(typed: &[Spanned<String>], problems: &mut Problems) -> Vec<Network> {
    let mut networks = Vec::with_capacity(typed.len());
    for text in typed {
        match text.value.parse() {
            Ok(network) => networks.push(network),
            Err(error) => problems.told(text.span, &format!("{error}")),
        }
    }
    networks
}
