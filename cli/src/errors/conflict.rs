//! What keeps a command from writing to the consumer cluster, each with what to do about it.

use bindery_api::v1alpha2::GroupResource;

/// An object of the consumer cluster that stands in the way of a command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Conflict {
    /// The binding or bundle leads to another provider.
    #[error(
        "{owner} uses the provider {uses}, not {asked}; choose another name with {name_flag}, or end it first with `{end}`"
    )]
    OtherProvider {
        owner: String,
        uses: String,
        asked: String,
        name_flag: &'static str,
        /// The command that ends the owner.
        end: String,
    },
    /// The binding or bundle is about to go.
    #[error(
        "{owner} is being deleted; run this again when it is gone (`kubectl bind status {name}` shows how far it is)"
    )]
    Deleting { owner: String, name: String },
    /// The bundle of the binding would bind again.
    #[error(
        "APIServiceBinding {binding} belongs to APIServiceBindingBundle {bundle}, which would bind {export} again at once; \
         let its spec.selector exclude the export, which ends the binding, or end all its bindings with \
         `kubectl delete apiservicebindingbundle {bundle}`"
    )]
    OfBundle {
        binding: String,
        bundle: String,
        export: String,
    },
    /// An object that this command did not make has the name of one that it would make.
    #[error(
        "{kind} {name} exists and was not made by kubectl bind; choose another name of the binding with --name, or rename or \
         remove the {kind}"
    )]
    ForeignObject { kind: String, name: String },
    /// A binding of another manager accepts a claim that is to be rejected.
    #[error(
        "APIServiceBinding {binding} was not made by kubectl bind and does not reject the claim on {claim}; \
         reject it there with `kubectl bind claims {binding} --reject {claim}`"
    )]
    ForeignBinding { binding: String, claim: GroupResource },
    /// A role of another manager would have to change.
    #[error(
        "ClusterRole {name} was not made by kubectl bind and is left as it is; ask its owner to give the konnector rights on \
         what is accepted, and on nothing else"
    )]
    ForeignRole { name: String },
    /// The bundle decides what its bindings accept.
    #[error(
        "APIServiceBinding {binding} belongs to APIServiceBindingBundle {bundle}, which says what its bindings accept; add the \
         claim on {claim} to spec.acceptedClaims of the bundle, and give the konnector rights on it: \
         kubectl bind deploy --bundle-resource {claim}"
    )]
    ClaimOfBundle {
        binding: String,
        bundle: String,
        claim: GroupResource,
    },
    /// The binding is to another export.
    #[error(
        "APIServiceBinding {binding} is to the export {export}; choose another name with --name, or end it first with \
         `kubectl bind unbind {binding}`"
    )]
    OtherExport { binding: String, export: String },
    /// The role of a binding has the name of the role that gives rights for bundles or for adoption.
    #[error("ClusterRole {name} belongs to a binding; end that binding, and bind it under another name with --name")]
    RoleOfBinding { name: &'static str },
    /// Bindings or bundles exist, which only the konnector can end.
    #[error("{what} must be ended first, which only the konnector can do:\n  {first}")]
    StillBound { what: String, first: String },
    /// A set that is not the konnector's has its name.
    #[error(
        "set {set} of this cluster is not that of the konnector: {why}; look at it with \
         `kubectl get resourceset {version} -o yaml`, and apply it under another name"
    )]
    ForeignSet { set: String, version: String, why: String },
    /// Helm installed the konnector, and would undo what this command writes.
    #[error(
        "Deployment konnector in namespace kube-bind belongs to release {release} of Helm in namespace {namespace}; change it with \
         `helm upgrade {release} --namespace {namespace}`, or end it first with `helm uninstall {release} --namespace {namespace}`"
    )]
    OfHelm { release: String, namespace: String },
    /// Another konnector serves all bindings of this cluster.
    #[error(
        "this cluster has another konnector, ServiceAccount {account} of ClusterRoleBinding {grant}, and one of the two would serve \
         the bindings of the other; bind with that one (--konnector-namespace and --konnector-service-account), or remove it first"
    )]
    OtherKonnector { account: String, grant: String },
    /// One cluster is to be provider and consumer.
    #[error(
        "the contexts {provider} and {consumer} reach one cluster, which cannot be provider and consumer at once; name two clusters with \
         --provider and --consumer"
    )]
    OneCluster { provider: String, consumer: String },
    /// Objects that `dev up` did not make are in the way.
    #[error(
        "context {context} has objects that `kubectl bind dev up` would make and did not: {objects}; use another cluster, or remove them \
         with what made them"
    )]
    NotOfDev { context: String, objects: String },
    /// Something is there that `dev up` did not make, and that would go too, or be of no use without server and konnector.
    #[error("context {context} has more than `kubectl bind dev up` made: {others}; nothing was removed: {mend}")]
    BoundBeside {
        context: String,
        others: String,
        mend: String,
    },
    /// The API is on this cluster already.
    #[error("CustomResourceDefinition {resource} exists on this cluster and belongs to {owner}; {mend}")]
    ForeignApi {
        resource: GroupResource,
        owner: String,
        mend: String,
    },
}
