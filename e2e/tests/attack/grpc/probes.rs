//! Every method with the other tenant's names, and what must become of it.

use anyhow::{Context as _, Result};
use bindery_api::v1alpha2::{APIServiceExport, BindableResourcesRequest};
use bindery_proto::v1alpha2 as proto;
use bytes::Bytes;
use kube::{Api, ResourceExt as _, api::ListParams};
use prost::Message as _;
use proto::ErrorReason;

use crate::{
    offers::{HORSES, MASKS},
    tenant::{request_name, wish},
    world::World,
};

/// What must become of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    /// Refused for this reason, with the code that goes with it.
    Refused(ErrorReason),
    /// It succeeds, and shows nothing of the other's.
    Hidden,
    /// Whatever it comes to, it shows nothing of the other's.
    Silent,
}

/// One call.
#[derive(Debug)]
pub(crate) struct Probe {
    pub(crate) path: &'static str,
    pub(crate) body: Bytes,
    /// By a principal: the person or program that binds.
    pub(crate) principal: Expect,
    /// With the token of the kubeconfig.
    pub(crate) contract: Expect,
}

use Expect::{Hidden, Refused, Silent};

/// A collection of what the victim alone may bind.
const WARDROBE: &str = "zorros-wardrobe";

const METHOD: Expect = Refused(ErrorReason::MethodDenied);
const DENIED: Expect = Refused(ErrorReason::ContractDenied);
const TEMPLATE: Expect = Refused(ErrorReason::TemplateBindDenied);
const TAKEN: Expect = Refused(ErrorReason::ClusterIdentityTaken);
const NO_REQUEST: Expect = Refused(ErrorReason::RequestNotFound);
const NO_EXPORT: Expect = Refused(ErrorReason::ExportNotFound);

/// The calls of an attacker who knows every name of the other's.
pub(crate) async fn all(world: &World) -> Result<Vec<Probe>> {
    let mut all = Vec::new();
    all.extend(probes("ProviderService/GetProvider", None, [(empty(), Hidden)]));
    all.extend(probes("ProviderService/GetCaller", Some(METHOD), [(empty(), Hidden)]));
    all.extend(catalog());
    all.extend(creations(world));
    all.extend(requests(world).await?);
    all.extend(exports(world).await?);
    all.extend(credentials(world));
    all.extend(contracts(world));
    Ok(all)
}

/// Calls of one method: what is sent, and what must become of it when a principal sends it. With the token of the kubeconfig
/// it comes to `contract`, or to the same.
fn probes<const N: usize>(method: &str, contract: Option<Expect>, calls: [(Vec<u8>, Expect); N]) -> [Probe; N] {
    let path = format!("/kubebind.v1alpha2.{method}");
    let path = bindery_proto::idempotency::method_paths().find(|known| *known == path);
    let path = path.expect("a method of the .proto files");
    calls.map(|(body, principal)| Probe {
        path,
        body: body.into(),
        principal,
        contract: contract.unwrap_or(principal),
    })
}

/// Nothing, as a message of any type.
fn empty() -> Vec<u8> {
    Vec::new()
}

fn catalog() -> Vec<Probe> {
    let by_collection = proto::ListTemplatesRequest {
        collection: WARDROBE.to_owned(),
        ..Default::default()
    };
    let template = proto::GetTemplateRequest {
        name: MASKS.name.to_owned(),
    };
    let collection = |name: &str| proto::GetCollectionRequest { name: name.to_owned() }.encode_to_vec();
    let templates = [(empty(), Hidden), (by_collection.encode_to_vec(), Hidden)];
    let none = Refused(ErrorReason::CollectionNotFound);
    let collections = [(collection(WARDROBE), none), (collection("everything"), Hidden)];
    let mut all = Vec::new();
    all.extend(probes("CatalogService/ListTemplates", Some(METHOD), templates));
    all.extend(probes(
        "CatalogService/GetTemplate",
        Some(METHOD),
        [(template.encode_to_vec(), TEMPLATE)],
    ));
    all.extend(probes(
        "CatalogService/ListCollections",
        Some(METHOD),
        [(empty(), Hidden)],
    ));
    all.extend(probes("CatalogService/GetCollection", Some(METHOD), collections));
    all
}

fn creations(world: &World) -> [Probe; 3] {
    let (joe, zorro) = (&world.joe, &world.zorro);
    let theirs = wish(&request_name(zorro.name, HORSES), HORSES.name, &zorro.identity, "joe");
    let validate_only = proto::CreateBindableResourcesRequestRequest {
        validate_only: true,
        ..theirs.clone()
    };
    let private = wish("wardrobe", MASKS.name, &joe.identity, "joe");
    let calls = [
        (theirs.encode_to_vec(), TAKEN),
        (validate_only.encode_to_vec(), TAKEN),
        (private.encode_to_vec(), TEMPLATE),
    ];
    probes("BindingService/CreateBindableResourcesRequest", Some(METHOD), calls)
}

