//! What a caller chooses about the objects that are made of a provider's response.

use std::collections::BTreeSet;

use bindery_api::claims::{SECRETS, is_claimable_core};
use bindery_api::names;
use bindery_api::v1alpha2::{GroupResource, PermissionClaim};
use bindery_proto::v1alpha2::BindingResourceResponse;

use super::offer::{Offer, Refusal, is_binding_name, judge};
use super::{BindingInstall, ClaimRights, Decision, Kubeconfig, Manifests, bundle_secret_ref, namespace, secret_ref};

/// What a caller chooses; the default is a binding that accepts all claims but one on every Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestOptions {
    /// Name of the binding that was asked for. A response for another one is refused; `None` takes the name in the response.
    pub name: Option<String>,
    /// The template that was bound, for an annotation; without one, or with an empty one, there is no annotation.
    pub template: Option<String>,
    /// Makes a bundle of this name in place of a binding.
    pub bundle: Option<String>,
    /// Namespace of the konnector, which is that of the Secret: `kube-bind` unless it is another.
    pub konnector_namespace: String,
    /// ServiceAccount of the konnector: `konnector` unless it is another.
    pub konnector_service_account: String,
    /// Whether the konnector's namespace is one of the objects.
    pub with_namespace: bool,
    /// The claimed resources that are accepted, and all others are rejected; `None` accepts all that are not rejected. A claim
    /// on every Secret is accepted only by name.
    pub accept: Option<BTreeSet<GroupResource>>,
    /// The resources that are never accepted, also if `accept` names them.
    pub reject: BTreeSet<GroupResource>,
}

impl Default for ManifestOptions {
    fn default() -> Self {
        Self {
            name: None,
            template: None,
            bundle: None,
            konnector_namespace: names::KUBE_BIND_NAMESPACE.to_owned(),
            konnector_service_account: names::KONNECTOR.to_owned(),
            with_namespace: false,
            accept: None,
            reject: BTreeSet::new(),
        }
    }
}

/// Judges the response and makes the objects.
pub(super) fn render(response: &BindingResourceResponse, options: &ManifestOptions) -> Result<Manifests, Refusal> {
    let name = options.name.as_ref().unwrap_or(&response.binding_name);
    for name in [Some(name), options.bundle.as_ref()].into_iter().flatten() {
        if !is_binding_name(name) {
            return Err(Refusal::Name { name: name.clone() });
        }
    }
    let offer = judge(response, name)?;
    let decision = decide(&offer, options)?;
    let kubeconfig = response.kubeconfig.as_ref().map_or(&[][..], |sent| &sent.kubeconfig);
    if kubeconfig.is_empty() {
        return Err(Refusal::NoKubeconfig);
    }
    let kubeconfig = Kubeconfig::Document(kubeconfig.to_vec());
    let Some(bundle) = &options.bundle else {
        let install = BindingInstall {
            binding: name,
            template: options.template.as_deref().filter(|template| !template.is_empty()),
            offer: &offer,
            decision: &decision,
            secret: &secret_ref(name, &options.konnector_namespace),
            konnector: (&options.konnector_namespace, &options.konnector_service_account),
            with_namespace: options.with_namespace,
            claim_namespaces: &[],
            claim_rights: &ClaimRights::default(),
        };
        return Ok(Manifests::of_binding(&install, kubeconfig));
    };
    let is_accepted = |claim: &&PermissionClaim| decision.accepted.contains(&claim.group_resource);
    let accepted = offer.claims.iter().filter(is_accepted).cloned().collect();
    let reference = bundle_secret_ref(bundle, &options.konnector_namespace);
    let manifests = Manifests::of_new_bundle(bundle, accepted, reference, kubeconfig);
    Ok(Manifests {
        namespace: options.with_namespace.then(|| namespace(&options.konnector_namespace)),
        ..manifests
    })
}

/// Decides which claims are accepted and which are rejected.
fn decide(offer: &Offer, options: &ManifestOptions) -> Result<Decision, Refusal> {
    let claimed: BTreeSet<_> = offer.claims.iter().map(|claim| claim.group_resource.clone()).collect();
    let unclaimed = |resource: &GroupResource| Refusal::NotClaimed {
        resource: resource.clone(),
    };
    let accept = options.accept.iter().flatten();
    if let Some(resource) = accept.into_iter().find(|resource| !claimed.contains(resource)) {
        return Err(unclaimed(resource));
    }
    // Resources of the core group may be rejected in advance: "never Secrets" holds for templates that claim none today.
    let is_known = |resource: &GroupResource| claimed.contains(resource) || is_claimable_core(resource);
    if let Some(resource) = options.reject.iter().find(|resource| !is_known(resource)) {
        return Err(unclaimed(resource));
    }
    let is_chosen = |resource: &GroupResource| {
        let accepted = options.accept.as_ref().is_none_or(|accept| accept.contains(resource));
        accepted && !options.reject.contains(resource)
    };
    let (accepted, others): (BTreeSet<_>, BTreeSet<_>) = claimed.into_iter().partition(is_chosen);
    let mut by_silence = offer.claims.iter().filter(|_| options.accept.is_none());
    if by_silence.any(|claim| is_every_secret(claim) && accepted.contains(&claim.group_resource)) {
        return Err(Refusal::EverySecret);
    }
    Ok(Decision {
        accepted,
        rejected: others.into_iter().chain(options.reject.iter().cloned()).collect(),
        withdrawn: BTreeSet::new(),
    })
}

fn is_every_secret(claim: &PermissionClaim) -> bool {
    claim.group_resource == GroupResource::new("", SECRETS) && claim.selector.selects_all()
}
