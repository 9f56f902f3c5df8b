//! All manifests of a consumer are applied in reverse order, again and again as tools for GitOps do: it converges by itself.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{
    ControlPlane, Kubelet,
    bundle::{Bundle, rights},
    eventually_ok, manifests,
    offer::Offer,
    wildwest::SOON,
};
use kube::{Api, api::DynamicObject};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::world::case;

const OFFER: Offer = Offer { name: "ord-api" };
/// Between two tries of what could not be applied.
const PAUSE: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_mins(2);

pub(crate) async fn manifests_in_reverse_order_converge() -> Result<()> {
    case("order", async |case| {
        let plane = ControlPlane::start_for_pods("bundles-order").await?;
        let contract = case.contract(&case.world.q, &[OFFER]).await?;
        let credential = contract.export(OFFER).await?;
        let bundle = Bundle::new(plane.client(), "order");
        let mut all = manifests::documents(&manifests::folder("konnector")?)?;
        all.push(rights("kube-bind-konnector-bundles", &[(&OFFER.group(), "widgets")]));
        all.push(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "order", "namespace": "kube-bind"},
            "stringData": {"kubeconfig": credential.yaml()?},
        }));
        all.push(bundle.manifest(&json!({})));
        all.push(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "order"}}));
        let mut widget = serde_json::to_value(OFFER.widget("one", "red"))?;
        widget["metadata"]["namespace"] = json!("order");
        all.push(widget);
        all.reverse();

        let converges = async {
            apply_all(&plane, all).await?;
            bundle.binds(&[OFFER.name]).await?;
            let copies = contract.copies(OFFER, "order");
            eventually_ok("the object's copy", SOON, async || {
                let copy = copies.get("one").await?;
                ensure!(copy.data["spec"]["color"] == "red", "{copy:?}");
                Ok(())
            })
            .await?;
            let ours: Api<DynamicObject> = Api::namespaced_with(plane.client(), "order", &OFFER.resource());
            ours.get("one").await.context("the object")?;
            Ok(())
        };
        let kubelet = Kubelet::new(&plane).reaching(case.world.q.reachable());
        kubelet.during(converges).await
    })
    .await
}

/// One after the other, and those that failed once more, until all are applied.
async fn apply_all(plane: &ControlPlane, mut left: Vec<Value>) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    loop {
        let mut failed = Vec::new();
        let mut last = None;
        for document in left {
            if let Err(error) = plane.apply(&document.to_string()).await {
                last = Some(error);
                failed.push(document);
            }
        }
        let Some(error) = last else {
            return Ok(());
        };
        ensure!(Instant::now() < end, "{} are left: {error:#}", failed.len());
        left = failed;
        sleep(PAUSE).await;
    }
}
