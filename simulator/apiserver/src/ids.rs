//! Names and UIDs that a real API server would draw at random.

use sha2::{Digest as _, Sha256};

/// Makes UIDs and suffixes of names. Two sources with different seeds never make the same UID.
#[derive(Clone, Debug)]
pub(crate) struct IdSource {
    seed: String,
    count: u64,
}

impl IdSource {
    pub(crate) fn new(seed: &str) -> Self {
        Self {
            seed: seed.to_owned(),
            count: 0,
        }
    }

    fn draw(&mut self, what: &str) -> [u8; 32] {
        self.count += 1;
        Sha256::digest(format!("{}/{what}/{}", self.seed, self.count)).into()
    }

    /// A UID in the form of a random UUID.
    pub(crate) fn uid(&mut self) -> String {
        let mut bytes = self.draw("uid");
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        let hex: String = bytes[..16].iter().flat_map(|byte| hex(*byte)).collect();
        [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
    }

    /// A name that begins with `generateName`.
    pub(crate) fn name(&mut self, prefix: &str) -> String {
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        const PREFIX_LENGTH_MAX: usize = 63 - 5;
        let bytes = self.draw("name");
        let suffix = bytes[..5]
            .iter()
            .map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()]));
        let prefix = &prefix[..prefix.floor_char_boundary(PREFIX_LENGTH_MAX)];
        prefix.chars().chain(suffix).collect()
    }
}

fn hex(byte: u8) -> [char; 2] {
    [byte >> 4, byte & 15].map(|digit| char::from_digit(digit.into(), 16).unwrap_or('0'))
}
