//! What a response offers, bound one by one, as a bind over gRPC would.

use bindery_api::{names, v1alpha2::ClusterSecretKeyRef};
use jiff::Timestamp;

use crate::{
    args::AnswerArgs,
    claims::{self, Decision, Question},
    commands::apiservice::consent,
    consumer::Consumer,
    deploy::{Request, Response},
    errors::Failure,
    kubeconfig::Credential,
    manifests::{self, Install, Kubeconfig, Manifests},
    output::joined,
    plan::{self, Installed, Op},
    steps::Steps,
};

/// One binding.
pub(super) struct Bind {
    pub(super) name: String,
    pub(super) manifests: Manifests,
    /// What of it is missing.
    pub(super) ops: Vec<Op>,
}

/// Judges all of it, and asks whoever runs this.
pub(super) async fn prepare(
    consumer: &Consumer,
    response: Response,
    answers: &AnswerArgs,
    steps: &Steps,
) -> Result<Vec<Bind>, Failure> {
    let Response { kubeconfig, requests } = response;
    check_rejected(&requests, answers)?;
    let mut binds = Vec::with_capacity(requests.len());
    let mut asked = Vec::new();
    for request in &requests {
        let (seen, secret) = seen(consumer, &request.name).await?;
        plan::is_to_stay(&seen)?;
        plan::same_export(&seen)?;
        plan::same_contract(&seen, &Credential::parse(&kubeconfig)?, "")?;
        let apis = consumer.apis(&request.offer.resources).await?;
        plan::foreign_apis(&apis, &request.name)?;
        let decision = decide(request, answers, &seen);
        asked.push(claims::question(&request.offer.claims, &decision, &seen));
        explain(request, &decision, steps);
        let manifests = manifests(request, &decision, &secret, Kubeconfig::Is(kubeconfig.clone()));
        binds.push(Bind {
            ops: plan::plan(&manifests, &seen, Timestamp::now())?,
            name: request.name.clone(),
            manifests,
        });
    }
    let question = asked.into_iter().max().unwrap_or(Question::Nothing);
    let claimed = requests.iter().flat_map(|request| &request.offer.claims);
    let claimed = joined(claimed.map(|claim| &claim.group_resource));
    consent::ask(
        question,
        answers.accept_claims,
        ("the provider's answer", &claimed),
        "nothing was installed",
    )?;
    Ok(binds)
}

/// Everything for one binding, as if nothing were there.
pub(super) fn afresh(request: &Request, answers: &AnswerArgs, kubeconfig: Kubeconfig) -> Manifests {
    let decision = decide(request, answers, &Installed::default());
    let secret = manifests::secret_ref(&request.name, names::KUBE_BIND_NAMESPACE);
    manifests(request, &decision, &secret, kubeconfig)
}

/// A claim that is to be rejected must be made by one of the requests.
pub(super) fn check_rejected(requests: &[Request], answers: &AnswerArgs) -> Result<(), Failure> {
    let claims: Vec<_> = requests
        .iter()
        .flat_map(|request| request.offer.claims.clone())
        .collect();
    Ok(claims::check_rejected(&claims, &answers.reject_claims)?)
}

/// Says what a request claims.
pub(super) fn explain(request: &Request, decision: &Decision, steps: &Steps) {
    steps.note(&format!("{}: {}", request.name, joined(&request.offer.resources)));
    for claim in &request.offer.claims {
        consent::explain([claim], steps);
        if decision.rejected.contains(&claim.group_resource) {
            steps.note("which is rejected: nothing of it is read or written");
        }
    }
}

/// Of the claims that are to be rejected, those of this request.
pub(super) fn decide(request: &Request, answers: &AnswerArgs, seen: &Installed) -> Decision {
    claims::decide(&request.offer.claims, &answers.reject_claims, seen)
}

async fn seen(consumer: &Consumer, name: &str) -> Result<(Installed, ClusterSecretKeyRef), Failure> {
    let binding = match consumer.find_binding(name).await {
        // They are installed in a moment.
        Err(Failure::NoKonnector) => None,
        found => found?,
    };
    let secret = match &binding {
        Some(binding) => binding.spec.kubeconfig_secret_ref.clone(),
        None => manifests::secret_ref(name, names::KUBE_BIND_NAMESPACE),
    };
    let seen = consumer.installed(binding, name, &secret).await?;
    Ok((seen, secret))
}

fn manifests(
    request: &Request,
    decision: &Decision,
    secret: &ClusterSecretKeyRef,
    kubeconfig: Kubeconfig,
) -> Manifests {
    let install = Install {
        binding: &request.name,
        template: None,
        offer: &request.offer,
        decision,
        secret,
        konnector: (names::KUBE_BIND_NAMESPACE, names::KONNECTOR),
    };
    Manifests::new(&install, kubeconfig)
}
