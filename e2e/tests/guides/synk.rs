use std::collections::BTreeMap;

use anyhow::Result;
use bindery_e2e::{ControlPlane, guide::Reader, run};

#[test]
fn sets_of_manifests() -> Result<()> {
    run(async {
        let cluster = ControlPlane::start("guide-synk").await?;
        // The page knows of one cluster, by the name of the second.
        let reader = Reader {
            provider: &cluster,
            consumer: &cluster,
            others: Vec::new(),
            given: BTreeMap::new(),
        };
        reader.follow("synk.md").await
    })
}
