//! What a provider wants installed, judged: nothing beyond the APIs of the export and its claims.

use std::collections::BTreeSet;

use bindery_api::{
    names,
    v1alpha2::{GroupResource, PermissionClaim},
};
use bindery_proto::v1alpha2::{BindingResourceResponse, ConsumerRule};
use bindery_sdk::objects;

use crate::{
    claims::{CLAIMABLE, selection},
    output::joined,
};

/// What a konnector does with the objects of a resource.
pub(crate) const VERBS: [&str; 7] = ["get", "list", "watch", "create", "update", "patch", "delete"];

/// What is to be installed, after it has been judged.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Offer {
    /// The contract namespace on the provider.
    pub(crate) contract: String,
    /// The APIs of the export.
    pub(crate) resources: BTreeSet<GroupResource>,
    /// What else the provider asks to see and to write, one claim per resource.
    pub(crate) claims: Vec<PermissionClaim>,
}

/// Why an offer is not installed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// The answer is for something else than what was asked for.
    #[error("it answers for {got:?} instead of {want:?}")]
    OtherBinding { got: String, want: String },
    /// There is no contract namespace.
    #[error("it names no contract namespace")]
    NoContract,
    /// There is nothing to bind.
    #[error("it exports no API")]
    Empty,
    /// An API that no provider can export.
    #[error("it exports {resource}, which belongs to {owner}")]
    ForeignApi {
        resource: GroupResource,
        owner: &'static str,
    },
    /// A claim on what may not be claimed.
    #[error("it claims {resource}, which {why}")]
    Unclaimable { resource: GroupResource, why: &'static str },
    /// Other claims than those that were shown.
    #[error("it claims something else now than what was shown ({was} before, {is} now); bind again to see what")]
    ChangedClaims { was: String, is: String },
    /// A rule for everything.
    #[error("it asks for a right on \"*\" ({rule})")]
    Wildcard { rule: String },
    /// A rule for something else.
    #[error("it asks for rights on {resource}, which is neither exported nor claimed ({rule})")]
    Beyond { resource: String, rule: String },
    /// A verb that no konnector needs.
    #[error("it asks for the right to {verb:?} ({rule})")]
    Verb { verb: String, rule: String },
}

impl Refusal {
    /// Stable word for programs.
    #[cfg(test)]
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::OtherBinding { .. } => "OtherBinding",
            Self::NoContract => "NoContract",
            Self::Empty => "Empty",
            Self::ForeignApi { .. } => "ForeignApi",
            Self::Unclaimable { .. } => "Unclaimable",
            Self::ChangedClaims { .. } => "ChangedClaims",
            Self::Wildcard { .. } => "Wildcard",
            Self::Beyond { .. } => "Beyond",
            Self::Verb { .. } => "Verb",
        }
    }
}

/// Judges an answer to the request for a binding of this name.
pub(crate) fn judge(answer: &BindingResourceResponse, binding: &str) -> Result<Offer, Refusal> {
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
    let claimed: BTreeSet<_> = offer.claims.iter().map(|claim| claim.group_resource.clone()).collect();
    for rule in &answer.consumer_rules {
        judge_rule(rule, &offer.resources, &claimed)?;
    }
    Ok(offer)
}

/// Judges what an export would bring, without rules of the provider's own.
pub(crate) fn judge_export(
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

/// Whether a binding can have this name, which is the value of labels as well.
pub(crate) fn is_binding_name(name: &str) -> bool {
    names::is_label(name)
}

impl Offer {
    /// Whether another answer for the same bind claims what this one did.
    pub(crate) fn same_claims(&self, other: &Self) -> Result<(), Refusal> {
        if self.claims == other.claims {
            return Ok(());
        }
        let shown = |offer: &Self| {
            let claims = offer.claims.iter();
            joined(claims.map(|claim| format!("{} ({})", claim.group_resource, selection(claim))))
        };
        Err(Refusal::ChangedClaims {
            was: shown(self),
            is: shown(other),
        })
    }
}

/// An export is a role on this cluster: it must not name what is here already.
fn judge_resource(resource: &GroupResource) -> Result<(), Refusal> {
    let group = resource.group.as_str();
    let owner = match names::owner_of_group(group) {
        Some(owner) => owner,
        None if !is_name(group) || !is_name(&resource.resource) => "nobody: it is no name of an API",
        None => return Ok(()),
    };
    Err(Refusal::ForeignApi {
        resource: resource.clone(),
        owner,
    })
}

/// Other groups than the core one are the provider's admin's to allow, and whoever binds decides; no group of Kubernetes
/// can be claimed, for it rules the cluster.
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
        if CLAIMABLE.contains(&claim.resource.as_str()) {
            return Ok(());
        }
        return refuse("nobody can claim: of the core group, only configmaps, secrets and serviceaccounts can be");
    }
    if !is_name(&claim.group) || !is_name(&claim.resource) {
        return refuse("is no name of an API");
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
        return Err(Refusal::Wildcard { rule: shown(rule) });
    }
    for group in &rule.api_groups {
        for resource in &rule.resources {
            let base = resource.strip_suffix("/status").unwrap_or(resource);
            let exported = resources.contains(&GroupResource::new(group, base));
            let claimed = claims.contains(&GroupResource::new(group, resource));
            if !exported && !claimed {
                let resource = GroupResource::new(group, resource).to_string();
                return Err(Refusal::Beyond {
                    resource,
                    rule: shown(rule),
                });
            }
        }
    }
    match rule.verbs.iter().find(|verb| !VERBS.contains(&verb.as_str())) {
        Some(verb) => Err(Refusal::Verb {
            verb: verb.clone(),
            rule: shown(rule),
        }),
        None => Ok(()),
    }
}

fn is_name(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    !text.is_empty() && text.bytes().all(inner)
}

fn shown(rule: &ConsumerRule) -> String {
    format!(
        "{} of {} in {:?}",
        rule.verbs.join(","),
        rule.resources.join(","),
        rule.api_groups.join(",")
    )
}

#[cfg(test)]
pub(crate) mod tests;
