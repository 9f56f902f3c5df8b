//! The command between a real backend and a real konnector: the example with Secrets, from bind to unbind.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{Consumer, Provider, eventually_ok, lease, manifests, offer::Offer, run};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_mins(2);
const TEMPLATE: &str = "cowboys-with-secrets";
const SHERIFFS: &str = "sheriffs";
/// Templates of a collection.
const MEMBERS: [&str; 2] = ["east", "far-east"];
const NAMESPACE: &str = "wild-west";
/// Named by the cowboy of the example.
const NAMED: &str = "colt-45-permit";
/// In the rules of a role that has rights on Secrets.
const RIGHT: &str = r#""resources":["secrets"]"#;
/// With the label that is claimed.
const LABELLED: &str = "cowboy-gang-affiliation";

struct World {
    provider: Provider,
    consumer: Consumer,
    token: std::path::PathBuf,
}

impl World {
    async fn bind(&self, args: &[&str]) -> Result<String> {
        self.consumer.bind(&self.provider, &self.token, args).await
    }

    /// Asks until it is in sync, with a text in its answer.
    async fn until_why(&self, object: &str, says: &str) -> Result<String> {
        eventually_ok(format!("{object}: {says}"), SOON, async || {
            let told = self.bind(&["why", object, "-n", NAMESPACE]).await?;
            ensure!(told.contains(says), "{told}");
            Ok(told)
        })
        .await
    }

    /// Names of the Secrets that came from the consumer.
    async fn copies(&self) -> Result<Vec<String>> {
        let contract = Provider::contract(&self.consumer.identity().await?);
        let namespace = bindery_api::names::provider_namespace(&contract, NAMESPACE);
        let list = [
            "get",
            "secrets",
            "-n",
            &namespace,
            "-l",
            "kube-bind.io/owner=consumer",
            "-o",
            "json",
        ];
        let list: Value = serde_json::from_str(&self.provider.plane.kubectl(&list).await?)?;
        let items = list["items"].as_array().context("items")?;
        let names = items.iter().filter_map(|item| item["metadata"]["name"].as_str());
        Ok(names.map(str::to_owned).collect())
    }

    async fn until_copies(&self, expect: &[&str]) -> Result<()> {
        eventually_ok(format!("copies of {expect:?}"), SOON, async || {
            let copies = self.copies().await?;
            ensure!(copies == expect, "{copies:?}");
            Ok(())
        })
        .await
    }

    /// The rules of the binding's role.
    async fn rules(&self) -> Result<String> {
        let role = format!("kube-bind-konnector-{TEMPLATE}");
        self.consumer
            .plane
            .kubectl(&["get", "clusterrole", &role, "-o", "jsonpath={.rules}"])
            .await
    }
}

#[test]
fn claims_and_why_with_everything_real() -> Result<()> {
    run(async {
        let (provider, consumer) = tokio::try_join!(
            Provider::start_with("whole-provider", &lease::PATIENT),
            Consumer::start_with("whole-consumer", &lease::PATIENT)
        )?;
        provider
            .plane
            .apply(&manifests::folder("examples/cowboys-with-secrets/provider")?)
            .await?;
        provider
            .plane
            .apply(&manifests::folder("examples/sheriffs/provider")?)
            .await?;
        let token = provider
            .principal("wild-west-team", &[TEMPLATE, SHERIFFS, MEMBERS[0], MEMBERS[1]])
            .await?;
        let world = World {
            provider,
            consumer,
            token,
        };
        bound(&world).await?;
        told(&world).await?;
        rejected_and_accepted(&world).await?;
        cluster_scoped(&world).await?;
        a_collection(&world).await?;
        world.bind(&["unbind", TEMPLATE, "--delete-objects"]).await?;
        let left = world
            .consumer
            .plane
            .kubectl(&["get", "secrets", "-n", NAMESPACE, "-o", "name"])
            .await?;
        ensure!(
            left.contains(NAMED) && left.contains(LABELLED),
            "sources are gone: {left}"
        );
        Ok(())
    })
}

async fn bound(world: &World) -> Result<()> {
    let offer = world.bind(&["templates", TEMPLATE]).await?;
    ensure!(
        offer.contains("names at spec.secretRefs.#.name") && offer.contains("labelled app=cowboy"),
        "{offer}"
    );
    world.bind(&[TEMPLATE]).await?;
    ensure!(world.rules().await?.contains(RIGHT));
    let objects = manifests::file("examples/cowboys-with-secrets/consumer/cowboy.yaml")?;
    world.consumer.plane.apply(&objects).await?;
    world.until_copies(&[NAMED, LABELLED]).await
}

async fn told(world: &World) -> Result<()> {
    let told = world
        .until_why("cowboy/billy-the-kid", "✓ it is in sync with its copy")
        .await?;
    ensure!(
        told.contains(&format!("binding {TEMPLATE}, contract kube-bind-")),
        "{told}"
    );
    ensure!(told.contains("written by the konnector"), "{told}");
    let named = world
        .until_why(&format!("secret/{NAMED}"), "✓ it is in sync with its copy")
        .await?;
    ensure!(
        named.contains("because cowboys.wildwest.dev wild-west/billy-the-kid names it"),
        "{named}"
    );
    let labelled = world
        .until_why(&format!("secret/{LABELLED}"), "✓ it is in sync with its copy")
        .await?;
    ensure!(labelled.contains("by its labels"), "{labelled}");
    Ok(())
}

