//! `dev down`: unbinds the example, and removes all that `dev up` made.

use std::{io::Write, time::Duration};

use bindery_api::{
    labels,
    names::KUBE_BIND_NAMESPACE,
    v1alpha2::{APIServiceExport, BindableResourcesRequest},
};
use bindery_runtime::errors;
use k8s_openapi::api::{
    core::v1::Namespace,
    rbac::v1::{ClusterRole, ClusterRoleBinding},
};
use kube::{
    Api, Resource, ResourceExt as _,
    api::{DynamicObject, ListParams},
};
use serde::de::DeserializeOwned;

use super::{
    super::{Context, unbind},
    cluster::{Cluster, Clusters},
    example,
    up::Deadline,
};
use crate::{
    args::{UnbindArgs, dev::DevDownArgs, settings::Settings},
    consumer::kinds::kinds,
    dev::{
        CONSUMER_SET, EXAMPLE, EXAMPLE_OBJECT, PROVIDER_SET,
        guard::{self, Ending},
    },
    errors::Failure,
    install::write::manifest,
    render::{
        applied::{Applied, Outcome, Report},
        output::{Format, Printer, joined},
        steps::Steps,
    },
};

/// How long the command may take, unless `--timeout` says otherwise. Namespaces end last.
const PATIENCE: Duration = Duration::from_mins(5);

/// Name of the role that the server's exports add up to.
const AGGREGATED: &str = "bindery-server-exports";

/// `kubectl bind dev down`
pub(super) async fn run<W: Write>(context: &mut Context<W>, args: &DevDownArgs) -> Result<(), Failure> {
    let deadline = Deadline::after(context.settings.patience(PATIENCE));
    let clusters = Clusters::connect(&context.settings, &args.clusters).await?;
    let Clusters { provider, consumer, .. } = &clusters;
    // Everything that keeps something is found before anything is deleted.
    clusters.refuse_others(args.all_contracts).await?;
    let steps = &mut context.steps;
    let mut report = Report::new(&mut context.printer);
    if let Some(binding) = example::binding(consumer).await? {
        consumer.on(unbind(&context.settings, consumer, deadline).await)?;
        report.tell(Applied::of(&manifest(&binding)?, Outcome::Deleted).on(consumer.role))?;
        steps.done(&format!("APIServiceBinding {EXAMPLE} is gone, with all cowboys"));
    }
    delete_namespace(consumer, deadline, &mut report).await?;
    clusters
        .end_contracts(args.all_contracts, deadline, &mut report)
        .await?;
    steps.done("nothing of the contract is left");
    delete_aggregated(provider).await?;
    for (cluster, set) in [(consumer, CONSUMER_SET), (provider, PROVIDER_SET)] {
        let listed = cluster.listed(set).await?;
        if cluster.delete_set(set, deadline.left(), steps).await? {
            for applied in listed {
                report.tell(applied.on(cluster.role))?;
            }
        }
    }
    // Its controller may have made it again.
    delete_aggregated(provider).await?;
    steps.done("server and konnector are gone");
    for cluster in [consumer, provider] {
        let (deleted, kept) = cluster.undefine().await?;
        for applied in deleted {
            report.tell(applied.on(cluster.role))?;
        }
        if !kept.is_empty() {
            steps.note(&format!(
                "these definitions of the {} stay, because there are objects of them, or these cannot be listed: {}",
                cluster.role,
                joined(kept)
            ));
        }
    }
    steps.done("what `dev up` made is gone");
    report.end()
}

impl Clusters {
    /// Refuses while something is there that `dev up` did not make and that would go.
    async fn refuse_others(&self, all_contracts: bool) -> Result<(), Failure> {
        let consumer = &self.consumer;
        let bindings = match consumer.api.bindings().await {
            Err(Failure::NoKonnector) => Vec::new(),
            bindings => consumer.on(bindings)?,
        };
        let bundles = consumer.on(consumer.api.bundles().await)?;
        guard::refuse_bound(consumer.context(), &bindings, &bundles)?;
        self.ending(all_contracts).await?;
        refuse_inhabited(consumer).await
    }

