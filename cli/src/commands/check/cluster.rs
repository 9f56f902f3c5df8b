//! One cluster: its clients, its version and its clock.

use std::time::Duration;

use bindery_runtime::client::{self, Clients};
use http::{Request, header::DATE};
use jiff::{Timestamp, fmt::rfc2822};
use kube::{Client, Config, client::Body};
use serde::Deserialize;

use super::read::{self, unread};
use crate::{
    args::KubeContext,
    check::facts::{ApiFacts, ClusterFacts, Fact, Unread},
    errors::Failure,
};

/// Idle connections that are kept open: as many as there are reviews of rights at a time.
pub(super) const CONCURRENCY: usize = 16;

/// A cluster that can be asked.
pub(super) struct Cluster {
    pub(super) config: Config,
    pub(super) clients: Clients,
    /// How long each fact may take.
    pub(super) limit: Duration,
}

/// The fields of `/version` that are read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct VersionInfo {
    git_version: String,
}

impl Cluster {
    /// Reads a kubeconfig, and makes clients without connecting.
    pub(super) async fn open(cluster: KubeContext<'_>, limit: Duration) -> Result<Self, Failure> {
        let config = client::config(cluster.kubeconfig, cluster.context).await?;
        Ok(Self {
            clients: Clients::new(&config, CONCURRENCY)?,
            config,
            limit,
        })
    }

    /// The client for requests.
    pub(super) fn client(&self) -> Client {
        self.clients.write.clone()
    }

    /// A client that acts as a ServiceAccount, which the user must be allowed to impersonate.
    pub(super) fn acting_as(&self, (namespace, name): (&str, &str)) -> Result<Client, Failure> {
        let mut config = self.config.clone();
        config.auth_info.impersonate = Some(username((namespace, name)));
        Ok(Clients::new(&config, 1)?.write)
    }

    pub(super) async fn api(&self) -> Fact<ApiFacts> {
        api(&self.client(), self.limit).await
    }

    pub(super) fn facts(&self, api: Fact<ApiFacts>) -> ClusterFacts {
        ClusterFacts {
            server: server(&self.config),
            api,
        }
    }
}

/// The Kubernetes username of a ServiceAccount.
pub(super) fn username((namespace, name): (&str, &str)) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

/// URL of an API server, for messages.
pub(super) fn server(config: &Config) -> String {
    config.cluster_url.to_string().trim_end_matches('/').to_owned()
}

/// Asks an API server for its version, and compares clocks by the date of the answer.
pub(super) async fn api(client: &Client, limit: Duration) -> Fact<ApiFacts> {
    let answer = async {
        let request = Request::get("/version").body(Body::empty());
        let request = request.map_err(|error| Unread::Failed(error.to_string()))?;
        let before = Timestamp::now();
        let response = client.send(request).await.map_err(|error| unread(&error))?;
        let after = Timestamp::now();
        let status = response.status();
        let date = response.headers().get(DATE).and_then(|date| date.to_str().ok());
        let date = date.and_then(|date| rfc2822::DateTimeParser::new().parse_timestamp(date).ok());
        let body = response
            .into_body()
            .collect_bytes()
            .await
            .map_err(|error| unread(&error))?;
        if status.as_u16() == 401 || status.as_u16() == 403 {
            return Err(Unread::Denied(format!("the API server answers {status}")));
        }
        let version: VersionInfo = serde_json::from_slice(&body)
            .map_err(|error| Unread::Failed(format!("it answers {status}, and not as an API server does: {error}")))?;
        let date = date.ok_or_else(|| Unread::Failed("its answer has no date".to_owned()))?;
        let middle = before + after.duration_since(before) / 2;
        Ok(ApiFacts {
            version: version.git_version,
            ahead: middle.duration_since(date),
        })
    };
    match tokio::time::timeout(limit, answer).await {
        Ok(answer) => answer,
        Err(_) => Err(read::silent(limit)),
    }
}
