//! Keys of annotations, and functions that read and write their values.

use std::fmt;

// On the contract Namespace and the ClusterBinding.

/// The consumer's full identity; on the contract Namespace and the ClusterBinding.
pub const IDENTITY: &str = "backend.kube-bind.io/identity";
/// An older name of [`IDENTITY`], read but never written.
pub const IDENTITY_LEGACY: &str = "example-backend.kube-bind.io/identity";
/// The principal that made the contract; on the contract Namespace and the ClusterBinding.
pub const AUTHOR: &str = "backend.kube-bind.io/author";
/// The consumer's display name; on the ClusterBinding.
pub const CLUSTER_PRETTY_NAME: &str = "backend.kube-bind.io/cluster-pretty-name";
/// The principals that own the contract, as a JSON list; on the contract Namespace. The provider's admin may edit it.
pub const OWNERS: &str = "backend.kube-bind.io/owners";
/// The groups whose members own the contract too, as a JSON list of names; on the contract Namespace. Not part of [`OWNERS`], so
/// that a server without owner groups still reads that.
pub const OWNER_GROUPS: &str = "backend.kube-bind.io/owner-groups";
/// The owner groups by which the caller may use the contract, as a JSON list of names; on a BindableResourcesRequest made over gRPC.
pub const PRINCIPAL_GROUPS: &str = "backend.kube-bind.io/principal-groups";
/// The templates granted to the contract, as a JSON list of names; on the contract Namespace.
pub const GRANTED_TEMPLATES: &str = "backend.kube-bind.io/granted-templates";
/// Who bound each granted template last, with the groups of that caller, as a JSON object by template; on the contract Namespace. An
/// export is made anew only while they may still bind the template.
pub const GRANTED_BY: &str = "backend.kube-bind.io/granted-by";
/// The groups of the caller, as a JSON list of names; on a BindableResourcesRequest made over gRPC.
pub const CALLER_GROUPS: &str = "backend.kube-bind.io/caller-groups";
/// Limits of this contract that differ from those of the server, as a JSON object of numbers by name; on the contract Namespace. The
/// provider's admin writes it.
pub const LIMITS: &str = "backend.kube-bind.io/limits";
/// The revocation of the contract's credentials, as JSON; on the ClusterBinding. It is kept in the metadata, which only the server
/// can write, because the consumer writes the status.
pub const REVOCATION: &str = "backend.kube-bind.io/revocation";
/// Id of the last revocation that has ended; on the ClusterBinding.
pub const LAST_REVOCATION: &str = "backend.kube-bind.io/last-revocation";
/// The renewal tokens of the contract that are good, and whether their renewal is locked, as JSON; on the ClusterBinding. Only the
/// server can write it, as with [`REVOCATION`].
pub const RENEWAL: &str = "backend.kube-bind.io/renewal";
/// The template that an export or a request was made from.
pub const TEMPLATE: &str = "kube-bind.io/template";
/// The caller's name of a BindableResourcesRequest whose object name is a hash.
pub const REQUEST_NAME: &str = "kube-bind.io/request-name";
/// The verified principal that made a BindableResourcesRequest over gRPC, as JSON.
pub const PRINCIPAL: &str = "backend.kube-bind.io/principal";
/// UID of the BindableResourcesRequest that an APIServiceExportRequest was made for.
pub const REQUEST_UID: &str = "kube-bind.io/request-uid";
/// The BindableResourcesRequest whose response a Secret holds, as `<namespace>/<name>` or `<name>`; on that Secret. On an existing
/// Secret, its owner sets it to let the server write the response there.
pub const REQUEST: &str = "kube-bind.io/request";
/// `true` on an export that is deleted to be created again under its name.
pub const REPLACE: &str = "kube-bind.io/replace";
/// When the last token bound to an anchor Secret has expired (RFC 3339).
pub const TOKENS_EXPIRE_BY: &str = "kube-bind.io/tokens-expire-by";
/// The export's full name, where the label with this key holds a hash of it.
pub const EXPORT: &str = "kube-bind.io/export";

// On objects that the backend makes.