async fn rejected_and_accepted(world: &World) -> Result<()> {
    let claims = world.bind(&["claims", TEMPLATE]).await?;
    ensure!(
        claims.contains("in effect") && claims.contains("labelled app=cowboy"),
        "{claims}"
    );
    let rejected = world.bind(&["claims", TEMPLATE, "--reject", "secrets"]).await?;
    ensure!(rejected.contains("rejected"), "{rejected}");
    // The command comes back when all is withdrawn, and the right with it.
    ensure!(world.copies().await?.is_empty(), "{:?}", world.copies().await?);
    ensure!(!world.rules().await?.contains(RIGHT));
    let told = world.until_why(&format!("secret/{NAMED}"), "rejects the claim").await?;
    ensure!(told.contains("nothing of it is read or written"), "{told}");
    world.bind(&["claims", TEMPLATE, "--accept", "secrets"]).await?;
    world.until_copies(&[NAMED, LABELLED]).await
}

async fn cluster_scoped(world: &World) -> Result<()> {
    let offer = world.bind(&["templates", SHERIFFS]).await?;
    ensure!(offer.contains("as CONTRACT-NAME"), "{offer}");
    let binding: Value = serde_json::from_str(&world.bind(&[SHERIFFS, "-o", "json"]).await?)?;
    let bound = &binding["status"]["boundSchemas"][0]["resource"];
    ensure!(
        bound == "sheriffs",
        "ready, and nothing is bound: {}",
        binding["status"]
    );
    let objects = manifests::file("examples/sheriffs/consumer/sheriff.yaml")?;
    world.consumer.plane.apply(&objects).await?;
    let told = world
        .until_why("sheriff/wyatt-earp", "✓ it is in sync with its copy")
        .await?;
    let contract = Provider::contract(&world.consumer.identity().await?);
    ensure!(told.contains(&format!("there: {contract}-wyatt-earp")), "{told}");
    let secret = world
        .until_why("secret/sheriff-badge-credentials", "✓ it is in sync with its copy")
        .await?;
    ensure!(
        secret.contains("because sheriffs.wildwest.dev wyatt-earp names it"),
        "{secret}"
    );
    world.bind(&["unbind", SHERIFFS, "--delete-objects"]).await.map(drop)
}

/// A collection is bound with one command, each template by a binding of its own.
async fn a_collection(world: &World) -> Result<()> {
    let collection = |name: &str, members: &[&str]| {
        let members: Vec<_> = members.iter().map(|member| json!({"name": member})).collect();
        json!({
            "apiVersion": "kube-bind.io/v1alpha2", "kind": "Collection", "metadata": {"name": name},
            "spec": {"templates": members},
        })
    };
    for member in MEMBERS {
        Offer::new(member).publish(&world.provider).await?;
    }
    // One has the name of a template.
    for (name, members) in [("orient", &MEMBERS[..]), (MEMBERS[0], &MEMBERS[..1])] {
        world
            .provider
            .plane
            .apply(&collection(name, members).to_string())
            .await?;
    }
    let refused = async |args: &[&str], says: &str| {
        let error = world
            .bind(args)
            .await
            .err()
            .with_context(|| format!("{args:?} succeeded"))?;
        ensure!(format!("{error:#}").contains(says), "{error:#}");
        anyhow::Ok(())
    };
    eventually_ok("the collection to be shown", SOON, async || {
        let listed = world.bind(&["collections", "-o", "name"]).await?;
        ensure!(listed.contains("collection.kube-bind.io/orient"), "{listed}");
        ensure!(listed.contains("collection.kube-bind.io/east"), "{listed}");
        Ok(())
    })
    .await?;
    refused(&["orient", "--name", "x"], "leave out --name").await?;
    refused(&["orient", "--kind", "template"], "template orient").await?;
    refused(
        &["orient", "--reject-claim", "gadgets.example.com"],
        "gadgets.example.com",
    )
    .await?;
    refused(&["east"], "east is both a template and a collection").await?;
    let manifests = world.bind(&["orient", "--dry-run", "-o", "json"]).await?;
    let manifests: Value = serde_json::from_str(&manifests)?;
    let shown = manifests["items"].as_array().context("items")?.iter();
    let bindings = shown.filter(|item| item["kind"] == "APIServiceBinding");
    let names: Vec<_> = bindings.map(|item| &item["metadata"]["name"]).collect();
    ensure!(names == MEMBERS, "{manifests}");
    let existing = world.bind(&["status", "-o", "name"]).await?;
    ensure!(!existing.contains("east"), "a dry run bound: {existing}");

    let bound: Value = serde_json::from_str(&world.bind(&["orient", "-o", "json"]).await?)?;
    let items = bound["items"].as_array().context("items")?;
    let names: Vec<_> = items.iter().map(|item| &item["metadata"]["name"]).collect();
    ensure!(bound["kind"] == "List" && names == MEMBERS, "{bound}");
    let is_ready = |item: &Value| {
        let conditions = item["status"]["conditions"].as_array();
        conditions.is_some_and(|all| all.iter().any(|it| it["type"] == "Ready" && it["status"] == "True"))
    };
    ensure!(items.iter().all(is_ready), "{bound}");
    // Again, and one of them by its own name, changes nothing.
    world.bind(&["orient"]).await?;
    world.bind(&["east", "--kind", "template"]).await?;
    for member in MEMBERS {
        world.bind(&["unbind", member, "--delete-objects"]).await?;
    }
    Ok(())
}
