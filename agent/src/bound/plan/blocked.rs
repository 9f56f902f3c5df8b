//! Why an object is left alone, for the user who looks at it.

/// Why an object is left alone, in words for the user who looks at it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Blocked {
    /// The place is taken by an object without our marks.
    #[error("the provider has an object of this name that is not managed by this binding; it is left alone")]
    Unmarked,
    /// There is an object on either side, each made for itself.
    #[error(
        "the provider has an object of this name that says something else; neither is changed: make them equal, or delete \
         one of them"
    )]
    Differs,
    /// The copy was let go when an earlier binding ended.
    #[error(
        "the provider kept its object of this name when an earlier binding ended; it is left alone: delete it on the \
         provider, or give this object another name"
    )]
    Released,
    /// The place is taken by another contract.
    #[error("the provider's object of this name belongs to contract {0}; it is left alone")]
    OtherContract(Box<str>),
    /// The copy was made of an object of the same name that is not this one.
    #[error(
        "the provider's copy was made of another object of this name (UID {0}); delete the copy on the provider, or \
         restore the object it was made of"
    )]
    OtherSource(Box<str>),
    /// The provider changed what we wrote, and changed it again after it was written back.
    #[error(
        "the provider changed fields that this object sets; they were written back once and are now left as they are"
    )]
    Drift,
    /// It would be deleted, and must not be written.
    #[error("it is paused; remove the annotation kube-bind.io/paused, and its deletion goes on")]
    Paused,
}

// === impl Blocked ===

impl Blocked {
    /// Stable reason of the event.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Unmarked | Self::Differs | Self::Released | Self::OtherContract(_) | Self::OtherSource(_) => {
                "Conflict"
            }
            Self::Drift => "ProviderOverrides",
            Self::Paused => "Paused",
        }
    }
}
