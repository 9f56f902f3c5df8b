//! What a binding whose provider claims a resource shows of one of its objects.

use bindery_api::v1alpha2::{
    APIServiceBinding, APIServiceExport, GroupResource, Isolation, PermissionClaim, SelectorReference,
};

use kube::ResourceExt as _;

use super::{Asked, link};
use crate::{
    contract::Contract,
    why::{self, ClaimFacts, Kind, Link, Mapped, ObjectFacts, Place, Referrer, Relation, Seen},
};

/// Most objects that are read to see whether one of them names a claimed one.
const REFERRERS_MAX: u32 = 2000;

/// Whether the binding has a claim on a resource, in effect or rejected.
pub(super) fn is_claimed(binding: &APIServiceBinding, resource: &GroupResource) -> bool {
    claim(binding, resource).is_some() || binding.spec.rejected_permission_claims.contains(resource)
}

fn claim<'a>(binding: &'a APIServiceBinding, resource: &GroupResource) -> Option<&'a PermissionClaim> {
    let status = binding.status.as_ref()?;
    status
        .permission_claims
        .iter()
        .find(|claim| claim.group_resource == *resource)
}

impl Asked<'_> {
    pub(super) async fn claimed(&self, binding: &APIServiceBinding, object: &Seen<ObjectFacts>) -> Link {
        let resource = self.kind.resource();
        let claim = claim(binding, &resource);
        let mut facts = ClaimFacts {
            claim: claim.cloned(),
            rejected: binding.spec.rejected_permission_claims.contains(&resource),
            selected: Seen::Absent,
        };
        let contract = Contract::open(self.consumer, binding).await;
        let export = match &contract {
            Ok(contract) => {
                let export = contract.export(&binding.name_any()).await;
                export.and_then(|export| export.ok_or_else(|| "the provider has no such export any more".to_owned()))
            }
            Err(why) => Err(why.clone()),
        };
        if let Some(claim) = claim.filter(|_| !facts.rejected) {
            facts.selected = self.selected(claim, export.as_ref().ok(), object).await;
        }
        let link = link(binding, Relation::Claimed(facts));
        match (contract, export) {
            (Ok(contract), Ok(export)) => self.counterpart(link, &contract, &export, object).await,
            (Err(why), _) | (_, Err(why)) => link.unseen(&why),
        }
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

    /// By what a claim selects the object.
    async fn selected(
        &self,
        claim: &PermissionClaim,
        export: Option<&APIServiceExport>,
        object: &Seen<ObjectFacts>,
    ) -> Seen<String> {
        let none = std::collections::BTreeMap::new();
        let labels = object.is().map_or(&none, |object| &object.labels);
        if let Some(why) = why::reason(claim, self.key(), labels, &[]) {
            return Seen::Is(why);
        }
        let home = export.and_then(|export| export.spec.cluster_scoped_namespace.as_deref());
        let mut unread = None;
        for reference in &claim.selector.references {
            match self.referrers(reference, home).await {
                Ok(referrers) => {
                    if let Some(why) = why::reason(claim, self.key(), labels, &referrers) {
                        return Seen::Is(why);
                    }
                }
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
