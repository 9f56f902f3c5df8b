//! What follows when a policy is gone while programs run: the konnector tells it, and the server gives no new right that relies on it,
//! and takes rights back where the operator wants that.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, ensure};
use bindery_api::{
    Conditions as _, names,
    v1alpha2::{APIServiceExport, APIServiceExportTemplate},
};
use bindery_e2e::{Consumer, Provider, call::wish, eventually_ok, holds_for, http, lease, manifests, run};
use bindery_sdk::Client;
use k8s_openapi::api::{
    events::v1::Event,
    rbac::v1::{ClusterRole, ClusterRoleBinding},
};
use kube::{Api, ResourceExt as _, api::ListParams};

use crate::world::SOON;

const TEMPLATE: &str = "sheriffs";
/// The policies on the konnector's account.
const OF_KONNECTOR: [&str; 3] = [
    "kube-bind-konnector",
    "kube-bind-konnector-account",
    "kube-bind-konnector-claims",
];
const BINDING: [&str; 2] = ["validatingadmissionpolicybinding", "kube-bind-binder"];

/// A provider that offers sheriffs under prefixed names, and somebody who may bind them.
struct Watched {
    provider: Provider,
    client: Client,
}

// === impl Watched ===

impl Watched {
    async fn start(name: &str, flags: &[&str]) -> Result<Self> {
        let flags = [&lease::PATIENT[..], flags].concat();
        let provider = Provider::start_with(name, &flags).await?;
        provider
            .plane
            .apply(&manifests::folder("examples/sheriffs/provider")?)
            .await?;
        let token: PathBuf = provider.principal("watching", &[TEMPLATE]).await?;
        let builder = Client::builder(provider.address()).ca_pem(provider.plane.ca_pem());
        let client = builder.token(std::fs::read_to_string(token)?).build()?;
        let watched = Self { provider, client };
        let templates: Api<APIServiceExportTemplate> = Api::all(watched.provider.plane.client());
        eventually_ok("the template to be ready", SOON, async || {
            let found = templates.get(TEMPLATE).await?;
            ensure!(found.is_condition_true("Ready"), "{:?}", found.conditions());
            Ok(())
        })
        .await?;
        Ok(watched)
    }

    /// Binds for a consumer, and returns the name of its contract.
    async fn bind(&self, identity: &str) -> Result<String> {
        self.client
            .bind_by_request(wish(TEMPLATE, TEMPLATE, identity), SOON, |_| ())
            .await?;
        Ok(Provider::contract(identity))
    }

    /// Waits until the export says this about the policy. An empty reason is that of a policy in force.
    async fn says(&self, contract: &str, condition: &str, reason: &str) -> Result<()> {
        let exports: Api<APIServiceExport> = Api::namespaced(self.provider.plane.client(), contract);
        eventually_ok(format!("{condition} to be {reason:?}"), SOON, async || {
            let export = exports.get(TEMPLATE).await?;
            let said = export.condition(condition).context("no condition")?;
            ensure!(said.reason == reason && said.is_true() == reason.is_empty(), "{said:?}");
            Ok(())
        })
        .await
    }

    /// UIDs of the export's ClusterRole and of its binding, as far as they are there.
    async fn rights(&self, contract: &str) -> Result<(Option<String>, Option<String>)> {
        let name = names::resources_cluster_role(contract, TEMPLATE);
        let client = self.provider.plane.client();
        let role = Api::<ClusterRole>::all(client.clone()).get_opt(&name).await?;
        let binding = Api::<ClusterRoleBinding>::all(client).get_opt(&name).await?;
        Ok((
            role.and_then(|role| role.uid()),
            binding.and_then(|binding| binding.uid()),
        ))
    }

    /// Waits until the metric has a value.
    async fn shows(&self, value: &str) -> Result<()> {
        shows(self.provider.admin_port(), "kube-bind-binder", value).await
    }

    /// Waits for an event on the ClusterBinding of a contract.
    async fn tells(&self, contract: &str, kind: &str, reason: &str) -> Result<()> {
        let events: Api<Event> = Api::namespaced(self.provider.plane.client(), contract);
        eventually_ok(format!("event {reason}"), SOON, async || {
            let all = events.list(&ListParams::default()).await?;
            let is_it = |event: &Event| {
                event.reason.as_deref() == Some(reason)
                    && event.type_.as_deref() == Some(kind)
                    && event.regarding.as_ref().and_then(|about| about.kind.as_deref()) == Some("ClusterBinding")
            };
            ensure!(all.iter().any(is_it), "{:?}", all.items);
            Ok(())
        })
        .await
    }

    async fn remove_policy(&self) -> Result<()> {
        self.provider
            .plane
            .kubectl(&[&["delete"][..], &BINDING[..]].concat())
            .await?;
        Ok(())
    }

    async fn apply_policy(&self) -> Result<()> {
        self.provider.plane.apply(&manifests::file("server/policy.yaml")?).await
    }
}

/// Waits until the metric of a process says this of a policy.
async fn shows(admin: u16, policy: &str, value: &str) -> Result<()> {
    let sample = format!("bindery_policy_in_force{{policy=\"{policy}\"}} {value}");
    eventually_ok(sample.clone(), SOON, async || {
        let (_, page) = http::get(admin, "/metrics").await?;
        ensure!(page.lines().any(|line| line == sample), "{page}");
        Ok(())
    })
    .await
}

