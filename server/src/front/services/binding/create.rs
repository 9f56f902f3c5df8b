//! Creating a request: the call checks everything before it writes, is idempotent by the key of the request, and answers when
//! the controller has decided, or, before the caller's deadline, with the request as it is then.

use std::{collections::BTreeMap, sync::Arc};

use bindery_api::{
    annotations, labels,
    names::{self, TemplateName},
    v1alpha2 as api,
};
use bindery_proto::v1alpha2::{
    CreateBindableResourcesRequestRequest, CreateBindableResourcesRequestResponse, ErrorReason,
};
use bindery_runtime::{backoff::Backoff, cache::ObjectKey, errors, traces::TraceContext};
use kube::{
    ResourceExt as _,
    api::{ObjectMeta, PostParams},
};
use serde_json::json;
use tokio::time::{Duration, Instant, sleep};

use crate::front::services::binding::RequestKey;
use crate::{
    actions,
    audit::Decision,
    contract::{self, Located, grants::recorded_groups, sharing},
    credentials,
    front::{
        Failure, Front, Outcome,
        services::wait::until_shown,
        transport::interceptor::Call,
        wire::{
            convert::{request, response},
            validate::{self, BindRequest, CreateRequest},
        },
    },
    limits::LimitName,
    request::{self as requests, caller_groups, principal_groups},
    rights::RightsError,
    template::{self, ExportPlan},
    writes::Write,
};

/// Number of attempts to write a request that others write at the same time.
const ROUNDS: usize = 8;
/// The pause before a request whose export is being deleted runs again.
const RERUN: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(2));

/// A request that the caller may make and that can succeed, as far as can be told before it is written.
pub(super) struct Checked {
    pub(super) key: RequestKey,
    pub(super) spec: api::BindableResourcesRequestSpec,
    pub(super) plan: ExportPlan,
    pub(super) located: Located,
    /// The caller's groups that own the contract.
    groups: Vec<String>,
    /// The caller's groups, by which it may have the right to bind.
    caller_groups: Vec<String>,
}

/// What to do about a request that exists already.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// It is pending or has succeeded: wait for it, or return it.
    Join,
    /// It has succeeded, and its export is not what the template would make now.
    RunAgain,
    /// It has failed: delete it and make it again.
    Restart,
}

impl Front {
    pub(super) async fn create_request(
        &self,
        call: &Call,
        message: CreateBindableResourcesRequestRequest,
    ) -> Outcome<CreateBindableResourcesRequestResponse> {
        let caller = call.caller()?;
        // A caller without the right to bind the template learns nothing of the rest.
        let template = validate::template_name(&message)?;
        call.note.add(|noted| {
            noted.template = template.to_string();
            noted.dry_run = message.validate_only;
        });
        self.templates.require_bind(caller, &template).await?;
        let message = CreateRequest::try_from(message)?;
        call.note.add(|noted| noted.name = message.request.name.to_string());
        let checked = self.check(call, &message.request).await?;
        if message.validate_only {
            return Ok(planned(&checked));
        }
        let until = call.deadline.wait_until(message.wait);
        self.reinstate(&checked, until).await?;
        let found = self.settled(call, &checked, until).await?;
        call.note.add(|noted| noted.outcome = outcome(&found));
        self.answer(&checked, &found, until).await
    }

    /// Finds every reason for which the request would fail, before anything is written.
    async fn check(&self, call: &Call, request: &BindRequest) -> Outcome<Checked> {
        let caller = call.caller()?;
        request.require_served_compatibility()?;
        let template = &request.template;
        let spec = request::spec_of(request, caller.username().to_owned());
        let key = RequestKey::new(caller, request.identity.clone(), request.name.clone());
        let located = self.locate(&key, call)?;
        let groups = located.namespace.as_deref().map_or_else(Vec::new, |namespace| {
            sharing::matching(namespace, &caller.identity.groups)
        });
        let plan = self.offer(template).await?;
        let bound = self.state.caches.bound_schemas.list_in(&located.name);
        plan.fits(bound.iter().map(AsRef::as_ref))
            .map_err(|refusal| of_template(template, &refusal))?;
        self.refuse_other_export(&key, &located.name, template)?;
        self.require_room(&key, &located)?;
        Ok(Checked {
            key,
            spec,
            plan,
            located,
            groups,
            caller_groups: recorded_groups(&caller.identity.groups),
        })
    }

