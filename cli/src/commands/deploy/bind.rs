//! Binds what a provider's answer offers: one binding for each of its requests, or a bundle for all of them.

use std::collections::BTreeSet;

use bindery_api::{
    names,
    v1alpha2::{ClusterSecretKeyRef, GroupResource, PermissionClaim},
};
use jiff::Timestamp;
use k8s_openapi::api::rbac::v1::Role;
use serde_json::Value;

use crate::{
    args::{AnswerArgs, DeployArgs},
    claims::{self, Decision, Question},
    commands::consent,
    consumer::Consumer,
    errors::Failure,
    install::{
        manifests::{self, BindingInstall, ClaimRights, Kubeconfig, Manifests},
        owner::CredentialOwner,
        plan::{self, Installed},
        write::Write,
    },
    provider::{
        kubeconfig::Credential,
        response::{Request, Response},
    },
    render::{output::joined, steps::Steps},
};

/// What comes of a provider's answer; empty if there is none.
#[derive(Default)]
pub(in crate::commands) struct Bound {
    pub(in crate::commands) binds: Vec<Bind>,
    /// Resources that the konnector needs rights on, because a bundle binds them.
    pub(super) bundled: BTreeSet<GroupResource>,
}

/// One binding or one bundle.
pub(in crate::commands) struct Bind {
    pub(in crate::commands) manifests: Manifests,
    /// The writes that the consumer cluster lacks.
    pub(in crate::commands) writes: Vec<Write>,
    /// Roles of namespaces in which no claim needs rights any more.
    pub(in crate::commands) obsolete_roles: Vec<Role>,
}

impl Bound {
    /// Judges the answer against what is installed, and asks the user about its claims. Writes nothing.
    pub(in crate::commands) async fn prepare(
        consumer: &Consumer,
        args: &DeployArgs,
        answer: Response,
        steps: &Steps,
    ) -> Result<Self, Failure> {
        let Response { kubeconfig, requests } = answer;
        check_rejected(&requests, &args.answers)?;
        let credential = Credential::parse(&kubeconfig)?;
        let document = || Kubeconfig::Document(kubeconfig.clone());
        let (bound, question, claimed) = if let Some(name) = &args.bundle {
            let seen = seen_bundle(consumer, name).await?;
            seen.refuse_answer(&credential)?;
            let accepted = accepted(&requests, &args.answers);
            for request in &requests {
                explain(
                    request,
                    &decide(request, &args.answers, &Installed::default()),
                    &[],
                    steps,
                );
            }
            let bundle = seen.owner.as_ref().and_then(CredentialOwner::bundle);
            let before = bundle.map_or(&[][..], |bundle| &bundle.spec.accepted_claims);
            let news = accepted.iter().filter(|claim| !before.contains(claim));
            let question = news.map(claims::question_of).max().unwrap_or(Question::Nothing);
            let manifests = Manifests::of_bundle(name, &accepted, document(), bundle);
            let bound = Self {
                binds: vec![Bind::new(manifests, &seen)?],
                bundled: bundled(&requests, &accepted),
            };
            (bound, question, accepted)
        } else {
            let (mut bound, mut question) = (Self::default(), Question::Nothing);
            for request in &requests {
                let (seen, secret) = seen_binding(consumer, &request.name).await?;
                seen.refuse_answer(&credential)?;
                let apis = consumer.apis(&request.offer.resources).await?;
                plan::refuse_foreign_apis(&apis, &request.name)?;
                let decision = decide(request, &args.answers, &seen);
                question = question.max(claims::question(&request.offer.claims, &decision, seen.binding()));
                // What the installed binding lists stays.
                let namespaces = seen.binding().map_or(&[][..], |seen| &seen.spec.claim_namespaces);
                let rights = consumer.claim_rights(namespaces, seen.binding()).await?;
                explain(request, &decision, namespaces, steps);
                let manifests = of_request(request, &decision, &secret, namespaces, &rights, document());
                bound.binds.push(Bind::new(manifests, &seen)?);
            }
            let claims = requests.iter().flat_map(|request| request.offer.claims.clone());
            (bound, question, claims.collect::<Vec<_>>())
        };
        let claimed = joined(claimed.iter().map(|claim| &claim.group_resource));
        consent::ask(
            question,
            args.answers.accept_claims,
            ("the provider's answer", &claimed),
            "nothing was installed",
        )?;
        Ok(bound)
    }

