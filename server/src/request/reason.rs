//! Reasons that the server reads back from a request's condition, and decides by.

use bindery_api::v1alpha2::BindableResourcesRequest;

use super::ready;
use crate::policy::requests::RefusalReason;

/// Why a request waits for something that no cache shows. Such a request is looked at again by time alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutsideReason {
    /// The admission policy on requests has not vouched for the request's author.
    Unverified(RefusalReason),
    /// A Secret that belongs to somebody else is in the way of the response.
    ForeignSecret,
    /// The Secret with the response could not be written.
    SecretCreationFailed,
}

// === impl OutsideReason ===

impl OutsideReason {
    /// The reason in a request's condition; `None` if it waits for nothing outside.
    pub(crate) fn of(request: &BindableResourcesRequest) -> Option<Self> {
        Self::parse(&ready(request)?.reason)
    }

    /// The reason as the condition has it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Unverified(reason) => reason.as_str(),
            Self::ForeignSecret => "ForeignSecret",
            Self::SecretCreationFailed => "SecretCreationFailed",
        }
    }

    fn parse(reason: &str) -> Option<Self> {
        let policy = RefusalReason::ALL.into_iter().map(Self::Unverified);
        let mut all = policy.chain([Self::ForeignSecret, Self::SecretCreationFailed]);
        all.find(|one| one.as_str() == reason)
    }
}

/// Whether a request is not served because nobody has checked who made it.
pub(crate) fn is_unverified(request: &BindableResourcesRequest) -> bool {
    matches!(OutsideReason::of(request), Some(OutsideReason::Unverified(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_reads_back_as_itself() {
        let policy = RefusalReason::ALL.map(OutsideReason::Unverified);
        for reason in policy
            .into_iter()
            .chain([OutsideReason::ForeignSecret, OutsideReason::SecretCreationFailed])
        {
            assert_eq!(OutsideReason::parse(reason.as_str()), Some(reason));
        }
        assert_eq!(OutsideReason::parse("TemplateNotFound"), None);
    }
}
