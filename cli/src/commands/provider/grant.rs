//! `provider grant` and `provider take`: the right to bind a template, on the provider's cluster.

use std::io::Write;

use bindery_runtime::{
    client::{self, Clients},
    errors, preconditions,
};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, PostParams},
};
use serde_json::json;

use super::Context;
use crate::{
    args::{GrantArgs, KubeContext},
    contracts::grant::{self, Foreign, GrantPlan, Grantee},
    errors::Failure,
    install::manifests::FIELD_MANAGER,
    render::output::joined,
};

/// `kubectl bind provider grant TEMPLATE`
pub(super) async fn grant<W: Write>(context: &mut Context<W>, args: &GrantArgs) -> Result<(), Failure> {
    let grantees = grantees(args);
    let done = format!("{} may bind template {}", joined(&grantees), args.template);
    change(context, args, &grantees, &[], &done).await
}

/// `kubectl bind provider take TEMPLATE`
pub(super) async fn take<W: Write>(context: &mut Context<W>, args: &GrantArgs) -> Result<(), Failure> {
    let grantees = grantees(args);
    let done = format!(
        "{} may not bind template {} by this grant any more; rights by other roles stay",
        joined(&grantees),
        args.template
    );
    change(context, args, &[], &grantees, &done).await
}

async fn change<W: Write>(
    context: &mut Context<W>,
    args: &GrantArgs,
    add: &[Grantee],
    remove: &[Grantee],
    done: &str,
) -> Result<(), Failure> {
    let cluster = args.provider.cluster(&context.settings.cluster).ok_or_else(|| {
        Failure::Usage(
            "rights are granted on the provider's cluster: add --provider-context NAME or --provider-kubeconfig FILE"
                .to_owned(),
        )
    })?;
    let cluster = Cluster::open(cluster).await?;
    let template = &args.template;
    let existing = cluster.binding(template).await?;
    let plan = grant::plan(template, existing.as_ref(), add, remove).map_err(foreign)?;
    if args.dry_run {
        let documents = match &plan {
            GrantPlan::Write { role, binding } => vec![manifest(&**role), manifest(&**binding)],
            GrantPlan::Unchanged | GrantPlan::Delete => Vec::new(),
        };
        if plan == GrantPlan::Delete {
            let name = grant::name(template);
            context.steps.note(&format!(
                "ClusterRoleBinding {name} and ClusterRole {name} would be deleted (dry run)"
            ));
        }
        return context.printer.documents(&documents);
    }
    match plan {
        GrantPlan::Unchanged => context.steps.note("nothing was changed: it is so already"),
        GrantPlan::Write { role, binding } => {
            cluster.write_role(&role).await?;
            cluster.write_binding(&binding, existing.is_some()).await?;
        }
        GrantPlan::Delete => cluster.delete(template, existing.as_ref()).await?,
    }
    context.steps.done(done);
    Ok(())
}

fn grantees(args: &GrantArgs) -> Vec<Grantee> {
    let users = args.user.iter().cloned().map(Grantee::User);
    let groups = args.group.iter().cloned().map(Grantee::Group);
    let accounts = args.service_account.iter();
    let accounts = accounts.map(|(namespace, name)| Grantee::ServiceAccount {
        namespace: namespace.clone(),
        name: name.clone(),
    });
    users.chain(groups).chain(accounts).collect()
}

/// An object as kubectl applies it.
fn manifest<K: kube::Resource<DynamicType = ()> + serde::Serialize>(object: &K) -> serde_json::Value {
    let mut manifest = json!(object);
    if let Some(metadata) = manifest["metadata"].as_object_mut() {
        for field in ["uid", "resourceVersion"] {
            metadata.remove(field);
        }
    }
    manifest["apiVersion"] = json!(K::api_version(&()));
    manifest["kind"] = json!(K::kind(&()));
    manifest
}

/// The provider's cluster, as its admin changes it.
struct Cluster {
    roles: Api<ClusterRole>,
    bindings: Api<ClusterRoleBinding>,
}

impl Cluster {
    async fn open(cluster: KubeContext<'_>) -> Result<Self, Failure> {
        let config = client::config(cluster.kubeconfig, cluster.context).await?;
        let client: Client = Clients::new(&config, 2)?.write;
        Ok(Self {
            roles: Api::all(client.clone()),
            bindings: Api::all(client),
        })
    }

    async fn binding(&self, template: &str) -> Result<Option<ClusterRoleBinding>, Failure> {
        let name = grant::name(template);
        let found = self.bindings.get_opt(&name).await;
        found.map_err(Failure::cluster(format!(
            "read ClusterRoleBinding {name} of the provider"
        )))
    }

    /// Makes the role, or writes it back as it should be.
    async fn write_role(&self, role: &ClusterRole) -> Result<(), Failure> {
        let name = role.name_any();
        let doing = |verb: &str| Failure::cluster(format!("{verb} ClusterRole {name} of the provider"));
        let existing = self.roles.get_opt(&name).await.map_err(doing("read"))?;
        let Some(existing) = existing else {
            let created = self.roles.create(&params(), role).await;
            return created.map(drop).map_err(doing("create"));
        };
        if !grant::is_ours(&existing) {
            return Err(foreign(Foreign(format!("ClusterRole {name}"))));
        }
        if existing.rules == role.rules {
            return Ok(());
        }
        let mut wanted = role.clone();
        wanted.metadata.resource_version = existing.metadata.resource_version;
        let replaced = self.roles.replace(&name, &params(), &wanted).await;
        replaced.map(drop).map_err(doing("change"))
    }

    /// Makes the binding, or replaces it as it was read: another change meanwhile makes this one fail.
    async fn write_binding(&self, binding: &ClusterRoleBinding, exists: bool) -> Result<(), Failure> {
        let name = binding.name_any();
        let (written, verb) = if exists {
            (self.bindings.replace(&name, &params(), binding).await, "change")
        } else {
            (self.bindings.create(&params(), binding).await, "create")
        };
        written.map(drop).map_err(Failure::cluster(format!(
            "{verb} ClusterRoleBinding {name} of the provider"
        )))
    }

    async fn delete(&self, template: &str, binding: Option<&ClusterRoleBinding>) -> Result<(), Failure> {
        let name = grant::name(template);
        let seen = DeleteParams {
            preconditions: binding.map(|binding| preconditions::unchanged(&binding.metadata)),
            ..DeleteParams::default()
        };
        let deleted = self.bindings.delete(&name, &seen).await;
        deleted.map(drop).map_err(Failure::cluster(format!(
            "delete ClusterRoleBinding {name} of the provider"
        )))?;
        match self.roles.delete(&name, &DeleteParams::default()).await {
            Err(error) if !errors::is_not_found(&error) => Err(Failure::cluster(format!(
                "delete ClusterRole {name} of the provider"
            ))(error)),
            _ => Ok(()),
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "as map_err calls it")]
fn foreign(foreign: Foreign) -> Failure {
    Failure::Grant(foreign.to_string())
}

fn params() -> PostParams {
    PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    }
}
