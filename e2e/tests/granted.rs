//! What the server gives a consumer for each placement of cluster-scoped objects, and that it gives nothing in the cluster's
//! scope before the admission policy holds it.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use bindery_api::{
    Conditions as _, annotations, labels, names,
    v1alpha2::{APIServiceExport, APIServiceExportTemplate, APIServiceNamespace, APIServiceNamespaceSpec, Isolation},
};
use bindery_e2e::{Provider, call::wish, eventually_ok, lease, manifests, run, wildwest::SOON};
use bindery_proto::v1alpha2::ErrorReason;
use bindery_sdk::{Bound, Client, Error};
use k8s_openapi::api::{
    core::v1::Namespace,
    rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, Subject},
};
use kube::{Api, ResourceExt as _, api::PostParams};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_mins(2);
const WRITES: &str = "create,delete,get,list,patch,update,watch";
const OVERWRITES: &str = "create,delete,get,list,patch,update,watch,overwrite";
/// As an account of some contract would, but with all rights of RBAC.
const AS_BINDER: [&str; 2] = [
    "--as=system:serviceaccount:nobody:kube-binder",
    "--as-group=system:masters",
];

fn crd(plural: &str, kind: &str, scope: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.dev"), "labels": {labels::EXPORTED: "true"}},
        "spec": {
            "group": "example.dev", "scope": scope,
            "names": {"plural": plural, "singular": plural, "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}},
            }],
        },
    })
}

fn template(name: &str, plural: &str, spec: &Value) -> Value {
    let mut template = json!({
        "apiVersion": "kube-bind.io/v1alpha2", "kind": "APIServiceExportTemplate", "metadata": {"name": name}, "spec": spec,
    });
    template["spec"]["scope"] = json!("Cluster");
    template["spec"]["resources"] = json!([{"group": "example.dev", "resource": plural, "versions": ["v1"]}]);
    template
}

fn held(name: &str, plurals: &[&str], verbs: &[&str]) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name, "labels": {labels::AGGREGATE_TO_SERVER: "true"}},
        "rules": [{"apiGroups": ["example.dev"], "resources": plurals, "verbs": verbs}],
    })
}

const TEMPLATES: [&str; 5] = ["prefixed", "first", "last", "converted", "within"];
/// Offers a namespaced API as a cluster-scoped one, which is possible under `--isolation namespaced` alone.
const OPEN: &str = "open";

fn offers() -> Value {
    let last = json!({"isolation": "None", "conflictPolicy": "LastWins"});
    let converted = json!({"isolation": "Namespaced"});
    let within = json!({"isolation": "Namespaced", "clusterScopedNamespace": "ranch"});
    let writes: Vec<_> = WRITES.split(',').collect();
    json!({"apiVersion": "v1", "kind": "List", "items": [
        crd("wides", "Wide", "Cluster"),
        crd("narrows", "Narrow", "Namespaced"),
        held("writes", &["wides", "narrows"], &writes),
        template("prefixed", "wides", &json!({})),
        template("first", "wides", &json!({"isolation": "None"})),
        template("last", "wides", &last),
        template("converted", "narrows", &converted),
        template("within", "narrows", &within),
        template(OPEN, "narrows", &json!({})),
    ]})
}

/// A provider with its offers, and somebody who may bind them.
struct World {
    provider: Provider,
    client: Client,
}

impl World {
    async fn start(name: &str) -> Result<Self> {
        let provider = Provider::start_with(name, &lease::PATIENT).await?;
        provider.plane.apply(&offers().to_string()).await?;
        let token = std::fs::read_to_string(provider.principal("team", &[&TEMPLATES[..], &[OPEN]].concat()).await?)?;
        let builder = Client::builder(provider.address()).ca_pem(provider.plane.ca_pem());
        let world = Self {
            client: builder.token(token).build()?,
            provider,
        };
        world.is_ready("prefixed").await?;
        Ok(world)
    }

    async fn is_ready(&self, template: &str) -> Result<()> {
        let templates: Api<APIServiceExportTemplate> = self.all();
        eventually_ok(format!("template {template} to be ready"), SOON, async || {
            let found = templates.get(template).await?;
            ensure!(found.is_condition_true("Ready"), "{:?}", found.conditions());
            Ok(())
        })
        .await
    }

    async fn bind(&self, template: &str, identity: &str) -> Result<Bound, Error> {
        self.client
            .bind_by_request(wish(template, template, identity), PATIENCE, |_| ())
            .await
    }

    fn all<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::ClusterResourceScope>,
    {
        Api::all(self.provider.plane.client())
    }

