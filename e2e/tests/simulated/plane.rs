//! The real control plane, with what both begin with.

use std::sync::Arc;

use anyhow::Result;
use bindery_e2e::{ControlPlane, manifests as deployed};
use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use serde_json::{Value, json};

use crate::{
    sides::real::{Admin, Real},
    start,
};

/// The files of `deploy/` that both begin with.
const FILES: [&str; 5] = [
    "examples/cowboys/provider/crd.yaml",
    "examples/sheriffs/provider/crd.yaml",
    "server/policy.yaml",
    "server/requests-policy.yaml",
    "konnector/policy.yaml",
];

#[derive(Debug)]
pub(crate) struct Plane(ControlPlane);

/// Starts a control plane. Its controllers start anew once the definitions are there, since the garbage collector seldom looks for
/// new kinds.
pub(crate) async fn start() -> Result<Plane> {
    let plane = Plane(Box::pin(ControlPlane::start_for_pods("simulated")).await?);
    let real = Real::new(Arc::new(plane.admin()?), start::users().into());
    start::fill_real(&real, &manifests()?).await?;
    start::is_ready(&real).await?;
    // As the in-memory API server, which forgets the past when it is filled.
    plane.0.compact().await?;
    plane.0.restart_controller_manager()?;
    Ok(plane)
}

impl Plane {
    pub(crate) fn admin(&self) -> Result<Admin> {
        let mut nobody = kube::Config::new(self.url().parse()?);
        let certificate = CertificateDer::from_pem_slice(self.0.ca_pem().as_bytes())?;
        nobody.root_cert = Some(vec![certificate.to_vec()]);
        Ok(Admin {
            client: self.0.client(),
            anonymous: kube::Client::try_from(nobody)?,
        })
    }

    /// The URL of the API server.
    pub(crate) fn url(&self) -> String {
        self.0.server_url()
    }
}

/// The objects that both begin with.
pub(crate) fn manifests() -> Result<Vec<Value>> {
    let mut objects = vec![json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-bind"}})];
    objects.extend(deployed::documents(&deployed::folder("crds")?)?);
    for file in FILES {
        objects.extend(deployed::documents(&deployed::file(file)?)?);
    }
    objects.extend(deployed::documents(include_str!("setup/gadgets.yaml"))?);
    objects.extend(deployed::documents(include_str!("setup/rights.yaml"))?);
    Ok(objects)
}
