//! Why a plan leaves an object alone.

use jiff::Timestamp;

/// Why an object is left alone, in words for the user who looks at it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Blocked {
    /// The name of the copy is taken by an object without our annotations.
    #[error(
        "the provider has an object of this name that is not managed by this binding; it is left alone: create this object under another \
         name and delete this one, which leaves the provider's as it is, or ask the provider to delete its own"
    )]
    Unmarked,
    /// Both clusters have an object of this name with different contents, and neither was made of the other.
    #[error(
        "the provider has an object of this name that says something else; neither is changed: make them equal, or delete \
         one of them"
    )]
    Differs,
    /// The copy was released when an earlier binding ended.
    #[error(
        "the provider kept its object of this name when an earlier binding ended; it is left alone: delete it on the \
         provider, or give this object another name"
    )]
    Released,
    /// The copy was released when an earlier binding or CRD ended, and the new object of its name says something else.
    #[error(
        "the provider kept its object of this name when an earlier binding or CRD ended, and it says something else; neither is \
         changed: let this object say the same, give it another name, or have the provider's admin end the other one (kubectl bind \
         provider released)"
    )]
    ReleasedDiffers,
    /// The copy of a deleted object of the same name is retained until this time.
    #[error(
        "the provider retains the copy of a deleted object of this name{}; to get that object back, delete this one and run kubectl bind \
         restore; to make room for this one: kubectl bind discard",
        until(.0.as_ref())
    )]
    Retained(Option<Timestamp>),
    /// The name of the copy is taken by another contract.
    #[error(
        "the provider's object of this name belongs to contract {0}; it is left alone: create this object under another name and delete this \
         one, which leaves the provider's as it is"
    )]
    OtherContract(Box<str>),
    /// The copy was made of another object of the same name, whose deletion was not seen.
    #[error(
        "the provider's copy was made of another object of this name (UID {0}), whose deletion was not seen; to make it the copy \
         of this object: kubectl bind orphans --relink; to delete it: kubectl bind orphans --delete"
    )]
    OtherSource(Box<str>),
    /// The object is missing, and its deletion was not seen.
    #[error(
        "the object is missing, but its deletion was not seen, so its copy on the provider is kept; create the object again and link the \
         copy to it: kubectl bind orphans --relink; or end the copy: --delete, or --release to leave it to the provider"
    )]
    Orphan,
    /// The object went back to an older state than its copy was written from.
    #[error(
        "the object is in an older state than its copy on the provider, as after a restore from a backup, so the copy is not written; to \
         write the older state: kubectl bind accept"
    )]
    OlderSource,
    /// The provider changed what we wrote, and changed it again after it was written back.
    #[error(
        "the provider changed fields that this object sets; they were written back once and are now left as they are"
    )]
    Drift,
    /// Its annotation names another provider namespace than the one that is assumed.
    #[error(
        "its copy is in another provider namespace than the one that is assigned by default, and the konnector may not list the          APIServiceNamespaces; condition ProviderAccessComplete says which right it needs"
    )]
    Elsewhere,
    /// The plan would delete the object, but it is paused.
    #[error("it is paused; remove the annotation kube-bind.io/paused, and its deletion goes on")]
    Paused,
}

fn until(until: Option<&Timestamp>) -> String {
    until.map(|until| format!(" until {until}")).unwrap_or_default()
}

// === impl Blocked ===

impl Blocked {
    /// Stable reason of the event.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Unmarked
            | Self::Differs
            | Self::Released
            | Self::ReleasedDiffers
            | Self::OtherContract(_)
            | Self::OtherSource(_) => "Conflict",
            Self::Retained(_) => "NameRetained",
            Self::Orphan => "Orphaned",
            Self::OlderSource => "OlderSource",
            Self::Elsewhere => "PlaceUnknown",
            Self::Drift => "ProviderOverrides",
            Self::Paused => "Paused",
        }
    }
}
