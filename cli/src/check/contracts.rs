//! Judges contracts, as their credentials show them, and their backends.

use bindery_api::{
    annotations,
    names::{KONNECTOR, KUBE_BIND_NAMESPACE},
};
use bindery_runtime::terminal::span;

use super::{
    Check,
    certificate::{self, Certificate},
    cluster,
    facts::{BackendFacts, ContractFacts, Facts, ProviderFacts, TlsFacts, TokenAccess, Unread},
    finding::Findings,
    program,
};

/// A renewal token that expires within this many seconds is a warning.
const RENEWAL_ENDS_SOON: i64 = 24 * 3_600;

pub(super) fn judge(facts: &Facts, found: &mut Findings) {
    for contract in &facts.contracts {
        cluster::of_contract(contract, facts, found);
        credential(contract, facts, found);
        renewal(contract, facts, found);
        heartbeat(contract, facts, found);
    }
}

fn credential(contract: &ContractFacts, facts: &Facts, found: &mut Findings) {
    let now = facts.now;
    let check = Check::Credential;
    let (name, secret) = (&contract.name, &contract.secret);
    let renew = renew(contract, facts);
    let is_expired = contract.expires.is_some_and(|expires| expires <= now);
    // The backend knows of a revocation at once; an API server may accept a token for some seconds more.
    if let Some(Ok(TokenAccess::Revoked(why))) = &contract.renewal {
        let message = format!("the credentials of contract {name} are revoked: {why}");
        return found.fail(check, message, renew);
    }
    match &contract.access {
        Ok(TokenAccess::Accepted) => {
            let left = contract.expires.map(|expires| span(expires.as_second() - now.as_second()));
            let left = left.map_or_else(String::new, |left| format!(", for {left} more"));
            found.passed(check, format!("the provider accepts the token of contract {name}{left}"));
        }
        Ok(TokenAccess::Refused(why) | TokenAccess::Revoked(why)) if is_expired => found.fail(
            check,
            format!("the token of contract {name} (Secret {secret}) has expired, and the konnector did not renew it: {why}"),
            renew,
        ),
        Ok(TokenAccess::Refused(why) | TokenAccess::Revoked(why)) => found.fail(
            check,
            format!("the provider refuses the token of contract {name} (Secret {secret}) before its time is over: it was revoked: {why}"),
            renew,
        ),
        Ok(TokenAccess::Denied(why)) => found.fail(
            check,
            format!("the token of contract {name} may not read its contract: {why}"),
            format!("ask the provider's admin for RoleBinding kube-binder in namespace {name}; binding again restores it: {renew}"),
        ),
        Ok(TokenAccess::Gone) => found.fail(
            check,
            format!("contract {name} does not exist on the provider: it has ended"),
            format!("bind again, or unbind: kubectl bind unbind NAME --force{}", facts.flags.consumer),
        ),
        Err(unread) => unchecked(
            check,
            &format!("the token of contract {name} is not checked"),
            unread,
            contract.cluster.api.is_ok(),
            found,
        ),
    }
}

/// The command that gives a contract new credentials.
fn renew(contract: &ContractFacts, facts: &Facts) -> String {
    format!("kubectl bind renew {}{}", contract.renew, facts.flags.consumer)
}

/// Whether the API server refuses the token of a contract, which the check of the credential reports.
fn is_refused(contract: &ContractFacts) -> bool {
    matches!(&contract.access, Ok(access) if *access != TokenAccess::Accepted)
}

/// Reports what could not be read with the credential of a contract: a warning if `is_news`, which is false if another check
/// reports the cause, and if nothing answered.
fn unchecked(check: Check, what: &str, unread: &Unread, is_news: bool, found: &mut Findings) {
    let message = format!("{what}: {unread}");
    match unread {
        Unread::Denied(_) | Unread::Failed(_) if is_news => found.unchecked(
            check,
            message,
            "run this command again; if the message stays, tell the provider's admin",
        ),
        Unread::Silent(_) | Unread::Denied(_) | Unread::Failed(_) => found.skip(check, message),
    }
}

