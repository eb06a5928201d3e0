//! Who is asking, by address, when some of what is said about it may be lies.
//!
//! The address of the peer, who opened the connection, cannot be forged. Everything else about the
//! way a request took stands in a header, and whoever sends a request can write headers. So nothing
//! is believed unless the peer is a proxy that was [trusted](ClientIp::behind), and then hops are
//! read **from the right**: each trusted proxy has appended the address it was asked from, and the
//! first one that is not a trusted proxy is the client. What stands left of it was written by the
//! client, and is not looked at.
//!
//! ```text
//! X-Forwarded-For: 6.6.6.6, 203.0.113.9, 10.0.0.2      peer 10.0.0.1
//!                  │        │            └ trusted ◀── trusted
//!                  │        └ not trusted: the client
//!                  └ whatever the client wrote
//! ```

use std::net::IpAddr;

use http::HeaderMap;
use tollgate::Network;

mod hop;
mod peer;

use hop::Hops;
pub use peer::PeerAddr;
pub(crate) use peer::{PeerFn, find as find_peer, find_left as find_peer_left};

/// The IPv6 addresses one customer of a provider commonly has are the 2^64 of a /64.
const IPV6_PREFIX: u8 = 64;

/// The header in which the trusted proxies write down whom they were asked by.
///
/// Only the one that is named is believed: a proxy that writes one of them passes the other on as
/// the client sent it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Trail {
    /// `X-Forwarded-For: 203.0.113.9, 10.0.0.2`, which nearly all proxies write.
    #[default]
    XForwardedFor,
    /// `Forwarded: for=203.0.113.9, for=10.0.0.2`, of RFC 7239.
    Forwarded,
}

/// How a client's address is found.
///
/// ```
/// use std::net::IpAddr;
/// use http::{HeaderMap, HeaderValue};
/// use tollgate_tower::ClientIp;
///
/// let client_ip = ClientIp::behind(["10.0.0.0/8".parse()?]);
/// let mut headers = HeaderMap::new();
/// headers.insert("x-forwarded-for", HeaderValue::from_static("6.6.6.6, 203.0.113.9"));
///
/// let client: IpAddr = "203.0.113.9".parse()?;
/// assert_eq!(client_ip.find("10.0.0.1".parse()?, &headers), client);
/// // The header is not believed when somebody else sends it, nor where nobody is trusted.
/// let stranger: IpAddr = "198.51.100.4".parse()?;
/// assert_eq!(client_ip.find(stranger, &headers), stranger);
/// assert_eq!(ClientIp::new().find(stranger, &headers), stranger);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientIp {
    trusted: Vec<Network>,
    trail: Trail,
    ipv6_prefix: u8,
}

impl ClientIp {
    /// The address of the peer: nothing is trusted.
    pub fn new() -> Self {
        Self::behind([])
    }

    /// Behind proxies in these networks, whose `X-Forwarded-For` is believed.
    pub fn behind(proxies: impl IntoIterator<Item = Network>) -> Self {
        let trusted = proxies.into_iter().collect();
        Self { trusted, trail: Trail::default(), ipv6_prefix: IPV6_PREFIX }
    }

    /// Believes the proxies in another header.
    pub fn trail(self, trail: Trail) -> Self {
        Self { trail, ..self }
    }

    /// Groups IPv6 addresses by their first so many bits, at most 128; 64 unless told otherwise. Some
    /// providers give each customer a /56 or a /48.
    pub fn ipv6_prefix(self, prefix: u8) -> Self {
        Self { ipv6_prefix: prefix.min(128), ..self }
    }

    /// The address of the client that asked through `peer`. IPv4 addresses written as IPv6
    /// (`::ffff:192.0.2.1`) are folded.
    #[inline]
    pub fn find(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let client = peer.to_canonical();
        match self.trusted.is_empty() || !self.trusts(client) {
            true => client,
            false => self.follow(client, headers),
        }
    }

    /// The address of the client that asked through a proxy that is trusted.
    fn follow(&self, mut client: IpAddr, headers: &HeaderMap) -> IpAddr {
        for hop in Hops::new(self.trail, headers) {
            // A hop that is no address hides who asked; then whoever said so is all that is known.
            let Some(address) = hop else {
                break;
            };
            client = address.to_canonical();
            if !self.trusts(client) {
                break;
            }
        }
        client
    }

    /// The address buckets are told apart by: of IPv6 the first address of its group.
    #[inline]
    pub fn group(&self, address: IpAddr) -> IpAddr {
        match address.to_canonical() {
            IpAddr::V6(address) => {
                let cleared = u32::from(128 - self.ipv6_prefix);
                let mask = u128::MAX.checked_shl(cleared).unwrap_or(0);
                IpAddr::V6((address.to_bits() & mask).into())
            }
            address @ IpAddr::V4(_) => address,
        }
    }

    /// Whether any proxy is trusted.
    pub(crate) fn trusts_anybody(&self) -> bool {
        !self.trusted.is_empty()
    }

    fn trusts(&self, address: IpAddr) -> bool {
        self.trusted.iter().any(|network| network.contains(address))
    }
}

impl Default for ClientIp {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether a request says it came through proxies.
pub(crate) fn is_forwarded(headers: &HeaderMap) -> bool {
    headers.contains_key(hop::X_FORWARDED_FOR) || headers.contains_key(http::header::FORWARDED)
}
