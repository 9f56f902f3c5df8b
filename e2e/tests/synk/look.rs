//! What is on the cluster.

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{eventually_ok, remains::COLLECTED};
use serde_json::{Value, json};

use crate::case::Case;

const SETS: &str = "/apis/apps.cloudrobotics.com/v1alpha1/resourcesets";

/// The path of a collection. `resource` is a plural with its `group/version/` before it, or of the core group.
pub(crate) fn path(resource: &str, namespace: Option<&str>) -> String {
    let (api, plural) = match resource.rsplit_once('/') {
        Some((api, plural)) => (format!("/apis/{api}"), plural),
        None => ("/api/v1".to_owned(), resource),
    };
    match namespace {
        Some(namespace) => format!("{api}/namespaces/{namespace}/{plural}"),
        None => format!("{api}/{plural}"),
    }
}

impl Case {
    /// What a path of the API has, as admin.
    pub(crate) async fn read(&self, path: &str) -> Result<Option<Value>> {
        let request = http::Request::get(path).body(Vec::new())?;
        match self.plane.client().request(request).await {
            Ok(value) => Ok(Some(value)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(error).context(path.to_owned()),
        }
    }

    /// An object in the case's namespace, such as `apps/v1/deployments` and `web`; `None` if it is not there.
    pub(crate) async fn find(&self, resource: &str, name: &str) -> Result<Option<Value>> {
        self.read(&format!("{}/{name}", path(resource, Some(self.name)))).await
    }

    /// As [`Case::find`]; it must be there.
    pub(crate) async fn get(&self, resource: &str, name: &str) -> Result<Value> {
        let found = self.find(resource, name).await?;
        found.with_context(|| format!("{resource} {name} is not there"))
    }

    /// A cluster-scoped object; `None` if it is not there.
    pub(crate) async fn find_global(&self, resource: &str, name: &str) -> Result<Option<Value>> {
        self.read(&format!("{}/{name}", path(resource, None))).await
    }

    /// The ResourceSets of the case's set, the oldest first.
    pub(crate) async fn sets(&self) -> Result<Vec<Value>> {
        self.sets_of(self.name).await
    }

    /// The ResourceSets of a set, the oldest first.
    pub(crate) async fn sets_of(&self, set: &str) -> Result<Vec<Value>> {
        let list = self.read(&format!("{SETS}?labelSelector=name%3D{set}")).await?;
        let list = list.context("ResourceSets are not served")?;
        let mut sets = list["items"].as_array().cloned().unwrap_or_default();
        sets.sort_by_key(|set| number(set).unwrap_or_default());
        Ok(sets)
    }

    /// The numbers of the versions that there are.
    pub(crate) async fn versions(&self) -> Result<Vec<u64>> {
        self.sets().await?.iter().map(number).collect()
    }

    /// The one version that there is, which must be this one and settled.
    pub(crate) async fn settled(&self, version: u64) -> Result<Value> {
        let mut sets = self.sets().await?;
        let numbers: Vec<_> = sets.iter().map(number).collect::<Result<_>>()?;
        ensure!(numbers == [version], "versions {numbers:?} instead of {version}");
        let set = sets.remove(0);
        ensure!(set["status"]["phase"] == "Settled", "not settled: {:#}", set["status"]);
        Ok(set)
    }

    /// As [`Case::settled`], once what was deleted is gone.
    pub(crate) async fn settles(&self, version: u64) -> Result<Value> {
        eventually_ok(format_args!("version {version} alone"), COLLECTED, || {
            self.settled(version)
        })
        .await
    }

    /// That this version alone is there and settled, and that all it lists is there and owned by it alone. CRDs are not
    /// owned. Returns how many objects it lists.
    pub(crate) async fn whole(&self, version: u64) -> Result<usize> {
        let set = self.settles(version).await?;
        let objects = listed(&set);
        for (path, is_crd) in &objects {
            let object = self.read(path).await?.with_context(|| format!("{path} is not there"))?;
            ensure!(
                object["metadata"]["deletionTimestamp"].is_null(),
                "{path} is being deleted"
            );
            let owners = &object["metadata"]["ownerReferences"];
            let expect = if *is_crd { Value::Null } else { json!([owner(&set)]) };
            ensure!(*owners == expect, "{path} is owned by {owners}, not {expect}");
        }
        let applied = objects_in(&set["status"]["applied"]).len();
        ensure!(
            applied == objects.len(),
            "{applied} of {} objects are in the status",
            objects.len()
        );
        Ok(objects.len())
    }

    /// Waits until an object of the case's namespace is gone.
    pub(crate) async fn gone(&self, resource: &str, name: &str) -> Result<()> {
        self.gone_from(&format!("{}/{name}", path(resource, Some(self.name))))
            .await
    }

    /// Waits until nothing is at a path.
    pub(crate) async fn gone_from(&self, path: &str) -> Result<()> {
        eventually_ok(format_args!("{path} to be gone"), COLLECTED, async || {
            ensure!(self.read(path).await?.is_none(), "it is there");
            Ok(())
        })
        .await
    }

    /// Waits until of these paths and of the set nothing is left: no version, no history, no Lease.
    pub(crate) async fn nothing_left(&self, paths: &[String]) -> Result<()> {
        for path in paths {
            self.gone_from(path).await?;
        }
        eventually_ok("the set to be gone", COLLECTED, async || {
            let versions = self.versions().await?;
            ensure!(versions.is_empty(), "versions {versions:?} are left");
            for resource in ["secrets", "coordination.k8s.io/v1/leases"] {
                let list = self.read(&path(resource, Some(self.name))).await?.unwrap_or_default();
                let names: Vec<_> = items(&list).map(|item| item["metadata"]["name"].as_str()).collect();
                let prefix = format!("synk-{}", self.name);
                let own = |name: Option<&str>| name.is_some_and(|name| name.starts_with(&prefix));
                ensure!(!names.iter().any(|name| own(*name)), "{resource} {names:?} are left");
            }
            Ok(())
        })
        .await
    }
}

/// The number of a version.
pub(crate) fn number(set: &Value) -> Result<u64> {
    let name = set["metadata"]["name"].as_str().unwrap_or_default();
    let number = name.rsplit_once(".v").and_then(|(_, number)| number.parse().ok());
    number.with_context(|| format!("{name:?} is no version"))
}

/// The owner reference to a ResourceSet.
pub(crate) fn owner(set: &Value) -> Value {
    json!({
        "apiVersion": "apps.cloudrobotics.com/v1alpha1", "kind": "ResourceSet", "name": set["metadata"]["name"],
        "uid": set["metadata"]["uid"], "blockOwnerDeletion": true,
    })
}

/// The paths of all that a ResourceSet lists, and which are CRDs.
pub(crate) fn listed(set: &Value) -> Vec<(String, bool)> {
    objects_in(&set["spec"]["resources"])
        .iter()
        .map(|object| (object_path(object), object["kind"] == "CustomResourceDefinition"))
        .collect()
}

/// The objects of groups as a ResourceSet has them, each with its group, version and kind.
pub(crate) fn objects_in(groups: &Value) -> Vec<Value> {
    let each = |group: &Value| {
        let gvk = ["group", "version", "kind"].map(|key| (key.to_owned(), group[key].clone()));
        let items = group["items"].as_array().cloned().unwrap_or_default();
        items.into_iter().map(move |mut item| {
            if let Some(item) = item.as_object_mut() {
                item.extend(gvk.clone());
            }
            item
        })
    };
    groups.as_array().into_iter().flatten().flat_map(each).collect()
}

/// Where an object is that a ResourceSet lists.
fn object_path(object: &Value) -> String {
    let text = |key: &str| object[key].as_str().unwrap_or_default();
    let kind = text("kind").to_lowercase();
    let plural = match kind.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if kind.ends_with('s') => format!("{kind}es"),
        None => format!("{kind}s"),
    };
    let resource = match text("group") {
        "" => plural,
        group => format!("{group}/{}/{plural}", text("version")),
    };
    format!("{}/{}", path(&resource, object["namespace"].as_str()), text("name"))
}

/// The items of a list.
pub(crate) fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list["items"].as_array().into_iter().flatten()
}