    /// The contracts that end: none where the server is not that of `dev up`. Refuses while there are other contracts, or while these
    /// have exports that are not of the example.
    async fn ending(&self, all_contracts: bool) -> Result<Vec<Namespace>, Failure> {
        let provider = &self.provider;
        if provider.listed(PROVIDER_SET).await?.is_empty() {
            return Ok(Vec::new());
        }
        let of = Ending {
            context: provider.context(),
            identity: &self.identity,
            all: all_contracts,
            end_all: &format!("{} --all-contracts", self.down()),
        };
        let namespaces = contracts(provider).await?;
        let ending: Vec<_> = guard::ending(&of, &namespaces)?.into_iter().cloned().collect();
        let mut exports = Vec::new();
        for contract in &ending {
            exports.extend(exports_of(provider, &contract.name_any()).await?);
        }
        guard::refuse_exports(provider.context(), &exports)?;
        Ok(ending)
    }

    /// Deletes the request for the example and the contracts that end, and waits until the server has removed all of these.
    async fn end_contracts<W: Write>(
        &self,
        all_contracts: bool,
        deadline: Deadline,
        report: &mut Report<'_, W>,
    ) -> Result<(), Failure> {
        let provider = &self.provider;
        let requests: Api<BindableResourcesRequest> = Api::namespaced(provider.api.client(), KUBE_BIND_NAMESPACE);
        let request = match provider.api.find(requests.clone(), EXAMPLE).await {
            // Where requests are not served, none exists.
            Err(Failure::Cluster { source, .. }) if errors::is_not_found(&source) => None,
            found => provider.on(found)?,
        };
        if let Some(request) = request.filter(|request| guard::is_ours(&request.metadata)) {
            provider.on(provider.api.delete(requests, &request).await)?;
            report.tell(Applied::of(&manifest(&request)?, Outcome::Deleted).on(provider.role))?;
        }
        let ending = self.ending(all_contracts).await?;
        for contract in &ending {
            let api = Api::<Namespace>::all(provider.api.client());
            provider.on(provider.api.delete(api, contract).await)?;
            report.tell(Applied::of(&manifest(contract)?, Outcome::Deleted).on(provider.role))?;
        }
        let mend = format!(
            "see the log of the server: kubectl --context {} logs deployment/bindery-server -n {KUBE_BIND_NAMESPACE}",
            provider.context()
        );
        for contract in ending {
            let name = contract.name_any();
            let what = format!("the end of contract {name}");
            provider
                .until((&what, &mend), deadline.left(), async || {
                    let left = remains::<Namespace>(provider, &name).await?
                        + remains::<ClusterRole>(provider, &name).await?
                        + remains::<ClusterRoleBinding>(provider, &name).await?;
                    Ok((left == 0).then_some(()))
                })
                .await?;
        }
        Ok(())
    }
}

/// The namespaces of all contracts.
async fn contracts(provider: &Cluster) -> Result<Vec<Namespace>, Failure> {
    let params = ListParams::default().labels(labels::CONTRACT);
    let listed = Api::<Namespace>::all(provider.api.client()).list(&params).await;
    Ok(provider.on(listed.map_err(Failure::cluster("list Namespaces")))?.items)
}

/// The exports of a contract.
async fn exports_of(provider: &Cluster, contract: &str) -> Result<Vec<APIServiceExport>, Failure> {
    let exports = Api::<APIServiceExport>::namespaced(provider.api.client(), contract);
    match exports.list(&ListParams::default()).await {
        Ok(listed) => Ok(listed.items),
        // Where exports are not served, none exists.
        Err(error) if errors::is_not_found(&error) => Ok(Vec::new()),
        Err(error) => provider.on(Err(Failure::cluster(format!(
            "list APIServiceExports of contract {contract}"
        ))(error))),
    }
}

