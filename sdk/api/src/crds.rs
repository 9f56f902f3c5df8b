//! The CRDs of this API, as objects to install and as files to ship.

use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

use crate::v1alpha2::{
    APIServiceBinding, APIServiceBindingBundle, APIServiceExport, APIServiceExportRequest, APIServiceExportTemplate,
    APIServiceNamespace, BindableResourcesRequest, BoundSchema, Cluster, ClusterBinding, Collection, GROUP,
};

mod structural;

/// Returns all CRDs, sorted by name.
pub fn all() -> Vec<CustomResourceDefinition> {
    let mut crds = for_consumer();
    crds.extend(for_provider());
    crds.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    crds
}

/// Returns the CRDs that the konnector installs on a consumer. Their schemas are made once in a process.
pub fn for_consumer() -> Vec<CustomResourceDefinition> {
    static CRDS: LazyLock<Vec<CustomResourceDefinition>> = LazyLock::new(|| {
        [APIServiceBinding::crd(), APIServiceBindingBundle::crd()]
            .map(structural::finish)
            .into()
    });
    CRDS.clone()
}

/// Returns the CRDs that the server installs on its provider. Their schemas are made once in a process.
pub fn for_provider() -> Vec<CustomResourceDefinition> {
    static CRDS: LazyLock<Vec<CustomResourceDefinition>> = LazyLock::new(|| {
        [
            APIServiceExport::crd(),
            APIServiceExportRequest::crd(),
            APIServiceExportTemplate::crd(),
            APIServiceNamespace::crd(),
            BindableResourcesRequest::crd(),
            BoundSchema::crd(),
            Cluster::crd(),
            ClusterBinding::crd(),
            Collection::crd(),
        ]
        .map(structural::finish)
        .into()
    });
    CRDS.clone()
}

/// Returns the file name, `kube-bind.io_<plural>.yaml`, and the content of each CRD.
pub fn yaml_files() -> Result<Vec<(String, String)>, serde_saphyr::ser::Error> {
    all()
        .iter()
        .map(|crd| {
            let name = format!("{GROUP}_{}.yaml", crd.spec.names.plural);
            Ok((name, serde_saphyr::to_string(crd)?))
        })
        .collect()
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod wire;
