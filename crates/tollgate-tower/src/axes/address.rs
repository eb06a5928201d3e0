//! An address as text, without the heap.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tollgate::gate::PlainValue;

/// The longest there is: of IPv6, eight groups of four digits.
const LONGEST: usize = 39;

const _: () = assert!(LONGEST <= ROOM, "there is room for every address");

/// Room for every address of IPv4, and the dot behind it.
const SHORT: usize = 16;

/// As much room as is checked to be text in whole words.
const ROOM: usize = 48;

/// An address as text. Aligned, so that it is checked to be text many bytes at a time.
#[derive(Debug)]
#[repr(align(16))]
pub(crate) struct AddressText {
    text: [u8; ROOM],
    length: usize,
}

impl AddressText {
    #[inline]
    pub(crate) fn new(address: IpAddr) -> Self {
        match address {
            // Most requests have one, and it is spelled without the machinery of formatting.
            IpAddr::V4(address) => Self::of_v4(address),
            IpAddr::V6(address) => Self::of_v6(address),
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        // The room beyond is zeros, which are text too. It is seldom needed.
        let room = if self.length <= SHORT { SHORT } else { ROOM };
        let text = str::from_utf8(&self.text[..room]).unwrap_or_default();
        text.get(..self.length).unwrap_or_default()
    }

    #[inline(never)]
    fn of_v6(address: Ipv6Addr) -> Self {
        let mut text = [0; ROOM];
        let mut rest = &mut text[..];
        // There is room for every address.
        let _ = write!(rest, "{address}");
        let length = ROOM - rest.len();
        Self { text, length }
    }

    #[inline]
    fn of_v4(address: Ipv4Addr) -> Self {
        let short = ShortText::new(address);
        let mut text = [0; ROOM];
        text[..SHORT].copy_from_slice(&short.text.to_le_bytes());
        Self { text, length: short.length }
    }
}

/// An address of IPv4 as text: its bytes in a word, the first lowest, and how many they are. It stays
/// there as long as it can: what was just written to memory is slow to read in other pieces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShortText {
    text: u128,
    length: usize,
}

impl ShortText {
    #[inline(always)]
    pub(crate) fn new(address: Ipv4Addr) -> Self {
        let [a, b, c, d] = address.octets();
        let (first, first_length) = two_octets(a, b);
        let (last, last_length) = two_octets(c, d);
        let (last, length) = (u128::from(last), first_length + last_length - 1);
        // The last octet is followed by nothing.
        let dot = u128::from(b'.') << (8 * length);
        let text = (u128::from(first) | last << (8 * first_length)) ^ dot;
        Self { text, length }
    }
}

impl From<ShortText> for PlainValue<'_> {
    #[inline(always)]
    fn from(ShortText { text, length }: ShortText) -> Self {
        // Digits and dots.
        Self::Word { text, length }
    }
}

/// Two octets in decimal, each followed by a dot, and how many bytes that are.
#[inline(always)]
fn two_octets(one: u8, two: u8) -> (u64, usize) {
    let [one, two] = [one, two].map(|octet| u64::from(OCTETS[usize::from(octet)]));
    let length = |spelled: u64| 8 - spelled.leading_zeros() as usize / 8;
    (one | two << (8 * length(one)), length(one) + length(two))
}

/// Every octet in decimal, followed by a dot: the first digit in the lowest byte.
const OCTETS: [u32; 256] = {
    let mut octets = [0; 256];
    let mut octet = 0;
    while octet < octets.len() {
        let (mut spelled, mut rest) = (b'.' as u32, octet as u32);
        loop {
            spelled = spelled << 8 | (b'0' as u32 + rest % 10);
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        octets[octet] = spelled;
        octet += 1;
    }
    octets
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_spelled_as_everybody_does() {
        let octets = (0..=255).map(|octet| IpAddr::from([octet, 255 - octet, octet / 2, 9]));
        let texts = ["::", "::1", "2001:db8::ff00:42:8329", "::ffff:255.255.255.255"];
        let longest = "ffff:fff1:ffff:ffff:ffff:ffff:fff1:ffff";
        let others = texts.into_iter().chain([longest]).map(|text| text.parse().unwrap());
        for address in octets.chain(others) {
            assert_eq!(AddressText::new(address).as_str(), address.to_string());
        }
        assert_eq!(longest.len(), LONGEST);
    }
}