    fn within<K>(&self, namespace: &str) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::namespaced(self.provider.plane.client(), namespace)
    }

    /// The verbs of an export's ClusterRole, if it has one, whose binding must name the contract's account alone.
    async fn cluster_wide(&self, contract: &str, export: &str) -> Result<Option<String>> {
        let name = names::resources_cluster_role(contract, export);
        let role = self.all::<ClusterRole>().get_opt(&name).await?;
        let binding = self.all::<ClusterRoleBinding>().get_opt(&name).await?;
        ensure!(role.is_some() == binding.is_some(), "{role:?} {binding:?}");
        if let Some(binding) = binding {
            is_the_contracts(contract, binding.subjects.as_deref())?;
        }
        Ok(role.map(|role| verbs(role.rules.as_deref())))
    }

    /// The verbs of an export's Role in a namespace, likewise.
    async fn inside(&self, contract: &str, export: &str, namespace: &str) -> Result<Option<String>> {
        let name = names::resources_role(export);
        let role = self.within::<Role>(namespace).get_opt(&name).await?;
        let binding = self.within::<RoleBinding>(namespace).get_opt(&name).await?;
        ensure!(role.is_some() == binding.is_some(), "{role:?} {binding:?}");
        if let Some(binding) = binding {
            is_the_contracts(contract, binding.subjects.as_deref())?;
        }
        Ok(role.map(|role| verbs(role.rules.as_deref())))
    }

    /// Asks for a provider namespace as a konnector does, and waits for it.
    async fn mapped(&self, contract: &str, name: &str) -> Result<String> {
        let binder = self
            .provider
            .plane
            .service_account_client(contract, names::KUBE_BINDER)
            .await?;
        let api: Api<APIServiceNamespace> = Api::namespaced(binder, contract);
        let wanted = APIServiceNamespace::new(name, APIServiceNamespaceSpec {});
        api.create(&PostParams::default(), &wanted).await?;
        eventually_ok(format!("namespace {name} to be mapped"), SOON, async || {
            let status = api.get(name).await?.status.context("no status")?;
            status.namespace.context("no namespace")
        })
        .await
    }

    /// Waits until the policy is in force, or until it is not.
    async fn in_force(&self, wanted: bool) -> Result<()> {
        // To admins nothing else is forbidden: they may overwrite.
        let probe = [
            "create",
            "secret",
            "generic",
            "probe",
            "--type=bootstrap.kubernetes.io/token",
        ];
        let more = ["--namespace=default", "--dry-run=server"];
        let args = [&probe[..], &more[..], &AS_BINDER[..]].concat();
        eventually_ok("the policy to be in force or not", SOON, async || {
            let outcome = self.provider.plane.kubectl(&args).await;
            ensure!(outcome.is_err() == wanted, "{outcome:?}");
            Ok(())
        })
        .await
    }
}

fn is_the_contracts(contract: &str, subjects: Option<&[Subject]>) -> Result<()> {
    let [subject] = subjects.unwrap_or_default() else {
        bail!("not one subject: {subjects:?}");
    };
    let is_it = (&*subject.name, subject.namespace.as_deref()) == (names::KUBE_BINDER, Some(contract));
    ensure!(is_it, "{subject:?}");
    Ok(())
}

fn verbs(rules: Option<&[PolicyRule]>) -> String {
    let rules = rules.unwrap_or_default().iter();
    rules.map(|rule| rule.verbs.join(",")).collect::<Vec<_>>().join("; ")
}

#[test]
fn each_placement_has_its_rights_and_no_more() -> Result<()> {
    run(async {
        let mut world = World::start("granted").await?;
        let contract = Provider::contract("ranch-cluster");
        let templates: Api<APIServiceExportTemplate> = world.all();
        eventually_ok("the lack of a right to be said", SOON, async || {
            let last = templates.get("last").await?;
            let ready = last.condition("Ready").context("no condition")?;
            ensure!(ready.reason == "ServerLacksRights", "{ready:?}");
            ensure!(ready.message.contains("- overwrite"), "{}", ready.message);
            ensure!(!ready.message.contains("- create"), "{}", ready.message);
            Ok(())
        })
        .await?;
        let overwrite = held("overwrites", &["wides"], &["overwrite"]);
        world.provider.plane.apply(&overwrite.to_string()).await?;
        world.is_ready("last").await?;

        for (template, everywhere, in_contract) in [
            ("prefixed", Some(WRITES), None),
            ("first", Some(WRITES), None),
            ("last", Some(OVERWRITES), None),
            ("converted", None, Some(WRITES)),
            ("within", None, None),
        ] {
            world
                .bind(template, "ranch-cluster")
                .await
                .with_context(|| format!("bind {template}"))?;
            let cluster_wide = world.cluster_wide(&contract, template).await?;
            ensure!(cluster_wide.as_deref() == everywhere, "{template}: {cluster_wide:?}");
            let inside = world.inside(&contract, template, &contract).await?;
            ensure!(inside.as_deref() == in_contract, "{template}: {inside:?}");
        }
        for (name, with_role) in [("ranch", true), ("town", false)] {
            let namespace = world.mapped(&contract, name).await?;
            for template in TEMPLATES {
                let expect = (with_role && template == "within").then_some(WRITES);
                let role = world.inside(&contract, template, &namespace).await?;
                ensure!(role.as_deref() == expect, "{template} in {name}: {role:?}");
            }
        }
        // Nothing that was given reaches a core resource, or a resource by a wildcard.
        let roles = world
            .all::<ClusterRole>()
            .list(&kube::api::ListParams::default().labels(labels::CONTRACT))
            .await?;
        let held = roles.items.iter().flat_map(|role| role.rules.iter().flatten());
        let groups: BTreeSet<_> = held.flat_map(|rule| rule.api_groups.iter().flatten()).collect();
        ensure!(groups == BTreeSet::from([&"example.dev".to_owned()]), "{groups:?}");
        the_flag_places_what_templates_leave_open(&mut world).await
    })
}

