//! Names that were validated once: a value of these types is never empty, and can stand in the path of an API call.

use std::{fmt, ops::Deref, str::FromStr};

use super::{NAME_LENGTH_MAX, NAMESPACE_LENGTH_MAX, is_label, is_subdomain};

/// Why a text is not a name of the kind that is wanted. Completes a sentence that begins with the field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidName {
    /// It is empty.
    #[error("is required")]
    Empty,
    /// It is empty, and has a common value.
    #[error("is required; the UID of the consumer's namespace kube-system serves well")]
    NoIdentity,
    /// It is not a DNS label (RFC 1123).
    #[error("must be a DNS label: lower-case letters, digits and dashes, 63 at most")]
    NoLabel,
    /// It is not a DNS subdomain (RFC 1123).
    #[error("must be a DNS subdomain: lower-case letters, digits, dashes and dots, 253 at most")]
    NoSubdomain,
    /// It is longer than this number of bytes.
    #[error("must be at most {0} bytes long")]
    TooLong(usize),
    /// It holds control characters.
    #[error("must not hold control characters")]
    Control,
    /// It begins or ends with white space.
    #[error("must not begin or end with a space")]
    Padded,
}

macro_rules! names {
    ($($(#[$doc:meta])+ $name:ident: $check:ident;)+) => {$(
        $(#[$doc])+
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl FromStr for $name {
            type Err = InvalidName;

            fn from_str(text: &str) -> Result<Self, InvalidName> {
                $check(text)?;
                Ok(Self(text.to_owned()))
            }
        }

        impl Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )+};
}

names! {
    /// Name of a contract, which is the name of its namespace on the provider.
    ContractName: subdomain;
    /// Name of an export of a contract.
    ExportName: subdomain;
    /// Name of a template of the catalog.
    TemplateName: subdomain;
    /// Name of a collection of the catalog.
    CollectionName: subdomain;
    /// Name of a bound schema of a contract.
    BoundSchemaName: subdomain;
    /// Name of a request to bind, and of the export and the binding that come of it.
    RequestName: label;
    /// Identity of a consumer cluster, such as the UID of its namespace `kube-system`.
    ClusterIdentity: identity;
    /// UID of an object, as the API server gave it out.
    Uid: uid;
}

fn label(text: &str) -> Result<(), InvalidName> {
    match text {
        "" => Err(InvalidName::Empty),
        text if is_label(text) => Ok(()),
        _ => Err(InvalidName::NoLabel),
    }
}

fn subdomain(text: &str) -> Result<(), InvalidName> {
    match text {
        "" => Err(InvalidName::Empty),
        text if is_subdomain(text) => Ok(()),
        _ => Err(InvalidName::NoSubdomain),
    }
}

fn uid(text: &str) -> Result<(), InvalidName> {
    if text.is_empty() {
        return Err(InvalidName::Empty);
    }
    plain_text(text, NAMESPACE_LENGTH_MAX)
}

fn identity(text: &str) -> Result<(), InvalidName> {
    if text.is_empty() {
        return Err(InvalidName::NoIdentity);
    }
    if text.trim() != text {
        return Err(InvalidName::Padded);
    }
    plain_text(text, NAME_LENGTH_MAX)
}

/// Whether a text of no particular form is short enough and holds no control characters.
pub fn plain_text(text: &str, length_max: usize) -> Result<(), InvalidName> {
    if text.len() > length_max {
        return Err(InvalidName::TooLong(length_max));
    }
    if text.chars().any(char::is_control) {
        return Err(InvalidName::Control);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_back_and_anything_else_is_refused() {
        assert_eq!("a.b".parse::<ExportName>().unwrap().to_string(), "a.b");
        assert_eq!("a.b".parse::<RequestName>(), Err(InvalidName::NoLabel));
        assert_eq!("a/b".parse::<ExportName>(), Err(InvalidName::NoSubdomain));
        assert_eq!("".parse::<ExportName>(), Err(InvalidName::Empty));
        assert_eq!("".parse::<ClusterIdentity>(), Err(InvalidName::NoIdentity));
        assert_eq!(" a".parse::<ClusterIdentity>(), Err(InvalidName::Padded));
        assert_eq!("a\nb".parse::<Uid>(), Err(InvalidName::Control));
        assert_eq!("x".repeat(64).parse::<Uid>(), Err(InvalidName::TooLong(63)));
    }
}
