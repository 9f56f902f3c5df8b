//! Binds the example without a login: by a request on the provider, whose response is installed on the consumer. Then uses it.

use std::io::Write;

use bindery_api::{
    annotations, labels,
    names::KUBE_BIND_NAMESPACE,
    v1alpha2::{APIServiceBinding, BindableResourcesRequest, GroupResource, Phase},
};
use k8s_openapi::api::{
    authentication::v1::SelfSubjectReview,
    core::v1::{Namespace, Secret},
};
use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, PostParams},
};
use serde_json::Value;

use super::{
    cluster::{Cluster, Clusters},
    up::Deadline,
};
use crate::{
    args::{AnswerArgs, DeployArgs},
    commands::deploy::bind::Bound,
    consumer::wait,
    dev::{
        EXAMPLE, EXAMPLE_OBJECT, RESPONSE,
        guard::{self, Asked},
        manifests,
    },
    errors::Failure,
    install::{plan, write::WriteKind},
    provider::response::{self, Response},
    render::{
        applied::{Applied, Outcome, Report},
        steps::Steps,
    },
};

/// How the server says that it cannot know whether a policy verified the author of a request. The next one is after the policy.
const TOO_EARLY: &str = "MadeBeforePolicy";

impl Clusters {
    /// Binds the example on the consumer.
    pub(super) async fn bind<W: Write>(
        &self,
        deadline: Deadline,
        report: &mut Report<'_, W>,
        steps: &mut Steps,
    ) -> Result<(), Failure> {
        let consumer = &self.consumer;
        let answer = self.answer(deadline, report).await?;
        let resources: Vec<GroupResource> = answer
            .requests
            .iter()
            .flat_map(|request| request.offer.resources.iter().cloned())
            .collect();
        let apis = consumer.on(consumer.api.apis(&resources).await)?;
        consumer.on(plan::refuse_foreign_apis(&apis, EXAMPLE))?;
        let quiet = Steps::new(true);
        let args = deploy_args();
        let bound = Box::pin(Bound::prepare(&consumer.api, &args, answer, &quiet));
        let bound = consumer.on(bound.await)?;
        for bind in &bound.binds {
            for write in &bind.writes {
                let mut write = write.clone();
                write.manifest = manifests::labelled(write.manifest);
                consumer.on(consumer.api.write(&write).await)?;
                let outcome = match write.kind {
                    WriteKind::Create => Outcome::Created,
                    WriteKind::Change | WriteKind::RecordClaims => Outcome::Configured,
                };
                report.tell(Applied::of(&write.manifest, outcome).on(consumer.role))?;
            }
            let ready = wait::ready(
                &consumer.api,
                &bind.manifests.owner.clone().into(),
                deadline.left(),
                steps,
            )
            .await;
            consumer.on(ready)?;
        }
        Ok(())
    }

    /// Asks for the example on the provider, and reads the response.
    async fn answer<W: Write>(&self, deadline: Deadline, report: &mut Report<'_, W>) -> Result<Response, Failure> {
        let provider = &self.provider;
        let requests: Api<BindableResourcesRequest> = Api::namespaced(provider.api.client(), KUBE_BIND_NAMESPACE);
        let wanted = manifests::request(&self.identity, &author(provider).await?);
        self.withdraw(&requests, deadline).await?;
        let outcome = make(provider, &requests, &wanted).await?;
        report.tell(Applied::of(&wanted, outcome).on(provider.role))?;
        let what = format!("the response to BindableResourcesRequest {KUBE_BIND_NAMESPACE}/{EXAMPLE}");
        let mend = format!(
            "see its conditions: kubectl --context {} get bindableresourcesrequest {EXAMPLE} -n {KUBE_BIND_NAMESPACE} -o yaml",
            provider.context()
        );
        let secret = provider
            .until((&what, &mend), deadline.left(), async || {
                let Some(request) = provider.api.find(requests.clone(), EXAMPLE).await? else {
                    make(provider, &requests, &wanted).await?;
                    return Ok(None);
                };
                if is_too_early(&request) {
                    provider.api.delete(requests.clone(), &request).await?;
                }
                if request.phase() != Phase::Succeeded {
                    return Ok(None);
                }
                let secrets = Api::<Secret>::namespaced(provider.api.client(), KUBE_BIND_NAMESPACE);
                let found = provider.api.find(secrets, RESPONSE).await?;
                // One of a former request leads to the contract of another cluster.
                let is_answer =
                    |secret: &Secret| secret.labels().get(labels::REQUEST_UID) == request.metadata.uid.as_ref();
                Ok(found.filter(is_answer))
            })
            .await?;
        let document = serde_json::to_vec(&secret).map_err(|error| Failure::Format(error.to_string()))?;
        response::read(&document, None).map_err(|source| Failure::Answer {
            from: format!("Secret {KUBE_BIND_NAMESPACE}/{RESPONSE} of the provider"),
            source,
        })
    }

    /// Deletes a request that `dev up` made for another cluster, such as one of which the consumer has taken the place.
    async fn withdraw(&self, requests: &Api<BindableResourcesRequest>, deadline: Deadline) -> Result<(), Failure> {
        let provider = &self.provider;
        let Some(former) = provider.on(provider.api.find(requests.clone(), EXAMPLE).await)? else {
            return Ok(());
        };
        match guard::asked(provider.context(), &self.identity, &former)? {
            Asked::Same => return Ok(()),
            Asked::ForOther => provider.on(provider.api.delete(requests.clone(), &former).await)?,
        }
        let what = format!("the end of BindableResourcesRequest {KUBE_BIND_NAMESPACE}/{EXAMPLE} of another cluster");
        let mend = format!(
            "see what keeps it: kubectl --context {} get bindableresourcesrequest {EXAMPLE} -n {KUBE_BIND_NAMESPACE} -o yaml",
            provider.context()
        );
        provider
            .until((&what, &mend), deadline.left(), async || {
                let found = provider.api.find(requests.clone(), EXAMPLE).await?;
                let is_gone = found.is_none_or(|found| found.metadata.uid != former.metadata.uid);
                Ok(is_gone.then_some(()))
            })
            .await
    }

