//! An export as the backend's stream has it, made into the one that Kubernetes has.

use std::sync::Arc;

use bindery_api::v1alpha2::{
    APIServiceExport, APIServiceExportSpec, APIServiceExportStatus, ConflictPolicy, InformerScope, Isolation,
};
use bindery_proto::v1alpha2 as proto;
use bindery_sdk::objects;

use super::Entry;

/// Name of the export and what it says.
pub(crate) fn export(export: proto::Export) -> (String, Entry) {
    let meta = export.metadata.unwrap_or_default();
    let (name, uid) = (meta.name.clone(), meta.uid.clone());
    let entry = match spec(export.spec.unwrap_or_default()) {
        Ok(spec) => {
            let status = export.status.unwrap_or_default();
            let mut whole = APIServiceExport::new(&name, spec);
            whole.metadata = objects::metadata(Some(meta));
            whole.status = Some(APIServiceExportStatus {
                conditions: status.conditions.into_iter().map(objects::condition).collect(),
            });
            Entry::Whole(Arc::new(whole))
        }
        Err(fault) => Entry::Broken {
            uid,
            message: format!("the backend sent export {name} {fault}; its version may be newer than this konnector's"),
        },
    };
    (name, entry)
}

fn spec(spec: proto::ExportSpec) -> Result<APIServiceExportSpec, &'static str> {
    // A value that is not known must never be read as the most open one.
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
        return Err("without resources");
    }
    Ok(APIServiceExportSpec {
        resources: spec.resources.into_iter().map(objects::resource).collect(),
        permission_claims: spec.permission_claims.into_iter().map(objects::claim).collect(),
        informer_scope,
        isolation,
        cluster_scoped_isolation: None,
        conflict_policy: policy.as_crd_str().and_then(ConflictPolicy::from_name),
        cluster_scoped_namespace: None,
    })
}

#[cfg(test)]
mod tests {
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
    fn a_whole_one_reads_as_in_kubernetes() {
        let (name, Entry::Whole(export)) = export(sent()) else {
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
        let (_, Entry::Broken { message, .. }) = export(sent) else {
            panic!("it was taken");
        };
        assert!(message.contains(says), "{message}");
    }

    #[test]
    fn what_is_not_known_is_not_guessed() {
        check_broken(|spec| spec.isolation = 0, "isolation");
        check_broken(|spec| spec.isolation = 99, "isolation");
        check_broken(|spec| spec.informer_scope = 0, "informer scope");
        check_broken(|spec| spec.conflict_policy = 99, "conflict policy");
        check_broken(|spec| spec.resources.clear(), "resources");
    }
}
