//! What a binding whose provider claims a resource shows of one of its objects.

use std::collections::BTreeMap;

use bindery_api::{
    Accepted, Conditions as _,
    v1alpha2::{APIServiceBinding, APIServiceExport, GroupResource, Isolation, PermissionClaim, SelectorReference},
};

use super::{Asked, link};
use crate::{
    claims::news,
    provider::contract::Contract,
    why::{self, ClaimFacts, Kind, Link, Mapped, ObjectFacts, Place, Referrer, Relation, Seen},
};

/// Most objects that are read to see whether one of them names a claimed one.
const REFERRERS_MAX: u32 = 2000;
/// The condition of a binding that speaks of claims, and its reason where one was not accepted.
const CLAIMS_IN_SYNC: &str = "PermissionClaimsInSync";
const NOT_ACCEPTED: &str = "ClaimNotAccepted";

/// Whether the binding has a claim on a resource, in effect or rejected.
pub(super) fn is_claimed(binding: &APIServiceBinding, resource: &GroupResource) -> bool {
    !in_effect(binding, resource).is_empty() || binding.spec.rejected_permission_claims.contains(resource)
}

/// Whether the provider claims what nobody has accepted. On which resources, its export alone says.
fn has_news(binding: &APIServiceBinding) -> bool {
    let condition = binding.condition(CLAIMS_IN_SYNC);
    condition.is_some_and(|condition| condition.reason == NOT_ACCEPTED)
}

fn in_effect(binding: &APIServiceBinding, resource: &GroupResource) -> Vec<PermissionClaim> {
    let claims = binding.status.iter().flat_map(|status| &status.permission_claims);
    claims
        .filter(|claim| claim.group_resource == *resource)
        .cloned()
        .collect()
}

/// What an export claims of a resource that was not accepted.
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
    /// What a binding shows whose provider claims the resource; none if it does not.
    pub(super) async fn claimed(&self, binding: &APIServiceBinding, object: &Seen<ObjectFacts>) -> Option<Link> {
        let resource = self.kind.resource();
        let is_claimed = is_claimed(binding, &resource);
        if !is_claimed && !has_news(binding) {
            return None;
        }
        let contract = Contract::open(self.consumer, binding).await;
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
            // Of an object that is not here, that of the provider counts.
            let labels = object.is().or_else(|| link.copy.is()).map(|known| known.labels.clone());
            let labels = labels.unwrap_or_default();
            let export = export.as_ref().ok();
            facts.selected = self.selected(&facts.claims, export, &labels).await;
            facts.would_select = self.selected(&facts.not_accepted, export, &labels).await;
        }
        link.relation = Relation::Claimed(facts);
        Some(link)
    }

    async fn counterpart(
        &self,
        mut link: Link,
        contract: &Contract,
        export: &APIServiceExport,
        object: &Seen<ObjectFacts>,
    ) -> Link {
        link.server = Some(contract.server.clone());
        let shared = self.is_shared(export);
        link.place = match contract.place(&self.namespace).await {
            Ok(found) => Seen::Is(why::claimed_place(shared, self.key(), &Mapped::of(found.as_ref()))),
            Err(why) => return link.unseen(&why),
        };
        // A copy of the provider's says itself where that is.
        if let Some(namespace) = object.is().and_then(ObjectFacts::source_namespace) {
            link.place = Seen::Is(Place::At {
                namespace: namespace.to_owned(),
                name: self.name.clone(),
            });
        }
        link.copy = self.copy(contract, &link.place).await;
        link
    }

    /// Whether consumers of an export share names: of cluster-scoped objects alone do they.
    fn is_shared(&self, export: &APIServiceExport) -> bool {
        let exported = |kind: &&Kind| {
            let mut resources = export.spec.resources.iter();
            resources.any(|resource| resource.group_resource == kind.resource())
        };
        let mut exported = self.kinds.iter().filter(exported);
        export.spec.isolation == Isolation::None && exported.any(|kind| !kind.namespaced)
    }

    /// By what claims select the object.
    async fn selected(
        &self,
        claims: &[PermissionClaim],
        export: Option<&APIServiceExport>,
        labels: &BTreeMap<String, String>,
    ) -> Seen<String> {
        let mut reasons = claims.iter().filter_map(|claim| why::reason(claim, self.key(), labels));
        if let Some(why) = reasons.next() {
            return Seen::Is(why);
        }
        let home = export.and_then(|export| export.spec.cluster_scoped_namespace.as_deref());
        let mut unread = None;
        for reference in claims.iter().flat_map(|claim| &claim.selector.references) {
            match self
                .referrers(reference, home)
                .await
                .map(|referrers| why::named_by(&referrers))
            {
                Ok(Some(why)) => return Seen::Is(why),
                Ok(None) => {}
                Err(why) => unread = Some(why),
            }
        }
        unread.map_or(Seen::Absent, Seen::Unknown)
    }

    /// The bound objects that name this one.
    async fn referrers(&self, reference: &SelectorReference, home: Option<&str>) -> Result<Vec<Referrer>, String> {
        let resource = &reference.group_resource;
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
        Ok(why::referrers(
            &reference.json_path,
            &resource.to_string(),
            &objects,
            self.key(),
            home,
        ))
    }
}
