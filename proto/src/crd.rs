//! Which value of a CRD's field an enum value stands for: one table per enum, read both ways.

use crate::v1alpha2::{Compatibility, ConflictPolicy, Isolation, Phase, SchemaUpdatePolicy, Scope};

/// Gives an enum the two directions of its table. Unspecified stands for an absent field.
macro_rules! crd_values {
    ($kind:ident { $($variant:ident = $value:literal),+ $(,)? }) => {
        impl $kind {
            /// The value in the CRD's field; None where the field is left out.
            pub fn as_crd_str(self) -> Option<&'static str> {
                match self {
                    Self::Unspecified => None,
                    $(Self::$variant => Some($value),)+
                }
            }

            /// Reads the value of the CRD's field. None for a value that this build does not know.
            pub fn from_crd_str(value: &str) -> Option<Self> {
                match value {
                    $($value => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

crd_values!(Isolation { Prefixed = "Prefixed", Namespaced = "Namespaced", None = "None" });
crd_values!(Scope { Cluster = "Cluster", Namespaced = "Namespaced" });
crd_values!(SchemaUpdatePolicy { Never = "Never", Always = "Always" });
crd_values!(ConflictPolicy { FirstWins = "FirstWins", LastWins = "LastWins" });
crd_values!(Phase { Pending = "Pending", Failed = "Failed", Succeeded = "Succeeded" });
crd_values!(Compatibility { KubeBind = "KubeBind" });

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use super::*;

    /// Walks all values of an enum: each but the zero one has a CRD value that reads back as itself.
    #[track_caller]
    fn check<E: TryFrom<i32> + Copy + Debug + PartialEq>(
        values: i32,
        to: impl Fn(E) -> Option<&'static str>,
        from: impl Fn(&str) -> Option<E>,
    ) {
        for number in 0..values {
            let Ok(value) = E::try_from(number) else {
                panic!("number {number} is no value");
            };
            let crd = to(value);
            assert_eq!(crd.is_none(), number == 0, "{value:?}");
            assert_eq!(crd.and_then(&from), crd.map(|_| value));
        }
        assert!(E::try_from(values).is_err(), "a value more than expected");
        assert_eq!(from("prefixed"), None);
        assert_eq!(from(""), None);
    }

    #[test]
    fn every_value_reads_back_as_itself() {
        check(4, Isolation::as_crd_str, Isolation::from_crd_str);
        check(3, Scope::as_crd_str, Scope::from_crd_str);
        check(3, SchemaUpdatePolicy::as_crd_str, SchemaUpdatePolicy::from_crd_str);
        check(3, ConflictPolicy::as_crd_str, ConflictPolicy::from_crd_str);
        check(4, Phase::as_crd_str, Phase::from_crd_str);
        check(2, Compatibility::as_crd_str, Compatibility::from_crd_str);
    }
}
