//! Reads what concerns an object of a binding whose provider claims its resource.

use std::{borrow::Cow, collections::BTreeMap};

use bindery_api::{
    Accepted, Conditions as _,
    claims::{ReferencePaths, Referenced, Selected, Selection},
    conditions::{CLAIM_NOT_ACCEPTED, PERMISSION_CLAIMS_IN_SYNC},
    placement::ClaimedPlacement,
    v1alpha2::{APIServiceBinding, APIServiceExport, GroupResource, PermissionClaim, SelectorReference},
};

use super::{Asked, link};
use crate::{
    claims::news,
    consumer::kinds::Kind,
    provider::contract::Contract,
    why::{self, BindingLink, ClaimFacts, CopyLocation, MappedNamespaces, Marked, ObjectFacts, Relation, Seen},
};

/// The most objects that are read to find one that refers to the claimed object.
const REFERRERS_MAX: u32 = 2000;

/// Tells whether the binding has a claim on a resource, in effect or rejected.
pub(super) fn is_claimed(binding: &APIServiceBinding, resource: &GroupResource) -> bool {
    !in_effect(binding, resource).is_empty() || binding.spec.rejected_permission_claims.contains(resource)
}

/// Tells whether the provider claims something that the binding has not accepted. Only the export says on which resources.
fn has_news(binding: &APIServiceBinding) -> bool {
    let condition = binding.condition(PERMISSION_CLAIMS_IN_SYNC);
    condition.is_some_and(|condition| condition.reason == CLAIM_NOT_ACCEPTED)
}

fn in_effect(binding: &APIServiceBinding, resource: &GroupResource) -> Vec<PermissionClaim> {
    let claims = binding.status.iter().flat_map(|status| &status.permission_claims);
    claims
        .filter(|claim| claim.group_resource == *resource)
        .cloned()
        .collect()
}

/// Lists the claims of an export on a resource that the binding has not accepted.
fn not_accepted(
    binding: &APIServiceBinding,
    export: &APIServiceExport,
    resource: &GroupResource,
) -> Vec<PermissionClaim> {
    let accepted = Accepted::of(binding);
    let claims = export.spec.permission_claims.iter();
    claims
        .filter(|claim| claim.group_resource == *resource)
        .filter_map(|claim| news(&accepted, claim))
        .collect()
}

