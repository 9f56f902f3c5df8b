use anyhow::{Context as _, Result, ensure};
use bindery_api::v1alpha2::APIServiceBinding;
use bindery_e2e::{ControlPlane, eventually, remains::COLLECTED, run};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Api, ResourceExt as _, api::PostParams};

use crate::world::World;

#[test]
fn from_interactive_bindings_to_bundles() -> Result<()> {
    run(async {
        let world = World::start("guide-hand").await?;
        world.follow("from-interactive-to-bundles.md", world.given()).await?;
        nobody_collects(&world.consumer, "cowboys-with-secrets").await
    })
}

/// The garbage collector learns of new kinds late. It has seen all of them when it deleted what has an owner that never was.
async fn nobody_collects(consumer: &ControlPlane, handed_back: &str) -> Result<()> {
    let bindings = Api::<APIServiceBinding>::all(consumer.client());
    let spec = bindings.get(handed_back).await?.spec;
    let mut probe = APIServiceBinding::new("owned-by-nobody", spec);
    probe.owner_references_mut().push(OwnerReference {
        api_version: "kube-bind.io/v1alpha2".to_owned(),
        kind: "APIServiceBindingBundle".to_owned(),
        name: "nobody".to_owned(),
        uid: "00000000-0000-4000-8000-000000000000".to_owned(),
        ..OwnerReference::default()
    });
    bindings.create(&PostParams::default(), &probe).await?;
    let collected = async || Ok(bindings.get_opt(&probe.name_any()).await?.is_none().then_some(()));
    eventually("the garbage collector to know bindings", COLLECTED, collected).await?;
    let binding = bindings.get_opt(handed_back).await?.context("it was collected")?;
    ensure!(binding.metadata.deletion_timestamp.is_none(), "it is being collected");
    Ok(())
}