    /// The objects that the answer leads to on an empty cluster, and the resources that a bundle binds.
    pub(super) fn afresh(
        args: &DeployArgs,
        answer: &Response,
        kubeconfig: impl Fn() -> Kubeconfig,
    ) -> Result<(Vec<Value>, BTreeSet<GroupResource>), Failure> {
        let (requests, answers) = (&answer.requests, &args.answers);
        check_rejected(requests, answers)?;
        if let Some(name) = &args.bundle {
            let accepted = accepted(requests, answers);
            let manifests = Manifests::of_bundle(name, &accepted, kubeconfig(), None);
            return Ok((manifests::documents(&manifests)?, bundled(requests, &accepted)));
        }
        let mut all = Vec::new();
        for request in requests {
            let decision = decide(request, answers, &Installed::default());
            let secret = manifests::secret_ref(&request.name, names::KUBE_BIND_NAMESPACE);
            all.extend(manifests::documents(&of_request(
                request,
                &decision,
                &secret,
                &[],
                &ClaimRights::default(),
                kubeconfig(),
            ))?);
        }
        Ok((all, BTreeSet::new()))
    }
}

impl Bind {
    fn new(manifests: Manifests, seen: &Installed) -> Result<Self, Failure> {
        Ok(Self {
            writes: plan::plan(&manifests, seen, Timestamp::now())?,
            obsolete_roles: seen.obsolete_roles(&manifests).cloned().collect(),
            manifests,
        })
    }
}

/// Refuses to reject a claim that none of the requests makes.
fn check_rejected(requests: &[Request], answers: &AnswerArgs) -> Result<(), Failure> {
    let claims = requests.iter().flat_map(|request| request.offer.claims.clone());
    Ok(claims::check_rejected(
        &claims.collect::<Vec<_>>(),
        &answers.reject_claims,
    )?)
}

/// Says what a request claims.
fn explain(request: &Request, decision: &Decision, namespaces: &[String], steps: &Steps) {
    steps.note(&format!("{}: {}", request.name, joined(&request.offer.resources)));
    consent::explain_offer(&request.offer, decision, namespaces, steps);
}

/// Decides which claims of the request are accepted. Flags may also reject claims of other requests.
fn decide(request: &Request, answers: &AnswerArgs, seen: &Installed) -> Decision {
    claims::decide(
        &request.offer.claims,
        &answers.reject_claims,
        seen.binding(),
        &seen.rules(),
    )
}

/// What is installed for the binding of this name. Where bindings are not served yet, none exists.
async fn seen_binding(consumer: &Consumer, name: &str) -> Result<(Installed, ClusterSecretKeyRef), Failure> {
    let binding = match consumer.find_binding(name).await {
        Err(Failure::NoKonnector) => None,
        found => found?,
    };
    let secret = match &binding {
        Some(binding) => binding.spec.kubeconfig_secret_ref.clone(),
        None => manifests::secret_ref(name, names::KUBE_BIND_NAMESPACE),
    };
    let installed = consumer.installed(binding.map(Into::into), Some(name), &secret);
    let seen = Box::pin(installed).await?;
    Ok((seen, secret))
}

async fn seen_bundle(consumer: &Consumer, name: &str) -> Result<Installed, Failure> {
    let bundle = consumer.find_bundle(name).await?;
    let secret = match &bundle {
        Some(bundle) => bundle.spec.kubeconfig_secret_ref.clone(),
        None => manifests::bundle_secret_ref(name, names::KUBE_BIND_NAMESPACE),
    };
    Box::pin(consumer.installed(bundle.map(Into::into), None, &secret)).await
}

/// The objects of the binding of one request. Its namespace comes with the konnector.
fn of_request(
    request: &Request,
    decision: &Decision,
    secret: &ClusterSecretKeyRef,
    claim_namespaces: &[String],
    claim_rights: &ClaimRights,
    kubeconfig: Kubeconfig,
) -> Manifests {
    let install = BindingInstall {
        binding: &request.name,
        template: None,
        offer: &request.offer,
        decision,
        secret,
        konnector: (names::KUBE_BIND_NAMESPACE, names::KONNECTOR),
        with_namespace: false,
        claim_namespaces,
        claim_rights,
    };
    Manifests::of_binding(&install, kubeconfig)
}

/// The claims that a bundle accepts.
fn accepted(requests: &[Request], answers: &AnswerArgs) -> Vec<PermissionClaim> {
    let mut accepted: Vec<PermissionClaim> = Vec::new();
    for request in requests {
        let decision = decide(request, answers, &Installed::default());
        let claims = request.offer.claims.iter();
        for claim in claims.filter(|claim| decision.accepted.contains(&claim.group_resource)) {
            if !accepted.contains(claim) {
                accepted.push(claim.clone());
            }
        }
    }
    accepted
}

/// The resources that a bundle binds: those that are exported, and those of accepted claims.
fn bundled(requests: &[Request], accepted: &[PermissionClaim]) -> BTreeSet<GroupResource> {
    let exported = requests.iter().flat_map(|request| &request.offer.resources);
    let claimed = accepted.iter().map(|claim| &claim.group_resource);
    exported.chain(claimed).cloned().collect()
}

#[cfg(test)]
mod tests;
