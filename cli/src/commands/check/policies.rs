//! Reads policies, and tries whether they are in force by dry runs of requests that they have to deny.

use bindery_api::{
    names,
    v1alpha2::{APIServiceNamespace, APIServiceNamespaceSpec, BindableResourcesRequest, BindableResourcesRequestSpec},
};
use bindery_runtime::errors;
use futures::future::join_all;
use k8s_openapi::{
    api::{
        admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
        core::v1::Secret,
        rbac::v1::Role,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Resource,
    api::{ApiResource, DynamicObject, PostParams},
};
use serde_json::{Value, json};

use super::{cluster::Cluster, read};
use crate::{
    check::facts::{Fact, PolicyFacts, ProbeOutcome, Shipped, Unread},
    errors::Failure,
};

const POLICY: &str = "ValidatingAdmissionPolicy";
const POLICY_BINDING: &str = "ValidatingAdmissionPolicyBinding";

/// A request that a policy has to deny, and who sends it.
pub(super) struct Probe {
    /// Name of the policy that the request tries.
    pub(super) policy: &'static str,
    pub(super) resource: ApiResource,
    pub(super) namespace: Option<String>,
    pub(super) object: Value,
    /// Namespace and name of the ServiceAccount that sends it; none for the user.
    pub(super) account: Option<(String, String)>,
}

/// The policies among manifests that ship, each with its binding. `named` puts in the account that they are for.
pub(super) fn shipped(manifests: &[Value], named: impl Fn(&str) -> String) -> Vec<(String, Shipped)> {
    let of_kind = |kind: &'static str| manifests.iter().filter(move |manifest| manifest["kind"] == kind);
    let renamed = |manifest: &Value| serde_json::from_str(&named(&manifest.to_string())).unwrap_or_default();
    of_kind(POLICY)
        .map(|policy| {
            let name = &policy["metadata"]["name"];
            let binding = of_kind(POLICY_BINDING).find(|binding| binding["spec"]["policyName"] == *name);
            let shipped = Shipped {
                policy: renamed(policy),
                binding: binding.map(&renamed).unwrap_or_default(),
            };
            (name.as_str().unwrap_or_default().to_owned(), shipped)
        })
        .collect()
}

/// Reads policies, and tries each by its probe.
pub(super) async fn facts(
    cluster: &Cluster,
    shipped: Vec<(String, Shipped)>,
    probes: &[Probe],
) -> Result<Vec<PolicyFacts>, Failure> {
    let all = shipped.into_iter().map(async |(name, shipped)| {
        let policy = object::<ValidatingAdmissionPolicy>(cluster, &name);
        let binding = object::<ValidatingAdmissionPolicyBinding>(cluster, &name);
        let probe = async {
            match probes.iter().find(|probe| probe.policy == name) {
                Some(probe) => tried(cluster, probe).await.map(Some),
                None => Ok(None),
            }
        };
        let (policy, binding, probe) = tokio::join!(policy, binding, probe);
        Ok(PolicyFacts {
            name,
            shipped,
            policy,
            binding,
            probe: probe?,
        })
    });
    join_all(all).await.into_iter().collect()
}

/// Reads an object as it is, also with fields that this build does not know.
async fn object<K: Resource<DynamicType = ()>>(cluster: &Cluster, name: &str) -> Fact<Option<Value>> {
    let resource = ApiResource::erase::<K>(&());
    let api: Api<DynamicObject> = Api::all_with(cluster.client(), &resource);
    let found = read::fact(cluster.limit, api.get_opt(name)).await?;
    Ok(found.map(|object| json!(object)))
}

async fn tried(cluster: &Cluster, probe: &Probe) -> Result<Fact<ProbeOutcome>, Failure> {
    let client = match &probe.account {
        None => cluster.client(),
        Some((namespace, name)) => cluster.acting_as((namespace, name))?,
    };
    let sent = tokio::time::timeout(cluster.limit, send(client, probe)).await;
    Ok(match sent {
        Err(_) => Err(read::silent(cluster.limit)),
        Ok(Err(error)) => outcome(&error, probe.policy),
        Ok(Ok(_)) => Ok(ProbeOutcome::Admitted),
    })
}

async fn send(client: Client, probe: &Probe) -> kube::Result<DynamicObject> {
    let api: Api<DynamicObject> = match &probe.namespace {
        None => Api::all_with(client, &probe.resource),
        Some(namespace) => Api::namespaced_with(client, namespace, &probe.resource),
    };
    let object = serde_json::from_value(probe.object.clone()).map_err(kube::Error::SerdeError)?;
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    api.create(&params, &object).await
}

/// What the refusal of a probe shows.
fn outcome(error: &kube::Error, policy: &str) -> Fact<ProbeOutcome> {
    let why = errors::explain(error);
    let of_policy = errors::policy_denial(policy);
    if errors::policy_denials(error).any(|denial| denial.starts_with(&of_policy)) {
        return Ok(ProbeOutcome::Denied);
    }
    // Admission comes before the object is stored.
    if errors::is_already_exists(error) {
        return Ok(ProbeOutcome::Admitted);
    }
    match errors::code(error) {
        Some(403) if why.contains("impersonate") => Err(Unread::Denied(why)),
        Some(_) => Ok(ProbeOutcome::Untried(why)),
        None => Err(read::unread(error)),
    }
}

/// The probes of the policies that limit the konnector, which runs as this account.
pub(super) fn of_konnector((namespace, name): (&str, &str)) -> Vec<Probe> {
    let account = Some((namespace.to_owned(), name.to_owned()));
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "probes.policy.invalid" },
        "spec": {
            "group": "policy.invalid", "scope": "Namespaced",
            "names": { "plural": "probes", "singular": "probe", "kind": "Probe", "listKind": "ProbeList" },
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": { "type": "object" } },
            }],
        },
    });
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "synk-policy-probe" } });
    let probe = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": names::POLICY_PROBE } });
    vec![
        Probe {
            policy: "kube-bind-konnector-account",
            resource: ApiResource::erase::<Secret>(&()),
            namespace: Some(namespace.to_owned()),
            object: probe,
            account: account.clone(),
        },
        Probe {
            policy: "kube-bind-konnector",
            resource: ApiResource::erase::<CustomResourceDefinition>(&()),
            namespace: None,
            object: definition,
            account: account.clone(),
        },
        Probe {
            policy: "kube-bind-konnector-claims",
            resource: ApiResource::erase::<Secret>(&()),
            namespace: Some(namespace.to_owned()),
            object: secret,
            account,
        },
    ]
}

