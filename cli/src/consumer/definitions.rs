//! Installs CustomResourceDefinitions, and tells what that changed.

use bindery_runtime::crds::{self, InstallError};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, ResourceExt as _};

use super::Consumer;
use crate::{errors::Failure, render::applied::Outcome};

impl Consumer {
    /// Reads a CustomResourceDefinition; none if it does not exist.
    pub(crate) async fn definition(&self, name: &str) -> Result<Option<CustomResourceDefinition>, Failure> {
        self.find(Api::all(self.client()), name).await
    }

    /// Installs definitions, unless a newer release has installed them, and waits until they are served.
    pub(crate) async fn install_definitions(
        &self,
        wanted: Vec<CustomResourceDefinition>,
    ) -> Result<Vec<(CustomResourceDefinition, Outcome)>, Failure> {
        let mut installed = Vec::with_capacity(wanted.len());
        for definition in wanted {
            let name = definition.name_any();
            let before = self.definition(&name).await?;
            crds::install(&self.client(), vec![definition.clone()])
                .await
                .map_err(|error| match error {
                    InstallError::Write { name, source } => {
                        Failure::cluster(format!("install CustomResourceDefinition {name}"))(source)
                    }
                    error @ InstallError::NotEstablished { .. } => Failure::Definition(error),
                })?;
            let after = self.definition(&name).await?;
            installed.push((definition, outcome(before, after)));
        }
        Ok(installed)
    }
}

/// Compares a definition before and after; status, version and managed fields do not count.
fn outcome(before: Option<CustomResourceDefinition>, after: Option<CustomResourceDefinition>) -> Outcome {
    match before.map(without_server_fields) {
        None => Outcome::Created,
        Some(before) if Some(&before) == after.map(without_server_fields).as_ref() => Outcome::Unchanged,
        Some(_) => Outcome::Configured,
    }
}

fn without_server_fields(mut definition: CustomResourceDefinition) -> CustomResourceDefinition {
    definition.status = None;
    let meta = &mut definition.metadata;
    (meta.resource_version, meta.managed_fields, meta.generation) = (None, None, None);
    definition
}

#[cfg(test)]
mod tests;
