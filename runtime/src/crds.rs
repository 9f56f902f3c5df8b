//! Installs Bindery's CustomResourceDefinitions. Unknown versions of a definition stay, and the definition of a newer release is
//! left as it is.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{backoff::Backoff, errors, json::contains};

/// Annotation with the revision of a definition: a number that grows with each release that changes a definition.
pub const REVISION_ANNOTATION: &str = "kube-bind.io/crd-revision";
/// Revision of the definitions in this release.
pub const REVISION: u32 = 1;

const FIELD_MANAGER: &str = "bindery";
const ATTEMPTS: u32 = 6;
const ESTABLISH_TIMEOUT: Duration = Duration::from_secs(30);

/// Why a definition is not installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The API server refused the definition or did not answer.
    #[error("cannot install the CustomResourceDefinition {name}: {}", errors::explain(.source))]
    Write {
        /// Name of the definition.
        name: String,
        /// The error.
        source: kube::Error,
    },
    /// The definition is stored, but the API server does not serve it after 30 s.
    #[error("the CustomResourceDefinition {name} is not established: {message}")]
    NotEstablished {
        /// Name of the definition.
        name: String,
        /// The reason that the API server gives.
        message: String,
    },
}

/// Installs definitions and waits until the API server serves them, 30 s for each at most.
pub async fn install(client: &Client, wanted: Vec<CustomResourceDefinition>) -> Result<(), InstallError> {
    let api = Api::all(client.clone());
    for definition in &wanted {
        let name = definition.name_any();
        write(&api, definition)
            .await
            .map_err(|source| InstallError::Write { name, source })?;
    }
    for definition in &wanted {
        established(&api, &definition.name_any()).await?;
    }
    Ok(())
}

async fn write(api: &Api<CustomResourceDefinition>, wanted: &CustomResourceDefinition) -> Result<(), kube::Error> {
    let name = wanted.name_any();
    let mut attempt = 0;
    loop {
        let outcome = match api.get_opt(&name).await? {
            None => {
                let mut first = wanted.clone();
                stamp(&mut first);
                let params = PostParams {
                    field_manager: Some(FIELD_MANAGER.to_owned()),
                    ..PostParams::default()
                };
                api.create(&params, &first).await.map(|_| ())
            }
            Some(existing) => match merge(&existing, wanted) {
                None => Ok(()),
                Some(patch) => {
                    let params = PatchParams::apply(FIELD_MANAGER);
                    api.patch(&name, &params, &Patch::Merge(&patch)).await.map(|_| ())
                }
            },
        };
        match outcome {
            // Another replica was quicker: look at what it wrote.
            Err(error) if attempt < ATTEMPTS && (errors::code(&error) == Some(409) || errors::is_transient(&error)) => {
                sleep(Backoff::OBJECT.delay(attempt)).await;
                attempt += 1;
            }
            outcome => return outcome,
        }
    }
}

async fn established(api: &Api<CustomResourceDefinition>, name: &str) -> Result<(), InstallError> {
    let deadline = Instant::now() + ESTABLISH_TIMEOUT;
    let mut attempt = 0;
    loop {
        let seen = api.get_opt(name).await.map_err(|source| InstallError::Write {
            name: name.to_owned(),
            source,
        })?;
        if seen.as_ref().is_some_and(is_established) {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(InstallError::NotEstablished {
                name: name.to_owned(),
                message: seen.map_or_else(|| "it was deleted".to_owned(), |definition| complaint(&definition)),
            });
        }
        sleep(Backoff::new(Duration::from_millis(20), Duration::from_millis(500)).delay(attempt)).await;
        attempt += 1;
    }
}

/// Whether the API server serves the definition.
pub fn is_established(definition: &CustomResourceDefinition) -> bool {
    condition(definition, "Established").is_some_and(|(status, _)| status == "True")
}

/// Returns why the API server does not accept a definition, in its own words.
pub fn complaint(definition: &CustomResourceDefinition) -> String {
    ["NamesAccepted", "Established", "NonStructuralSchema"]
        .into_iter()
        .filter_map(|kind| condition(definition, kind).map(|(status, message)| (kind, status, message)))
        .find(|(kind, status, _)| (*kind == "NonStructuralSchema") == (status == "True"))
        .map_or_else(
            || "the API server has not looked at it yet".to_owned(),
            |(_, _, message)| message,
        )
}

fn condition(definition: &CustomResourceDefinition, kind: &str) -> Option<(String, String)> {
    let conditions = definition.status.as_ref()?.conditions.as_ref()?;
    let found = conditions.iter().find(|condition| condition.type_ == kind)?;
    Some((found.status.clone(), found.message.clone().unwrap_or_default()))
}

fn revision(definition: &CustomResourceDefinition) -> u32 {
    let revision = definition.annotations().get(REVISION_ANNOTATION);
    revision.and_then(|revision| revision.parse().ok()).unwrap_or(0)
}

fn stamp(definition: &mut CustomResourceDefinition) {
    definition
        .annotations_mut()
        .insert(REVISION_ANNOTATION.to_owned(), REVISION.to_string());
}

