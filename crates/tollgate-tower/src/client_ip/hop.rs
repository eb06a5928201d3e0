//! The hops a request took, as proxies wrote them down, the last one first.

use std::net::{IpAddr, SocketAddr};

use http::header::{FORWARDED, GetAll, HeaderName};
use http::{HeaderMap, HeaderValue};

use super::Trail;
use crate::quoted::split;

pub(super) const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The most hops looked at. No chain of trusted proxies is as long.
const MAX_HOPS: usize = 32;

/// Hops from the right: the addresses, and `None` for what is none (`unknown`, an obfuscated name,
/// nothing at all, or nonsense).
pub(super) struct Hops<'a> {
    trail: Trail,
    // The fields not looked at yet; several are one list.
    fields: <GetAll<'a, HeaderValue> as IntoIterator>::IntoIter,
    // What is left of the field being read.
    rest: Option<&'a [u8]>,
    left: usize,
}

impl<'a> Hops<'a> {
    pub(super) fn new(trail: Trail, headers: &'a HeaderMap) -> Self {
        let name = match trail {
            Trail::XForwardedFor => X_FORWARDED_FOR,
            Trail::Forwarded => FORWARDED,
        };
        let fields = headers.get_all(name).into_iter();
        Self { trail, fields, rest: None, left: MAX_HOPS }
    }
}

impl Iterator for Hops<'_> {
    type Item = Option<IpAddr>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let list = match self.rest.take() {
            Some(rest) => rest,
            None => self.fields.next_back()?.as_bytes(),
        };
        let element = match last_comma(list, self.trail) {
            Some(comma) => {
                self.rest = Some(&list[..comma]);
                &list[comma + 1..]
            }
            None => list,
        };
        let text = str::from_utf8(element).ok().map(|text| text.trim_matches([' ', '\t']));
        Some(text.and_then(|text| match self.trail {
            Trail::XForwardedFor => address(text),
            Trail::Forwarded => forwarded_for(text),
        }))
    }
}

/// The comma before the last element. In `Forwarded` values may be quoted, and a comma in quotes is
/// part of a value; in the other there are no quotes.
///
/// Quotes too are told from the right, so that one a client left open takes in nothing of what
/// proxies have added.
fn last_comma(list: &[u8], trail: Trail) -> Option<usize> {
    let mut quoted = false;
    for (at, byte) in list.iter().enumerate().rev() {
        match byte {
            b'"' if trail == Trail::Forwarded && !is_escaped(&list[..at]) => quoted = !quoted,
            b',' if !quoted => return Some(at),
            _ => {}
        }
    }
    None
}

/// Whether what follows `before` is escaped: an odd number of backslashes stands there.
fn is_escaped(before: &[u8]) -> bool {
    before.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}

/// The address in `for=192.0.2.1;proto=https` or `For="[2001:db8::1]:4711"`.
fn forwarded_for(element: &str) -> Option<IpAddr> {
    let mut parameters = split(element, ';').filter_map(|pair| pair.trim().split_once('='));
    let (_, node) = parameters.find(|(name, _)| name.eq_ignore_ascii_case("for"))?;
    let unquoted = node.strip_prefix('"').and_then(|node| node.strip_suffix('"'));
    address(unquoted.unwrap_or(node))
}

/// An address, alone or with a port as some proxies add it.
fn address(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let bracketed = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    match bracketed {
        Some(address) => address.parse().ok().map(IpAddr::V6),
        None => text.parse().ok().map(|socket: SocketAddr| socket.ip()),
    }
}
