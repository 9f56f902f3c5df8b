//! Adoption: a consumer creates a provider's object on its own cluster, and owns it from then on.

use std::fmt;

use crate::annotations;

/// Which objects a konnector adopts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Adoption {
    /// No objects. Objects that have a counterpart are annotated nevertheless.
    #[default]
    Off,
    /// Objects with the annotation `kube-bind.io/autoadopt=true`.
    OptIn,
    /// All objects that never had a counterpart.
    All,
}

/// Whether an object of the provider can be adopted, by its annotations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Candidate {
    /// The object never had a counterpart on the consumer.
    Fresh {
        /// Whether the provider wants the object to be adopted.
        opted_in: bool,
    },
    /// The object has or had a counterpart of this contract.
    Bound,
    /// The object belongs to another contract.
    OfAnother {
        /// Name of that contract.
        contract: String,
    },
    /// Consumers share names, and the provider does not say which contract the object belongs to.
    Undecided,
}

// === impl Adoption ===

impl Adoption {
    /// Whether an object is adopted under this setting.
    pub fn takes(self, candidate: &Candidate) -> bool {
        match (self, candidate) {
            (Self::All, Candidate::Fresh { .. }) => true,
            (Self::OptIn, Candidate::Fresh { opted_in }) => *opted_in,
            _ => false,
        }
    }

    /// Returns the value as it is written on a command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::OptIn => "opt-in",
            Self::All => "all",
        }
    }
}

impl fmt::Display for Adoption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Adoption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::Off, Self::OptIn, Self::All];
        let known = all.into_iter().find(|adoption| adoption.as_str() == text);
        known.ok_or_else(|| format!("`{text}` is not one of off, opt-in, all"))
    }
}

// === impl Candidate ===

impl Candidate {
    /// Classifies an object of a namespace of the contract by its annotations. Where consumers share names, the provider sets the
    /// contract of an object by `kube-bind.io/cluster-namespace=<contract>`.
    pub fn of<'a>(annotation: impl Fn(&str) -> Option<&'a str>, contract: &str, names_are_shared: bool) -> Self {
        let is_set = |key: &str| annotation(key).is_some_and(|value| !value.is_empty());
        match annotation(annotations::CLUSTER_NAMESPACE) {
            Some(other) if other != contract => Self::OfAnother {
                contract: other.to_owned(),
            },
            _ if is_set(annotations::CONSUMER_UID) || is_set(annotations::RELEASED) => Self::Bound,
            _ if annotation(annotations::BOUND) == Some(annotations::TRUE) => Self::Bound,
            None if names_are_shared => Self::Undecided,
            _ => Self::Fresh {
                opted_in: annotation(annotations::AUTOADOPT) == Some(annotations::TRUE),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(marks: &[(&str, &str)], names_are_shared: bool, expect: &Candidate) {
        let annotation = |key: &str| marks.iter().find(|(known, _)| *known == key).map(|(_, value)| *value);
        assert_eq!(&Candidate::of(annotation, "kube-bind-x", names_are_shared), expect);
    }

    #[test]
    fn what_had_a_counterpart_or_is_anothers_is_no_candidate() {
        let fresh = Candidate::Fresh { opted_in: false };
        let another = Candidate::OfAnother {
            contract: "kube-bind-y".to_owned(),
        };
        check(&[], false, &fresh);
        check(&[], true, &Candidate::Undecided);
        for shared in [false, true] {
            check(&[(annotations::CLUSTER_NAMESPACE, "kube-bind-x")], shared, &fresh);
            check(&[(annotations::CLUSTER_NAMESPACE, "kube-bind-y")], shared, &another);
            check(&[(annotations::BOUND, "true")], shared, &Candidate::Bound);
            check(&[(annotations::CONSUMER_UID, "u")], shared, &Candidate::Bound);
            check(
                &[(annotations::RELEASED, "2026-01-01T00:00:00Z/kube-bind-x")],
                shared,
                &Candidate::Bound,
            );
        }
        check(
            &[(annotations::AUTOADOPT, "true")],
            false,
            &Candidate::Fresh { opted_in: true },
        );
        check(&[(annotations::AUTOADOPT, "yes")], false, &fresh);
    }

    #[test]
    fn each_setting_takes_what_it_says() {
        let fresh = |opted_in| Candidate::Fresh { opted_in };
        let takes = |candidate: Candidate| {
            ["off", "opt-in", "all"].map(|text| {
                let adoption: Adoption = text.parse().unwrap();
                assert_eq!(adoption.to_string(), text);
                adoption.takes(&candidate)
            })
        };
        assert_eq!(takes(fresh(false)), [false, false, true]);
        assert_eq!(takes(fresh(true)), [false, true, true]);
        assert_eq!(takes(Candidate::Bound), [false; 3]);
        assert_eq!(takes(Candidate::Undecided), [false; 3]);
        assert!("on".parse::<Adoption>().is_err());
    }
}
