//! What the policies on the accounts of server, konnector and contracts admit. Each line of the tables is a dry run in the name of the
//! account. It is sent with all rights, so that what is refused is refused by a policy.

use anyhow::{Context as _, Result, bail, ensure};
use bindery_api::names;
use bindery_e2e::{ControlPlane, eventually, manifests, run};
use http::{Method, Request};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::{Api, Client, api::ListParams};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::world::{A, SOON, case};

const SERVER: &str = "system:serviceaccount:kube-bind:bindery-server";
const KONNECTOR: &str = "system:serviceaccount:kube-bind:konnector";

/// A line of a table.
#[derive(Debug, Deserialize)]
struct Line {
    #[serde(rename = "do")]
    operation: String,
    what: String,
    #[serde(rename = "in", default)]
    namespace: String,
    object: Option<Value>,
    old: Option<Value>,
    /// Who writes, if it is not the account.
    by: Option<String>,
    /// Words of the refusal.
    refused: Option<String>,
    /// Set where a real API server would not get as far as the policy.
    only: Option<String>,
}

/// Where an API server serves a resource: path of its group and version, and kind.
fn served(what: &str) -> Result<(&'static str, &'static str)> {
    const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
    const WEST: &str = "/apis/wildwest.dev/v1alpha1";
    Ok(match what.split('/').next().unwrap_or_default() {
        "roles" => (RBAC, "Role"),
        "rolebindings" => (RBAC, "RoleBinding"),
        "clusterroles" => (RBAC, "ClusterRole"),
        "clusterrolebindings" => (RBAC, "ClusterRoleBinding"),
        "namespaces" => ("/api/v1", "Namespace"),
        "secrets" => ("/api/v1", "Secret"),
        "configmaps" => ("/api/v1", "ConfigMap"),
        "serviceaccounts" if what.ends_with("/token") => ("/api/v1", "TokenRequest"),
        "serviceaccounts" => ("/api/v1", "ServiceAccount"),
        "cowboys" => (WEST, "Cowboy"),
        "sheriffs" => (WEST, "Sheriff"),
        "leases" => ("/apis/coordination.k8s.io/v1", "Lease"),
        "apiservicenamespaces" => ("/apis/kube-bind.io/v1alpha2", "APIServiceNamespace"),
        other => bail!("where is {other} served?"),
    })
}

/// An answer: its status, and its text.
type Answer = (u16, Value);

/// Sends a request of the admin, or in the name of an account.
async fn send(client: &Client, method: Method, path: &str, body: &Value, account: Option<&str>) -> Result<Answer> {
    let mut request = Request::builder().method(method).uri(path);
    request = request.header("content-type", "application/json");
    if let Some(account) = account {
        request = request.header("impersonate-user", account);
        // An account of a contract has its rights by RBAC, for its policy asks which of them may overwrite.
        if !account.ends_with(&format!(":{}", names::KUBE_BINDER)) {
            request = request.header("impersonate-group", "system:masters");
        }
    }
    let sent = client.request::<Value>(request.body(serde_json::to_vec(body)?)?).await;
    match sent {
        Ok(answer) => Ok((200, answer)),
        Err(kube::Error::Api(status)) => Ok((status.code, json!(status.message))),
        Err(error) => Err(error.into()),
    }
}

/// The status with which the policy in this text denies: the one on claimed objects gives no reason.
fn denial_status(text: &str) -> u16 {
    if text.contains("'kube-bind-konnector-claims'") {
        422
    } else {
        403
    }
}

impl Line {
    fn collection(&self) -> Result<String> {
        let base = served(&self.what)?.0;
        let plural = self.what.split('/').next().unwrap_or_default();
        Ok(match self.namespace.as_str() {
            "" => format!("{base}/{plural}"),
            namespace => format!("{base}/namespaces/{namespace}/{plural}"),
        })
    }

    /// An object as the API server takes it.
    fn whole(&self, object: &Value) -> Result<Value> {
        let (base, kind) = served(&self.what)?;
        let mut object = object.clone();
        object["apiVersion"] = match kind {
            "TokenRequest" => json!("authentication.k8s.io/v1"),
            _ => json!(base.trim_start_matches("/apis/").trim_start_matches("/api/")),
        };
        object["kind"] = json!(kind);
        Ok(object)
    }