async fn requests(world: &World) -> Result<Vec<Probe>> {
    let (name, identity) = (request_name(world.zorro.name, HORSES), world.zorro.identity.clone());
    let get = |cluster_identity: &str| proto::GetBindableResourcesRequestRequest {
        name: name.clone(),
        cluster_identity: cluster_identity.to_owned(),
    };
    let list = proto::ListBindableResourcesRequestsRequest {
        cluster_identity: identity.clone(),
        ..Default::default()
    };
    let watch = proto::WatchBindableResourcesRequestsRequest {
        cluster_identity: identity.clone(),
        ..Default::default()
    };
    let by_name = proto::WatchBindableResourcesRequestsRequest {
        names: vec![name.clone()],
        ..Default::default()
    };
    let delete = proto::DeleteBindableResourcesRequestRequest {
        name: name.clone(),
        cluster_identity: identity.clone(),
        ..Default::default()
    };
    let by_uid = proto::DeleteBindableResourcesRequestRequest {
        uid: request_uid(world).await?,
        ..delete.clone()
    };
    let missing = proto::DeleteBindableResourcesRequestRequest {
        allow_missing: true,
        ..by_uid.clone()
    };
    let gets = [&identity, &world.joe.identity].map(|identity| (get(identity).encode_to_vec(), NO_REQUEST));
    let lists = [empty(), list.encode_to_vec()].map(|body| (body, Hidden));
    let watches = [empty(), watch.encode_to_vec(), by_name.encode_to_vec()].map(|body| (body, Hidden));
    // Deleting what is not there succeeds; what becomes of the other's is seen afterwards.
    let deletions = [(delete, NO_REQUEST), (by_uid, NO_REQUEST), (missing, Hidden)];
    let deletions = deletions.map(|(message, expect)| (message.encode_to_vec(), expect));
    let mut all = Vec::new();
    all.extend(probes("BindingService/GetBindableResourcesRequest", Some(METHOD), gets));
    all.extend(probes(
        "BindingService/ListBindableResourcesRequests",
        Some(METHOD),
        lists,
    ));
    all.extend(probes(
        "BindingService/WatchBindableResourcesRequests",
        Some(METHOD),
        watches,
    ));
    all.extend(probes(
        "BindingService/DeleteBindableResourcesRequest",
        Some(METHOD),
        deletions,
    ));
    Ok(all)
}

async fn exports(world: &World) -> Result<Vec<Probe>> {
    let (contract, name) = (&world.zorro.contract, request_name(world.zorro.name, HORSES));
    let list = proto::ListExportsRequest {
        contract: contract.clone(),
        ..Default::default()
    };
    let page = proto::ListExportsRequest {
        page_token: page_token(world).await?,
        page_size: 1,
        ..Default::default()
    };
    let get = |contract: &str| proto::GetExportRequest {
        contract: contract.to_owned(),
        name: name.clone(),
    };
    let watch = proto::WatchExportsRequest {
        contract: contract.clone(),
        ..Default::default()
    };
    let schema = |contract: &str| proto::GetBoundSchemaRequest {
        contract: contract.to_owned(),
        name: format!("{}.{}", MASKS.name, MASKS.group()),
        known_hash: String::new(),
    };
    let no_schema = Refused(ErrorReason::BoundSchemaNotFound);
    let lists = [
        (empty(), Hidden),
        (list.encode_to_vec(), DENIED),
        (page.encode_to_vec(), Silent),
    ];
    let gets = [
        (get(contract).encode_to_vec(), DENIED),
        (get("").encode_to_vec(), NO_EXPORT),
    ];
    let watches = [(empty(), Hidden), (watch.encode_to_vec(), DENIED)];
    let schemas = [
        (schema(contract).encode_to_vec(), DENIED),
        (schema("").encode_to_vec(), no_schema),
    ];
    let mut all = Vec::new();
    all.extend(probes("ExportService/ListExports", None, lists));
    all.extend(probes("ExportService/GetExport", None, gets));
    all.extend(probes("ExportService/WatchExports", None, watches));
    all.extend(probes("ExportService/GetBoundSchema", None, schemas));
    all.extend(deletions(world, name).await?);
    Ok(all)
}