    /// Makes the object of the example, unless it is there, and waits until its copy is on the provider.
    pub(super) async fn sync<W: Write>(&self, deadline: Deadline, report: &mut Report<'_, W>) -> Result<(), Failure> {
        let (consumer, provider) = (&self.consumer, &self.provider);
        for manifest in manifests::objects()? {
            let api = objects(consumer, &manifest);
            let name = manifest["metadata"]["name"].as_str().unwrap_or_default();
            let doing = format!("create {} {name}", manifest["kind"].as_str().unwrap_or_default());
            let found = api
                .get_opt(name)
                .await
                .map_err(Failure::cluster(format!("read {name}")));
            let outcome = if consumer.on(found)?.is_some() {
                Outcome::Unchanged
            } else {
                let object = serde_json::from_value(manifest.clone());
                let object = object.map_err(|error| Failure::Format(error.to_string()))?;
                let created = api.create(&PostParams::default(), &object).await;
                consumer.on(created.map_err(Failure::cluster(doing)))?;
                Outcome::Created
            };
            report.tell(Applied::of(&manifest, outcome).on(consumer.role))?;
        }
        let (namespace, name) = EXAMPLE_OBJECT;
        let mend = format!(
            "see what it waits for: kubectl bind why cowboy/{name} -n {namespace}{}",
            consumer.args.cluster().flags()
        );
        let what = format!("the copy of Cowboy {namespace}/{name}");
        let ours = Api::<DynamicObject>::namespaced_with(consumer.api.client(), namespace, &cowboys());
        consumer
            .until((&what, &mend), deadline.left(), async || {
                let ours = ours
                    .get(name)
                    .await
                    .map_err(Failure::cluster(format!("read Cowboy {namespace}/{name}")))?;
                let noted = |key: &str| ours.annotations().get(key);
                let (Some(place), Some(uid)) =
                    (noted(annotations::PROVIDER_NAMESPACE), noted(annotations::PROVIDER_UID))
                else {
                    return Ok(None);
                };
                let copies = Api::<DynamicObject>::namespaced_with(provider.api.client(), place, &cowboys());
                let copy = copies.get_opt(name).await;
                let copy = copy.map_err(Failure::cluster(format!("read Cowboy {place}/{name}")))?;
                let is_same =
                    |copy: &DynamicObject| copy.uid().as_ref() == Some(uid) && copy.data["spec"] == ours.data["spec"];
                Ok(copy.filter(is_same).map(drop))
            })
            .await
    }
}

/// The user of the provider's context, in whose name the request is made.
async fn author(provider: &Cluster) -> Result<String, Failure> {
    let reviews: Api<SelfSubjectReview> = Api::all(provider.api.client());
    let review = reviews
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await;
    let review = provider.on(review.map_err(Failure::cluster("ask who this context logs in as")))?;
    let user = review.status.and_then(|status| status.user_info);
    Ok(user.and_then(|user| user.username).unwrap_or_default())
}

/// Makes the request, unless it exists.
async fn make(
    provider: &Cluster,
    requests: &Api<BindableResourcesRequest>,
    wanted: &Value,
) -> Result<Outcome, Failure> {
    if provider
        .on(provider.api.find(requests.clone(), EXAMPLE).await)?
        .is_some()
    {
        return Ok(Outcome::Unchanged);
    }
    let request = serde_json::from_value(wanted.clone()).map_err(|error| Failure::Format(error.to_string()))?;
    let made = requests.create(&PostParams::default(), &request).await;
    let doing = format!("create BindableResourcesRequest {KUBE_BIND_NAMESPACE}/{EXAMPLE}");
    provider.on(made.map_err(Failure::cluster(doing)))?;
    Ok(Outcome::Created)
}

/// Whether a request waits for ever because it was made before the policy was in force, or within the same second.
fn is_too_early(request: &BindableResourcesRequest) -> bool {
    let conditions = request.status.iter().flat_map(|status| &status.conditions);
    let mut conditions = conditions.filter(|_| request.phase() == Phase::Pending);
    conditions.any(|condition| condition.reason == TOO_EARLY)
}

/// The flags of `kubectl bind deploy` that accept what the example claims, which is nothing.
fn deploy_args() -> DeployArgs {
    DeployArgs {
        answers: AnswerArgs {
            reject_claims: Vec::new(),
            accept_claims: true,
        },
        ..DeployArgs::default()
    }
}

/// The resource of the example.
pub(super) fn cowboys() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("wildwest.dev", "v1alpha1", "Cowboy"), EXAMPLE)
}

fn objects(cluster: &Cluster, manifest: &Value) -> Api<DynamicObject> {
    match manifest["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(cluster.api.client(), namespace, &cowboys()),
        None => Api::all_with(cluster.api.client(), &ApiResource::erase::<Namespace>(&())),
    }
}

/// The binding of the example, if it exists.
pub(super) async fn binding(consumer: &Cluster) -> Result<Option<APIServiceBinding>, Failure> {
    match consumer.api.find_binding(EXAMPLE).await {
        Err(Failure::NoKonnector) => Ok(None),
        found => consumer.on(found),
    }
}