    /// Refuses a request for which its caller, or the contract, would need more than a limit allows.
    fn require_room(&self, key: &RequestKey, located: &Located) -> Outcome<()> {
        let state = &self.state;
        let (limits, author) = (&state.settings.limits, &key.principal.username);
        let is_known = || {
            state
                .caches
                .requests
                .get(&state.settings.namespace, &key.object)
                .is_some()
        };
        let checked = match &located.namespace {
            None => limits.check(LimitName::Contracts, state.counts.contracts(author), None),
            Some(_) if state.caches.exports.get(&located.name, &key.name).is_some() => Ok(()),
            Some(contract) => {
                let exports = state.caches.exports.list_in(&located.name).len();
                let limits = limits.of_contract(contract);
                limits.check(LimitName::Exports, exports, Some(&located.name))
            }
        };
        let checked = checked.and_then(|()| {
            if is_known() {
                return Ok(());
            }
            limits.check(LimitName::Requests, state.counts.requests(author), None)
        });
        checked.map_err(|reached| {
            state.refusals.count(reached.name);
            Failure::of_limit(&reached)
        })
    }

    fn locate(&self, key: &RequestKey, call: &Call) -> Outcome<Located> {
        let prefix = &self.state.settings.namespace_prefix;
        let concerning = contract::concerning(prefix, &key.identity);
        let namespaces = self.state.caches.namespaces.list(concerning);
        let mut located =
            contract::locate(&namespaces, prefix, &key.identity).map_err(|refusal| of_contract(&refusal))?;
        if located.namespace.is_none() {
            // A labelled namespace of that name that is no contract stands in the way.
            located.namespace = self.state.caches.namespaces.get("", &located.name);
        }
        call.note.add(|noted| noted.contract.clone_from(&located.name));
        let groups = &call.caller()?.identity.groups;
        contract::admit(&located, &key.identity, &key.principal, groups).map_err(|refusal| of_contract(&refusal))?;
        Ok(located)
    }

    /// What the template exports, if the server has the rights to export it.
    async fn offer(&self, name: &TemplateName) -> Outcome<ExportPlan> {
        let template = self.template(name)?;
        let plan = template::assess(&template, &self.state.caches, &self.state.settings);
        let plan = plan.map_err(|refusal| of_template(name, &refusal))?;
        match self.state.rights.check(&plan).await {
            Ok(()) => Ok(plan),
            Err(RightsError::Lacking(refusal)) => Err(of_template(name, &refusal)),
            Err(RightsError::Api(error)) => Err(Failure::of_kube("review the server's own rights", &error)),
        }
    }

    /// Refuses the name of an export that was made from another template, for that export may be in use.
    fn refuse_other_export(&self, key: &RequestKey, contract: &str, template: &TemplateName) -> Outcome<()> {
        let Some(export) = self.state.caches.exports.get(contract, &key.name) else {
            return Ok(());
        };
        let from = export.annotations().get(annotations::TEMPLATE);
        if export.metadata.deletion_timestamp.is_some() || from.is_some_and(|from| **template == **from) {
            return Ok(());
        }
        let text = format!(
            "export {} of contract {contract} was made from {}; choose another name, or unbind it first",
            key.name,
            from.map_or_else(|| "no template".to_owned(), |from| format!("template {from}")),
        );
        Err(Failure::new(ErrorReason::ExportNameTaken, text)
            .with("export", &*key.name)
            .with("contract", contract))
    }

    /// Ends a revocation of the contract's credentials, and a lock of their renewal, as each bind by an owner does.
    async fn reinstate(&self, checked: &Checked, until: Instant) -> Outcome<()> {
        let contract = &checked.located.name;
        let bindings = &self.state.caches.cluster_bindings;
        let is_revoked = |binding: Option<&api::ClusterBinding>| {
            binding.is_some_and(|binding| {
                credentials::revocation(binding).is_some() || credentials::renewal::lock(binding).is_some()
            })
        };
        if !is_revoked(bindings.get(contract, names::CLUSTER_BINDING).as_deref()) {
            return Ok(());
        }
        self.issuer.reinstate(contract, None).await?;
        let key = ObjectKey::new(contract.as_str(), names::CLUSTER_BINDING);
        until_shown(bindings, &key, until, |binding| !is_revoked(binding)).await;
        Ok(())
    }

    /// Makes the request, or takes up the one that exists, and waits for the controller. The request runs again where the controller, or
    /// this replica, did not see yet that the export is being deleted.
    async fn settled(
        &self,
        call: &Call,
        checked: &Checked,
        until: Instant,
    ) -> Outcome<Arc<api::BindableResourcesRequest>> {
        let mut attempt = 0;
        loop {
            let begun = self.begin(checked, call.trace.as_ref()).await?;
            call.note.add_request(&begun);
            let found = self.finished(&begun, until).await?;
            if found.phase() != api::Phase::Succeeded || self.has_export(&found).await? {
                return Ok(found);
            }
            match actions::rerun(&self.state, &found).await {
                Ok(running) if Instant::now() >= until => return Ok(Arc::new(running)),
                Ok(_) => {}
                Err(error) if error.is_stale() || error.is_gone() => {}
                Err(error) => return Err(Failure::of_write("run the request again", &error)),
            }
            sleep(RERUN.delay(attempt)).await;
            attempt += 1;
        }
    }