async fn deletions(world: &World, name: String) -> Result<[Probe; 5]> {
    let delete = proto::DeleteExportRequest {
        contract: world.zorro.contract.clone(),
        name,
        uid: export_uid(world).await?,
        ..Default::default()
    };
    let forced = proto::DeleteExportRequest {
        force: true,
        ..delete.clone()
    };
    let missing = proto::DeleteExportRequest {
        allow_missing: true,
        ..delete.clone()
    };
    let validate_only = proto::DeleteExportRequest {
        validate_only: true,
        ..delete.clone()
    };
    let unnamed = proto::DeleteExportRequest {
        contract: String::new(),
        ..forced.clone()
    };
    let denied = [delete, forced, missing, validate_only].map(|message| (message.encode_to_vec(), DENIED));
    let [one, two, three, four] = denied;
    let calls = [one, two, three, four, (unnamed.encode_to_vec(), NO_EXPORT)];
    Ok(probes("ExportService/DeleteExport", None, calls))
}

fn credentials(world: &World) -> [Probe; 2] {
    let contract = || world.zorro.contract.clone();
    let renew = proto::RenewKubeconfigRequest {
        contract: contract(),
        holder: String::new(),
    };
    let revoke = proto::RevokeCredentialsRequest {
        contract: contract(),
        reason: String::new(),
    };
    let [renew] = probes(
        "CredentialService/RenewKubeconfig",
        None,
        [(renew.encode_to_vec(), DENIED)],
    );
    let [revoke] = probes(
        "CredentialService/RevokeCredentials",
        Some(METHOD),
        [(revoke.encode_to_vec(), DENIED)],
    );
    [renew, revoke]
}

fn contracts(world: &World) -> Vec<Probe> {
    let contract = || world.zorro.contract.clone();
    let list = proto::ListContractsRequest {
        cluster_identity: world.zorro.identity.clone(),
        ..Default::default()
    };
    let get = |contract: String| proto::GetContractRequest { contract }.encode_to_vec();
    let share = |group: &str| proto::ShareContractRequest {
        contract: contract(),
        add_groups: vec![group.to_owned()],
        ..Default::default()
    };
    let validate_only = proto::ShareContractRequest {
        validate_only: true,
        ..share("bandits")
    };
    let revoke = proto::RevokeContractRequest {
        contract: contract(),
        ..Default::default()
    };
    let unbind = proto::UnbindContractRequest {
        contract: contract(),
        force: true,
        ..Default::default()
    };
    let count = proto::UnbindContractRequest {
        validate_only: true,
        ..unbind.clone()
    };
    let field = Refused(ErrorReason::FieldInvalid);
    let mut all = Vec::new();
    let mut add = |method: &str, calls: Vec<(Vec<u8>, Expect)>| {
        for call in calls {
            all.extend(probes(&format!("ContractService/{method}"), Some(METHOD), [call]));
        }
    };
    add("ListContracts", vec![(empty(), Hidden), (list.encode_to_vec(), Hidden)]);
    // A contract of the other's and one that nobody has are denied alike.
    add(
        "GetContract",
        vec![(get(contract()), DENIED), (get("kube-bind-nobodys".to_owned()), DENIED)],
    );
    add("WatchContracts", vec![(empty(), Hidden)]);
    let shares = vec![
        (share("bandits").encode_to_vec(), DENIED),
        (share("system:authenticated").encode_to_vec(), field),
        (validate_only.encode_to_vec(), DENIED),
    ];
    add("ShareContract", shares);
    add("RevokeContract", vec![(revoke.encode_to_vec(), DENIED)]);
    add(
        "UnbindContract",
        vec![(unbind.encode_to_vec(), DENIED), (count.encode_to_vec(), DENIED)],
    );
    all
}

/// UID of the other's request, which an attacker cannot know.
async fn request_uid(world: &World) -> Result<String> {
    let requests: Api<BindableResourcesRequest> =
        Api::namespaced(world.provider.plane.client(), bindery_e2e::NAMESPACE);
    let all = requests.list(&ListParams::default()).await?;
    let theirs = all
        .into_iter()
        .find(|request| request.spec.cluster_identity.identity == world.zorro.identity);
    theirs
        .and_then(|request| request.uid())
        .context("a request of the other's")
}

async fn export_uid(world: &World) -> Result<String> {
    let exports: Api<APIServiceExport> = Api::namespaced(world.provider.plane.client(), &world.zorro.contract);
    exports
        .get(&request_name(world.zorro.name, HORSES))
        .await?
        .uid()
        .context("a UID")
}

/// Where the other's list goes on after its first export.
async fn page_token(world: &World) -> Result<String> {
    let wire = super::wire::Wire::connect(&world.provider).await?;
    let first = proto::ListExportsRequest {
        page_size: 1,
        ..Default::default()
    };
    let body = first.encode_to_vec().into();
    let path = "/kubebind.v1alpha2.ExportService/ListExports";
    let answer = wire.answers(path, &body, Some(&world.zorro.principal_token)).await?;
    let answer = proto::ListExportsResponse::decode(answer.into_iter().next().context("no answer")?)?;
    anyhow::ensure!(
        !answer.next_page_token.is_empty(),
        "the other has one export: {answer:?}"
    );
    Ok(answer.next_page_token)
}
