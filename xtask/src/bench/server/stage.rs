//! A provider with a server, and the program that simulates all agents.

use std::{path::PathBuf, time::Duration};

use anyhow::{Result, ensure};
use bindery_e2e::{ControlPlane, Provider, offer::Offer, process::Programs};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{
    Answer, Args, Order, Row,
    agents::Agents,
    counts::{self, Counted},
};
use crate::bench::{proc, quiet::quiet};

/// Name of the template that is bound.
const TEMPLATE: &str = "bench";

/// Number of users that bind and list. One is not enough, because the server limits the rate of each.
const OWNERS: usize = 64;

/// Namespace of these users' ServiceAccounts.
const OWNERS_NAMESPACE: &str = "bench-owners";

/// Lifetime of their tokens, longer than any run.
const TOKEN_SECONDS: i64 = 24 * 3600;

/// The flag with the server's default duration of its Lease. The e2e suites use others.
const LEASE: [&str; 2] = ["--lease-duration", "15"];

/// For how long requests of the idle server are counted.
const REST: Duration = Duration::from_secs(10);

/// After this time, a restarted server is the leader and has reconciled everything.
const LEADS: Duration = Duration::from_secs(20);

/// The provider, and all agents.
pub(super) struct Stage {
    pub(super) provider: Provider,
    pub(super) args: Args,
    pub(super) programs: Programs,
    agents: Agents,
    /// Number of changes of exports so far.
    changes: u64,
}

impl Stage {
    pub(super) async fn prepare(programs: Programs, args: Args) -> Result<Self> {
        let plane = ControlPlane::start_audited("bench").await?;
        let provider = Provider::start_from(programs.clone(), plane, &LEASE).await?;
        Offer::new(TEMPLATE).publish(&provider).await?;
        let tokens = owners(&provider).await?;
        Ok(Self {
            agents: Agents::start(&programs, &provider, &tokens, TEMPLATE).await?,
            programs,
            provider,
            args,
            changes: 0,
        })
    }

    /// Shows no logs at the end, since all went well.
    pub(super) fn hush(&mut self) {
        self.provider.servers.iter_mut().for_each(bindery_e2e::Process::hush);
    }

    /// Reserves numbers for `count` changes, and returns the first.
    pub(super) fn next_change(&mut self, count: u32) -> u64 {
        let first = self.changes + 1;
        self.changes += u64::from(count);
        first
    }

    /// Sends a command to the agents, and fails if any part of it does.
    pub(super) async fn order(&mut self, order: &Order) -> Result<Answer> {
        let answer = self.agents.order(order).await?;
        let why = answer.error.as_deref().unwrap_or_default();
        ensure!(answer.errors == 0, "{order:?}: {} failed: {why}", answer.errors);
        Ok(answer)
    }

    /// As [`Stage::order`], and measures processor time, memory and requests of the server.
    pub(super) async fn phase(&mut self, name: &str, order: &Order) -> Result<Row> {
        quiet(&self.provider.plane).await?;
        self.unquiet_phase(name, order).await
    }

    /// As [`Stage::phase`], without waiting until nothing else happens.
    pub(super) async fn unquiet_phase(&mut self, name: &str, order: &Order) -> Result<Row> {
        eprintln!("==> {name}");
        let before = self.cpu()?;
        let answer = self.order(order).await?;
        let after = self.cpu()?;
        let memory = proc::memory(self.server())?;
        Ok(Row {
            cpu_seconds: Some(after.0 - before.0),
            plane_cpu_seconds: Some(after.1 - before.1),
            ..Row::new(name, Some(&answer), memory)
        })
    }

    /// Measures the memory of the idle server.
    pub(super) async fn idle(&self, name: &str) -> Result<Row> {
        quiet(&self.provider.plane).await?;
        Ok(Row::new(name, None, proc::memory(self.server())?))
    }

    /// Counts the streams whose snapshot is complete.
    pub(super) async fn streams(&mut self) -> Result<usize> {
        Ok(self.order(&Order::Mark).await?.count)
    }

    /// Counts the server's requests to the API server while nothing happens.
    pub(super) async fn at_rest(&self) -> Result<Counted> {
        let audit = self.provider.plane.audit()?;
        quiet(&self.provider.plane).await?;
        let from = audit.now()?;
        sleep(REST).await;
        counts::since(audit, from)
    }

    /// Kills the server, starts it again, and measures until all agents are served. Also counts the requests of the new
    /// server.
    pub(super) async fn restart(&mut self) -> Result<(Row, Counted)> {
        eprintln!("==> restart");
        quiet(&self.provider.plane).await?;
        let plane = self.cpu()?.1;
        let from = self.provider.plane.audit()?.now()?;
        self.order(&Order::Mark).await?;
        self.provider.servers[0].kill9()?;
        self.provider.spawn_server()?;
        let answer = self.order(&Order::Served { timeout_s: 180 }).await?;
        let (server, plane_after) = self.cpu()?;
        let memory = proc::memory(self.server())?;
        sleep(LEADS).await;
        quiet(&self.provider.plane).await?;
        let asked = counts::since(self.provider.plane.audit()?, from)?;
        let row = Row {
            cpu_seconds: Some(server),
            plane_cpu_seconds: Some(plane_after - plane),
            asked: Some(asked.clone()),
            ..Row::new("restart", Some(&answer), memory)
        };
        Ok((row, asked))
    }

    fn server(&self) -> u32 {
        self.provider.servers[0].id()
    }

    /// Processor seconds that the server and the control plane have used so far.
    fn cpu(&self) -> Result<(f64, f64)> {
        let plane = proc::cpu_seconds_of_all(self.provider.plane.pids());
        Ok((proc::cpu_seconds(self.server())?, plane))
    }
}

/// Creates ServiceAccounts that may bind, and returns the files with their tokens.
async fn owners(provider: &Provider) -> Result<Vec<PathBuf>> {
    let rbac = "rbac.authorization.k8s.io";
    let account = |owner: usize| {
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": format!("owner-{owner}"), "namespace": OWNERS_NAMESPACE},
        })
    };
    let mut items = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OWNERS_NAMESPACE}}),
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": OWNERS_NAMESPACE},
            "rules": [{
                "apiGroups": ["kube-bind.io"], "resources": ["apiserviceexporttemplates"],
                "resourceNames": [TEMPLATE], "verbs": ["bind"],
            }],
        }),
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": OWNERS_NAMESPACE},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": OWNERS_NAMESPACE},
            "subjects": [{
                "apiGroup": rbac, "kind": "Group", "name": format!("system:serviceaccounts:{OWNERS_NAMESPACE}"),
            }],
        }),
    ];
    items.extend((0..OWNERS).map(account));
    let list: Value = json!({"apiVersion": "v1", "kind": "List", "items": items});
    provider.plane.apply(&list.to_string()).await?;
    let mut files = Vec::new();
    for owner in 0..OWNERS {
        let name = format!("owner-{owner}");
        let audience = provider.address();
        let token = provider
            .plane
            .token_for(OWNERS_NAMESPACE, &name, &[&audience], TOKEN_SECONDS)
            .await?;
        files.push(provider.plane.workdir().write(&format!("{name}.token"), token)?);
    }
    Ok(files)
}
