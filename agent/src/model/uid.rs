//! The UID of an object, stored compactly.

use std::{fmt, sync::Arc};

/// A UID: sixteen bytes where it is a UUID as API servers write them, and its text where it is anything else.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Uid(Kind);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Kind {
    /// The bytes of a UUID whose text is the one that [`text_of`] writes.
    Uuid([u8; 16]),
    Other(Arc<str>),
}

/// The positions of the hyphens in the text of a UUID.
const HYPHENS: [usize; 4] = [8, 13, 18, 23];

/// The bytes of a UUID in lower case, with hyphens; `None` for any other text.
fn bytes_of(text: &str) -> Option<[u8; 16]> {
    let text: &[u8; 36] = text.as_bytes().try_into().ok()?;
    let mut bytes = [0; 16];
    let mut digits = 0;
    for (at, byte) in text.iter().enumerate() {
        if HYPHENS.contains(&at) {
            if *byte != b'-' {
                return None;
            }
            continue;
        }
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => return None,
        };
        bytes[digits / 2] = bytes[digits / 2] << 4 | digit;
        digits += 1;
    }
    Some(bytes)
}

fn text_of(bytes: [u8; 16], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (at, byte) in bytes.iter().enumerate() {
        let hyphen = if matches!(at, 4 | 6 | 8 | 10) { "-" } else { "" };
        write!(f, "{hyphen}{byte:02x}")?;
    }
    Ok(())
}

// === impl Uid ===

impl Uid {
    /// The length of its text, if that is kept.
    pub(crate) fn kept_bytes(&self) -> usize {
        match &self.0 {
            Kind::Uuid(_) => 0,
            Kind::Other(text) => text.len(),
        }
    }

    /// The UID as text.
    pub(crate) fn text(&self) -> Arc<str> {
        match &self.0 {
            Kind::Uuid(_) => self.to_string().into(),
            Kind::Other(text) => Arc::clone(text),
        }
    }
}

impl From<&str> for Uid {
    fn from(text: &str) -> Self {
        Self(match bytes_of(text) {
            Some(bytes) => Kind::Uuid(bytes),
            None => Kind::Other(text.into()),
        })
    }
}

impl From<&Arc<str>> for Uid {
    fn from(text: &Arc<str>) -> Self {
        Self::from(&**text)
    }
}

impl PartialEq<str> for Uid {
    fn eq(&self, text: &str) -> bool {
        match &self.0 {
            Kind::Uuid(bytes) => bytes_of(text).as_ref() == Some(bytes),
            Kind::Other(own) => **own == *text,
        }
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Uuid(bytes) => text_of(*bytes, f),
            Kind::Other(text) => f.write_str(text),
        }
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, is_uuid: bool) {
        let uid = Uid::from(text);
        assert_eq!(uid.to_string(), text);
        assert_eq!(&*uid.text(), text);
        assert_eq!(matches!(uid.0, Kind::Uuid(_)), is_uuid, "{text}");
    }

    #[test]
    fn only_what_is_written_as_api_servers_do_is_kept_as_bytes() {
        check("f81d4fae-7dec-11d0-a765-00a0c91e6bf6", true);
        check("00000000-0000-0000-0000-000000000000", true);
        check("F81D4FAE-7DEC-11D0-A765-00A0C91E6BF6", false);
        check("f81d4fae7dec-11d0-a765-00a0c91e6bf6--", false);
        check("f81d4fae-7dec-11d0-a765-00a0c91e6bfg", false);
        check("f81d4fae-7dec-11d0-a765-00a0c91e6bf", false);
        check("u1", false);
        check("", false);
    }

    proptest! {
        #[test]
        fn two_are_equal_as_their_texts_are(
            one in "[0-9a-fA-F]{1}-?1d4fae-7dec-11d0-a765-00a0c91e6bf[0-9a-f]|u[0-2]",
            other in "[0-9a-fA-F]{1}-?1d4fae-7dec-11d0-a765-00a0c91e6bf[0-9a-f]|u[0-2]",
        ) {
            let (left, right) = (Uid::from(&*one), Uid::from(&*other));
            prop_assert_eq!(&left.to_string(), &one);
            prop_assert_eq!(left == right, one == other);
            prop_assert_eq!(left == *other, one == other);
        }

        #[test]
        fn any_uuid_keeps_its_text(bytes: [u8; 16]) {
            let uid = Uid(Kind::Uuid(bytes));
            prop_assert_eq!(Uid::from(&*uid.to_string()), uid);
        }
    }
}
