//! The definitions of what the konnector works on, installed, and what that changed.

use bindery_runtime::crds::{self, InstallError};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, ResourceExt as _};

use super::Consumer;
use crate::{applied::Outcome, errors::Failure};

impl Consumer {
    /// One definition, or none.
    pub(crate) async fn definition(&self, name: &str) -> Result<Option<CustomResourceDefinition>, Failure> {
        self.find(Api::all(self.client()), name).await
    }

    /// Installs definitions, unless a newer release has, and waits until they are served.
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

/// What a server counts up by itself is no change, nor is what it reports.
fn outcome(before: Option<CustomResourceDefinition>, after: Option<CustomResourceDefinition>) -> Outcome {
    match before.map(said) {
        None => Outcome::Created,
        Some(before) if Some(&before) == after.map(said).as_ref() => Outcome::Unchanged,
        Some(_) => Outcome::Configured,
    }
}

fn said(mut definition: CustomResourceDefinition) -> CustomResourceDefinition {
    definition.status = None;
    let meta = &mut definition.metadata;
    (meta.resource_version, meta.managed_fields, meta.generation) = (None, None, None);
    definition
}

#[cfg(test)]
mod tests {
    use bindery_api::crds::for_consumer;
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionStatus;

    use super::*;

    #[track_caller]
    fn check(change: impl FnOnce(&mut CustomResourceDefinition), expect: Outcome) {
        let mut before = for_consumer().remove(0);
        before.metadata.resource_version = Some("1".to_owned());
        let mut after = before.clone();
        change(&mut after);
        assert_eq!(outcome(None, Some(after.clone())), Outcome::Created);
        assert_eq!(outcome(Some(before), Some(after)), expect);
    }

    #[test]
    fn what_only_the_server_writes_is_no_change() {
        check(|_| {}, Outcome::Unchanged);
        check(
            |after| after.metadata.resource_version = Some("2".to_owned()),
            Outcome::Unchanged,
        );
        check(|after| after.metadata.generation = Some(2), Outcome::Unchanged);
        check(
            |after| after.status = Some(CustomResourceDefinitionStatus::default()),
            Outcome::Unchanged,
        );
        check(
            |after| after.annotations_mut().extend([("a".to_owned(), "1".to_owned())]),
            Outcome::Configured,
        );
        check(|after| after.spec.group.push('x'), Outcome::Configured);
    }
}
