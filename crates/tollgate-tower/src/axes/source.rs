//! Where the value of an axis comes from.

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use http::HeaderName;
use http::request::Parts;

use super::address::AddressText;
use super::{Client, cookie, host};
use crate::head::Head;

/// Finds a value in a request.
pub(super) type Find = dyn for<'r> Fn(&'r Parts) -> Option<Cow<'r, str>> + Send + Sync;

/// Finds a value elsewhere, given a request.
pub(super) type LookUp =
    dyn Fn(&Parts) -> Pin<Box<dyn Future<Output = Option<String>> + Send>> + Send + Sync;

/// Where a value comes from.
#[derive(Clone)]
pub(super) enum Source {
    Client(Detail),
    Header(HeaderName),
    Cookie(Box<str>),
    Host,
    Method,
    Path,
    Route,
    Find(Arc<Find>),
    LookUp(Arc<LookUp>),
}

/// How much of an address counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Detail {
    Group,
    Whole,
}

/// What a request says on an axis.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'r> {
    Missing,
    Text(&'r str),
    /// It cannot be taken as it was sent.
    Odd,
}

impl<'r> Value<'r> {
    pub(super) fn as_text(self) -> Option<&'r str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Missing | Self::Odd => None,
        }
    }

    #[inline]
    pub(super) fn of_bytes(bytes: &'r [u8]) -> Self {
        str::from_utf8(bytes).map_or(Self::Odd, Self::Text)
    }
}

impl<'r> From<Option<&'r str>> for Value<'r> {
    #[inline]
    fn from(found: Option<&'r str>) -> Self {
        found.map_or(Self::Missing, Self::Text)
    }
}

impl Source {
    /// The value of anything but an address.
    #[inline(never)]
    pub(super) fn value_of_others<'r>(&'r self, request: &'r impl Head) -> Option<&'r str> {
        const NOBODY: &Client = &Client { address: None, group: None, is_unknown: false };
        self.value(request, NOBODY).as_text()
    }

    /// The value that a request has of itself.
    #[inline]
    pub(super) fn value<'r>(&self, request: &'r impl Head, client: &'r Client) -> Value<'r> {
        match self {
            Self::Client(Detail::Group) => client.group.as_ref().map(AddressText::as_str).into(),
            Self::Client(Detail::Whole) => client.address.as_ref().map(AddressText::as_str).into(),
            Self::Header(name) => match request.headers().get(name) {
                Some(value) => Value::of_bytes(value.as_bytes()),
                None => Value::Missing,
            },
            Self::Cookie(name) => {
                cookie::find(request.headers(), name).map_or(Value::Missing, Value::of_bytes)
            }
            Self::Host => host::value(request),
            Self::Method => Value::Text(request.method().as_str()),
            Self::Path => Value::Text(path(request)),
            Self::Route => Value::Text(route(request)),
            // These are asked apart, for what they find has to be kept somewhere.
            Self::Find(_) | Self::LookUp(_) => Value::Missing,
        }
    }

    /// What may be [odd](Value::Odd), as it counts.
    pub(super) fn spell(&self, request: &impl Head) -> Option<String> {
        match self {
            Self::Header(name) => Some(escaped(request.headers().get(name)?.as_bytes())),
            Self::Cookie(name) => cookie::find(request.headers(), name).map(escaped),
            Self::Host => host::spell(request),
            _ => None,
        }
    }
}

/// Bytes as text: as they are where they are text, and else with what is not printable escaped.
pub(super) fn escaped(bytes: &[u8]) -> String {
    str::from_utf8(bytes).map_or_else(|_| bytes.escape_ascii().to_string(), str::to_owned)
}

/// The path as it was sent: axum takes off what a router is nested under.
#[cfg(feature = "axum")]
fn path(request: &impl Head) -> &str {
    let whole = request.extensions().get::<axum::extract::OriginalUri>();
    whole.map_or(request.uri(), |whole| &whole.0).path()
}

#[cfg(not(feature = "axum"))]
fn path(request: &impl Head) -> &str {
    request.uri().path()
}

#[cfg(feature = "axum")]
fn route(request: &impl Head) -> &str {
    let matched = request.extensions().get::<axum::extract::MatchedPath>();
    matched.map_or_else(|| path(request), axum::extract::MatchedPath::as_str)
}

#[cfg(not(feature = "axum"))]
fn route(request: &impl Head) -> &str {
    path(request)
}