/// Refuses to delete the namespace of the example, if `dev up` made it, while others have objects in it.
async fn refuse_inhabited(consumer: &Cluster) -> Result<(), Failure> {
    let (name, _) = EXAMPLE_OBJECT;
    let namespaces = Api::<Namespace>::all(consumer.api.client());
    let found = consumer.on(consumer.api.find(namespaces, name).await)?;
    if !found.is_some_and(|found| guard::is_ours(&found.metadata)) {
        return Ok(());
    }
    let mut objects = Vec::new();
    let served = kinds(consumer.on(consumer.api.kinds().await)?);
    for kind in served.iter().filter(|kind| kind.namespaced && kind.stored) {
        let api = Api::<DynamicObject>::namespaced_with(consumer.api.client(), name, &kind.api());
        let listed = match api.list_metadata(&ListParams::default()).await {
            Err(error) if errors::is_not_found(&error) => continue,
            listed => listed.map_err(Failure::cluster(format!(
                "list {} in namespace {name}",
                kind.resource()
            ))),
        };
        let listed = consumer.on(listed)?.into_iter();
        objects.extend(listed.map(|object| (kind.resource(), object.metadata)));
    }
    Ok(guard::refuse_inhabited(consumer.context(), name, &objects)?)
}

/// How many cluster-scoped objects of a kind are left of a contract.
async fn remains<K>(provider: &Cluster, contract: &str) -> Result<usize, Failure>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let params = ListParams::default().labels(&format!("{}={contract}", labels::CONTRACT));
    let listed = Api::<K>::all(provider.api.client()).list_metadata(&params).await;
    let listed = listed.map_err(Failure::cluster(format!("list {}s", K::kind(&()))))?;
    Ok(listed.items.len())
}

/// Deletes the role that the server's exports add up to, before the roles that it is the sum of: its controller makes it again, if it
/// sees one of those go first.
async fn delete_aggregated(provider: &Cluster) -> Result<(), Failure> {
    let roles = Api::<ClusterRole>::all(provider.api.client());
    let found = provider.on(provider.api.find(roles.clone(), AGGREGATED).await)?;
    let is_meant = |role: &ClusterRole| guard::is_ours(&role.metadata) || guard::is_made_again(&role.metadata);
    if let Some(role) = found.filter(is_meant) {
        provider.on(provider.api.delete(roles, &role).await)?;
    }
    Ok(())
}

/// Unbinds the example, and waits until it is gone.
async fn unbind(settings: &Settings, consumer: &Cluster, deadline: Deadline) -> Result<(), Failure> {
    let mut quiet = Context {
        settings: settings.silent_at(consumer.args.clone(), deadline.left()),
        steps: Steps::new(true),
        printer: Printer::new(Format::Name, std::io::sink()),
    };
    let args = UnbindArgs {
        binding: EXAMPLE.to_owned(),
        wait: true,
        force: false,
        delete_objects: true,
        keep_objects: false,
        yes: true,
        ignore_not_found: true,
    };
    Box::pin(unbind::run(&mut quiet, &args)).await
}

/// Deletes the namespace of the example, if `dev up` made it, and waits until it is gone.
async fn delete_namespace<W: Write>(
    consumer: &Cluster,
    deadline: Deadline,
    report: &mut Report<'_, W>,
) -> Result<(), Failure> {
    let (name, _) = EXAMPLE_OBJECT;
    let namespaces = Api::<Namespace>::all(consumer.api.client());
    let find = async || consumer.on(consumer.api.find(namespaces.clone(), name).await);
    let Some(found) = find().await?.filter(|found| guard::is_ours(&found.metadata)) else {
        return Ok(());
    };
    consumer.on(consumer.api.delete(namespaces.clone(), &found).await)?;
    let what = format!("the end of Namespace {name}");
    let mend = format!(
        "see what keeps it: kubectl --context {} get namespace {name} -o yaml",
        consumer.context()
    );
    consumer
        .until((&what, &mend), deadline.left(), async || {
            Ok(find().await?.is_none().then_some(()))
        })
        .await?;
    report.tell(Applied::of(&manifest(&found)?, Outcome::Deleted).on(consumer.role))
}