/// Hash of the schema that a BoundSchema or an APIServiceExport was made from.
pub const SOURCE_SPEC_HASH: &str = "kube-bind.io/source-spec-hash";
/// `<contract>/<APIServiceNamespace>`; on a provider namespace made for it.
pub const API_SERVICE_NAMESPACE: &str = "kube-bind.io/api-service-namespace";
/// All resources that a consumer was ever given rights on in a provider namespace, separated by commas; on that namespace.
pub const GRANTED_RESOURCES: &str = "kube-bind.io/granted-resources";

/// All resources that were ever claimed in a provider namespace, separated by commas; on that namespace. Leftovers of them keep the
/// namespace from being deleted.
pub const GRANTED_CLAIMS: &str = "kube-bind.io/granted-claims";
/// What keeps a provider namespace that no consumer maps any more: how many objects, and the names of the first; on that namespace,
/// beside [`RELEASED`].
pub const KEPT_FOR: &str = "kube-bind.io/kept-for";
/// `true` on an APIServiceNamespace that is being deleted although the consumer has objects for it: it ends without waiting for the copies in
/// the provider namespace, so that the konnector can request the namespace anew.
pub const STILL_NEEDED: &str = "kube-bind.io/still-needed";
/// Domain of annotations `<domain>/<contract>`, one for each contract that uses a shared namespace; on a shared namespace that
/// the server made, which deletes it after the last one is removed.
pub const SHARED_BY: &str = "shared-by.kube-bind.io";

// On synced objects.

/// The contract namespace; on every synced object on the provider.
pub const CLUSTER_NAMESPACE: &str = "kube-bind.io/cluster-namespace";
/// The consumer's namespace, empty for a cluster-scoped object; on the provider's copy.
pub const CONSUMER_NAMESPACE: &str = "kube-bind.io/consumer-namespace";
/// The UID of the consumer's object; on the provider's copy.
pub const CONSUMER_UID: &str = "kube-bind.io/consumer-uid";
/// The provider's namespace, empty for a cluster-scoped object; on the consumer's object.
pub const PROVIDER_NAMESPACE: &str = "kube-bind.io/provider-namespace";
/// The UID of the provider's object; on the consumer's object.
pub const PROVIDER_UID: &str = "kube-bind.io/provider-uid";
/// `true` on a provider object that has, or had, a counterpart on the consumer.
pub const BOUND: &str = "kube-bind.io/bound";
/// `true` on a provider object that the consumer may adopt; removed once it is adopted.
pub const AUTOADOPT: &str = "kube-bind.io/autoadopt";
/// UID of the provider's object that a consumer's object was created from by adoption; on the consumer's object.
pub const ADOPTED: &str = "kube-bind.io/adopted";
/// Hash of the content that was last written to the provider's copy.
pub const PROJECTION_HASH: &str = "kube-bind.io/projection-hash";
/// The full name of the consumer's object, where the provider's copy has a shortened one; on the copy.
pub const CONSUMER_NAME: &str = "kube-bind.io/consumer-name";
/// Domain of annotations `<domain>/<contract>` with the hash of what each contract last wrote to an object that several write
/// under `LastWins`; on that object.
pub const PROJECTION_OF: &str = "projection-of.kube-bind.io";
/// `true` on an export for whose claims the operator lets the konnector watch Secrets cluster-wide.
pub const CLUSTER_WIDE_SECRETS: &str = "kube-bind.io/cluster-wide-secrets";
/// When the provider's object was released, and by which contract: it stays without its source. See [`released`] and
/// [`is_released`].
pub const RELEASED: &str = "kube-bind.io/released";
/// That the source of the provider's copy was deleted and the copy is retained, so that the source can be restored:
/// `<UID of the source>/<contract>/<since>` ([`crate::retention::RetentionMark`]); on that copy.
pub const RETAINED: &str = "kube-bind.io/retained";
/// Time (RFC 3339) at which the server ends a retained copy. The server sets it, by its own clock. A restore takes it off the copy, and the
/// server sets another one.
pub const RETAINED_UNTIL: &str = "kube-bind.io/retained-until";
/// The merge patch, as JSON, that undoes what `spec.retention.suspend` of the export changed; on a retained copy.
pub const RESUME: &str = "kube-bind.io/resume";
/// `true` on a retained copy whose source is being restored. The server ends it only if the restore is not finished after a day, or after
/// the time that copies are retained for, if that is longer.
pub const RESTORING: &str = "kube-bind.io/restoring";