/// Templates that name no isolation follow the server's `--isolation`.
async fn the_flag_places_what_templates_leave_open(world: &mut World) -> Result<()> {
    for (flag, template, isolation, everywhere, in_contract) in [
        ("none", "prefixed", Isolation::None, Some(WRITES), None),
        ("namespaced", OPEN, Isolation::Namespaced, None, Some(WRITES)),
    ] {
        world.provider.servers[0].terminate(SOON).await?;
        world.provider.set_flag("--isolation", flag);
        world.provider.restart_server().await?;
        world.is_ready(template).await?;
        let identity = format!("{flag}-cluster");
        let bound = world.bind(template, &identity).await;
        bound.with_context(|| format!("bind {template} with --isolation {flag}"))?;
        let contract = Provider::contract(&identity);
        let export = world.within::<APIServiceExport>(&contract).get(template).await?;
        ensure!(export.spec.isolation == isolation, "{flag}: {:?}", export.spec);
        let cluster_wide = world.cluster_wide(&contract, template).await?;
        ensure!(cluster_wide.as_deref() == everywhere, "{flag}: {cluster_wide:?}");
        let inside = world.inside(&contract, template, &contract).await?;
        ensure!(inside.as_deref() == in_contract, "{flag}: {inside:?}");
    }
    Ok(())
}

#[test]
fn without_the_policy_nothing_is_given_in_the_clusters_scope() -> Result<()> {
    run(async {
        let world = World::start("unproved").await?;
        let contract = Provider::contract("ranch-cluster");
        world.in_force(true).await?;
        let delete = ["delete", "validatingadmissionpolicybinding", "kube-bind-binder"];
        world.provider.plane.kubectl(&delete).await?;
        world.in_force(false).await?;

        let mut asked = wish("prefixed", "prefixed", "ranch-cluster");
        asked.wait = Some(prost_types::Duration { seconds: 1, nanos: 0 });
        world.client.create_bindable_resources_request(asked).await?;
        let exports: Api<APIServiceExport> = world.within(&contract);
        eventually_ok("the export to say so", SOON, async || {
            let export = exports.get("prefixed").await?;
            let said = export.condition("ProviderInSync").context("no condition")?;
            ensure!(said.reason == "AdmissionPolicyMissing" && !said.is_true(), "{said:?}");
            for words in ["kube-bind-binder", "deploy/server/policy.yaml"] {
                ensure!(said.message.contains(words), "{}", said.message);
            }
            Ok(())
        })
        .await?;
        ensure!(
            world.cluster_wide(&contract, "prefixed").await?.is_none(),
            "given all the same"
        );
        // What stands in namespaces needs no policy.
        world.bind("converted", "ranch-cluster").await?;
        ensure!(
            world.inside(&contract, "converted", &contract).await?.is_some(),
            "not given"
        );

        world
            .provider
            .plane
            .apply(&manifests::file("server/policy.yaml")?)
            .await?;
        world.bind("prefixed", "ranch-cluster").await?;
        let given = world.cluster_wide(&contract, "prefixed").await?;
        ensure!(given.as_deref() == Some(WRITES), "{given:?}");
        Ok(())
    })
}

#[test]
fn no_contract_is_made_whose_name_reaches_into_anothers() -> Result<()> {
    run(async {
        let world = World::start("overlap").await?;
        let other = format!("{}-x", Provider::contract("ranch-cluster"));
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(other.clone());
        namespace
            .labels_mut()
            .insert(labels::CONTRACT.to_owned(), other.clone());
        namespace
            .annotations_mut()
            .insert(annotations::IDENTITY.to_owned(), "other-cluster".to_owned());
        world
            .all::<Namespace>()
            .create(&PostParams::default(), &namespace)
            .await?;
        eventually_ok("the contract to be refused", SOON, async || {
            let Err(Error::Status(error)) = world.bind("converted", "ranch-cluster").await else {
                bail!("not refused");
            };
            ensure!(error.reason == Some(ErrorReason::PlacementConflict), "{error:?}");
            ensure!(error.message.contains("would share a prefix"), "{}", error.message);
            Ok(())
        })
        .await?;
        let contract = world
            .all::<Namespace>()
            .get_opt(&Provider::contract("ranch-cluster"))
            .await?;
        ensure!(contract.is_none(), "made all the same");
        Ok(())
    })
}