    /// Whether the export of a request that succeeded exists and stays, by the API server, for a cache may be behind.
    async fn has_export(&self, request: &api::BindableResourcesRequest) -> Outcome<bool> {
        let contract = request.status.as_ref().and_then(|status| status.namespace.as_deref());
        let name = requests::request_name(request);
        let export = self.export_now(contract.unwrap_or_default(), name).await?;
        Ok(export.is_some_and(|export| export.metadata.deletion_timestamp.is_none()))
    }

    /// Makes the request, or takes up the one that exists.
    async fn begin(
        &self,
        checked: &Checked,
        trace: Option<&TraceContext>,
    ) -> Outcome<Arc<api::BindableResourcesRequest>> {
        let Checked {
            key,
            spec,
            groups,
            caller_groups,
            ..
        } = checked;
        let mut known = self.request_of_anybody(key).await?;
        for _ in 0..ROUNDS {
            let Some(existing) = known else {
                match self
                    .requests()
                    .create(&PostParams::default(), &self.object(checked, trace))
                    .await
                {
                    Ok(created) => {
                        tracing::info!(request = key.object, name = %key.name, "request made");
                        return Ok(Arc::new(created));
                    }
                    Err(error) if errors::is_already_exists(&error) => {
                        known = self.request_of_anybody(key).await?;
                        continue;
                    }
                    Err(error) => return Err(Failure::of_kube("make the request", &error)),
                }
            };
            if !self.is_of(&existing, &key.principal) {
                return Err(name_taken(key, "author"));
            }
            let existing = self.record_groups(existing, groups, caller_groups).await?;
            match decide(&existing, spec, || actions::needs_rerun(&self.state, &existing))
                .map_err(|field| name_taken(key, field))?
            {
                Step::Join => return Ok(existing),
                Step::RunAgain => match actions::rerun(&self.state, &existing).await {
                    Ok(running) => return Ok(Arc::new(running)),
                    Err(error) if error.is_stale() || error.is_gone() => {}
                    Err(error) => return Err(Failure::of_write("run the request again", &error)),
                },
                Step::Restart => self.remove(&existing).await?,
            }
            known = self.request_of_anybody(key).await?;
        }
        Err(key.changed())
    }

    /// Records on a request that exists by which groups its caller may use the contract now. It may have been made when the caller
    /// owned the contract, or belonged to other groups.
    async fn record_groups(
        &self,
        existing: Arc<api::BindableResourcesRequest>,
        groups: &[String],
        of_caller: &[String],
    ) -> Outcome<Arc<api::BindableResourcesRequest>> {
        let home = &self.state.settings.namespace;
        if principal_groups(&existing, home) == groups && caller_groups(&existing, home) == of_caller {
            return Ok(existing);
        }
        let annotation = json!({
            annotations::PRINCIPAL_GROUPS: as_annotation(groups),
            annotations::CALLER_GROUPS: as_annotation(of_caller),
        });
        let write = Write::annotate("the caller's groups changed", &*existing, &annotation).of_any_version();
        let written = write.apply_as(&self.state.clients.write).await;
        written
            .map(Arc::new)
            .map_err(|error| Failure::of_write("record the caller's groups", &error))
    }

    /// Reads the request with that name of object from the API server, for a cache may be behind. A principal can have made an
    /// object of that name by hand.
    async fn request_of_anybody(&self, key: &RequestKey) -> Outcome<Option<Arc<api::BindableResourcesRequest>>> {
        let found = self.requests().get_opt(&key.object).await;
        let found = found.map_err(|error| Failure::of_kube("read the request", &error))?;
        Ok(found.map(Arc::new))
    }

    async fn remove(&self, failed: &api::BindableResourcesRequest) -> Outcome<()> {
        let write = Write::delete("the failed request is made anew", failed);
        let deleted = write.apply(&self.state.clients.write).await.map(drop);
        deleted.map_err(|error| Failure::of_write("restart the failed request", &error))
    }