fn renewal(contract: &ContractFacts, facts: &Facts, found: &mut Findings) {
    let now = facts.now;
    let check = Check::CredentialRenewal;
    let name = &contract.name;
    let renew = renew(contract, facts);
    let Some(access) = &contract.renewal else {
        return found.skip(
            check,
            format!("the kubeconfig of contract {name} names no backend, so that it is never renewed"),
        );
    };
    match access {
        // The check of the credential reports it.
        Ok(TokenAccess::Revoked(_)) => found.skip(check, format!("the credentials of contract {name} are revoked")),
        // One cause, which the check of the credential reports.
        Ok(TokenAccess::Refused(_) | TokenAccess::Denied(_)) if is_refused(contract) => {
            found.skip(
                check,
                format!("the provider refuses the credentials of contract {name}"),
            );
        }
        Ok(TokenAccess::Refused(why) | TokenAccess::Denied(why)) => found.fail(
            check,
            format!("the backend refuses the token that renews the credentials of contract {name}: {why}"),
            renew,
        ),
        Ok(TokenAccess::Gone) => found.fail(check, format!("the backend does not know contract {name}"), renew),
        Err(unread) => unchecked(
            check,
            &format!("the renewal of contract {name} is not checked"),
            unread,
            true,
            found,
        ),
        Ok(TokenAccess::Accepted) => {
            let left = contract
                .renewable_until
                .map(|until| until.as_second() - now.as_second());
            match left {
                Some(left) if left < RENEWAL_ENDS_SOON => found.warn(
                    check,
                    format!(
                        "the konnector can renew the credentials of contract {name} for {} only",
                        span(left)
                    ),
                    format!(
                        "see why it does not renew them: kubectl bind status -o wide{}; then {renew}",
                        facts.flags.consumer
                    ),
                ),
                Some(left) => found.passed(
                    check,
                    format!("the credentials of contract {name} can be renewed for {}", span(left)),
                ),
                None => found.passed(check, format!("the credentials of contract {name} can be renewed")),
            }
        }
    }
}

fn heartbeat(contract: &ContractFacts, facts: &Facts, found: &mut Findings) {
    let check = Check::Heartbeat;
    let name = &contract.name;
    let binding = match &contract.cluster_binding {
        Ok(Some(binding)) => binding,
        Ok(None) => {
            return found.fail(
                check,
                format!("ClusterBinding {name}/cluster does not exist on the provider"),
                "the provider's admin sees to the server, which makes it",
            );
        }
        Err(unread) => {
            let what = format!("heartbeats of contract {name} are not checked");
            let is_news = matches!(contract.access, Ok(TokenAccess::Accepted));
            return unchecked(check, &what, unread, is_news, found);
        }
    };
    let home = &facts.konnector.program.account.0;
    let mend = format!(
        "see the log of the konnector, and whether its pod reaches the provider's API server: kubectl logs deployment/{KONNECTOR} -n {home}{}",
        facts.flags.consumer
    );
    let Some(last) = binding
        .status
        .as_ref()
        .and_then(|status| status.last_heartbeat_time.as_ref())
    else {
        return found.warn(
            check,
            format!("the konnector has sent no heartbeat for contract {name} yet"),
            mend,
        );
    };
    // The time is by the konnector's clock.
    if found.has_failed(Check::KonnectorClock) {
        return found.skip(
            check,
            format!("heartbeats of contract {name} are not checked, because the konnector's clock is wrong"),
        );
    }
    let now = contract
        .cluster
        .api
        .as_ref()
        .map_or(facts.now, |api| facts.now - api.ahead);
    let age = (now.as_second() - last.0.as_second()).max(0);
    match binding.heartbeat_allowance() {
        Some(allowed) if age > i64::try_from(allowed.as_secs()).unwrap_or(i64::MAX) => found.fail(
            check,
            format!(
                "the last heartbeat for contract {name} is {} old, and one is due every {}",
                span(age),
                span(i64::try_from(allowed.as_secs()).unwrap_or(i64::MAX) / 2)
            ),
            mend,
        ),
        _ => found.passed(
            check,
            format!(
                "the konnector reached the provider of contract {name} {} ago",
                span(age)
            ),
        ),
    }
}

pub(super) fn backends(facts: &Facts, found: &mut Findings) {
    for backend in &facts.backends {
        let of_backend = |contract: &&ContractFacts| contract.backend.as_deref() == Some(backend.address.as_str());
        let mut contracts = facts.contracts.iter().filter(of_backend);
        let konnector = contracts.find_map(program::reported_version);
        one_backend(backend, facts, konnector, found);
    }
}

