//! A program on a consumer cluster calls the provider with a token that its own cluster signed: no secret is shared, and the
//! provider never connects to that cluster.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use bindery_e2e::{ControlPlane, Provider, eventually_ok, http};
use bindery_proto::v1alpha2::{ErrorReason, ListTemplatesRequest, authentication_method::Method};
use bindery_sdk::{Client, Error};
use serde_json::json;

/// A changed file is noticed within ten seconds.
const NOTICED: Duration = Duration::from_secs(40);
const USERNAME: &str = "consumer-a:system:serviceaccount:default:bot";

/// A consumer cluster, and the files with which a provider trusts it.
struct Consumer {
    plane: ControlPlane,
    config: PathBuf,
    keys: PathBuf,
}

impl Consumer {
    async fn start() -> Result<Self> {
        let plane = ControlPlane::start_bare("headless-consumer").await?;
        plane
            .kubectl(&["create", "serviceaccount", "bot", "-n", "default"])
            .await?;
        let keys = plane.kubectl(&["get", "--raw", "/openid/v1/jwks"]).await?;
        let keys = plane.workdir().write("consumer-a.json", keys)?;
        let config = plane.workdir().write("issuers.yaml", "")?;
        Ok(Self { plane, config, keys })
    }

    /// The issuer of the cluster's ServiceAccounts.
    fn issuer(&self) -> String {
        self.plane.server_url()
    }

    fn trust(&self, issuer: &str, audience: &str) -> Result<()> {
        let config = json!({
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
            "jwt": [{
                "issuer": {"url": issuer, "audiences": [audience]},
                "claimMappings": {"username": {"claim": "sub", "prefix": "consumer-a:"}},
            }],
        });
        Ok(std::fs::write(&self.config, config.to_string())?)
    }

    async fn client(&self, provider: &Provider) -> Result<Client> {
        let token = self
            .plane
            .token_for("default", "bot", &[&provider.address()], 3600)
            .await?;
        let builder = Client::builder(provider.address()).ca_pem(provider.plane.ca_pem());
        Ok(builder.token(token).build()?)
    }
}

async fn templates(client: &Client) -> Result<Vec<String>, Error> {
    let templates = client.list_templates(ListTemplatesRequest::default()).await?;
    let names = templates.into_iter().filter_map(|template| template.metadata);
    Ok(names.map(|metadata| metadata.name).collect())
}

fn reason<T>(outcome: Result<T, Error>) -> Result<ErrorReason> {
    match outcome {
        Ok(_) => bail!("the call is not refused"),
        Err(Error::Status(error)) => error.reason.with_context(|| format!("no reason: {error}")),
        Err(error) => Err(error.into()),
    }
}

#[tokio::test]
async fn a_service_account_of_another_cluster_calls_with_keys_that_the_provider_was_given() -> Result<()> {
    let consumer = Consumer::start().await?;
    consumer.trust(&consumer.issuer(), "https://elsewhere.example.com")?;
    let flags = [
        format!("--authentication-config={}", consumer.config.display()),
        format!("--issuer-keys={}={}", consumer.issuer(), consumer.keys.display()),
        // As a Pod's name is, by the environment.
        "--lease-identity=bindery-server-0".to_owned(),
    ];
    let mut provider = Provider::start_with("headless", &flags.each_ref().map(String::as_str)).await?;
    let client = consumer.client(&provider).await?;
    ensure!(reason(templates(&client).await)? == ErrorReason::TokenAudienceWrong);

    consumer.trust(&consumer.issuer(), &provider.address())?;
    eventually_ok("the changed file to take effect", NOTICED, async || {
        let found = templates(&client).await?;
        ensure!(found.is_empty(), "nothing is granted yet, and {found:?} is listed");
        Ok(())
    })
    .await?;
    let methods = client.get_provider().await?.authentication_methods;
    let issuers = methods.into_iter().find_map(|method| match method.method {
        Some(Method::ServiceAccount(accounts)) => Some(accounts.issuers),
        _ => None,
    });
    ensure!(issuers == Some(vec![consumer.issuer()]), "{issuers:?}");

    let group = "rbac.authorization.k8s.io";
    let grant = json!({"apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": {"name": "bot"},
            "rules": [{
                "apiGroups": ["kube-bind.io"], "resources": ["apiserviceexporttemplates"], "resourceNames": ["cowboys"],
                "verbs": ["bind"],
            }],
        },
        {
            "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "bot"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "bot"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": USERNAME}],
        },
    ]});
    provider.plane.apply(&grant.to_string()).await?;
    eventually_ok("the grant to take effect", NOTICED, async || {
        let found = templates(&client).await?;
        ensure!(found == ["cowboys"], "{found:?}");
        Ok(())
    })
    .await?;

    std::fs::write(&consumer.config, "nonsense: [")?;
    eventually_ok("the broken file to be refused", NOTICED, async || {
        let metrics = http::get(provider.admin_port(), "/metrics").await?.1;
        ensure!(
            metrics.contains(r#"bindery_oidc_config_loads_total{outcome="failed"}"#),
            "{metrics}"
        );
        Ok(())
    })
    .await?;
    ensure!(templates(&client).await? == ["cowboys"], "the former file stays in use");
    eventually_ok("an Event about the server's Pod", NOTICED, async || {
        let list = ["get", "events.events.k8s.io", "-n", "kube-bind", "-o", "yaml"];
        let events = provider.plane.kubectl(&list).await?;
        let is_told = events.contains("AuthenticationConfigRefused") && events.contains("name: bindery-server-0");
        ensure!(is_told, "{events}");
        Ok(())
    })
    .await?;

    consumer.trust(&provider.plane.server_url(), &provider.address())?;
    eventually_ok("the provider's own issuer to be refused", NOTICED, async || {
        let log = provider.servers[0].log();
        ensure!(
            log.contains("is the issuer of the provider's own ServiceAccounts"),
            "{log}"
        );
        Ok(())
    })
    .await?;
    let refused = provider.refused_server().await?;
    ensure!(refused.contains("jwt[0].issuer.url"), "{refused}");

    provider.set_flag("--authentication-config", "/dev/null");
    let refused = provider.refused_server().await?;
    ensure!(
        refused.contains("AuthenticationConfiguration") || refused.contains("apiVersion"),
        "{refused}"
    );
    Ok(())
}