impl Asked<'_> {
    /// Reads what concerns the object of a binding; `None` if its provider does not claim the resource.
    pub(super) async fn claimed(&self, binding: &APIServiceBinding, object: &Seen<ObjectFacts>) -> Option<BindingLink> {
        let resource = self.kind.resource();
        let is_claimed = is_claimed(binding, &resource);
        if !is_claimed && !has_news(binding) {
            return None;
        }
        let contract = self.consumer.contract(binding).await;
        let export = match &contract {
            Ok(contract) => {
                let export = contract.export(binding.export_name()).await;
                export.and_then(|export| export.ok_or_else(|| "the provider has no such export any more".to_owned()))
            }
            Err(why) => Err(why.clone()),
        };
        let mut facts = ClaimFacts {
            claims: in_effect(binding, &resource),
            rejected: binding.spec.rejected_permission_claims.contains(&resource),
            ..ClaimFacts::default()
        };
        if let Ok(export) = &export
            && !facts.rejected
        {
            facts.not_accepted = not_accepted(binding, export, &resource);
        }
        if !is_claimed && facts.not_accepted.is_empty() {
            return None;
        }
        let mut link = link(binding, Relation::Claimed(facts.clone()));
        link = match (contract, &export) {
            (Ok(contract), Ok(export)) => self.counterpart(link, &contract, export, object).await,
            (Err(why), _) => link.unseen(&why),
            (_, Err(why)) => link.unseen(why),
        };
        if !facts.rejected {
            // Where the object is not here, the labels of the provider's object count.
            let labels = object.is().or_else(|| link.copy.is()).map(|known| known.labels.clone());
            let labels = labels.unwrap_or_default();
            let export = export.as_ref().ok();
            facts.selected = self.selected(&facts.claims, export, &labels).await;
            facts.would_select = self.selected(&facts.not_accepted, export, &labels).await;
            let listed = &binding.spec.claim_namespaces;
            if !listed.is_empty() && !listed.contains(&self.namespace) {
                facts.elsewhere.clone_from(listed);
                // What the provider made is claimed, and does not come down.
                if object.is().is_some_and(|object| object.marked() == Marked::Not) {
                    facts.selected = Seen::Absent;
                }
            }
        }
        link.relation = Relation::Claimed(facts);
        Some(link)
    }

    async fn counterpart(
        &self,
        mut link: BindingLink,
        contract: &Contract,
        export: &APIServiceExport,
        object: &Seen<ObjectFacts>,
    ) -> BindingLink {
        link.server = Some(contract.server.clone());
        let Some(placement) = self.placement(export) else {
            return link.unseen("this cluster does not serve the export's APIs yet, whose scope decides the namespace");
        };
        link.place = match contract.place(&self.namespace).await {
            Ok(found) => Seen::Is(why::claimed_place(
                placement,
                self.key(),
                &MappedNamespaces::of(found.as_ref()),
            )),
            Err(why) => return link.unseen(&why),
        };
        // A copy of a provider's object names the namespace of its source.
        if let Some(namespace) = object.is().and_then(ObjectFacts::source_namespace) {
            link.place = Seen::Is(CopyLocation::At {
                namespace: namespace.to_owned(),
                name: self.name.clone(),
            });
        }
        link.copy = self.copy(contract, &link.place).await;
        link
    }

    /// Where the claims of an export are served on the provider; `None` if that depends on APIs that this cluster does not serve.
    fn placement(&self, export: &APIServiceExport) -> Option<ClaimedPlacement> {
        let exported = |kind: &&Kind| {
            let mut resources = export.spec.resources.iter();
            resources.any(|resource| resource.group_resource == kind.resource())
        };
        let scopes = self.kinds.iter().filter(exported).map(Kind::scope);
        ClaimedPlacement::of_export(export.spec.isolation, scopes.map(Some))
    }

    /// Says by what claims select the object.
    async fn selected(
        &self,
        claims: &[PermissionClaim],
        export: Option<&APIServiceExport>,
        labels: &BTreeMap<String, String>,
    ) -> Seen<String> {
        let selection = Selection::of(claims.iter().map(|claim| &claim.selector));
        match selection.select(self.key(), || Cow::Borrowed(labels), || Referenced::Unknown) {
            Selected::Yes(part) => return Seen::Is(why::selected_by(part)),
            Selected::No => return Seen::Absent,
            Selected::Unknown => {}
        }
        let of_export = export.and_then(|export| export.spec.cluster_scoped_namespace.as_deref());
        let mut unread = None;
        for reference in claims.iter().flat_map(|claim| &claim.selector.references) {
            match self.named_by(reference, of_export).await {
                Ok(Some(why)) => return Seen::Is(why),
                Ok(None) => {}
                Err(why) => unread = Some(why),
            }
        }
        unread.map_or(Seen::Absent, Seen::Unknown)
    }

    /// Looks for a bound object that refers to this one.
    async fn named_by(
        &self,
        reference: &SelectorReference,
        cluster_scoped_namespace: Option<&str>,
    ) -> Result<Option<String>, String> {
        let resource = &reference.group_resource;
        let Some(paths) = ReferencePaths::parse(&reference.json_path) else {
            return Ok(None);
        };
        let kind = self.kinds.iter().find(|kind| kind.resource() == *resource);
        let kind = kind.ok_or_else(|| format!("this cluster does not serve {resource}"))?;
        let elsewhere = reference
            .json_path
            .namespace
            .as_deref()
            .is_some_and(|path| !path.is_empty());
        let namespace = if kind.namespaced && !elsewhere {
            self.namespace.as_str()
        } else {
            ""
        };
        let objects = self.consumer.all(&kind.api(), namespace, REFERRERS_MAX).await;
        let objects = objects.map_err(|failure| failure.to_string())?;
        let name = resource.to_string();
        Ok(why::named_by(
            &paths,
            &name,
            &objects,
            self.key(),
            cluster_scoped_namespace,
        ))
    }
}

#[cfg(test)]
mod tests;
