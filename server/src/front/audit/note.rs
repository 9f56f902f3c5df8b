//! What a handler notes of an audited call: what the method does, who calls, and what it is about.

use std::sync::Arc;

use bindery_api::v1alpha2::BindableResourcesRequest;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource as _;
use parking_lot::Mutex;

use crate::{
    audit::{AuditPrincipal, Decision},
    front::auth::Identity,
};

/// What an audited method does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuditAction {
    /// It binds a template.
    Bind,
    /// It gives out a new credential.
    Renew,
    /// It changes the owner groups of a contract.
    Share,
    /// It deletes exports.
    Unbind,
    /// It takes all credentials.
    Revoke,
}

/// What is known of a call that is under way. Clones are the same note; in a method that is not audited, it stays empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallNote(pub(super) Option<Arc<Mutex<Noted>>>);

/// What a handler notes of its call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Noted {
    /// The verified caller; `None` until the token is verified.
    pub(crate) principal: Option<AuditPrincipal>,
    /// The namespace of the contract that the call is about; empty until it is known.
    pub(crate) contract: String,
    /// The template that the call binds; empty for other calls.
    pub(crate) template: String,
    /// Name of the export, or of the request that becomes one.
    pub(crate) name: String,
    /// Groups that the call adds or removes, with `+` or `-` before them.
    pub(crate) groups: Vec<String>,
    /// Whether the call writes nothing.
    pub(crate) dry_run: bool,
    /// The request that the call made, which gets the event while the contract has no ClusterBinding.
    pub(crate) request: Option<ObjectReference>,
    /// What became of a call that is answered without an error, if it was not simply done.
    pub(crate) outcome: Option<(Decision, String)>,
}

// === impl AuditAction ===

impl AuditAction {
    /// The reason of the event of a call that was done.
    pub(super) const fn reason(self) -> &'static str {
        match self {
            Self::Bind => "Bound",
            Self::Renew => "Renewed",
            Self::Share => "Shared",
            Self::Unbind => "Unbound",
            Self::Revoke => "Revoked",
        }
    }

    /// The reason of the event of a call that was refused.
    pub(super) const fn refusal(self) -> &'static str {
        match self {
            Self::Bind => "BindRefused",
            Self::Renew => "RenewalRefused",
            Self::Share => "ShareRefused",
            Self::Unbind => "UnbindRefused",
            Self::Revoke => "RevocationRefused",
        }
    }

    /// The reason of the event of a call that failed, or was given up by its client.
    pub(super) const fn failure(self) -> &'static str {
        match self {
            Self::Bind => "BindFailed",
            Self::Renew => "RenewalFailed",
            Self::Share => "ShareFailed",
            Self::Unbind => "UnbindFailed",
            Self::Revoke => "RevocationFailed",
        }
    }

    /// What a refused caller wanted to do, after "to". It holds nothing that the caller chose, so that repetitions are one event.
    pub(super) const fn kind(self) -> &'static str {
        match self {
            Self::Bind => "bind a template",
            Self::Renew => "renew the kubeconfig",
            Self::Share => "change the owner groups",
            Self::Unbind => "unbind",
            Self::Revoke => "revoke all credentials",
        }
    }

    /// What a caller did, after "to".
    pub(super) fn what(self, noted: &Noted) -> String {
        match self {
            Self::Bind => format!("bind template {} as {}", noted.template, noted.name),
            Self::Share => format!("change the owner groups: {}", noted.groups.join(" ")),
            Self::Unbind if noted.name.is_empty() => "unbind all exports".to_owned(),
            Self::Unbind => format!("unbind {}", noted.name),
            Self::Renew | Self::Revoke => self.kind().to_owned(),
        }
    }
}

// === impl CallNote ===

impl CallNote {
    /// An empty note of an audited call.
    pub(crate) fn kept() -> Self {
        Self(Some(Arc::default()))
    }

    /// Notes something of the call.
    pub(crate) fn add(&self, note: impl FnOnce(&mut Noted)) {
        if let Some(noted) = &self.0 {
            note(&mut noted.lock());
        }
    }

    /// Notes who calls.
    pub(crate) fn add_caller(&self, identity: &Identity) {
        self.add(|noted| {
            let principal = AuditPrincipal::new(&identity.username, identity.uid.as_deref(), &identity.groups);
            noted.principal = Some(principal.of_token(identity.source.as_ref()));
        });
    }

    /// Notes the request that a call made.
    pub(crate) fn add_request(&self, request: &BindableResourcesRequest) {
        self.add(|noted| noted.request = Some(request.object_ref(&())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_of_a_method_that_is_not_audited_stays_empty() {
        let note = CallNote::default();
        note.add(|_| panic!("something is noted"));
        let kept = CallNote::kept();
        kept.add(|noted| noted.name = "west".to_owned());
        kept.add(|noted| assert_eq!(noted.name, "west"));
    }

    #[test]
    fn events_say_what_was_called_for() {
        let noted = Noted {
            template: "cowboys".to_owned(),
            name: "west".to_owned(),
            groups: vec!["+ranchers".to_owned(), "-bandits".to_owned()],
            ..Noted::default()
        };
        assert_eq!(AuditAction::Bind.what(&noted), "bind template cowboys as west");
        assert_eq!(
            AuditAction::Share.what(&noted),
            "change the owner groups: +ranchers -bandits"
        );
        assert_eq!(AuditAction::Unbind.what(&noted), "unbind west");
        assert_eq!(AuditAction::Unbind.what(&Noted::default()), "unbind all exports");
    }
}
