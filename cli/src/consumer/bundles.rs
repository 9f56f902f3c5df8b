//! Bundles, and who owns what they bind.

use bindery_api::v1alpha2::{API_VERSION, APIServiceBinding, APIServiceBindingBundle};
use bindery_runtime::errors;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::{Api, Resource as _, ResourceExt as _, api::ListParams};

use super::{Consumer, again, credential};
use crate::{
    deploy::{BUNDLES_ROLE, InstalledBundle, secret_ref},
    errors::Failure,
};

impl Consumer {
    /// All bundles of this cluster; none where they are not served.
    pub(crate) async fn bundles(&self) -> Result<Vec<APIServiceBindingBundle>, Failure> {
        self.bundles_where(&ListParams::default(), "list APIServiceBindingBundles")
            .await
    }

    /// One bundle, or none.
    pub(crate) async fn find_bundle(&self, name: &str) -> Result<Option<APIServiceBindingBundle>, Failure> {
        let fields = ListParams::default().fields(&format!("metadata.name={name}"));
        let found = self
            .bundles_where(&fields, &format!("read APIServiceBindingBundle {name}"))
            .await?;
        Ok(found.into_iter().next())
    }

    /// The role that gives the konnector rights on what a binding binds: its own, or that of all bundles.
    pub(crate) async fn role_for(&self, binding: &APIServiceBinding) -> Result<Option<ClusterRole>, Failure> {
        match bundle_of(binding) {
            None => self.role(&binding.name_any()).await,
            Some(_) => self.find(Api::all(self.client()), BUNDLES_ROLE).await,
        }
    }

    /// What stands there of that which a bundle of this name has.
    pub(crate) async fn installed_bundle(
        &self,
        bundle: Option<APIServiceBindingBundle>,
        name: &str,
    ) -> Result<InstalledBundle, Failure> {
        let reference = match &bundle {
            Some(bundle) => bundle.spec.kubeconfig_secret_ref.clone(),
            None => secret_ref(name),
        };
        let secret = self.secret(&reference).await?;
        Ok(InstalledBundle {
            credential: secret.as_ref().and_then(|secret| credential(secret, &reference.key)),
            bundle,
            secret,
        })
    }

    async fn bundles_where(&self, params: &ListParams, doing: &str) -> Result<Vec<APIServiceBindingBundle>, Failure> {
        let bundles = Api::<APIServiceBindingBundle>::all(self.client());
        match again(async || bundles.list(params).await).await {
            Ok(bundles) => Ok(bundles.items),
            Err(error) if errors::is_not_found(&error) => Ok(Vec::new()),
            Err(error) => Err(Failure::cluster(doing)(error)),
        }
    }
}

/// Name and UID of the bundle that made a binding.
pub(crate) fn bundle_of(binding: &APIServiceBinding) -> Option<(&str, &str)> {
    let kind = APIServiceBindingBundle::kind(&());
    let group = API_VERSION.split_once('/').map_or("", |(group, _)| group);
    let owners = binding.owner_references().iter();
    let mut owners = owners.filter(|owner| {
        let of_group = owner.api_version.split_once('/').is_some_and(|(of, _)| of == group);
        owner.kind == kind && of_group && owner.controller == Some(true)
    });
    owners.next().map(|owner| (owner.name.as_str(), owner.uid.as_str()))
}
