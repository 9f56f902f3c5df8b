//! Judges one API server: whether it answers, its version and its clock.

use jiff::SignedDuration;

use super::{
    Check,
    certificate::{self, Certificate},
    facts::{ApiFacts, ClusterFacts, ContractFacts, Facts, TlsFacts, Unread},
    finding::Findings,
    versions,
};

/// Clocks may be this far apart; more is a warning.
const SKEW: SignedDuration = SignedDuration::from_secs(10);
/// Clocks that are further apart than this are a failure: tokens and certificates are refused.
const SKEW_MAX: SignedDuration = SignedDuration::from_mins(2);

const NTP: &str = "set both clocks by NTP, such as with `timedatectl set-ntp true`";

/// Judges the consumer cluster; `flags` reach it.
pub(super) fn consumer(cluster: &ClusterFacts, flags: &str, found: &mut Findings) {
    let of = format!("this cluster's API server {}", cluster.server);
    let mend =
        format!("check --kubeconfig and --context, the network, and that the API server runs: kubectl version{flags}");
    let Some(api) = answers(Check::ConsumerApi, cluster, &of, &mend, found) else {
        return;
    };
    version(Check::ConsumerVersion, "this cluster", &api.version, found);
    clock(
        Check::ConsumerClock,
        "this machine",
        "this cluster's API server",
        api.ahead,
        found,
    );
}

/// Judges the provider's cluster, as its admin reaches it.
pub(super) fn provider(cluster: &ClusterFacts, found: &mut Findings) {
    let of = format!("the provider's API server {}", cluster.server);
    let mend = "check --provider-context and --provider-kubeconfig, the network, and that the API server runs";
    let Some(api) = answers(Check::ProviderAdminApi, cluster, &of, mend, found) else {
        return;
    };
    version(Check::ProviderVersion, "the provider's cluster", &api.version, found);
    clock(
        Check::ProviderAdminClock,
        "this machine",
        "the provider's API server",
        api.ahead,
        found,
    );
}

/// Judges the provider's API server, as the kubeconfig of a contract reaches it.
pub(super) fn of_contract(contract: &ContractFacts, facts: &Facts, found: &mut Findings) {
    let (cluster, tls) = (&contract.cluster, &contract.tls);
    let of = format!("the provider's API server {}", cluster.server);
    let certificate = Certificate {
        check: Check::ProviderCertificate,
        of: &of,
        trusted_by: &format!("the kubeconfig of Secret {}", contract.secret),
        other_ca: &format!(
            "get a kubeconfig with the present CA: kubectl bind renew {}{}",
            contract.renew, facts.flags.consumer
        ),
        replace: "the provider's admin gives the API server a certificate",
    };
    match (tls, &cluster.api) {
        (TlsFacts::NotConnected(why), _) => found.fail(
            Check::ProviderApi,
            format!("{of} cannot be reached from here: {why}"),
            "check the address, the network and firewalls on the way; if both are well, tell the provider's admin",
        ),
        (TlsFacts::Refused(_) | TlsFacts::NoTls(_), _) => {
            found.skip(
                Check::ProviderApi,
                format!("{of} accepts connections, but its certificate is refused"),
            );
        }
        (_, Err(Unread::Silent(why))) => found.fail(
            Check::ProviderApi,
            format!("{of} does not answer: {why}"),
            "see to the provider's API server, or tell the provider's admin",
        ),
        (_, Err(Unread::Failed(why))) => found.fail(
            Check::ProviderApi,
            format!("{of} does not answer as an API server does: {why}"),
            "see whether something in front of the API server answers, such as a load balancer, or tell the provider's admin",
        ),
        // What refuses the token answers as well; the checks of the credential judge it.
        (_, Ok(_) | Err(Unread::Denied(_))) => found.passed(Check::ProviderApi, format!("{of} answers")),
    }
    certificate::judge(&certificate, tls, facts.now, found);
    if let Ok(api) = &cluster.api {
        clock(
            Check::ProviderClock,
            "this machine",
            "the provider's API server",
            api.ahead,
            found,
        );
    }
}

fn answers<'a>(
    check: Check,
    cluster: &'a ClusterFacts,
    of: &str,
    mend: &str,
    found: &mut Findings,
) -> Option<&'a ApiFacts> {
    match &cluster.api {
        Ok(api) => {
            found.passed(check, format!("{of} answers"));
            return Some(api);
        }
        Err(Unread::Denied(why)) => {
            found.passed(check, format!("{of} answers, and refuses to tell its version: {why}"));
        }
        Err(why) => found.fail(check, format!("{of} does not answer: {why}"), mend),
    }
    None
}

fn version(check: Check, of: &str, version: &str, found: &mut Findings) {
    match versions::is_too_old(version) {
        Some(false) => found.passed(check, format!("{of} runs Kubernetes {version}")),
        Some(true) => found.fail(
            check,
            format!("{of} runs Kubernetes {version}, which has no ValidatingAdmissionPolicies"),
            "upgrade the cluster to Kubernetes 1.30 or newer",
        ),
        None => found.warn(
            check,
            format!("{of} runs Kubernetes of version {version:?}, which cannot be read"),
            "make sure that it is Kubernetes 1.30 or newer",
        ),
    }
}

/// Judges how far the clock of `one` is ahead of that of `other`.
pub(super) fn clock(check: Check, one: &str, other: &str, ahead: SignedDuration, found: &mut Findings) {
    let apart = ahead.abs();
    let seconds = apart.as_secs();
    let word = if ahead.is_negative() { "behind" } else { "ahead of" };
    let message = format!("the clock of {one} is {seconds} s {word} that of {other}");
    if apart <= SKEW {
        found.passed(check, format!("the clocks of {one} and {other} agree"));
    } else if apart <= SKEW_MAX {
        found.warn(check, message, NTP);
    } else {
        found.fail(
            check,
            format!("{message}; tokens and certificates will be refused"),
            NTP,
        );
    }
}