    /// Makes the object that is there before the write, as the admin, and returns its version.
    async fn prepare(&self, client: &Client, old: &Value) -> Result<Value> {
        let (collection, wanted) = (self.collection()?, self.whole(old)?);
        let made = send(client, Method::POST, &collection, &wanted, None).await?;
        if made.0 == 200 {
            return Ok(made.1["metadata"]["resourceVersion"].clone());
        }
        ensure!(made.0 == 409, "{made:?}");
        let path = format!("{collection}/{}", old["metadata"]["name"].as_str().unwrap_or_default());
        let (_, mut there) = send(client, Method::GET, &path, &Value::Null, None).await?;
        for field in ["labels", "annotations"] {
            there["metadata"][field] = wanted["metadata"][field].clone();
        }
        let put = send(client, Method::PUT, &path, &there, None).await?;
        ensure!(put.0 == 200, "{put:?}");
        Ok(put.1["metadata"]["resourceVersion"].clone())
    }

    async fn run(&self, client: &Client, account: &str) -> Result<()> {
        let version = match &self.old {
            Some(old) => self.prepare(client, old).await.context("the object before")?,
            None => Value::Null,
        };
        let object = self.object.as_ref().or(self.old.as_ref()).context("no object")?;
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let subresource = self.what.split_once('/').map(|(_, subresource)| subresource);
        let mut path = self.collection()?;
        if self.operation != "CREATE" || subresource.is_some() {
            path = format!("{path}/{name}");
        }
        if let Some(subresource) = subresource {
            path = format!("{path}/{subresource}");
        }
        path += "?dryRun=All";
        let (method, mut body) = match self.operation.as_str() {
            "CREATE" => (Method::POST, self.whole(object)?),
            "UPDATE" => (Method::PUT, self.whole(object)?),
            "DELETE" => (
                Method::DELETE,
                json!({"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"]}),
            ),
            other => bail!("what is {other}?"),
        };
        if method == Method::PUT {
            body["metadata"]["resourceVersion"] = version;
        }
        let (status, answer) = send(
            client,
            method,
            &path,
            &body,
            Some(self.by.as_deref().unwrap_or(account)),
        )
        .await?;
        let text = answer.as_str().unwrap_or_default();
        match &self.refused {
            Some(words) => ensure!(
                status == denial_status(text) && text.contains("ValidatingAdmissionPolicy") && text.contains(words),
                "{status} {text}"
            ),
            // What a token is bound to is looked for after admission, and so is what exists already.
            None => ensure!([200, 404, 409].contains(&status), "{status} {text}"),
        }
        Ok(())
    }
}

async fn all(client: &Client, account: &str, table: &str) -> Result<()> {
    let lines: Vec<Line> = serde_saphyr::from_str(table)?;
    let lines = lines.iter().filter(|line| line.only.is_none());
    let (mut count, mut wrong) = (0, Vec::new());
    for line in lines {
        count += 1;
        if let Err(error) = line.run(client, account).await {
            wrong.push(format!("{line:?}: {error:#}"));
        }
    }
    ensure!(count > 15, "only {count} lines");
    ensure!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}

/// Creates the namespaces and accounts of the tables, and waits until both policies are in force.
async fn prepare(client: &Client) -> Result<()> {
    const CONTRACT: &str = "kube-bind.io/contract";
    const COMPONENT: &str = "kube-bind.io/component";
    for (name, labels) in [
        ("kube-bind-a", json!({CONTRACT: "kube-bind-a"})),
        ("kube-bind-ab", json!({CONTRACT: "kube-bind-ab"})),
        ("kube-bind-a-ranch", json!({CONTRACT: "kube-bind-a"})),
        ("misled", json!({CONTRACT: "kube-bind-a"})),
        ("wild-west", json!({"kube-bind.io/shared": "true"})),
        ("not-shared", json!({"kube-bind.io/shared": "false"})),
        ("old-west", json!({COMPONENT: "shared-namespace"})),
        ("componented", json!({COMPONENT: "other"})),
        ("gang", json!({})),
        ("ranch", json!({})),
    ] {
        line("namespaces", "")
            .prepare(client, &json!({"metadata": {"name": name, "labels": labels}}))
            .await?;
    }
    for (namespace, name) in [
        ("kube-bind-a", "kube-binder"),
        ("kube-bind-a", "default"),
        ("kube-system", "kube-binder"),
        ("ranch", "a"),
    ] {
        let line = line("serviceaccounts", namespace);
        line.prepare(client, &json!({"metadata": {"name": name}})).await?;
    }
    let probes = [
        (SERVER, "roles", "kube-bind-server"),
        (KONNECTOR, "secrets", "kube-bind-konnector-account"),
    ];
    for (account, what, policy) in probes {
        let line = Line {
            object: Some(json!({"metadata": {"name": "policy.probe"}})),
            refused: Some(format!("policy.probe is refused by {policy}, revision 1")),
            ..line(what, "kube-bind")
        };
        eventually(format!("policy {policy} to be in force"), SOON, async || {
            Ok(line.run(client, account).await.is_ok().then_some(()))
        })
        .await?;
    }
    Ok(())
}

