//! Reads exports from the backend's stream and from Kubernetes into one type.

use std::{str::FromStr, sync::Arc};

use bindery_api::{
    names::{GroupName, InvalidName, NamespaceName, PluralName, VersionName, quoted},
    v1alpha2::{
        APIServiceExport, APIServiceExportSpec, APIServiceExportStatus, ConflictPolicy, GroupResource, InformerScope,
        Isolation,
    },
};
use bindery_proto::v1alpha2 as proto;
use bindery_sdk::objects;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use super::ExportEntry;

/// The end of messages about an export that cannot be read.
const NEWER: &str = "its version may be newer than this konnector's";
/// What is wrong with an export that has no resources.
const NO_RESOURCES: &str = "without resources";

/// An export as Kubernetes stores it, with a spec and status that may be unknown to this konnector.
#[derive(Clone, Debug, Default, Deserialize, Resource)]
#[resource(inherit = APIServiceExport)]
pub(crate) struct AnyExport {
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    spec: Value,
    #[serde(default)]
    status: Value,
}

/// Reads an export from Kubernetes.
pub(crate) fn from_object(export: &AnyExport) -> ExportEntry {
    match usable(export) {
        Ok(whole) => ExportEntry::Whole(Arc::new(whole)),
        Err(fault) => {
            let name = export.metadata.name.as_deref().unwrap_or_default();
            ExportEntry::Broken {
                uid: export.metadata.uid.clone().unwrap_or_default(),
                message: format!("APIServiceExport {name} cannot be read: {fault}; {NEWER}"),
            }
        }
    }
}

/// Returns the entry of an export whose metadata cannot be read either.
pub(crate) fn unreadable(name: &str) -> ExportEntry {
    ExportEntry::Broken {
        uid: String::new(),
        message: format!("APIServiceExport {name} cannot be read; {NEWER}"),
    }
}

/// Reads spec and status of an export. Fails if they hold values that this konnector does not know.
fn usable(export: &AnyExport) -> Result<APIServiceExport, String> {
    fn read<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
        T::deserialize(value).map_err(|error| error.to_string())
    }
    let spec: APIServiceExportSpec = read(&export.spec)?;
    if spec.resources.is_empty() {
        return Err(NO_RESOURCES.to_owned());
    }
    check_names(&spec)?;
    Ok(APIServiceExport {
        metadata: export.metadata.clone(),
        spec,
        status: read(&export.status)?,
    })
}

/// Reads an export from the backend's stream. Returns its name too.
pub(crate) fn from_stream(export: proto::Export) -> (String, ExportEntry) {
    let meta = export.metadata.unwrap_or_default();
    let (name, uid) = (meta.name.clone(), meta.uid.clone());
    let read = spec(export.spec.unwrap_or_default()).map_err(str::to_owned);
    let entry = match read.and_then(|spec| check_names(&spec).map(|()| spec)) {
        Ok(spec) => {
            let status = export.status.unwrap_or_default();
            let mut whole = APIServiceExport::new(&name, spec);
            whole.metadata = objects::metadata(Some(meta));
            whole.status = Some(APIServiceExportStatus {
                conditions: status.conditions.into_iter().map(objects::condition).collect(),
            });
            ExportEntry::Whole(Arc::new(whole))
        }
        Err(fault) => ExportEntry::Broken {
            uid,
            message: format!("the backend sent export {name} {fault}; {NEWER}"),
        },
    };
    (name, entry)
}

/// Checks the names in a spec, which become parts of paths. Fails with the first that is not valid.
fn check_names(spec: &APIServiceExportSpec) -> Result<(), String> {
    let resources = spec.resources.iter();
    for resource in resources {
        check_resource(&resource.group_resource)?;
        for version in &resource.versions {
            check::<VersionName>("version", version)?;
        }
    }
    for claim in &spec.permission_claims {
        check_resource(&claim.group_resource)?;
        for reference in &claim.selector.references {
            check_resource(&reference.group_resource)?;
            for version in &reference.versions {
                check::<VersionName>("version", version)?;
            }
        }
    }
    match spec.cluster_scoped_namespace.as_deref() {
        None | Some("") => Ok(()),
        Some(namespace) => check::<NamespaceName>("namespace", namespace),
    }
}

fn check_resource(resource: &GroupResource) -> Result<(), String> {
    if !resource.is_core() {
        check::<GroupName>("group", &resource.group)?;
    }
    check::<PluralName>("resource", &resource.resource)
}

/// Checks one name of an export.
fn check<N: FromStr<Err = InvalidName>>(what: &str, name: &str) -> Result<(), String> {
    match name.parse::<N>() {
        Ok(_) => Ok(()),
        Err(invalid) => Err(format!("with {what} {}, which {invalid}", quoted(name))),
    }
}

