//! Where Redis Cluster keeps a key.

/// How many slots a cluster divides its keys into.
pub(crate) const SLOTS: u16 = 16_384;

/// The slot of a key: CRC16 (XMODEM) of what stands between its first brace and the next closing
/// one, or of all of it where that is nothing.
pub(crate) fn slot(key: &[u8]) -> u16 {
    crc16(tag(key).unwrap_or(key)) % SLOTS
}

fn tag(key: &[u8]) -> Option<&[u8]> {
    let after = &key[key.iter().position(|&byte| byte == b'{')? + 1..];
    let length = after.iter().position(|&byte| byte == b'}')?;
    (length > 0).then(|| &after[..length])
}

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| {
        let index = usize::from(crc >> 8) ^ usize::from(byte);
        crc << 8 ^ TABLE[index]
    })
}

/// The remainders of all bytes by the polynomial 0x1021.
const TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < table.len() {
        let mut remainder = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            let carry = remainder & 0x8000 != 0;
            remainder <<= 1;
            if carry {
                remainder ^= 0x1021;
            }
            bit += 1;
        }
        table[byte] = remainder;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_the_cluster_specification_names() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(slot(b"foo"), 12_182);
        assert_eq!(slot(b""), 0);
    }

    #[test]
    fn only_the_first_tag_counts_and_an_empty_one_does_not() {
        assert_eq!(slot(b"{user1000}.following"), slot(b"user1000"));
        assert_eq!(slot(b"foo{{bar}}zap"), slot(b"{bar"));
        assert_eq!(slot(b"foo{bar}{zap}"), slot(b"bar"));
        assert_eq!(slot(b"foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS);
        assert_eq!(slot(b"foo{bar"), crc16(b"foo{bar") % SLOTS);
    }
}
