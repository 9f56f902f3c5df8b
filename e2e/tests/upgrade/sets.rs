//! A set of synk, applied by the former version and continued by the present one.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{ControlPlane, former, process::Programs, wildwest};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, ResourceExt as _, api::ListParams};

use crate::world::output;

const NAMESPACE: &str = "shop";

struct Shop {
    plane: ControlPlane,
}

pub(crate) async fn check() -> Result<()> {
    let former = tokio::task::spawn_blocking(former::locate).await??;
    let present = Programs::default();
    let shop = Shop {
        plane: ControlPlane::start("upgrade-synk").await?,
    };
    wildwest::namespace(shop.plane.client(), NAMESPACE).await?;
    shop.synk(&former, &["init"], &[]).await?;
    shop.apply(&former, &["door", "window", "roof"], "red").await?;
    shop.apply(&former, &["door", "window"], "blue").await?;
    let before = shop.versions().await?;
    ensure!(before.len() == 2, "the former version pruned otherwise: {before:?}");

    shop.synk(&present, &["init"], &[]).await?;
    shop.apply(&present, &["door", "window"], "blue").await?;
    ensure!(shop.versions().await? == before, "an unchanged set was written");
    let sets = shop.plane.kubectl(&["get", "resourcesets", "-o", "name"]).await?;
    ensure!(
        sets.trim().ends_with("/shop.v2"),
        "an unchanged set has a new version: {sets}"
    );

    shop.apply(&present, &["door"], "blue").await?;
    ensure!(shop.versions().await?.len() == 1, "what left the set was not deleted");
    shop.synk(&present, &["rollback", "shop.v1"], &[]).await?;
    let back = shop.versions().await?;
    ensure!(
        back.len() == 3,
        "the former version's history was not applied: {back:?}"
    );
    shop.synk(&present, &["delete", "shop"], &[]).await?;
    ensure!(shop.versions().await?.is_empty(), "the set is still there");
    Ok(())
}

// === impl Shop ===

impl Shop {
    /// Applies ConfigMaps of these names as set `shop`.
    async fn apply(&self, programs: &Programs, names: &[&str], color: &str) -> Result<()> {
        let documents: Vec<_> = names
            .iter()
            .map(|name| {
                format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{color: {color}}}\n")
            })
            .collect();
        let path = self.plane.workdir().write("shop.yaml", documents.join("---\n"))?;
        let path = path.to_str().context("a path in UTF-8")?;
        self.synk(programs, &["apply", "shop", "-n", NAMESPACE], &["-f", path])
            .await
    }

    async fn synk(&self, programs: &Programs, args: &[&str], more: &[&str]) -> Result<()> {
        let mut command: Command = programs.command("synk")?;
        command
            .env("KUBECONFIG", self.plane.kubeconfig_path())
            .args(args)
            .args(more);
        output(command).await.map(drop)
    }

    /// Names and resource versions of the ConfigMaps of the set.
    async fn versions(&self) -> Result<Vec<(String, Option<String>)>> {
        let maps: Api<ConfigMap> = Api::namespaced(self.plane.client(), NAMESPACE);
        let mut maps = maps.list(&ListParams::default()).await?.items;
        maps.retain(|map| map.name_any() != "kube-root-ca.crt");
        Ok(maps
            .iter()
            .map(|map| (map.name_any(), map.resource_version()))
            .collect())
    }
}
