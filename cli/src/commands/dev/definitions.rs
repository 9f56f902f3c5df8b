//! CustomResourceDefinitions that `dev up` makes, and deletes again.

use bindery_runtime::errors;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Error, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams},
};

use super::cluster::Cluster;
use crate::{
    dev::{LABEL, LABELLED, guard, manifests::labelled_definition},
    errors::{Failure, conflict::Conflict},
    install::write::manifest,
    render::applied::{Applied, Outcome},
};

impl Cluster {
    /// Installs definitions. Those that are missing are made with the label of `dev up`; those that exist are brought up to date.
    pub(super) async fn define(&self, wanted: Vec<CustomResourceDefinition>) -> Result<Vec<Applied>, Failure> {
        let api = Api::<CustomResourceDefinition>::all(self.api.client());
        let mut applied = Vec::with_capacity(wanted.len());
        for definition in wanted {
            let name = definition.name_any();
            let is_new = self.on(self.api.definition(&name).await)?.is_none();
            if is_new {
                let labelled = labelled_definition(definition.clone());
                match api.create(&PostParams::default(), &labelled).await {
                    Err(error) if errors::is_already_exists(&error) => {}
                    created => drop(
                        self.on(created.map_err(Failure::cluster(format!("create CustomResourceDefinition {name}"))))?,
                    ),
                }
            }
            for (definition, outcome) in self.on(self.api.install_definitions(vec![definition]).await)? {
                let outcome = if is_new { Outcome::Created } else { outcome };
                applied.push(Applied::of(&manifest(&definition)?, outcome));
            }
        }
        Ok(applied)
    }

    /// Refuses a definition of the example that `dev up` did not make.
    pub(super) async fn refuse_foreign_definition(&self, name: &str) -> Result<(), Failure> {
        let found = self.on(self.api.definition(name).await)?;
        match found {
            Some(found) if !guard::is_ours(&found.metadata) => Err(Conflict::NotOfDev {
                context: self.context().to_owned(),
                objects: format!("customresourcedefinition.apiextensions.k8s.io/{name}"),
            }
            .into()),
            _ => Ok(()),
        }
    }

    /// Deletes the definitions that `dev up` made and of which no object is left. Returns the deleted ones, and the names of those
    /// that stay because objects of them are left, or cannot be listed.
    pub(super) async fn undefine(&self) -> Result<(Vec<Applied>, Vec<String>), Failure> {
        let api = Api::<CustomResourceDefinition>::all(self.api.client());
        let ours = ListParams::default().labels(&format!("{LABEL}={LABELLED}"));
        let listed = api.list(&ours).await;
        let listed = self.on(listed.map_err(Failure::cluster("list CustomResourceDefinitions")))?;
        let (mut deleted, mut kept) = (Vec::new(), Vec::new());
        for definition in listed {
            if self.is_used(&definition).await? {
                kept.push(definition.name_any());
                continue;
            }
            self.on(self.api.delete(api.clone(), &definition).await)?;
            deleted.push(Applied::of(&manifest(&definition)?, Outcome::Deleted));
        }
        Ok((deleted, kept))
    }

    /// Whether an object of the definition is left, or may be.
    async fn is_used(&self, definition: &CustomResourceDefinition) -> Result<bool, Failure> {
        let spec = &definition.spec;
        let Some(version) = spec.versions.iter().find(|version| version.served) else {
            return Ok(true);
        };
        let kind = GroupVersionKind::gvk(&spec.group, &version.name, &spec.names.kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, &spec.names.plural);
        let objects = Api::<DynamicObject>::all_with(self.api.client(), &resource);
        match objects.list_metadata(&ListParams::default().limit(1)).await {
            Ok(listed) => Ok(!listed.items.is_empty()),
            // Such as one that is not served now. It may have stored objects.
            Err(Error::Api(_)) => Ok(true),
            Err(error) => self.on(Err(Failure::cluster(format!("list {}", definition.name_any()))(error))),
        }
    }
}