fn line(what: &str, namespace: &str) -> Line {
    Line {
        operation: "CREATE".to_owned(),
        what: what.to_owned(),
        namespace: namespace.to_owned(),
        object: None,
        old: None,
        by: None,
        refused: None,
        only: None,
    }
}

#[test]
fn the_accounts_write_what_their_tasks_need_and_nothing_else() -> Result<()> {
    case(async |world| {
        world
            .plane
            .apply(&manifests::file("konnector/account-policy.yaml")?)
            .await?;
        let client = world.plane.client();
        prepare(&client).await?;
        all(&client, SERVER, include_str!("server.yaml"))
            .await
            .context("the server")?;
        // Lines of the former may have changed labels of what the latter use.
        prepare(&client).await?;
        all(&client, KONNECTOR, include_str!("konnector.yaml"))
            .await
            .context("the konnector")
    })
}

#[test]
fn a_contract_writes_what_is_its_own_and_nothing_else() -> Result<()> {
    case(async |world| {
        let account = format!("system:serviceaccount:{A}:{}", names::KUBE_BINDER);
        all(&world.plane.client(), &account, include_str!("binder.yaml")).await
    })
}

/// On a cluster of its own, for the table of the konnector's account is not about this policy.
#[test]
fn the_konnector_writes_copies_of_claimed_objects_and_what_it_keeps() -> Result<()> {
    run(async {
        let plane = ControlPlane::start("policy-on-claims").await?;
        plane.apply(&manifests::file("konnector/policy.yaml")?).await?;
        let client = plane.client();
        for name in ["kube-bind", "ranch"] {
            line("namespaces", "")
                .prepare(&client, &json!({"metadata": {"name": name}}))
                .await?;
        }
        let unmarked = Line {
            object: Some(json!({"metadata": {"name": "unmarked"}})),
            refused: Some("copies of the provider that carry its marks".to_owned()),
            ..line("configmaps", "ranch")
        };
        eventually("the policy on claimed objects to be in force", SOON, async || {
            Ok(unmarked.run(&client, KONNECTOR).await.is_ok().then_some(()))
        })
        .await?;
        all(&client, KONNECTOR, include_str!("konnector-claims.yaml")).await
    })
}

/// As `docs/guides/install-with-helm.md` has it: the policy, its proof with the rights of an admin, and then the rights of the account.
#[test]
fn a_policy_is_in_force_before_its_account_has_any_right() -> Result<()> {
    run(async {
        let plane = ControlPlane::start("installed").await?;
        let client = plane.client();
        for (side, account, what) in [("server", SERVER, "roles"), ("konnector", KONNECTOR, "secrets")] {
            plane
                .apply(&manifests::file(&format!("{side}/account-policy.yaml"))?)
                .await?;
            let probe = Line {
                object: Some(json!({"metadata": {"name": "policy.probe"}})),
                refused: Some("policy.probe is refused by kube-bind-".to_owned()),
                ..line(what, "default")
            };
            eventually(format!("the policy on the {side} to be in force"), SOON, async || {
                Ok(probe.run(&client, account).await.is_ok().then_some(()))
            })
            .await?;
            let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
            let all = bindings.list(&ListParams::default()).await?;
            let is_given = all.iter().flat_map(|binding| binding.subjects.iter().flatten());
            let mut of_account = is_given.filter(|subject| subject.namespace.as_deref() == Some("kube-bind"));
            ensure!(of_account.next().is_none(), "{side} has rights already");
        }
        for (side, account) in [("server", "bindery-server"), ("konnector", "konnector")] {
            plane.apply(&manifests::folder(side)?).await?;
            let thief = plane.service_account_client("kube-bind", account).await?;
            let (path, object) = match side {
                "server" => (
                    "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-bind/roles",
                    line("roles", "kube-bind"),
                ),
                _ => ("/api/v1/namespaces/kube-bind/secrets", line("secrets", "kube-bind")),
            };
            let probe = object.whole(&json!({"metadata": {"name": "policy.probe"}}))?;
            // From its first right on, which RBAC notices with a delay, the account meets the policy.
            eventually(format!("the rights of the {side}"), SOON, async || {
                let (status, text) = send(&thief, Method::POST, &format!("{path}?dryRun=All"), &probe, None).await?;
                ensure!(status == 403, "{status} {text}");
                Ok(text
                    .to_string()
                    .contains("policy.probe is refused by kube-bind-")
                    .then_some(()))
            })
            .await?;
        }
        Ok(())
    })
}