/// The generation of the source that a copy was last written from, and the holder that wrote it: `<generation>/<instance>`; on the
/// provider's copy. See [`source_generation`].
pub const SOURCE_GENERATION: &str = "kube-bind.io/source-generation";

/// The context of the trace that the object is a part of, as header `traceparent` of W3C Trace Context has it; on the provider's copy, where
/// the konnector writes it for a change that it traces, and on objects that the server makes for a call that it traces. It is no part of
/// what is copied, and the next write that is not traced removes it from a copy.
pub const TRACEPARENT: &str = "kube-bind.io/traceparent";

// On the konnector's Lease.

/// Domain of annotations `<domain>/<contract UID>`, each with the [`crate::holder::HolderChain`] of a contract as JSON; on the Lease.
pub const HOLDER: &str = "holder.kube-bind.io";

// Annotations that users set.

/// Time (RFC 3339) until which the user consents that another provider or cluster replaces the pinned one; on a binding.
pub const ACCEPT_PROVIDER_CHANGE: &str = "kube-bind.io/accept-provider-change";
/// `true` on a binding or a bound object that is paused: it is not synced, and nothing is written on either side.
pub const PAUSED: &str = "kube-bind.io/paused";
/// What ends the orphans of a binding, and which orphans: `<delete|release|relink>/<count>/<digest>`
/// ([`crate::orphans::OrphanOrder`]); on a binding. `kubectl bind orphans` writes it, and the konnector removes it with an event
/// that answers it.
pub const END_ORPHANS: &str = "kube-bind.io/end-orphans";
/// What ends the retention of one copy: `<restore|discard>/<plural>.<group>/<namespace>/<name>` of its source
/// ([`crate::retention::RetentionOrder`]); on a binding. `kubectl bind restore` and `discard` write it, and the konnector removes it
/// with an event that answers it.
pub const END_RETENTION: &str = "kube-bind.io/end-retention";
/// The holder of the contract in whose place this konnector goes on: a digest of what the provider records, or `held` to begin anew
/// ([`crate::holder::HolderOrder`]); on a binding. `kubectl bind accept` writes it, and the konnector removes it with an event that
/// answers it.
pub const ACCEPT_HOLDER: &str = "kube-bind.io/accept-holder";
/// Time (RFC 3339) until which the user consents that copies are deleted although their sources are missing; on a binding. Former
/// versions asked for it where many were missing at once. A consent that was given still holds until its time;
/// [`END_ORPHANS`] has taken its place.
pub const ALLOW_DELETIONS: &str = "kube-bind.io/allow-deletions-until";
/// Time (RFC 3339) until which the user consents that a bundle deletes a binding, with its objects, whose export the provider has
/// removed; on a binding.
pub const ALLOW_UNBIND: &str = "kube-bind.io/allow-unbind-until";
/// The binding that may take over a CRD with its objects, by name; on a CRD of the consumer that belongs to no binding.
pub const ADOPT_BY: &str = "kube-bind.io/adopt-by";
/// `true` on a binding that is deleted even if its provider cannot be reached.
pub const FORCE_UNBIND: &str = "kube-bind.io/force-unbind";
/// The claims that the user has accepted, as a JSON list; on a binding. The program that binds writes it. If it is missing, the
/// konnector accepts the claims that the export has then, and records them here.
pub const ACCEPTED_CLAIMS: &str = "kube-bind.io/accepted-claims";
/// The resources of a binding, for its printer column.
pub const RESOURCES: &str = "kube-bind.io/resources";

/// The value of annotations and labels that are either present or not.
pub const TRUE: &str = "true";

/// Returns the value of [`RELEASED`] on an object that a contract releases.
pub fn released(at: impl fmt::Display, contract: &str) -> String {
    format!("{at}/{contract}")
}

/// Returns when an object was released, by a value of [`RELEASED`].
pub fn released_at(value: &str) -> Option<&str> {
    let at = value.split_once('/').map_or(value, |(at, _)| at);
    (!at.is_empty()).then_some(at)
}

/// Whether a value of [`RELEASED`] says that a contract released the object. A value without a contract is valid for all
/// contracts; an empty one means that the object is bound again.
pub fn is_released(value: &str, contract: &str) -> bool {
    !value.is_empty() && value.split_once('/').is_none_or(|(_, of)| of == contract)
}

