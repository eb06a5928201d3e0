//! Who is let through, or turned away, before any rule is asked.

use std::fmt;
use std::net::IpAddr;

use super::facts::Facts;
use super::glob::Glob;
use super::network::Network;

/// An entry of an allowlist or deny-list, as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Value { axis: String, pattern: String },
    Network { axis: String, network: String },
}

impl Entry {
    pub(super) fn axis(&self) -> &str {
        match self {
            Self::Value { axis, .. } | Self::Network { axis, .. } => axis,
        }
    }
}

/// An entry of an allowlist or deny-list: some values of an axis.
#[derive(Clone, Debug)]
pub struct Listing {
    pub(super) axis: usize,
    pub(super) name: Box<str>,
    pub(super) matcher: Matcher,
}

/// What an entry holds.
#[derive(Clone, Debug)]
pub(super) enum Matcher {
    Value(Glob),
    Network(Network),
}

impl Listing {
    /// The axis it looks at.
    pub fn axis(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for Listing {
    /// The pattern or the network.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.matcher {
            Matcher::Value(glob) => glob.fmt(f),
            Matcher::Network(network) => network.fmt(f),
        }
    }
}

/// The first entry that holds a subject.
#[inline]
pub(super) fn find(list: &[Listing], facts: &Facts<'_>) -> Option<usize> {
    // Most policies have none.
    if list.is_empty() { None } else { find_in(list, facts) }
}

fn find_in(list: &[Listing], facts: &Facts<'_>) -> Option<usize> {
    // Networks of one axis usually stand together, and an address is read once for all of them.
    let mut read: Option<(usize, Option<IpAddr>)> = None;
    list.iter().position(|entry| {
        let Some(value) = facts.value(entry.axis) else {
            return false;
        };
        match &entry.matcher {
            Matcher::Value(glob) => glob.matches(value),
            Matcher::Network(network) => {
                let address = match read {
                    Some((axis, address)) if axis == entry.axis => address,
                    _ => value.parse().ok(),
                };
                read = Some((entry.axis, address));
                // A value that is no address lies in no network.
                address.is_some_and(|address| network.contains(address))
            }
        }
    })
}
