//! Networks: an address and how many of its bits count.

use std::error::Error;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A network in CIDR notation: `10.0.0.0/8`, `2001:db8::/32`, or a single address.
///
/// IPv4 addresses written as IPv6 (`::ffff:10.0.0.1`, which is how a socket that listens on both
/// shows them) are IPv4 here, in networks and in values alike; apart from that no IPv6 network holds
/// an IPv4 address, not even `::/0`.
///
/// ```
/// use tollgate::Network;
///
/// let network: Network = "10.0.0.0/8".parse()?;
/// assert!(network.contains("10.20.30.40".parse()?));
/// assert!(network.contains("::ffff:10.20.30.40".parse()?));
///
/// let error = "10.1.2.3/8".parse::<Network>().unwrap_err();
/// assert!(error.to_string().contains("write \"10.0.0.0/8\""));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Network {
    // Folded, and zero beyond the prefix.
    base: IpAddr,
    prefix: u8,
}

impl Network {
    /// The network of the first `prefix` bits of `base`.
    pub fn new(base: IpAddr, prefix: u8) -> Result<Self, NetworkError> {
        let most = width(base);
        if prefix > most {
            return Err(NetworkError::Prefix { most });
        }
        let written = masked(base, prefix);
        if written != base {
            return Err(NetworkError::HostBits {
                found: format!("{base}/{prefix}"),
                instead: format!("{written}/{prefix}"),
            });
        }
        // A mapped network no wider than IPv4 is an IPv4 one.
        Ok(match (base, base.to_canonical()) {
            (IpAddr::V6(_), base @ IpAddr::V4(_)) if prefix >= 96 => {
                Self { base, prefix: prefix - 96 }
            }
            _ => Self { base, prefix },
        })
    }

    /// Whether an address lies in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.base.is_ipv4() && masked(address, self.prefix) == self.base
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let fail = || NetworkError::Address { found: text.chars().take(80).collect() };
        let (address, prefix) = match text.split_once('/') {
            None => (text, None),
            Some((address, prefix)) => (address, Some(prefix)),
        };
        let base: IpAddr = address.parse().map_err(|_| fail())?;
        let prefix = match prefix {
            None => width(base),
            Some(digits) if digits.starts_with('+') => return Err(fail()),
            Some(digits) => {
                digits.parse().map_err(|_| NetworkError::Prefix { most: width(base) })?
            }
        };
        Self::new(base, prefix)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.prefix)
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Network({self})")
    }
}

/// Why a text or a pair is no network.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NetworkError {
    /// What stands before the slash is no address.
    Address {
        /// The text.
        found: String,
    },
    /// The prefix is no number, or longer than the address.
    Prefix {
        /// The most bits there are.
        most: u8,
    },
    /// Bits beyond the prefix are set: either the address or the prefix is not what was meant.
    HostBits {
        /// What was written.
        found: String,
        /// The network that address lies in.
        instead: String,
    },
}

impl fmt::Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address { found } => write!(
                f,
                "{found:?} is no network; write one as \"10.0.0.0/8\" or \"2001:db8::/32\""
            ),
            Self::Prefix { most } => {
                write!(f, "the prefix must be a whole number from 0 to {most}")
            }
            Self::HostBits { found, instead } => {
                write!(f, "\"{found}\" has bits set beyond its prefix; write \"{instead}\"")
            }
        }
    }
}

impl Error for NetworkError {}

/// The bits of an address.
fn width(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// An address with every bit beyond `prefix` cleared.
fn masked(address: IpAddr, prefix: u8) -> IpAddr {
    let cleared = u32::from(width(address).saturating_sub(prefix));
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(cleared).unwrap_or(0);
            Ipv4Addr::from_bits(address.to_bits() & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(cleared).unwrap_or(0);
            Ipv6Addr::from_bits(address.to_bits() & mask).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn holds_its_addresses_and_no_others() {
        for (text, inside, outside) in [
            ("10.0.0.0/8", "10.255.255.255", "11.0.0.0"),
            ("10.0.0.0/8", "::ffff:10.1.2.3", "::ffff:11.1.2.3"),
            ("::ffff:10.0.0.0/104", "10.1.2.3", "11.0.0.0"),
            ("::ffff:0.0.0.0/96", "10.1.2.3", "::1"),
            ("192.0.2.7", "192.0.2.7", "192.0.2.8"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
            ("::/0", "2001:db8::1", "10.0.0.1"),
            ("2001:db8::/33", "2001:db8:7fff::", "2001:db8:8000::"),
            ("::1", "::1", "::2"),
        ] {
            assert!(network(text).contains(inside.parse().unwrap()), "{text}");
            assert!(!network(text).contains(outside.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn refusals_say_what_to_write() {
        for (text, hint) in [
            ("10.0.0.1/8", "write \"10.0.0.0/8\""),
            ("2001:db8::1/32", "write \"2001:db8::/32\""),
            ("10.0.0.0/33", "from 0 to 32"),
            ("10.0.0.0/x", "from 0 to 32"),
            ("::/129", "from 0 to 128"),
            ("10.0.0.0/+8", "is no network"),
            ("10.0.0/8", "write one as"),
            ("", "write one as"),
            ("*", "write one as"),
        ] {
            let error = text.parse::<Network>().unwrap_err().to_string();
            assert!(error.contains(hint), "{text}: {error}");
        }
    }

    #[test]
    fn is_shown_as_written_and_folded() {
        assert_eq!(network("10.0.0.0/8").to_string(), "10.0.0.0/8");
        assert_eq!(network("::ffff:10.0.0.0/104").to_string(), "10.0.0.0/8");
        assert_eq!(network("::1").to_string(), "::1/128");
    }
}
