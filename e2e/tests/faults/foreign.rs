//! What is none of ours, on both clusters, and must stay as it is.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use bindery_api::annotations;
use bindery_e2e::{
    Provider,
    wildwest::{self, cowboy},
};
use kube::{
    Api, ResourceExt as _,
    api::{DynamicObject, ListParams, PostParams},
};
use serde_json::json;

/// A namespace of the provider that no consumer has.
const NAMESPACE: &str = "foreign";

/// Objects of others beside ours, with the versions that they must keep.
pub(super) struct Foreign {
    api: Api<DynamicObject>,
    versions: BTreeMap<String, Option<String>>,
}

impl Foreign {
    /// Puts objects where no consumer has a namespace: one of nobody, one of another contract, and one that only says that
    /// it is a copy of this contract's.
    pub(super) async fn plant(provider: &Provider, contract: &str) -> Result<Self> {
        wildwest::namespace(provider.plane.client(), NAMESPACE).await?;
        let api: Api<DynamicObject> = Api::namespaced_with(provider.plane.client(), NAMESPACE, &wildwest::resource());
        for (name, marks) in [
            ("nobodys", json!({})),
            (
                "others",
                json!({annotations::CLUSTER_NAMESPACE: "kube-bind-other", annotations::CONSUMER_UID: "u"}),
            ),
            (
                "forged",
                json!({annotations::CLUSTER_NAMESPACE: contract, annotations::CONSUMER_UID: "u"}),
            ),
        ] {
            let mut object = cowboy(name, &json!({"intent": "stay"}));
            object.metadata.annotations = Some(serde_json::from_value(marks)?);
            api.create(&PostParams::default(), &object).await?;
        }
        let versions = versions(&api).await?;
        Ok(Self { api, versions })
    }

    /// Nobody wrote to them.
    pub(super) async fn is_untouched(&self) -> Result<()> {
        let now = versions(&self.api).await?;
        ensure!(
            now == self.versions,
            "foreign objects were touched: {now:?}, not {:?}",
            self.versions
        );
        Ok(())
    }
}

async fn versions(api: &Api<DynamicObject>) -> Result<BTreeMap<String, Option<String>>> {
    let objects = api.list(&ListParams::default()).await?.items;
    Ok(objects
        .into_iter()
        .map(|object| (object.name_any(), object.resource_version()))
        .collect())
}
