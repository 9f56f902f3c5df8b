//! What a response or a kubeconfig reaches, bound by a bundle.

use std::collections::BTreeSet;

use bindery_api::v1alpha2::{GroupResource, PermissionClaim};
use jiff::Timestamp;
use serde_json::Value;

use super::bind;
use crate::{
    args::AnswerArgs,
    claims::{Question, question_of},
    commands::apiservice::consent,
    consumer::Consumer,
    deploy::{Answer, InstalledBundle, Request, WantedBundle, plan_bundle},
    errors::Failure,
    manifests::Kubeconfig,
    output::joined,
    plan::{Installed, Op},
    steps::Steps,
};

/// A bundle, and what of it is missing.
pub(super) struct Bundle {
    pub(super) wanted: WantedBundle,
    pub(super) ops: Vec<Op>,
    /// What the konnector needs rights on, as far as the answer says.
    pub(super) resources: BTreeSet<GroupResource>,
}

impl Bundle {
    /// Judges all of it, and asks whoever runs this.
    pub(super) async fn prepare(
        consumer: &Consumer,
        name: &str,
        answer: Answer,
        answers: &AnswerArgs,
        steps: &Steps,
    ) -> Result<Self, Failure> {
        let (kubeconfig, requests) = parts(answer);
        bind::check_rejected(&requests, answers)?;
        let found = consumer.find_bundle(name).await?;
        let seen = consumer.installed_bundle(found, name).await?;
        let accepted = accepted(&requests, answers);
        for request in &requests {
            bind::explain(request, &bind::decide(request, answers, &Installed::default()), steps);
        }
        let before = seen.bundle.iter().flat_map(|bundle| &bundle.spec.accepted_claims);
        let before: Vec<_> = before.collect();
        let news = accepted.iter().filter(|claim| !before.contains(claim));
        let question = news.map(question_of).max().unwrap_or(Question::Nothing);
        let claimed = joined(accepted.iter().map(|claim| &claim.group_resource));
        consent::ask(
            question,
            answers.accept_claims,
            ("the provider's answer", &claimed),
            "nothing was installed",
        )?;
        let wanted = WantedBundle::new(name, &accepted, Kubeconfig::Is(kubeconfig), &seen);
        Ok(Self {
            ops: plan_bundle(&wanted, &seen, Timestamp::now())?,
            resources: resources(&requests, &accepted),
            wanted,
        })
    }

    pub(super) fn documents(&self) -> Result<Vec<Value>, Failure> {
        documents(&self.wanted)
    }
}

/// A bundle as if nothing were there, with what the konnector needs rights on.
pub(super) fn afresh(
    name: &str,
    requests: &[Request],
    answers: &AnswerArgs,
    kubeconfig: Kubeconfig,
) -> (WantedBundle, BTreeSet<GroupResource>) {
    let accepted = accepted(requests, answers);
    let wanted = WantedBundle::new(name, &accepted, kubeconfig, &InstalledBundle::default());
    (wanted, resources(requests, &accepted))
}

pub(super) fn parts(answer: Answer) -> (Vec<u8>, Vec<Request>) {
    match answer {
        Answer::Response(response) => (response.kubeconfig, response.requests),
        Answer::Kubeconfig(kubeconfig) => (kubeconfig, Vec::new()),
    }
}

pub(super) fn documents(wanted: &WantedBundle) -> Result<Vec<Value>, Failure> {
    let value = |object: Result<Value, serde_json::Error>| object.map_err(|error| Failure::Format(error.to_string()));
    Ok(vec![
        value(serde_json::to_value(&wanted.secret))?,
        value(serde_json::to_value(&wanted.bundle))?,
    ])
}

fn accepted(requests: &[Request], answers: &AnswerArgs) -> Vec<PermissionClaim> {
    let mut accepted: Vec<PermissionClaim> = Vec::new();
    for request in requests {
        let decision = bind::decide(request, answers, &Installed::default());
        let claims = request.offer.claims.iter();
        for claim in claims.filter(|claim| decision.accepted.contains(&claim.group_resource)) {
            if !accepted.contains(claim) {
                accepted.push(claim.clone());
            }
        }
    }
    accepted
}

fn resources(requests: &[Request], accepted: &[PermissionClaim]) -> BTreeSet<GroupResource> {
    let exported = requests.iter().flat_map(|request| &request.offer.resources);
    let claimed = accepted.iter().map(|claim| &claim.group_resource);
    exported.chain(claimed).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deploy::{read, response_tests::response};

    fn answers(reject: &[&str]) -> AnswerArgs {
        AnswerArgs {
            reject_claims: reject.iter().map(|word| GroupResource::new("", *word)).collect(),
            accept_claims: true,
        }
    }

    /// Rejected claims; expected: what the konnector gets rights on, and how many claims the bundle accepts.
    #[track_caller]
    fn check(reject: &[&str], resources: &[&str], claims: usize) {
        let answer = read(response().to_string().as_bytes(), None).unwrap();
        let (_, requests) = parts(answer);
        let (wanted, needed) = afresh("acme", &requests, &answers(reject), Kubeconfig::Hidden("x"));
        let needed: Vec<_> = needed.iter().map(ToString::to_string).collect();
        assert_eq!(needed, resources);
        assert_eq!(wanted.bundle.spec.accepted_claims.len(), claims);
    }

    #[test]
    fn a_bundle_gets_rights_on_what_is_exported_and_accepted() {
        check(&[], &["secrets", "cowboys.wildwest.dev"], 1);
        check(&["secrets"], &["cowboys.wildwest.dev"], 0);
    }

    #[test]
    fn a_bundle_comes_after_its_secret() {
        let (wanted, _) = afresh("acme", &[], &answers(&[]), Kubeconfig::Hidden("x"));
        let kinds = documents(&wanted).unwrap();
        assert_eq!(kinds[0]["kind"], "Secret");
        assert_eq!(kinds[1]["kind"], "APIServiceBindingBundle");
        assert_eq!(
            kinds[1]["spec"]["kubeconfigSecretRef"]["name"],
            kinds[0]["metadata"]["name"]
        );
    }
}
