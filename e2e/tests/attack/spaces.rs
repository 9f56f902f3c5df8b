//! Namespaces: what a consumer may do in its own, and that it gets no other by asking for one.

use anyhow::{Context as _, Result, ensure};
use bindery_api::{
    annotations,
    v1alpha2::{APIServiceNamespace, APIServiceNamespaceSpec},
};
use bindery_e2e::{NAMESPACE, eventually, wildwest::SOON};
use http::Method;
use kube::{Api, api::PostParams};
use serde_json::{Value, json};

use crate::{
    attempt::{self, Attempt, Expect},
    kubernetes::rules_are_the_table,
    offers::COMMON,
    tenant::{RANCH, Tenant},
    world::{Scope, attack},
};

/// Secrets that would become somebody else's token.
fn token_secrets(namespace: &str, mark: &str) -> Vec<Attempt> {
    let secrets = format!("/api/v1/namespaces/{namespace}/secrets");
    let mut attempts = Vec::new();
    let mut send = |method: Method, path: String, content_type: &'static str, secret: Value, expect: Expect| {
        let mut attempt = Attempt::new(method, path, expect);
        attempt.body = Some((content_type, secret));
        attempts.push(attempt);
    };
    let types = [
        ("Opaque", Expect::Own),
        ("kubernetes.io/service-account-token", Expect::Policy),
        ("bootstrap.kubernetes.io/token", Expect::Policy),
    ];
    for (type_, expect) in types {
        let secret = |metadata: Value| {
            let mut metadata = metadata;
            metadata["annotations"] = json!({
                "kubernetes.io/service-account.name": "default", annotations::CLUSTER_NAMESPACE: mark,
            });
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": type_})
        };
        let create = format!("{secrets}?dryRun=All");
        send(
            Method::POST,
            create.clone(),
            "application/json",
            secret(json!({"name": "loot"})),
            expect,
        );
        send(
            Method::POST,
            create,
            "application/json",
            secret(json!({"generateName": "loot-"})),
            expect,
        );
        let apply = format!("{secrets}/loot?dryRun=All&fieldManager=joe&force=true");
        send(
            Method::PATCH,
            apply,
            "application/apply-patch+yaml",
            secret(json!({"name": "loot"})),
            expect,
        );
    }
    attempts
}

#[test]
fn a_claim_on_secrets_makes_no_token() -> Result<()> {
    attack(Scope::Namespaced, async |world| {
        for namespace in [&*world.joe.space, RANCH] {
            attempt::all(&world.joe.client, &token_secrets(namespace, &world.joe.contract)).await?;
        }
        Ok(())
    })
}

#[test]
fn no_namespace_is_got_by_asking() -> Result<()> {
    attack(Scope::Namespaced, async |world| {
        let tex = Tenant::settle(&world.provider, "tex", &COMMON).await?;
        let zorro = &world.zorro;
        let inner = zorro
            .space
            .strip_prefix(&format!("{}-", zorro.contract))
            .context("a prefix")?;
        let wanted = [
            "kube-system",
            "kube-public",
            "kube-node-lease",
            "default",
            NAMESPACE,
            "zorro-gang",
            &zorro.contract,
            &zorro.space,
            inner,
        ];
        let asked: Api<APIServiceNamespace> = Api::namespaced(tex.client.clone(), &tex.contract);
        for name in wanted.iter().filter(|name| **name != RANCH) {
            let namespace = APIServiceNamespace::new(name, APIServiceNamespaceSpec {});
            asked
                .create(&PostParams::default(), &namespace)
                .await
                .with_context(|| format!("asks for {name}"))?;
        }
        for name in wanted {
            let status = settled(&asked, name).await?;
            let given = status.namespace.context("no namespace")?;
            ensure!(given.starts_with(&format!("{}-", tex.contract)), "{name} is {given}");
            if name != RANCH {
                ensure!(status.shared_namespace.is_none(), "{name} is shared");
            }
        }
        for namespace in [&zorro.contract, &zorro.space]
            .map(String::as_str)
            .into_iter()
            .chain(wanted)
        {
            if namespace != RANCH {
                rules_are_the_table(world, &tex, namespace).await?;
            }
        }
        Ok(())
    })
}

/// What the server said last of a namespace that was asked for.
async fn settled(
    asked: &Api<APIServiceNamespace>,
    name: &str,
) -> Result<bindery_api::v1alpha2::APIServiceNamespaceStatus> {
    eventually(format!("an answer to the wish for {name}"), SOON, || async {
        let status = asked.get(name).await?.status;
        Ok(status.filter(|status| status.namespace.is_some() && !status.conditions.is_empty()))
    })
    .await
}