/// Returns the value of [`SOURCE_GENERATION`] on a copy that this holder writes.
pub fn source_generation(generation: i64, instance: &str) -> String {
    format!("{generation}/{instance}")
}

/// Returns the generation of a value of [`SOURCE_GENERATION`], if this holder wrote it.
pub fn generation_by(value: &str, instance: &str) -> Option<i64> {
    let (generation, by) = value.split_once('/')?;
    (by == instance).then(|| generation.parse().ok()).flatten()
}

/// Returns the holder that wrote a value of [`SOURCE_GENERATION`].
pub fn generation_writer(value: &str) -> Option<&str> {
    value.split_once('/').map(|(_, by)| by).filter(|by| !by.is_empty())
}

/// Whether a key is kube-bind's own, so that it must not be copied from one cluster to the other.
pub fn is_reserved(key: &str) -> bool {
    is_of(key, ["kube-bind.io", "kubebind.io"])
}

/// Whether a label or annotation is copied to the other cluster. Those of Kubernetes and of kube-bind belong to one cluster
/// alone.
pub fn is_copied(key: &str) -> bool {
    !is_of(key, ["kubernetes.io", "k8s.io"]) && !is_reserved(key)
}

/// Whether the domain of a key is one of these domains or a subdomain of one.
fn is_of(key: &str, domains: [&str; 2]) -> bool {
    let Some((domain, _)) = key.split_once('/') else {
        return false;
    };
    let is_below = |own: &str| domain.strip_suffix(own).is_some_and(|rest| rest.ends_with('.'));
    domains.into_iter().any(|own| domain == own || is_below(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_released(value: &str, expect: bool) {
        assert_eq!(is_released(value, "kube-bind-a"), expect, "{value}");
    }

    #[test]
    fn the_time_of_a_release_reads_back() {
        assert_eq!(
            released_at(&released("2026-01-01T00:00:00Z", "kube-bind-a")),
            Some("2026-01-01T00:00:00Z")
        );
        assert_eq!(released_at("2026-01-01T00:00:00Z"), Some("2026-01-01T00:00:00Z"));
        assert_eq!(released_at(""), None);
    }

    #[test]
    fn what_one_contract_let_go_is_not_let_go_by_another() {
        check_released(&released("2026-01-01T00:00:00Z", "kube-bind-a"), true);
        check_released(&released("2026-01-01T00:00:00Z", "kube-bind-b"), false);
        check_released(&released("2026-01-01T00:00:00Z", "kube-bind-a-b"), false);
        check_released("2026-01-01T00:00:00Z", true);
        check_released("", false);
    }

    #[test]
    fn a_generation_counts_for_the_holder_that_noted_it() {
        let noted = source_generation(7, "a");
        assert_eq!(generation_by(&noted, "a"), Some(7));
        assert_eq!(generation_by(&noted, "b"), None);
        assert_eq!(generation_by("7", "a"), None);
        assert_eq!(generation_by("x/a", "a"), None);
    }

    #[test]
    fn own_keys_are_told_from_others() {
        for own in [
            BOUND,
            IDENTITY,
            IDENTITY_LEGACY,
            "kubebind.io/syncer",
            "rbac.kube-bind.io/x",
        ] {
            assert!(is_reserved(own), "{own}");
        }
        for other in [
            "app",
            "app.kubernetes.io/name",
            "notkube-bind.io/x",
            "kube-bind.io",
            "kube-bind.io.example/x",
        ] {
            assert!(!is_reserved(other), "{other}");
        }
    }

    #[test]
    fn only_what_users_own_is_copied() {
        for (key, expect) in [
            ("app", true),
            ("example.com/app", true),
            ("notkubernetes.io/a", true),
            ("kubectl.kubernetes.io/last-applied-configuration", false),
            ("kubernetes.io/arch", false),
            ("x.k8s.io/a", false),
            ("kube-bind.io/bound", false),
            (TRACEPARENT, false),
            ("backend.kube-bind.io/a", false),
            ("kubebind.io/syncer", false),
        ] {
            assert_eq!(is_copied(key), expect, "{key}");
        }
    }
}