/// Reads the spec of a streamed export. Fails if it holds values that this konnector does not know.
fn spec(spec: proto::ExportSpec) -> Result<APIServiceExportSpec, &'static str> {
    // An unknown value must never be read as the most permissive one.
    let isolation = proto::Isolation::try_from(spec.isolation)
        .ok()
        .and_then(proto::Isolation::as_crd_str);
    let isolation = isolation
        .and_then(Isolation::from_name)
        .ok_or("without a known isolation")?;
    let scope = proto::Scope::try_from(spec.informer_scope)
        .ok()
        .and_then(proto::Scope::as_crd_str);
    let informer_scope = scope
        .and_then(InformerScope::from_name)
        .ok_or("without a known informer scope")?;
    let policy =
        proto::ConflictPolicy::try_from(spec.conflict_policy).map_err(|_| "with an unknown conflict policy")?;
    if spec.resources.is_empty() {
        return Err(NO_RESOURCES);
    }
    let retention = spec
        .retention
        .map(|sent| (!sent.suspend.is_empty(), objects::retention(sent)));
    if matches!(&retention, Some((true, read)) if read.suspend.is_none()) {
        return Err("with an unreadable retention");
    }
    Ok(APIServiceExportSpec {
        resources: spec.resources.into_iter().map(objects::resource).collect(),
        permission_claims: spec.permission_claims.into_iter().map(objects::claim).collect(),
        informer_scope,
        isolation,
        cluster_scoped_isolation: None,
        conflict_policy: policy.as_crd_str().and_then(ConflictPolicy::from_name),
        cluster_scoped_namespace: Some(spec.cluster_scoped_namespace).filter(|namespace| !namespace.is_empty()),
        retention: retention.map(|(_, retention)| retention),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sent() -> proto::Export {
        proto::Export {
            metadata: Some(proto::ObjectMeta {
                name: "cowboys".to_owned(),
                namespace: "kube-bind-x".to_owned(),
                uid: "1".to_owned(),
                resource_version: "7".to_owned(),
                ..proto::ObjectMeta::default()
            }),
            spec: Some(proto::ExportSpec {
                resources: vec![proto::Resource {
                    group: "wildwest.dev".to_owned(),
                    resource: "cowboys".to_owned(),
                    versions: vec!["v1alpha1".to_owned()],
                }],
                informer_scope: proto::Scope::Namespaced.into(),
                isolation: proto::Isolation::Prefixed.into(),
                ..proto::ExportSpec::default()
            }),
            ..proto::Export::default()
        }
    }

    #[test]
    fn a_streamed_export_reads_as_in_kubernetes() {
        let (name, ExportEntry::Whole(export)) = from_stream(sent()) else {
            panic!("it is broken");
        };
        assert_eq!(name, "cowboys");
        assert_eq!(export.metadata.uid.as_deref(), Some("1"));
        assert_eq!(export.metadata.resource_version.as_deref(), Some("7"));
        assert!(export.metadata.deletion_timestamp.is_none());
        assert_eq!(export.spec.isolation, Isolation::Prefixed);
        assert_eq!(
            export.spec.resources[0].group_resource.to_string(),
            "cowboys.wildwest.dev"
        );
    }

    #[track_caller]
    fn check_broken(damage: impl FnOnce(&mut proto::ExportSpec), says: &str) {
        let mut sent = sent();
        damage(sent.spec.as_mut().unwrap());
        let (_, ExportEntry::Broken { message, .. }) = from_stream(sent) else {
            panic!("it was taken");
        };
        assert!(message.contains(says), "{message}");
    }

    #[test]
    fn unknown_values_are_refused() {
        check_broken(|spec| spec.isolation = 0, "isolation");
        check_broken(|spec| spec.isolation = 99, "isolation");
        check_broken(|spec| spec.informer_scope = 0, "informer scope");
        check_broken(|spec| spec.conflict_policy = 99, "conflict policy");
        check_broken(|spec| spec.resources.clear(), "resources");
        check_broken(|spec| spec.resources[0].group = "a/b".to_owned(), r#"group "a/b""#);
        check_broken(
            |spec| spec.resources[0].resource = "x?y=".to_owned(),
            r#"resource "x?y=""#,
        );
        check_broken(
            |spec| spec.resources[0].versions[0] = "v1\u{1b}[2J".to_owned(),
            r#"version "v1\u{1b}[2J""#,
        );
        check_broken(
            |spec| spec.cluster_scoped_namespace = "..".to_owned(),
            r#"namespace "..""#,
        );
        check_broken(
            |spec| {
                spec.retention = Some(proto::Retention {
                    duration: "72h".to_owned(),
                    suspend: "{".into(),
                });
            },
            "retention",
        );
    }

    fn stored() -> Value {
        json!({
            "metadata": {"name": "cowboys", "namespace": "kube-bind-x", "uid": "1", "resourceVersion": "7"},
            "spec": {
                "resources": [{"group": "wildwest.dev", "resource": "cowboys", "versions": ["v1alpha1"]}],
                "informerScope": "Namespaced", "isolation": "Prefixed",
            },
        })
    }

    #[test]
    fn both_sources_read_the_same() {
        let ExportEntry::Whole(object) = from_object(&serde_json::from_value(stored()).unwrap()) else {
            panic!("it is broken");
        };
        let (_, ExportEntry::Whole(streamed)) = from_stream(sent()) else {
            panic!("it is broken");
        };
        assert_eq!(object.spec, streamed.spec);
        assert_eq!(object.metadata, streamed.metadata);
    }

    #[test]
    fn an_unreadable_export_counts_as_existing() {
        let check = |at: &str, value: Value, says: &str| {
            let mut stored = stored();
            *stored.pointer_mut(at).unwrap() = value;
            let ExportEntry::Broken { uid, message } = from_object(&serde_json::from_value(stored).unwrap()) else {
                panic!("it was taken");
            };
            assert_eq!(uid, "1");
            assert!(message.contains("cowboys") && message.contains(says), "{message}");
        };
        check("/spec/isolation", json!("Mirrored"), "Mirrored");
        check("/spec/informerScope", json!("Galaxy"), "Galaxy");
        check("/spec/resources", json!([]), "without resources");
        check("/spec/resources/0/group", json!("a/../b"), "a/../b");
        check("/spec", json!(7), "cannot be read");
        check("/spec", Value::Null, "cannot be read");
    }
}
