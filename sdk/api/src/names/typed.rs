//! Names that were validated once: a value of these types is never empty, and can stand in the path of an API call.

use std::{fmt, ops::Deref, str::FromStr, sync::Arc};

use super::{NAME_LENGTH_MAX, NAMESPACE_LENGTH_MAX, is_label, is_path_segment, is_subdomain};

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
    /// It cannot be one segment of the path of an API call.
    #[error(
        "must be a name that can stand in a path: no spaces, slashes, percent or question marks or other such characters, 253 at most"
    )]
    NoSegment,
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
        pub struct $name(Arc<str>);

        impl FromStr for $name {
            type Err = InvalidName;

            fn from_str(text: &str) -> Result<Self, InvalidName> {
                $check(text)?;
                Ok(Self(text.into()))
            }
        }

        impl From<$name> for Arc<str> {
            fn from(name: $name) -> Self {
                name.0
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
    /// Name of a namespace.
    NamespaceName: label;
    /// Name of an object, by the loosest rule that Kubernetes has for one: some kinds allow more than a DNS subdomain.
    ObjectName: segment;
    /// An API group other than the core group, which has an empty name.
    GroupName: subdomain;
    /// Plural name of a resource.
    PluralName: label;
    /// Version of an API, such as `v1alpha1`.
    VersionName: label;
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

fn segment(text: &str) -> Result<(), InvalidName> {
    match text {
        "" => Err(InvalidName::Empty),
        text if is_path_segment(text) => Ok(()),
        _ => Err(InvalidName::NoSegment),
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

    #[test]
    fn names_of_objects_stay_within_their_segment() {
        for good in ["a", "a.b-c", "system:node", "kube_admin", "A~1", &"x".repeat(253)] {
            assert_eq!(&*good.parse::<ObjectName>().unwrap(), good);
        }
        for bad in [
            ".",
            "..",
            "a/b",
            "team1/otherresources/x?y=",
            "a%2fb",
            "a#b",
            "a b",
            "a\u{1b}[2J",
            "a\nb",
            "é",
            "a\u{202e}b",
            &"x".repeat(254),
        ] {
            assert_eq!(bad.parse::<ObjectName>(), Err(InvalidName::NoSegment), "{bad:?}");
            assert_eq!(bad.parse::<NamespaceName>(), Err(InvalidName::NoLabel), "{bad:?}");
        }
        assert_eq!("".parse::<ObjectName>(), Err(InvalidName::Empty));
    }
}