fn one_backend(backend: &BackendFacts, facts: &Facts, konnector: Option<&str>, found: &mut Findings) {
    let of = format!("the backend {}", backend.address);
    if let TlsFacts::NotConnected(why) = &backend.tls {
        return found.fail(
            Check::BackendReachable,
            format!("{of} cannot be reached from here: {why}"),
            format!("check the address, the network, and, on the provider, that the server runs and its Service leads to it: kubectl get pods,endpointslices -n {KUBE_BIND_NAMESPACE}, or in the namespace that its admin chose"),
        );
    }
    found.passed(Check::BackendReachable, format!("{of} accepts connections"));
    let renew = backend.renew.as_ref().map(|renew| {
        format!(
            "give the present CA: kubectl bind renew {renew}{} --server {} --certificate-authority FILE",
            facts.flags.consumer, backend.address
        )
    });
    let certificate = Certificate {
        check: Check::BackendCertificate,
        of: &of,
        trusted_by: &backend.ca_from,
        other_ca: renew
            .as_deref()
            .unwrap_or("give the CA of the backend with --certificate-authority FILE"),
        replace: "the provider's admin gives the server a certificate (--tls-cert-file)",
    };
    certificate::judge(&certificate, &backend.tls, facts.now, found);
    if matches!(backend.tls, TlsFacts::Refused(_) | TlsFacts::NoTls(_)) {
        return;
    }
    match &backend.version {
        Err(why) => found.fail(
            Check::BackendAnswers,
            format!("{of} does not answer: {why}"),
            "see the log of the server, and whether a proxy in front of it passes gRPC (HTTP/2) through",
        ),
        Ok(version) => {
            found.passed(Check::BackendAnswers, format!("{of} answers"));
            let (server, flags) = (("the server", version.as_str()), &facts.flags.consumer);
            program::compare(
                Check::BackendVersion,
                ("this command", facts.own_version),
                server,
                flags,
                found,
            );
            if let Some(konnector) = konnector {
                program::compare(
                    Check::BackendVersion,
                    ("the konnector", konnector),
                    server,
                    flags,
                    found,
                );
            }
        }
    }
}

/// Judges what only the provider's admin sees of contracts and templates; `flags` reach the consumer's cluster.
pub(super) fn revocations(provider: &ProviderFacts, flags: &str, found: &mut Findings) {
    if found.has_failed(Check::ProviderAdminApi) {
        return;
    }
    let check = Check::ContractRevoked;
    match &provider.revoked {
        Err(unread) => found.unread(
            check,
            "list ClusterBindings",
            unread,
            "list clusterbindings.kube-bind.io",
        ),
        Ok(contracts) if contracts.is_empty() => found.skip(check, "this consumer has no contract on the provider"),
        Ok(contracts) => {
            for (contract, revocation) in contracts {
                match revocation {
                    None => found.passed(check, format!("the credentials of contract {contract} are not revoked")),
                    Some(revocation) => {
                        let reason = revocation.reason.as_deref();
                        let reason = reason.map_or_else(String::new, |reason| format!(", because: {reason}"));
                        found.fail(
                            check,
                            format!("the credentials of contract {contract} were revoked at {}{reason}", revocation.time),
                            format!(
                                "the owner of the contract binds again, on the consumer: kubectl bind renew NAME{flags}. The owners are in \
                                 annotation {} of namespace {contract}",
                                annotations::OWNERS
                            ),
                        );
                    }
                }
            }
        }
    }
    templates(provider, found);
}

fn templates(provider: &ProviderFacts, found: &mut Findings) {
    let check = Check::TemplateReady;
    match &provider.unready_templates {
        Err(unread) => {
            found.unread(
                check,
                "list APIServiceExportTemplates",
                unread,
                "list apiserviceexporttemplates",
            );
        }
        Ok(unready) if unready.is_empty() => found.passed(check, "all templates can be bound"),
        Ok(unready) => {
            for (name, ready) in unready {
                found.warn(
                    check,
                    format!(
                        "APIServiceExportTemplate {name} cannot be bound: {} ({})",
                        ready.message, ready.reason
                    ),
                    "do what the message says",
                );
            }
        }
    }
}
