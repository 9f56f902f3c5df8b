//! Judges what a provider wants installed. Refused is anything beyond the resources of the export and its claims.

use std::collections::BTreeSet;

use bindery_api::claims::is_claimable_core;
use bindery_api::consumer_rules::OBJECT_VERBS;
use bindery_api::names;
use bindery_api::v1alpha2::{GroupResource, PermissionClaim};
use bindery_proto::v1alpha2::{BindingResourceResponse, ConsumerRule};

use crate::error::printable;
use crate::objects;

/// What a provider wants installed, after it was judged.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// The contract namespace on the provider.
    pub contract: String,
    /// The resources of the export.
    pub resources: BTreeSet<GroupResource>,
    /// The provider's claims on other resources of the consumer, at most one for each resource.
    pub claims: Vec<PermissionClaim>,
}

/// Why no objects are made of an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The binding or the bundle has a name that none can have.
    #[error("{name:?} cannot be the name of a binding: a name has 1 to 63 lower-case letters, digits and dashes")]
    Name {
        /// The name.
        name: String,
    },
    /// The answer is for another binding than the one that was asked for.
    #[error("it answers for {got:?} instead of {want:?}")]
    OtherBinding {
        /// The name in the answer.
        got: String,
        /// The name that was asked for.
        want: String,
    },
    /// The offer names no contract namespace.
    #[error("it names no contract namespace")]
    NoContract,
    /// The offer exports no resource.
    #[error("it exports no API")]
    Empty,
    /// The offer exports a resource that no provider may export.
    #[error("it exports {}, which belongs to {owner}", shown(.resource))]
    ForeignApi {
        /// The resource.
        resource: GroupResource,
        /// Who owns it, for people.
        owner: &'static str,
    },
    /// The offer claims a resource that may not be claimed.
    #[error("it claims {}, which {why}", shown(.resource))]
    Unclaimable {
        /// The resource.
        resource: GroupResource,
        /// Why it may not be claimed, for people.
        why: &'static str,
    },
    /// A rule has a wildcard.
    #[error("it asks for a right on \"*\" ({rule})")]
    Wildcard {
        /// The rule, for people.
        rule: String,
    },
    /// A rule is for a resource that is neither exported nor claimed.
    #[error("it asks for rights on {}, which is neither exported nor claimed ({rule})", shown(.resource))]
    Beyond {
        /// The resource.
        resource: GroupResource,
        /// The rule, for people.
        rule: String,
    },
    /// A rule has a verb that no konnector needs.
    #[error("it asks for the right to {verb:?} ({rule})")]
    Verb {
        /// The verb.
        verb: String,
        /// The rule, for people.
        rule: String,
    },
    /// The caller accepts or rejects a resource that the provider does not claim.
    #[error("{resource} is not claimed, so there is nothing to accept or reject")]
    NotClaimed {
        /// The resource.
        resource: GroupResource,
    },
    /// The provider claims every Secret, and the caller has not accepted that by name.
    #[error("it claims EVERY Secret of the cluster; accept or reject the claim on secrets by name")]
    EverySecret,
    /// The answer has no kubeconfig, as one with `validate_only`.
    #[error("it has no kubeconfig")]
    NoKubeconfig,
}

impl Refusal {
    /// Returns the reason for conditions and metrics, which never changes.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Name { .. } => "Name",
            Self::OtherBinding { .. } => "OtherBinding",
            Self::NoContract => "NoContract",
            Self::Empty => "Empty",
            Self::ForeignApi { .. } => "ForeignApi",
            Self::Unclaimable { .. } => "Unclaimable",
            Self::Wildcard { .. } => "Wildcard",
            Self::Beyond { .. } => "Beyond",
            Self::Verb { .. } => "Verb",
            Self::NotClaimed { .. } => "NotClaimed",
            Self::EverySecret => "EverySecret",
            Self::NoKubeconfig => "NoKubeconfig",
        }
    }
}

/// Judges the answer to a bind under this name.
pub fn judge(answer: &BindingResourceResponse, binding: &str) -> Result<Offer, Refusal> {
    for got in std::iter::once(&answer.binding_name).chain(answer.requests.iter().map(|request| &request.name)) {
        if got != binding {
            return Err(Refusal::OtherBinding {
                got: got.clone(),
                want: binding.to_owned(),
            });
        }
    }
    let resources = answer
        .requests
        .iter()
        .flat_map(|request| &request.resources)
        .map(|resource| GroupResource::new(&resource.group, &resource.resource));
    let claims = answer
        .requests
        .iter()
        .flat_map(|request| request.permission_claims.iter().cloned().map(objects::claim));
    let offer = judge_export(&answer.provider_namespace, resources.collect(), claims.collect())?;
    judge_rules(&answer.consumer_rules, std::slice::from_ref(&offer))?;
    Ok(offer)
}