/// The probes of the policies of the provider, whose server runs as this account. The policy that limits consumers can be tried for a
/// contract only.
pub(super) fn of_server((home, name): (&str, &str), contract: Option<&str>) -> Vec<Probe> {
    let request = BindableResourcesRequestSpec {
        author: names::POLICY_PROBE.to_owned(),
        ..BindableResourcesRequestSpec::default()
    };
    let mut probes = vec![Probe {
        policy: "kube-bind-requests",
        resource: ApiResource::erase::<BindableResourcesRequest>(&()),
        namespace: Some(home.to_owned()),
        object: json!(BindableResourcesRequest::new(names::POLICY_PROBE, request)),
        account: None,
    }];
    probes.push(Probe {
        policy: "kube-bind-server",
        resource: ApiResource::erase::<Role>(&()),
        namespace: Some(home.to_owned()),
        object: json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": { "name": names::POLICY_PROBE },
        }),
        account: Some((home.to_owned(), name.to_owned())),
    });
    probes.extend(contract.map(|contract| Probe {
        policy: "kube-bind-binder",
        resource: ApiResource::erase::<APIServiceNamespace>(&()),
        namespace: Some(contract.to_owned()),
        object: json!(APIServiceNamespace::new(
            names::POLICY_PROBE,
            APIServiceNamespaceSpec {}
        )),
        account: Some((contract.to_owned(), names::KUBE_BINDER.to_owned())),
    }));
    probes
}
