//! A case: a team with a namespace of its own on the provider, whose ServiceAccount makes requests as Argo would.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, ensure};
use bindery_api::v1alpha2::{APIServiceExport, BindableResourcesRequest, Phase};
use bindery_e2e::{NAMESPACE, Provider, eventually_ok, offer::Offer, process, wildwest::SOON};
use k8s_openapi::{api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::Condition};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::world::{World, with_world};

const KUBECTL: Duration = Duration::from_mins(2);
/// A template that nobody made, although the teams may bind it.
pub(crate) const GHOST: &str = "ghost";

/// A team, whose name is also that of its namespace and of the API that it may offer.
pub(crate) struct Case<'a> {
    pub(crate) provider: &'a Provider,
    pub(crate) name: &'static str,
    /// Acts as the team's ServiceAccount.
    pub(crate) kubeconfig: PathBuf,
    /// The same.
    pub(crate) client: Client,
}

/// Runs a case, in whose namespace the server may write its responses.
pub(crate) fn case(
    name: &'static str,
    body: impl AsyncFnOnce(&'static World, &Case<'static>) -> Result<()>,
) -> Result<()> {
    with_world(async |world| {
        let case = Case::settle(&world.provider, name).await?;
        case.let_the_server_respond().await?;
        body(world, &case).await.with_context(|| format!("case {name}"))
    })
}

/// As [`case`], where nobody has let the server write a response.
pub(crate) fn case_without_responses(
    name: &'static str,
    body: impl AsyncFnOnce(&'static World, &Case<'static>) -> Result<()>,
) -> Result<()> {
    with_world(async |world| {
        let case = Case::settle(&world.provider, name).await?;
        body(world, &case).await.with_context(|| format!("case {name}"))
    })
}

// === impl Case ===

