//! Resume tokens: where a stream was, for any replica to go on from. A token grants nothing: who may watch is decided
//! anew, and one of another filter is simply of no use.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bindery_proto::v1alpha2::ErrorReason;

use super::hub::{Mark, SOURCES};
use crate::front::error::{Failure, Outcome};

const VERSION: u8 = 2;
const LENGTH: usize = 1 + 16 + 8 * (2 + 2 * SOURCES);

/// What a stream shows: a hash of caller, scope and filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Filter([u8; 16]);

impl Filter {
    /// The filter of these parts.
    pub(crate) fn of(parts: &[&str]) -> Self {
        let digest = bindery_api::hash::of_parts(parts);
        Self(digest.first_chunk().copied().unwrap_or_default())
    }
}

/// The token for a stream of this filter that has come so far.
pub(super) fn write(filter: Filter, mark: &Mark) -> String {
    let mut bytes = Vec::with_capacity(LENGTH);
    bytes.push(VERSION);
    bytes.extend(filter.0);
    let numbers = [mark.instance, mark.sequence].into_iter();
    for number in numbers.chain(mark.position).chain(mark.landmarks) {
        bytes.extend(number.to_be_bytes());
    }
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Reads a token. `None` within is one of another filter.
pub(super) fn read(filter: Filter, token: &str) -> Outcome<Option<Mark>> {
    let malformed = || {
        Failure::new(
            ErrorReason::ResumeTokenInvalid,
            "the resume token is not one of this method",
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
    Ok(Some(Mark {
        instance: next(),
        sequence: next(),
        position: std::array::from_fn(|_| next()),
        landmarks: std::array::from_fn(|_| next()),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_comes_back_for_its_own_filter_alone() {
        let mark = Mark {
            instance: 7,
            sequence: u64::MAX,
            position: [1, 2],
            landmarks: [3, 4],
        };
        let (one, other) = (Filter::of(&["alice", "a"]), Filter::of(&["alicea", ""]));
        let token = write(one, &mark);
        assert_eq!(read(one, &token).expect("a token"), Some(mark));
        assert_eq!(read(other, &token).expect("a token"), None);
        for nonsense in ["x", "AAAA", &token[1..], &format!("{token}AAAA"), "*"] {
            let failure = read(one, nonsense).expect_err("a refusal");
            assert_eq!(failure.reason(), ErrorReason::ResumeTokenInvalid, "{nonsense}");
        }
    }
}