/// Refuses rules beyond the resources and the claims of these offers.
pub fn judge_rules(rules: &[ConsumerRule], offers: &[Offer]) -> Result<(), Refusal> {
    let resources = offers.iter().flat_map(|offer| offer.resources.iter().cloned());
    let resources = resources.collect();
    let claims = offers.iter().flat_map(|offer| &offer.claims);
    let claimed = claims.map(|claim| claim.group_resource.clone()).collect();
    rules.iter().try_for_each(|rule| judge_rule(rule, &resources, &claimed))
}

/// Judges the resources and claims of an export.
pub fn judge_export(
    contract: &str,
    resources: BTreeSet<GroupResource>,
    mut claims: Vec<PermissionClaim>,
) -> Result<Offer, Refusal> {
    if contract.is_empty() {
        return Err(Refusal::NoContract);
    }
    claims.sort_by(|one, other| one.group_resource.cmp(&other.group_resource));
    if resources.is_empty() {
        return Err(Refusal::Empty);
    }
    resources.iter().try_for_each(judge_resource)?;
    let mut claimed = BTreeSet::new();
    for claim in &claims {
        judge_claim(&claim.group_resource, &resources)?;
        if !claimed.insert(&claim.group_resource) {
            return Err(Refusal::Unclaimable {
                resource: claim.group_resource.clone(),
                why: "it claims twice",
            });
        }
    }
    Ok(Offer {
        contract: contract.to_owned(),
        resources,
        claims,
    })
}

/// Whether a binding can have this name, which is also used as the value of labels.
pub fn is_binding_name(name: &str) -> bool {
    names::is_label(name)
}

/// Refuses resources of Kubernetes and of kube-bind, because an export becomes a role on this cluster.
fn judge_resource(resource: &GroupResource) -> Result<(), Refusal> {
    let group = resource.group.as_str();
    let owner = match names::owner_of_group(group) {
        Some(owner) => owner,
        None if !is_name(group) || !is_name(&resource.resource) => "nobody: no API can have this name",
        None => return Ok(()),
    };
    Err(Refusal::ForeignApi {
        resource: resource.clone(),
        owner,
    })
}

/// Refuses claims on resources that could rule the cluster: of the core group all but three, and all other groups of
/// Kubernetes. Claims on other groups are allowed by the provider's admin and decided by the user.
fn judge_claim(claim: &GroupResource, resources: &BTreeSet<GroupResource>) -> Result<(), Refusal> {
    let refuse = |why| {
        Err(Refusal::Unclaimable {
            resource: claim.clone(),
            why,
        })
    };
    if resources.contains(claim) {
        return refuse("it exports itself");
    }
    if claim.is_core() {
        if is_claimable_core(claim) {
            return Ok(());
        }
        return refuse("nobody can claim: of the core group, only configmaps, secrets and serviceaccounts can be");
    }
    if !is_name(&claim.group) || !is_name(&claim.resource) {
        return refuse("no API can be named");
    }
    match names::owner_of_group(&claim.group) {
        Some(_) => refuse(
            "belongs to Kubernetes or kube-bind, of which only configmaps, secrets and serviceaccounts can be claimed",
        ),
        None => Ok(()),
    }
}

fn judge_rule(
    rule: &ConsumerRule,
    resources: &BTreeSet<GroupResource>,
    claims: &BTreeSet<GroupResource>,
) -> Result<(), Refusal> {
    let parts = [&rule.api_groups, &rule.resources, &rule.verbs, &rule.resource_names];
    if parts.iter().any(|part| part.iter().any(|item| item.contains('*'))) {
        return Err(Refusal::Wildcard { rule: shown_rule(rule) });
    }
    for group in &rule.api_groups {
        for resource in &rule.resources {
            let base = resource.strip_suffix("/status").unwrap_or(resource);
            let exported = resources.contains(&GroupResource::new(group, base));
            let claimed = claims.contains(&GroupResource::new(group, resource));
            if !exported && !claimed {
                return Err(Refusal::Beyond {
                    resource: GroupResource::new(group, resource),
                    rule: shown_rule(rule),
                });
            }
        }
    }
    match rule.verbs.iter().find(|verb| !OBJECT_VERBS.contains(&verb.as_str())) {
        Some(verb) => Err(Refusal::Verb {
            verb: verb.clone(),
            rule: shown_rule(rule),
        }),
        None => Ok(()),
    }
}

fn is_name(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    !text.is_empty() && text.bytes().all(inner)
}

fn shown(resource: &GroupResource) -> String {
    printable(&resource.to_string())
}

fn shown_rule(rule: &ConsumerRule) -> String {
    printable(&format!(
        "{} of {} in {:?}",
        rule.verbs.join(","),
        rule.resources.join(","),
        rule.api_groups.join(",")
    ))
}

#[cfg(test)]
pub(in crate::manifests) mod tests;