impl<'a> Case<'a> {
    /// Makes the namespace and the ServiceAccount, which may bind `cowboys`, its own API and a template that is not there,
    /// and write requests and read Secrets in its namespace. It may do nothing else.
    pub(crate) async fn settle(provider: &'a Provider, name: &'static str) -> Result<Self> {
        provider.principal(name, &["cowboys", name, GHOST]).await?;
        let rules = json!([
            {
                "apiGroups": ["kube-bind.io"], "resources": ["bindableresourcesrequests"],
                "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
            },
            {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]},
        ]);
        let subject = json!([{"kind": "ServiceAccount", "namespace": name, "name": "binder"}]);
        provider
            .plane
            .apply(&role(name, "requests", &rules, &subject).to_string())
            .await?;
        Self::again(provider, name).await
    }

    /// A case that has been settled already.
    pub(crate) async fn again(provider: &'a Provider, name: &'static str) -> Result<Self> {
        Ok(Self {
            provider,
            name,
            kubeconfig: provider.plane.service_account_kubeconfig(name, "binder").await?,
            client: provider.plane.service_account_client(name, "binder").await?,
        })
    }

    /// Lets the server write responses into the team's namespace, as an admin of it may.
    pub(crate) async fn let_the_server_respond(&self) -> Result<()> {
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "bindery-server-responses", "namespace": self.name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "bindery-server-responses"},
            "subjects": [{"kind": "ServiceAccount", "namespace": NAMESPACE, "name": "bindery-server"}],
        });
        self.provider.plane.apply(&binding.to_string()).await
    }

    /// Offers an API of the team's name, ready to be bound.
    pub(crate) async fn offer(&self) -> Result<Offer> {
        let offer = Offer::new(self.name);
        offer.publish(self.provider).await?;
        Ok(offer)
    }

    /// Username of the ServiceAccount.
    pub(crate) fn author(&self) -> String {
        format!("system:serviceaccount:{}:binder", self.name)
    }

    /// Identity of a consumer cluster of the case's own.
    pub(crate) fn identity(&self) -> String {
        format!("cluster-of-{}", self.name)
    }

    /// The contract namespace for that identity.
    pub(crate) fn contract(&self) -> String {
        Provider::contract(&self.identity())
    }

    /// A request of the team's, for a template of that name and under it.
    pub(crate) fn request(&self, template: &str) -> Value {
        json!({
            "apiVersion": "kube-bind.io/v1alpha2", "kind": "BindableResourcesRequest",
            "metadata": {"name": template, "namespace": self.name},
            "spec": {
                "templateRef": {"name": template},
                "clusterIdentity": {"identity": self.identity(), "prettyName": "Ranch"},
                "author": self.author(),
            },
        })
    }

    /// `kubectl ARGS` as the ServiceAccount.
    pub(crate) async fn kubectl(&self, args: &[&str], input: &str) -> Result<String> {
        let mut command = self.provider.plane.kubectl_command(&self.kubeconfig);
        command.args(args);
        let output = process::run_with_input(command, input.as_bytes().to_vec(), KUBECTL).await?;
        process::stdout(&output).with_context(|| format!("kubectl {}", args.join(" ")))
    }

    /// Applies a manifest as the ServiceAccount.
    pub(crate) async fn apply(&self, manifest: &Value) -> Result<()> {
        self.kubectl(&["apply", "--filename=-"], &manifest.to_string())
            .await
            .map(drop)
    }

    /// Calls the server as the ServiceAccount.
    pub(crate) async fn caller(&self) -> Result<bindery_sdk::Client> {
        let token = std::fs::read_to_string(self.provider.token_file(self.name).await?)?;
        let builder = bindery_sdk::Client::builder(self.provider.address()).ca_pem(self.provider.plane.ca_pem());
        Ok(builder.token(token).build()?)
    }

    /// The team's requests, as admin.
    pub(crate) fn requests(&self) -> Api<BindableResourcesRequest> {
        Api::namespaced(self.provider.plane.client(), self.name)
    }

    /// The Secrets of the team's namespace, as admin.
    pub(crate) fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.provider.plane.client(), self.name)
    }

    /// The exports of the contract.
    pub(crate) fn exports(&self) -> Api<APIServiceExport> {
        Api::namespaced(self.provider.plane.client(), &self.contract())
    }

    /// Waits until a request is there with its condition for this reason, in words that say all of `says`.
    pub(crate) async fn comes_to(
        &self,
        name: &str,
        phase: Phase,
        reason: &str,
        says: &[&str],
    ) -> Result<BindableResourcesRequest> {
        eventually_ok(format!("request {name} to be {phase:?}, {reason}"), SOON, async || {
            let request = self.requests().get(name).await?;
            let status = request.status.as_ref().context("no status yet")?;
            let ready = ready(&request)?;
            ensure!(ready.reason == reason, "{status:?}");
            ensure!(status.phase == phase, "{status:?}");
            ensure!((ready.status == "True") == (reason == SUCCEEDED), "{status:?}");
            ensure!(ready.observed_generation == request.metadata.generation, "{status:?}");
            ensure!(
                status.completion_time.is_some() == (phase != Phase::Pending),
                "{status:?}"
            );
            for words in says {
                ensure!(ready.message.contains(words), "no {words:?} in {:?}", ready.message);
            }
            Ok(request)
        })
        .await
    }

    /// Waits until a request has succeeded.
    pub(crate) async fn succeeds(&self, name: &str) -> Result<BindableResourcesRequest> {
        self.comes_to(name, Phase::Succeeded, SUCCEEDED, &[]).await
    }
}

/// Reason of a request that is done.
pub(crate) const SUCCEEDED: &str = "SecretReady";

/// Name of the Secret of a request that names none.
pub(crate) fn default_secret(request: &str) -> String {
    format!("{request}-binding-response")
}

/// The condition that sums a request up.
pub(crate) fn ready(request: &BindableResourcesRequest) -> Result<&Condition> {
    let mut conditions = request.status.iter().flat_map(|status| &status.conditions);
    conditions
        .find(|condition| condition.type_ == "Ready")
        .context("no condition Ready")
}

/// A Role and its RoleBinding.
pub(crate) fn role(namespace: &str, name: &str, rules: &Value, subjects: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": name, "namespace": namespace}, "rules": rules,
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": name, "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}, "subjects": subjects,
        },
    ]})
}
