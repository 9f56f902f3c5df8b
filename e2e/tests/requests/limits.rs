//! Limits of tenants: each is met once, and says its number and the mend. Grants that end. The priority level of contracts' requests.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use bindery_api::{
    Conditions, annotations, names,
    v1alpha2::{APIServiceExport, APIServiceExportRequest, APIServiceNamespace, APIServiceNamespaceSpec, Phase},
};
use bindery_e2e::{Provider, eventually_ok, http, lease, run, wildwest::SOON};
use bindery_proto::v1alpha2::{ErrorReason, WatchContractsRequest};
use bindery_sdk::{BindRequest, Client, Error};
use futures::future::join_all;
use k8s_openapi::api::{
    core::v1::Namespace,
    flowcontrol::v1::{FlowSchema, PriorityLevelConfiguration},
};
use kube::{
    Api, Resource, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::case::case;

const FLAGS: [&str; 7] = [
    "--limit-contracts=2",
    "--limit-requests=3",
    "--limit-export-requests=3",
    "--limit-exports=2",
    "--max-namespaces-per-contract=2",
    "--limit-streams=2",
    "--limit-calls-per-second=5",
];
const FLOWS: &str = include_str!("../../../deploy/examples/priority-and-fairness/flow-schemas.yaml");
/// The consumers of the tenant.
const ONE: &str = "cluster-one";
const TWO: &str = "cluster-two";

#[test]
fn each_limit_is_met_once_and_says_its_number_and_mend() -> Result<()> {
    run(async {
        let flags = [&lease::PATIENT[..], &FLAGS[..]].concat();
        let provider = Provider::start_with("limits", &flags).await?;
        provider.principal("tenant", &["cowboys"]).await?;
        let token = std::fs::read_to_string(provider.token_file("tenant").await?)?;
        let builder = Client::builder(provider.address()).ca_pem(provider.plane.ca_pem());
        let tenant = builder.token(token).build()?;
        let told = what_calls_make(&provider, &tenant).await;
        let told = match told {
            Ok(()) => match what_a_konnector_makes(&provider).await {
                Ok(()) => what_callers_do(&provider, &tenant).await,
                failed => failed,
            },
            failed => failed,
        };
        told.with_context(|| provider.servers[0].tail())
    })
}

async fn bind(tenant: &Client, name: &str, identity: &str) -> Result<(), Error> {
    tenant
        .bind(BindRequest::new("cowboys", identity).name(name), |_| ())
        .await
        .map(drop)
}

/// A bind must be refused by a limit, in words that say all of `says`.
fn limited(outcome: Result<(), Error>, limit: &str, says: &[&str]) -> Result<()> {
    let error = match outcome {
        Err(Error::Status(error)) => *error,
        other => bail!("not refused by {limit}: {other:?}"),
    };
    ensure!(error.reason == Some(ErrorReason::LimitReached), "{error:?}");
    for words in says {
        ensure!(error.message.contains(words), "no {words:?} in {}", error.message);
    }
    Ok(())
}

async fn what_calls_make(provider: &Provider, tenant: &Client) -> Result<()> {
    let contract = Provider::contract(TWO);
    bind(tenant, "a", ONE).await?;
    bind(tenant, "b", ONE).await?;
    let says = ["limit of 2 exports", "unbind one", "--limit-exports"];
    limited(bind(tenant, "c", ONE).await, "exports", &says)?;
    bind(tenant, "a", TWO).await?;
    let says = ["limit of 3 BindableResourcesRequests", "--limit-requests"];
    limited(bind(tenant, "b", TWO).await, "requests", &says)?;
    let says = ["limit of 2 contracts", "--limit-contracts"];
    limited(bind(tenant, "a", "cluster-three").await, "contracts", &says)?;
    // What is there already is bound again, and an admin changes the limits of one contract.
    bind(tenant, "a", TWO).await?;
    annotate(provider, &contract, r#"{"exports": 1}"#).await?;
    eventually_ok("the limit of one contract to hold", SOON, async || {
        let says = ["limit of 1 exports", "annotation backend.kube-bind.io/limits"];
        limited(bind(tenant, "b", TWO).await, "exports", &says)
    })
    .await?;
    let shown = tenant.get_contract(&contract).await?;
    let exports = shown.limits.iter().find(|limit| limit.name == "exports");
    let exports = exports.context("the limit is not shown")?;
    ensure!((exports.limit, exports.used) == (1, Some(1)), "{exports:?}");
    Ok(())
}

async fn annotate(provider: &Provider, contract: &str, limits: &str) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(provider.plane.client());
    let patch = Patch::Merge(json!({"metadata": {"annotations": {annotations::LIMITS: limits}}}));
    namespaces.patch(contract, &PatchParams::default(), &patch).await?;
    Ok(())
}

async fn what_a_konnector_makes(provider: &Provider) -> Result<()> {
    let contract = Provider::contract(ONE);
    let plane = &provider.plane;
    let binder = plane.service_account_client(&contract, names::KUBE_BINDER).await?;
    let requests: Api<APIServiceExportRequest> = Api::namespaced(binder.clone(), &contract);
    let spec = requests.get("a").await?.spec;
    for name in ["y", "z"] {
        let request = APIServiceExportRequest::new(name, spec.clone());
        requests.create(&PostParams::default(), &request).await?;
    }
    waits(&requests, "y", "ExportsReady", "LimitReached", "limit of 2 exports").await?;
    let says = "limit of 3 APIServiceExportRequests";
    waits(&requests, "z", "ExportsReady", "LimitReached", says).await?;

    let mapped: Api<APIServiceNamespace> = Api::namespaced(binder, &contract);
    for name in ["n1", "n2", "n3"] {
        let namespace = APIServiceNamespace::new(name, APIServiceNamespaceSpec {});
        mapped.create(&PostParams::default(), &namespace).await?;
    }
    let refused = async |name: &str, limit: &str| {
        let says = format!("limit of {limit} namespaces");
        waits(&mapped, name, "Ready", "TooManyNamespaces", &says).await
    };
    refused("n3", "2").await?;
    annotate(provider, &contract, r#"{"namespaces": 3, "exports": 3}"#).await?;
    eventually_ok("the third namespace to be mapped", SOON, async || {
        let status = mapped.get("n3").await?.status.context("no status")?;
        ensure!(status.namespace.is_some(), "{status:?}");
        Ok(())
    })
    .await?;
    eventually_ok("the third export", SOON, async || {
        let exports: Api<APIServiceExport> = Api::namespaced(plane.client(), &contract);
        exports.get("y").await?;
        Ok(())
    })
    .await
}

/// Waits until an object's condition is False for this reason, in words that say this.
async fn waits<K>(api: &Api<K>, name: &str, type_: &str, reason: &str, says: &str) -> Result<()>
where
    K: Resource + Conditions + Clone + DeserializeOwned + std::fmt::Debug,
{
    eventually_ok(format!("{name} to be {type_}=False/{reason}"), SOON, async || {
        let object = api.get(name).await?;
        let found = object
            .condition(type_)
            .with_context(|| format!("{:?}", object.conditions()))?;
        ensure!(found.reason == reason && found.message.contains(says), "{found:?}");
        Ok(())
    })
    .await
}

async fn what_callers_do(provider: &Provider, tenant: &Client) -> Result<()> {
    let watch = || {
        let mut watch = tenant.watch_contracts(WatchContractsRequest::default());
        tokio::spawn(async move { while watch.next().await.is_some() {} })
    };
    let watches = [watch(), watch()];
    refusals(provider, "streams").await?;
    for watch in watches {
        watch.abort();
    }
    let calls = (0..100).map(|_| tenant.get_caller());
    join_all(calls).await;
    refusals(provider, "callsPerSecond").await?;
    for limit in ["contracts", "requests", "exportRequests", "exports", "namespaces"] {
        refusals(provider, limit).await?;
    }
    Ok(())
}

/// Waits until a refusal by the limit was counted.
async fn refusals(provider: &Provider, limit: &str) -> Result<()> {
    eventually_ok(format!("a refusal by {limit} to be counted"), SOON, async || {
        let (_, page) = http::get(provider.admin_port(), "/metrics").await?;
        let sample = format!("bindery_limit_refusals_total{{limit=\"{limit}\"}} ");
        let count = page.lines().find_map(|line| line.strip_prefix(&sample));
        let count: f64 = count.with_context(|| format!("no {sample} in:\n{page}"))?.parse()?;
        ensure!(count > 0.0, "none yet");
        Ok(())
    })
    .await
}

#[test]
fn nothing_is_exported_anew_after_the_right_was_taken_or_the_last_export_ended() -> Result<()> {
    case("grants", async |_, case| {
        case.apply(&case.request("cowboys")).await?;
        case.succeeds("cowboys").await?;
        let binder = case
            .provider
            .plane
            .service_account_client(&case.contract(), names::KUBE_BINDER)
            .await?;
        let requests: Api<APIServiceExportRequest> = Api::namespaced(binder, &case.contract());
        let spec = requests.get("cowboys").await?.spec;
        let ask = async |name: &str| -> Result<()> {
            let request = APIServiceExportRequest::new(name, spec.clone());
            requests.create(&PostParams::default(), &request).await?;
            Ok(())
        };
        // While the owner may bind the template, the contract may export it under another name.
        ask("again").await?;
        eventually_ok("another export", SOON, async || {
            let status = requests.get("again").await?.status.context("no status")?;
            ensure!(status.phase == Phase::Succeeded, "{status:?}");
            Ok(())
        })
        .await?;

        let bindings: Api<k8s_openapi::api::rbac::v1::ClusterRoleBinding> = Api::all(case.provider.plane.client());
        let binding = bindings.get(case.name).await?;
        bindings.delete(case.name, &DeleteParams::default()).await?;
        let number = std::sync::atomic::AtomicU32::new(0);
        eventually_ok("no export without the right", SOON, async || {
            // RBAC takes a moment to be in effect.
            let name = format!("taken-{}", number.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
            ask(&name).await?;
            let phase = decided(&requests, &name).await?;
            ensure!(phase == "TemplateBindDenied", "{name} is {phase}");
            Ok(())
        })
        .await?;

        let mut back = binding;
        back.metadata = kube::api::ObjectMeta {
            name: back.metadata.name,
            ..kube::api::ObjectMeta::default()
        };
        bindings.create(&PostParams::default(), &back).await?;
        for export in case.exports().list(&kube::api::ListParams::default()).await? {
            case.exports()
                .delete(&export.name_any(), &DeleteParams::default())
                .await?;
        }
        let namespaces: Api<Namespace> = Api::all(case.provider.plane.client());
        eventually_ok("the grant to end", SOON, async || {
            let contract = namespaces.get(&case.contract()).await?;
            let granted = contract.annotations().get(annotations::GRANTED_TEMPLATES);
            ensure!(granted.map(String::as_str) == Some("[]"), "{granted:?}");
            Ok(())
        })
        .await?;
        ask("late").await?;
        let phase = decided(&requests, "late").await?;
        ensure!(phase == "TemplateNotGranted", "it is {phase}");
        Ok(())
    })
}

/// Waits until an export request is decided; its reason, or its phase if it succeeded.
async fn decided(requests: &Api<APIServiceExportRequest>, name: &str) -> Result<String> {
    eventually_ok(format!("{name} to be decided"), SOON, async || {
        let request = requests.get(name).await?;
        let phase = request.status.as_ref().map(|status| status.phase).unwrap_or_default();
        ensure!(phase != Phase::Pending, "{request:?}");
        let ready = request.condition("ExportsReady").context("no condition")?;
        Ok(if phase == Phase::Failed {
            ready.reason.clone()
        } else {
            format!("{phase:?}")
        })
    })
    .await
}

#[test]
fn requests_of_contracts_have_a_priority_level_of_their_own() -> Result<()> {
    case("flows", async |_, case| {
        case.apply(&case.request("cowboys")).await?;
        case.succeeds("cowboys").await?;
        let plane = &case.provider.plane;
        plane.apply(FLOWS).await?;
        let (level, flow) = ("kube-bind-contracts", "kube-bind-contracts");
        let levels: Api<PriorityLevelConfiguration> = Api::all(plane.client());
        let flows: Api<FlowSchema> = Api::all(plane.client());
        let level = levels.get(level).await?.uid().context("no UID")?;
        let flow = flows.get(flow).await?.uid().context("no UID")?;
        let binder = plane
            .service_account_client(&case.contract(), names::KUBE_BINDER)
            .await?;
        classified(
            &binder,
            "/apis/wildwest.dev/v1alpha1/namespaces/default/cowboys",
            (&level, &flow),
        )
        .await?;
        let exports = format!(
            "/apis/kube-bind.io/v1alpha2/namespaces/{}/apiserviceexports",
            case.contract()
        );
        classified(&binder, &exports, (&level, &flow)).await?;
        // The server comes before them.
        let server = plane.service_account_client("kube-bind", "bindery-server").await?;
        let high = levels.get("workload-high").await?.uid().context("no UID")?;
        let own = flows.get("kube-bind-server").await?.uid().context("no UID")?;
        classified(&server, &exports, (&high, &own)).await
    })
}

/// Waits until a request is told to be of this priority level and FlowSchema, whether it is allowed or not.
async fn classified(client: &kube::Client, path: &str, (level, flow): (&str, &str)) -> Result<()> {
    eventually_ok(format!("{path} to be classified"), Duration::from_mins(1), async || {
        let request = ::http::Request::get(path).body(kube::client::Body::empty())?;
        let answer = client.send(request).await?;
        let header = |name: &str| {
            let value = answer.headers().get(name);
            value.and_then(|value| value.to_str().ok()).unwrap_or_default()
        };
        let told = (
            header("X-Kubernetes-PF-PriorityLevel-UID"),
            header("X-Kubernetes-PF-FlowSchema-UID"),
        );
        ensure!(told == (level, flow), "{told:?}, and {level}, {flow} are wanted");
        Ok(())
    })
    .await
}