    fn object(&self, checked: &Checked, trace: Option<&TraceContext>) -> api::BindableResourcesRequest {
        let Checked {
            key,
            spec,
            groups,
            caller_groups,
            ..
        } = checked;
        let annotations = [
            (annotations::REQUEST_NAME, Some(key.name.to_string())),
            (annotations::PRINCIPAL, Some(key.principal.to_json())),
            (annotations::PRINCIPAL_GROUPS, as_annotation(groups)),
            (annotations::CALLER_GROUPS, as_annotation(caller_groups)),
            (annotations::TRACEPARENT, trace.map(ToString::to_string)),
        ];
        let annotations = annotations
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)));
        api::BindableResourcesRequest {
            metadata: ObjectMeta {
                name: Some(key.object.clone()),
                namespace: Some(self.state.settings.namespace.clone()),
                labels: Some(BTreeMap::from([(labels::VIA.to_owned(), labels::VIA_GRPC.to_owned())])),
                annotations: Some(annotations.collect()),
                ..ObjectMeta::default()
            },
            spec: spec.clone(),
            status: None,
        }
    }

    /// Waits until the controller has decided, by what the cache shows since the request was begun.
    async fn finished(
        &self,
        begun: &Arc<api::BindableResourcesRequest>,
        until: Instant,
    ) -> Outcome<Arc<api::BindableResourcesRequest>> {
        if begun.phase() != api::Phase::Pending {
            return Ok(Arc::clone(begun));
        }
        let (uid, from) = (begun.uid(), version(begun));
        let is_newer = |shown: &api::BindableResourcesRequest| shown.uid() == uid && version(shown) >= from;
        let is_decided = |shown: Option<&api::BindableResourcesRequest>| {
            shown.is_some_and(|shown| is_newer(shown) && shown.phase() != api::Phase::Pending)
        };
        let key = ObjectKey::of(begun.as_ref());
        let requests = &self.state.caches.requests;
        until_shown(requests, &key, until, is_decided).await;
        let shown = requests.get_key(&key).filter(|shown| is_newer(shown));
        Ok(shown.unwrap_or_else(|| Arc::clone(begun)))
    }
}

/// Groups as an annotation has them; none if there are none.
fn as_annotation(groups: &[String]) -> Option<String> {
    (!groups.is_empty()).then(|| json!(groups).to_string())
}

/// The answer to a create that only validates.
fn planned(checked: &Checked) -> CreateBindableResourcesRequestResponse {
    let schemas = response::planned_schemas(&checked.plan);
    let request = api::BindableResourcesRequest {
        metadata: ObjectMeta::default(),
        spec: checked.spec.clone(),
        status: None,
    };
    let mut shown = request::request(&request);
    shown.metadata.get_or_insert_default().name = checked.key.name.to_string();
    CreateBindableResourcesRequestResponse {
        bindable_resources_request: Some(shown),
        response: Some(response::response(
            &checked.key.name,
            &checked.located.name,
            &checked.plan,
            schemas,
            None,
        )),
    }
}

/// What to do about a request that exists, or the field in which it differs from the wanted one.
fn decide(
    existing: &api::BindableResourcesRequest,
    wanted: &api::BindableResourcesRequestSpec,
    needs_rerun: impl FnOnce() -> bool,
) -> Result<Step, &'static str> {
    let spec = &existing.spec;
    let ttl =
        |spec: &api::BindableResourcesRequestSpec| spec.ttl_after_finished.as_ref().map(bindery_api::Duration::parse);
    if spec.template_ref != wanted.template_ref {
        return Err("spec.template_ref.name");
    }
    if spec.cluster_identity != wanted.cluster_identity {
        return Err("spec.cluster_identity.pretty_name");
    }
    if ttl(spec) != ttl(wanted) {
        return Err("spec.ttl_after_finished");
    }
    if spec.compatibility != wanted.compatibility {
        return Err("spec.compatibility");
    }
    Ok(match existing.phase() {
        api::Phase::Failed => Step::Restart,
        api::Phase::Succeeded if needs_rerun() => Step::RunAgain,
        api::Phase::Succeeded | api::Phase::Pending => Step::Join,
    })
}

/// What became of a request, for the audit log; none if it succeeded.
fn outcome(request: &api::BindableResourcesRequest) -> Option<(Decision, String)> {
    let decision = match request.phase() {
        api::Phase::Succeeded => return None,
        api::Phase::Pending => Decision::Pending,
        api::Phase::Failed => Decision::Refused,
    };
    let reason = requests::ready(request).map(|ready| ready.reason.clone());
    Some((decision, reason.unwrap_or_default()))
}

fn version(request: &api::BindableResourcesRequest) -> u64 {
    let version = request.metadata.resource_version.as_deref();
    version.and_then(|version| version.parse().ok()).unwrap_or_default()
}

fn name_taken(key: &RequestKey, field: &str) -> Failure {
    let text = format!(
        "request {} for this cluster exists with another {field}; choose another name, or delete that request first",
        key.name
    );
    Failure::new(ErrorReason::RequestNameTaken, text)
        .with("request", &*key.name)
        .with("field", field)
}

fn of_contract(refusal: &contract::Refusal) -> Failure {
    Failure::new(refusal.error_reason(), refusal.to_string())
}

fn of_template(template: &TemplateName, refusal: &template::Refusal) -> Failure {
    let text = format!("template {template} cannot be bound: {refusal}");
    Failure::new(refusal.error_reason(), text)
        .with("template", &**template)
        .with("cause", refusal.reason())
}

#[cfg(test)]
mod tests;