#[test]
fn a_konnector_tells_that_a_policy_on_its_account_is_gone() -> Result<()> {
    run(async {
        let flags = [&lease::PATIENT[..], &["--account-policies=kube-bind-konnector"]].concat();
        let consumer = Consumer::start_with("policy-konnector", &flags).await?;
        let admin = consumer.admin_port();
        for policy in OF_KONNECTOR {
            shows(admin, policy, "1").await?;
        }
        for policy in OF_KONNECTOR {
            let delete = ["delete", "validatingadmissionpolicybinding", policy];
            consumer.plane.kubectl(&delete).await?;
            shows(admin, policy, "0").await?;
        }
        for file in ["konnector/account-policy.yaml", "konnector/policy.yaml"] {
            consumer.plane.apply(&manifests::file(file)?).await?;
        }
        for policy in OF_KONNECTOR {
            shows(admin, policy, "1").await?;
        }
        Ok(())
    })
}

#[test]
fn a_policy_that_is_gone_is_told_and_nothing_new_is_given() -> Result<()> {
    run(async {
        // Whatever the time, nothing is taken back without the flag.
        let watched = Watched::start("policy-gone", &["--policy-grace-period=1s"]).await?;
        let first = watched.bind("first-cluster").await?;
        let given = watched.rights(&first).await?;
        ensure!(given.0.is_some() && given.1.is_some(), "{given:?}");
        watched.shows("1").await?;

        watched.remove_policy().await?;
        watched.says(&first, "PolicyInForce", "AdmissionPolicyMissing").await?;
        watched.shows("0").await?;
        watched.tells(&first, "Warning", "AdmissionPolicyMissing").await?;
        let mut asked = wish(TEMPLATE, TEMPLATE, "second-cluster");
        asked.wait = Some(prost_types::Duration { seconds: 1, nanos: 0 });
        watched.client.create_bindable_resources_request(asked).await?;
        let second = Provider::contract("second-cluster");
        watched
            .says(&second, "ProviderInSync", "AdmissionPolicyMissing")
            .await?;
        holds_for("what was given stays", Duration::from_secs(20), async || {
            let (now, new) = tokio::try_join!(watched.rights(&first), watched.rights(&second))?;
            ensure!(now == given, "{given:?} became {now:?}");
            ensure!(new == (None, None), "given all the same: {new:?}");
            Ok(())
        })
        .await?;

        watched.apply_policy().await?;
        watched.says(&first, "PolicyInForce", "").await?;
        watched.tells(&first, "Normal", "PolicyInForce").await?;
        watched.shows("1").await?;
        watched.bind("second-cluster").await?;
        let new = watched.rights(&second).await?;
        ensure!(new.0.is_some() && new.1.is_some(), "{new:?}");
        ensure!(watched.rights(&first).await? == given);
        Ok(())
    })
}

#[test]
fn rights_that_rely_on_a_policy_that_is_gone_are_taken_back_until_it_is_there_again() -> Result<()> {
    run(async {
        let flags = ["--withdraw-without-policy", "--policy-grace-period=5s"];
        let watched = Watched::start("policy-back", &flags).await?;
        let contract = watched.bind("first-cluster").await?;
        let given = watched.rights(&contract).await?;
        watched.shows("1").await?;

        an_api_server_that_does_not_answer_takes_nothing_back(&watched, &contract).await?;

        watched.remove_policy().await?;
        eventually_ok("the rights to be taken back", SOON, async || {
            let rights = watched.rights(&contract).await?;
            ensure!(rights == (None, None), "{rights:?}");
            Ok(())
        })
        .await?;
        watched
            .says(&contract, "ProviderInSync", "AdmissionPolicyMissing")
            .await?;
        watched
            .says(&contract, "PolicyInForce", "AdmissionPolicyMissing")
            .await?;
        watched.shows("0").await?;

        watched.apply_policy().await?;
        eventually_ok("the rights to be given again", SOON, async || {
            let rights = watched.rights(&contract).await?;
            ensure!(rights.0.is_some() && rights.1.is_some(), "{rights:?}");
            ensure!(rights != given, "they were never taken back");
            Ok(())
        })
        .await?;
        watched.says(&contract, "ProviderInSync", "").await?;
        watched.says(&contract, "PolicyInForce", "").await?;
        watched.shows("1").await
    })
}

/// A change of the policy has the server probe it, while the API server stands still for longer than a probe may take.
async fn an_api_server_that_does_not_answer_takes_nothing_back(watched: &Watched, contract: &str) -> Result<()> {
    let given = watched.rights(contract).await?;
    let plane = &watched.provider.plane;
    let patch = r#"{"spec": {"validationActions": ["Deny", "Audit"]}}"#;
    plane
        .kubectl(&[&["patch"][..], &BINDING[..], &["--type=merge", "--patch", patch]].concat())
        .await?;
    plane.pause_api_server()?;
    tokio::time::sleep(Duration::from_secs(30)).await;
    plane.resume_api_server()?;
    holds_for("what was given stays", Duration::from_secs(10), async || {
        let now = watched.rights(contract).await?;
        ensure!(now == given, "{given:?} became {now:?}");
        let exports: Api<APIServiceExport> = Api::namespaced(plane.client(), contract);
        let export = exports.get(TEMPLATE).await?;
        ensure!(export.condition("PolicyInForce").is_none(), "{:?}", export.conditions());
        Ok(())
    })
    .await?;
    watched.shows("1").await?;
    watched.apply_policy().await
}
