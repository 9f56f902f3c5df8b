//! Resume tokens: a cursor, with which any replica can go on with a stream. A token grants nothing: each call is authorised
//! anew, and a token of another caller or filter begins with a snapshot.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bindery_proto::v1alpha2::ErrorReason;

use crate::front::{
    Failure, Outcome,
    streams::hub::{Cursor, KINDS},
};

/// Version of the format, the first byte.
const VERSION: u8 = 2;
/// Length in bytes: version, filter, instance, sequence, versions and checksums.
const LENGTH: usize = 1 + 16 + 8 * (2 + 2 * KINDS);

/// Hash of the caller, the scope and the filter of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Filter([u8; 16]);

impl Filter {
    /// The hash of these parts.
    pub(crate) fn of(parts: &[&str]) -> Self {
        let digest = bindery_api::hash::of_parts(parts);
        Self(digest.first_chunk().copied().unwrap_or_default())
    }
}

/// The token of a stream with this filter at this cursor.
pub(in crate::front) fn write(filter: Filter, cursor: &Cursor) -> String {
    let mut bytes = Vec::with_capacity(LENGTH);
    bytes.push(VERSION);
    bytes.extend(filter.0);
    let numbers = [cursor.instance, cursor.sequence].into_iter();
    for number in numbers.chain(cursor.versions).chain(cursor.checksums) {
        bytes.extend(number.to_be_bytes());
    }
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Reads a token. None says that it is of another filter.
pub(in crate::front) fn read(filter: Filter, token: &str) -> Outcome<Option<Cursor>> {
    let malformed = || {
        Failure::new(
            ErrorReason::ResumeTokenInvalid,
            "the resume token is not one that this method gave out; begin again without it",
        )
    };
    let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| malformed())?;
    let (head, numbers) = bytes.split_at_checked(17).ok_or_else(malformed)?;
    if bytes.len() != LENGTH || head[0] != VERSION {
        return Err(malformed());
    }
    if head[1..] != filter.0 {
        return Ok(None);
    }
    let mut numbers = numbers.chunks_exact(8).map(|chunk| {
        let bytes: [u8; 8] = chunk.try_into().unwrap_or_default();
        u64::from_be_bytes(bytes)
    });
    let mut next = || numbers.next().unwrap_or_default();
    Ok(Some(Cursor {
        instance: next(),
        sequence: next(),
        versions: std::array::from_fn(|_| next()),
        checksums: std::array::from_fn(|_| next()),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_back_with_its_own_filter_only() {
        let cursor = Cursor {
            instance: 7,
            sequence: u64::MAX,
            versions: [1, 2],
            checksums: [3, 4],
        };
        let (one, other) = (Filter::of(&["alice", "a"]), Filter::of(&["alicea", ""]));
        let token = write(one, &cursor);
        assert_eq!(read(one, &token).expect("a token"), Some(cursor));
        assert_eq!(read(other, &token).expect("a token"), None);
        for nonsense in ["x", "AAAA", &token[1..], &format!("{token}AAAA"), "*"] {
            let failure = read(one, nonsense).expect_err("a refusal");
            assert_eq!(failure.reason(), ErrorReason::ResumeTokenInvalid, "{nonsense}");
        }
    }
}