/// Returns the merge patch that brings a definition up to date; `None` if it is, or if a newer release wrote it.
pub fn merge(existing: &CustomResourceDefinition, wanted: &CustomResourceDefinition) -> Option<Value> {
    if revision(existing) > REVISION {
        return None;
    }
    let versions = merge_versions(&existing.spec.versions, &wanted.spec.versions);
    let names = &wanted.spec.names;
    let desired = json!({
        "metadata": {"annotations": {REVISION_ANNOTATION: REVISION.to_string()}},
        "spec": {"versions": versions, "names": names},
    });
    let actual = serde_json::to_value(existing).ok()?;
    if contains(&actual, &desired) {
        return None;
    }
    let mut patch = desired;
    patch["metadata"]["resourceVersion"] = json!(existing.metadata.resource_version);
    Some(patch)
}

/// Merges the versions of a definition: the wanted ones replace those of their names, all others stay. The wanted storage version
/// is stored, unless one that Kubernetes ranks higher than all wanted ones is stored already.
pub fn merge_versions(
    existing: &[CustomResourceDefinitionVersion],
    wanted: &[CustomResourceDefinitionVersion],
) -> Vec<CustomResourceDefinitionVersion> {
    let ours = |name: &str| wanted.iter().any(|version| version.name == name);
    let best = wanted
        .iter()
        .map(|version| version.name.as_str())
        .max_by_key(|name| priority(name));
    let foreign_storage = existing
        .iter()
        .find(|version| version.storage && !ours(&version.name))
        .filter(|version| best.is_some_and(|best| priority(&version.name) > priority(best)))
        .map(|version| version.name.clone());
    let kept = existing
        .iter()
        .filter(|version| !ours(&version.name))
        .cloned()
        .map(|version| {
            let storage = foreign_storage.as_deref() == Some(version.name.as_str());
            CustomResourceDefinitionVersion { storage, ..version }
        });
    let added = wanted.iter().cloned().map(|version| {
        let storage = version.storage && foreign_storage.is_none();
        CustomResourceDefinitionVersion { storage, ..version }
    });
    let mut versions: Vec<_> = kept.chain(added).collect();
    versions.sort_by(|left, right| left.name.cmp(&right.name));
    versions
}

/// Returns the rank of a version in Kubernetes' order: generally available before beta before alpha, then by number.
fn priority(version: &str) -> impl Ord + use<> {
    kube::core::Version::parse(version).priority()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(name: &str, storage: bool) -> CustomResourceDefinitionVersion {
        serde_json::from_value(json!({
            "name": name, "served": true, "storage": storage,
            "schema": {"openAPIV3Schema": {"type": "object"}},
        }))
        .unwrap()
    }

    fn definition(versions: &[CustomResourceDefinitionVersion], revision: Option<u32>) -> CustomResourceDefinition {
        let annotations = revision.map(|number| json!({REVISION_ANNOTATION: number.to_string()}));
        serde_json::from_value(json!({
            "metadata": {"name": "things.example.com", "annotations": annotations},
            "spec": {
                "group": "example.com", "scope": "Cluster", "versions": versions,
                "names": {"kind": "Thing", "plural": "things"},
            },
        }))
        .unwrap()
    }

    #[track_caller]
    fn check(existing: &[(&str, bool)], wanted: &[(&str, bool)], expect: &[(&str, bool)]) {
        let make = |list: &[(&str, bool)]| {
            list.iter()
                .map(|(name, storage)| version(name, *storage))
                .collect::<Vec<_>>()
        };
        let got = merge_versions(&make(existing), &make(wanted));
        let got: Vec<_> = got
            .iter()
            .map(|version| (version.name.as_str(), version.storage))
            .collect();
        assert_eq!(got, expect);
    }

    #[test]
    fn unknown_versions_stay_and_exactly_one_is_stored() {
        let ours = &[("v1alpha2", true)];
        check(&[], ours, &[("v1alpha2", true)]);
        check(&[("v1alpha1", true)], ours, &[("v1alpha1", false), ("v1alpha2", true)]);
        check(
            &[("v1alpha1", false), ("v1alpha2", true)],
            ours,
            &[("v1alpha1", false), ("v1alpha2", true)],
        );
        check(
            &[("v1", true), ("v1alpha2", false)],
            ours,
            &[("v1", true), ("v1alpha2", false)],
        );
    }

    #[test]
    fn an_installed_definition_needs_no_write_and_a_newer_one_gets_none() {
        let wanted = definition(&[version("v1alpha2", true)], None);
        let mut installed = wanted.clone();
        stamp(&mut installed);
        assert_eq!(merge(&installed, &wanted), None);
        assert!(
            merge(&wanted, &wanted).is_some(),
            "without our stamp it may differ in what we cannot see"
        );
        let newer = definition(&[version("v1", true)], Some(REVISION + 1));
        assert_eq!(merge(&newer, &wanted), None);
    }
}
