//! Proof that the admission policy of `deploy/server/policy.yaml` holds: without it, rights on cluster-scoped objects would
//! reach those of other consumers. A policy takes effect with a delay, and may be an older one, so that it is tried each
//! time such rights are to be given: in the name of the contract, as a dry run.

use bindery_api::{
    names,
    v1alpha2::{APIServiceNamespace, APIServiceNamespaceSpec},
};
use bindery_runtime::{
    client::{ClientError, Clients, SharedToken},
    errors,
};
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{
    Api, Client, Config,
    api::{ObjectMeta, PostParams},
    config::AuthInfo,
};
use secrecy::SecretString;

use crate::{template::Refusal, writes::WriteError};

pub mod requests;

/// Name of the policy and of its binding.
pub const NAME: &str = "kube-bind-binder";
/// What the policy, and nothing else, says of [`names::POLICY_PROBE`]. The number is raised with every change of what the
/// policy forbids, so that an older one proves nothing.
pub const ANSWER: &str = "policy.probe is refused by kube-bind-binder, revision 3";

/// The shortest that the API server grants. The token never leaves this process.
const TOKEN_SECONDS: i64 = 600;

/// What became of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    /// The policy refused it.
    Live,
    /// Nothing refused it, or not this policy.
    Missing,
    /// It did not come as far as the policy.
    Unproved(String),
}

/// Tries the policy in the name of contracts.
#[derive(Clone)]
pub struct Prober {
    /// How the server reaches its cluster, without its credentials.
    config: Config,
    client: Client,
}

// === impl Prober ===

impl Prober {
    /// A prober for the cluster that the server reaches by this configuration; `client` is the server's own.
    pub fn new(config: &Config, client: Client) -> Self {
        let mut config = config.clone();
        config.auth_info = AuthInfo::default();
        Self { config, client }
    }

    /// Whether the policy holds what this contract writes; else why that is not certain.
    pub async fn prove(&self, contract: &str) -> Result<Result<(), Refusal>, WriteError> {
        let token = self.token(contract).await?;
        let unproved = |cause: String| Refusal::AdmissionPolicyUnproved { policy: NAME, cause };
        let client = match self.client_of(&token) {
            Ok(client) => client,
            Err(error) => return Ok(Err(unproved(error.to_string()))),
        };
        let outcome = outcome(try_it(client, contract).await, NAME, ANSWER)?;
        tracing::debug!(contract, ?outcome, "admission policy probed");
        Ok(match outcome {
            Outcome::Live => Ok(()),
            Outcome::Missing => Err(Refusal::AdmissionPolicyMissing { policy: NAME }),
            Outcome::Unproved(cause) => Err(unproved(cause)),
        })
    }

    async fn token(&self, contract: &str) -> Result<SecretString, WriteError> {
        let request = TokenRequest {
            spec: TokenRequestSpec {
                expiration_seconds: Some(TOKEN_SECONDS),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), contract);
        let granted = accounts
            .create_token_request(names::KUBE_BINDER, &PostParams::default(), &request)
            .await?;
        Ok(granted.status.map(|status| status.token).unwrap_or_default().into())
    }

    fn client_of(&self, token: &SecretString) -> Result<Client, ClientError> {
        Ok(Clients::with_token(&self.config, 1, &SharedToken::new(token)?)?.write)
    }
}

impl std::fmt::Debug for Prober {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prober").finish_non_exhaustive()
    }
}

async fn try_it(client: Client, contract: &str) -> Result<APIServiceNamespace, kube::Error> {
    let mut probe = APIServiceNamespace::new(names::POLICY_PROBE, APIServiceNamespaceSpec {});
    probe.metadata = ObjectMeta {
        namespace: Some(contract.to_owned()),
        ..probe.metadata
    };
    let api: Api<APIServiceNamespace> = Api::namespaced(client, contract);
    api.create(&as_dry_run(), &probe).await
}

fn as_dry_run() -> PostParams {
    PostParams {
        dry_run: true,
        ..PostParams::default()
    }
}

/// What an answer says of the policy of that name, which is to answer with these words.
fn outcome<T>(answer: Result<T, kube::Error>, policy: &str, words: &str) -> Result<Outcome, WriteError> {
    match answer {
        Ok(_) => Ok(Outcome::Missing),
        Err(error) if errors::is_transient(&error) => Err(error.into()),
        Err(error) if is_the_policys(&error, policy, words) => Ok(Outcome::Live),
        // It exists, so that admission let it pass: it is asked first.
        Err(error) if errors::is_already_exists(&error) => Ok(Outcome::Missing),
        Err(kube::Error::Api(status)) if says(&status.message, "ValidatingAdmissionPolicy") => Ok(Outcome::Missing),
        Err(error) => Ok(Outcome::Unproved(errors::explain(&error))),
    }
}

fn is_the_policys(error: &kube::Error, policy: &str, words: &str) -> bool {
    let kube::Error::Api(status) = error else {
        return false;
    };
    // To the end, for another revision may begin alike.
    says(&status.message, &format!("ValidatingAdmissionPolicy '{policy}'"))
        && status.message.ends_with(&format!("denied request: {words}"))
}

fn says(message: &str, words: &str) -> bool {
    message.contains(words)
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[track_caller]
    fn check(answer: Result<(), (u16, &str, &str)>, expect: &Outcome) {
        let answer = answer.map_err(|(code, reason, message)| {
            let mut status = Status::failure(message, reason);
            status.code = code;
            kube::Error::Api(status.boxed())
        });
        assert_eq!(&outcome(answer, NAME, ANSWER).unwrap(), expect);
    }

    #[test]
    fn only_the_policys_own_words_prove_it() {
        let denied = |policy: &str, says: &str| {
            format!(
                "apiservicenamespaces.kube-bind.io \"policy.probe\" is forbidden: ValidatingAdmissionPolicy '{policy}' with \
                 binding '{policy}' denied request: {says}"
            )
        };
        let forbidden = |message: &str| check(Err((403, "Forbidden", message)), &Outcome::Missing);
        check(Err((403, "Forbidden", &denied(NAME, ANSWER))), &Outcome::Live);
        forbidden(&denied("other", ANSWER));
        let (words, revision) = ANSWER.rsplit_once(' ').unwrap();
        let revision: u32 = revision.parse().unwrap();
        for other in [revision - 1, revision + 1, revision * 10] {
            forbidden(&denied(NAME, &format!("{words} {other}")));
        }
        check(Ok(()), &Outcome::Missing);
        check(Err((409, "AlreadyExists", "policy.probe exists")), &Outcome::Missing);
        let rbac = format!("User cannot create resource apiservicenamespaces: {ANSWER}");
        check(Err((403, "Forbidden", &rbac)), &Outcome::Unproved(rbac.clone()));
        check(Err((401, "Unauthorized", "no")), &Outcome::Unproved("no".to_owned()));
    }

    #[test]
    fn the_shipped_policy_is_the_one_that_is_asked_for() {
        let shipped = include_str!("../../deploy/server/policy.yaml");
        assert!(shipped.lines().any(|line| line.trim() == format!("message: {ANSWER}")));
    }

    #[test]
    fn silence_is_no_answer() {
        let mut status = Status::failure("later", "ServiceUnavailable");
        status.code = 503;
        assert!(outcome::<()>(Err(kube::Error::Api(status.boxed())), NAME, ANSWER).is_err());
    }
}
