//! How an [`ErrorReason`] is spelled in `ErrorInfo.reason`, and which status code it goes with.

use tonic::Code;

use crate::v1alpha2::ErrorReason;

const PREFIX: &str = "ERROR_REASON_";

impl ErrorReason {
    /// The string of `ErrorInfo.reason`, such as `TOKEN_EXPIRED`.
    pub fn reason_str(self) -> &'static str {
        let name = self.as_str_name();
        name.strip_prefix(PREFIX).unwrap_or(name)
    }

    /// Reads `ErrorInfo.reason`. None for a reason that this build does not know.
    pub fn from_reason_str(reason: &str) -> Option<Self> {
        Self::from_str_name(&format!("{PREFIX}{reason}")).filter(|known| *known != Self::Unspecified)
    }

    /// The status code that a call fails with for this reason.
    pub fn code(self) -> Code {
        match self {
            Self::Unspecified => Code::Unknown,
            Self::TokenMissing
            | Self::TokenInvalid
            | Self::TokenExpired
            | Self::TokenAudienceWrong
            | Self::IssuerUntrusted
            | Self::CredentialRevoked => Code::Unauthenticated,
            Self::TemplateBindDenied | Self::ContractDenied | Self::ClusterIdentityTaken | Self::MethodDenied => {
                Code::PermissionDenied
            }
            Self::TemplateNotFound
            | Self::CollectionNotFound
            | Self::RequestNotFound
            | Self::ExportNotFound
            | Self::BoundSchemaNotFound
            | Self::ContractNotFound => Code::NotFound,
            Self::RequestNameTaken | Self::ExportNameTaken => Code::AlreadyExists,
            Self::FieldInvalid | Self::ContractAmbiguous | Self::PageTokenInvalid | Self::ResumeTokenInvalid => {
                Code::InvalidArgument
            }
            Self::TemplateNotReady
            | Self::ServerLacksRights
            | Self::PlacementConflict
            | Self::ScopeMismatch
            | Self::SchemaUnsupported
            | Self::ExportNotEmpty
            | Self::RenewalStopped
            | Self::RenewalLocked => Code::FailedPrecondition,
            Self::ObjectChanged => Code::Aborted,
            Self::RateLimited
            | Self::StreamLimit
            | Self::MessageTooLarge
            | Self::StreamTooSlow
            | Self::LimitReached => Code::ResourceExhausted,
            Self::ApiServerUnreachable
            | Self::CacheNotReady
            | Self::Overloaded
            | Self::ShuttingDown
            | Self::IssuerUnreachable => Code::Unavailable,
            Self::Deadline => Code::DeadlineExceeded,
            Self::Internal => Code::Internal,
            Self::FeatureOff => Code::Unimplemented,
        }
    }

    /// Every reason but the unspecified one, in order of number.
    pub fn all() -> impl Iterator<Item = Self> {
        (1..=i32::from(u8::MAX)).filter_map(|number| Self::try_from(number).ok())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_reason_reads_back_as_itself() {
        for reason in ErrorReason::all() {
            assert_eq!(ErrorReason::from_reason_str(reason.reason_str()), Some(reason));
            assert!(!reason.reason_str().starts_with("ERROR"), "{}", reason.reason_str());
            assert_ne!(reason.code(), Code::Unknown);
        }
    }

    #[test]
    fn reasons_are_the_documented_ones() {
        let all: BTreeSet<_> = ErrorReason::all().map(ErrorReason::reason_str).collect();
        assert_eq!(all.len(), 44);
        for name in [
            "TOKEN_EXPIRED",
            "EXPORT_NOT_EMPTY",
            "OBJECT_CHANGED",
            "DEADLINE",
            "INTERNAL",
            "FEATURE_OFF",
        ] {
            assert!(all.contains(name), "{name} is missing");
        }
    }

    #[test]
    fn strangers_are_no_reason() {
        for text in [
            "",
            "UNSPECIFIED",
            "token_expired",
            "ERROR_REASON_TOKEN_EXPIRED",
            "SOMETHING_NEWER",
        ] {
            assert_eq!(ErrorReason::from_reason_str(text), None, "{text:?}");
        }
    }
}
