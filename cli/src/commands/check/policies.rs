//! Reads policies, and tries whether they are in force by dry runs of requests that they have to deny.

use bindery_api::{
    names,
    v1alpha2::{APIServiceNamespace, APIServiceNamespaceSpec, BindableResourcesRequest, BindableResourcesRequestSpec},
};
use bindery_runtime::{
    errors,
    policy::{Probe, konnector},
};
use futures::future::join_all;
use k8s_openapi::api::{
    admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
    rbac::v1::Role,
};
use kube::{
    Api, Resource,
    api::{ApiResource, DynamicObject},
};
use serde_json::{Value, json};

use super::{cluster::Cluster, read};
use crate::{
    check::facts::{Fact, PolicyAnswer, PolicyFacts, Shipped, Unread},
    errors::Failure,
};

const POLICY: &str = "ValidatingAdmissionPolicy";
const POLICY_BINDING: &str = "ValidatingAdmissionPolicyBinding";

/// A request that a policy has to deny, and who sends it.
pub(super) struct Attempt {
    probe: Probe,
    /// Namespace and name of the ServiceAccount that sends it; none for the user.
    account: Option<(String, String)>,
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
    attempts: &[Attempt],
) -> Result<Vec<PolicyFacts>, Failure> {
    let all = shipped.into_iter().map(async |(name, shipped)| {
        let policy = object::<ValidatingAdmissionPolicy>(cluster, &name);
        let binding = object::<ValidatingAdmissionPolicyBinding>(cluster, &name);
        let probe = async {
            match attempts.iter().find(|attempt| attempt.probe.policy == name) {
                Some(attempt) => tried(cluster, attempt).await.map(Some),
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

async fn tried(cluster: &Cluster, attempt: &Attempt) -> Result<Fact<PolicyAnswer>, Failure> {
    let client = match &attempt.account {
        None => cluster.client(),
        Some((namespace, name)) => cluster.acting_as((namespace, name))?,
    };
    let sent = tokio::time::timeout(cluster.limit, attempt.probe.send(client)).await;
    Ok(match sent {
        Err(_) => Err(read::silent(cluster.limit)),
        Ok(Err(error)) => outcome(&error, &attempt.probe.policy),
        Ok(Ok(_)) => Ok(PolicyAnswer::Admitted),
    })
}

/// What the refusal of a probe shows.
fn outcome(error: &kube::Error, policy: &str) -> Fact<PolicyAnswer> {
    let why = errors::explain(error);
    let of_policy = errors::policy_denial(policy);
    if errors::policy_denials(error).any(|denial| denial.starts_with(&of_policy)) {
        return Ok(PolicyAnswer::Denied);
    }
    // Admission comes before the object is stored.
    if errors::is_already_exists(error) {
        return Ok(PolicyAnswer::Admitted);
    }
    match errors::code(error) {
        Some(403) if why.contains("impersonate") => Err(Unread::Denied(why)),
        Some(_) => Ok(PolicyAnswer::Untried(why)),
        None => Err(read::unread(error)),
    }
}

/// The attempts at the policies that limit the konnector, which runs as this account.
pub(super) fn of_konnector((namespace, name): (&str, &str)) -> Vec<Attempt> {
    let probes = konnector::probes(konnector::BASE_NAME, namespace);
    let as_account = |(probe, _)| Attempt {
        probe,
        account: Some((namespace.to_owned(), name.to_owned())),
    };
    probes.map(as_account).into()
}

/// The attempts at the policies of the provider, whose server runs as this account. The policy that limits consumers can be tried for a
/// contract only.
pub(super) fn of_server((home, name): (&str, &str), contract: Option<&str>) -> Vec<Attempt> {
    let request = BindableResourcesRequestSpec {
        author: names::POLICY_PROBE.to_owned(),
        ..BindableResourcesRequestSpec::default()
    };
    let of_requests = Attempt {
        probe: Probe {
            policy: "kube-bind-requests".to_owned(),
            resource: ApiResource::erase::<BindableResourcesRequest>(&()),
            namespace: Some(home.to_owned()),
            object: json!(BindableResourcesRequest::new(names::POLICY_PROBE, request)),
        },
        account: None,
    };
    let of_account = Attempt {
        probe: Probe {
            policy: "kube-bind-server".to_owned(),
            resource: ApiResource::erase::<Role>(&()),
            namespace: Some(home.to_owned()),
            object: json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": { "name": names::POLICY_PROBE },
            }),
        },
        account: Some((home.to_owned(), name.to_owned())),
    };
    let of_contract = contract.map(|contract| Attempt {
        probe: Probe {
            policy: "kube-bind-binder".to_owned(),
            resource: ApiResource::erase::<APIServiceNamespace>(&()),
            namespace: Some(contract.to_owned()),
            object: json!(APIServiceNamespace::new(
                names::POLICY_PROBE,
                APIServiceNamespaceSpec {}
            )),
        },
        account: Some((contract.to_owned(), names::KUBE_BINDER.to_owned())),
    });
    [of_requests, of_account].into_iter().chain(of_contract).collect()
}
