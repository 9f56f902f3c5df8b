//! Judges what konnector and server have alike: rights, policies, Lease; and what is installed for the konnector.

use bindery_api::names::{KONNECTOR, KUBE_BIND_NAMESPACE, SERVER};
use bindery_runtime::terminal::span;
use jiff::SignedDuration;
use serde_json::json;

use super::{
    Check, cluster,
    facts::{ContractFacts, DeploymentFacts, Facts, KonnectorFacts, LeaseFacts, ProgramFacts, ProviderFacts},
    finding::Findings,
    policies::{self, PolicyChecks},
    rights, versions,
};

/// Where the manifests of a program are, and the ServiceAccount in them.
struct ShippedNames {
    folder: &'static str,
    account: &'static str,
    chart: &'static str,
}

const SHIPPED_KONNECTOR: ShippedNames = ShippedNames {
    folder: "deploy/konnector",
    account: KONNECTOR,
    chart: "deploy/charts/bindery-konnector",
};
const SHIPPED_SERVER: ShippedNames = ShippedNames {
    folder: "deploy/server",
    account: SERVER,
    chart: "deploy/charts/bindery-server",
};

/// The most rules that a mend spells out.
const RULES_MAX: usize = 8;

/// The CustomResourceDefinitions of the konnector, as arguments of `kubectl apply`.
const CONSUMER_DEFINITIONS: &str =
    " -f deploy/crds/kube-bind.io_apiservicebindings.yaml -f deploy/crds/kube-bind.io_apiservicebindingbundles.yaml";

/// The checks of one program, and the words of its mends.
struct ProgramChecks<'a> {
    rights: Check,
    deployment: Check,
    lease: Check,
    clock: Check,
    policies: PolicyChecks<'a>,
    /// What restores the shipped roles.
    restore: &'a str,
    /// What starts the program again.
    restart: String,
    /// The program in words, such as `the konnector`.
    program: &'a str,
    /// The roles that the missing rules belong in: for the whole cluster, and for one namespace.
    roles: [&'a str; 2],
}

pub(super) fn konnector(facts: &Facts, found: &mut Findings) {
    if found.has_failed(Check::ConsumerApi) {
        return found.skip(
            Check::KonnectorDefinitions,
            "the konnector is not checked, because this cluster's API server does not answer",
        );
    }
    let konnector = &facts.konnector;
    let program = &konnector.program;
    let home = &program.account.0;
    let flags = &facts.flags.consumer;
    let deploy = installing(
        program,
        &format!("kubectl bind deploy{flags}"),
        &SHIPPED_KONNECTOR,
        flags,
    );
    let define = if is_as_shipped(program, &SHIPPED_KONNECTOR) {
        deploy.clone()
    } else {
        format!("kubectl{flags} apply{CONSUMER_DEFINITIONS}")
    };
    definitions(konnector, &define, found);
    let other_release = other_release(facts, "the konnector", konnector_release(facts));
    let checks = ProgramChecks {
        rights: Check::KonnectorRights,
        deployment: Check::KonnectorDeployment,
        lease: Check::KonnectorLease,
        clock: Check::KonnectorClock,
        policies: PolicyChecks {
            present: Check::KonnectorPolicy,
            bound: Check::KonnectorPolicyBinding,
            in_force: Check::KonnectorPolicyInForce,
            mend: &deploy,
            flags,
            other_release: other_release.as_deref(),
            probe_right: "impersonate the konnector's ServiceAccount",
        },
        restore: &deploy,
        restart: starting(
            program,
            &deploy,
            flags,
            format!(
                "kubectl rollout restart deployment/{KONNECTOR} -n {home}{flags}; kubectl logs deployment/{KONNECTOR} -n {home}{flags}"
            ),
        ),
        program: "the konnector",
        roles: ["ClusterRole kube-bind-konnector", "Role konnector"],
    };
    judge(program, &checks, flags, found);
    konnector_version(facts, found);
}

pub(super) fn server(provider: &ProviderFacts, facts: &Facts, found: &mut Findings) {
    if found.has_failed(Check::ProviderAdminApi) {
        return found.skip(
            Check::ServerRights,
            "the server is not checked, because the provider's API server does not answer",
        );
    }
    let program = &provider.server;
    let home = &program.account.0;
    let flags = &facts.flags.provider;
    let apply = |files: &str| {
        installing(
            program,
            &format!("kubectl{flags} apply {files}"),
            &SHIPPED_SERVER,
            flags,
        )
    };
    let install = apply("-f deploy/server");
    let other_release = other_release(facts, "the server", server_release(facts));
    let checks = ProgramChecks {
        rights: Check::ServerRights,
        deployment: Check::ServerDeployment,
        lease: Check::ServerLease,
        clock: Check::ServerClock,
        policies: PolicyChecks {
            present: Check::ServerPolicy,
            bound: Check::ServerPolicyBinding,
            in_force: Check::ServerPolicyInForce,
            mend: &apply(
                "-f deploy/server/policy.yaml -f deploy/server/requests-policy.yaml -f deploy/server/account-policy.yaml",
            ),
            flags,
            other_release: other_release.as_deref(),
            probe_right: "impersonate ServiceAccounts, and create bindableresourcesrequests",
        },
        restore: &install,
        restart: starting(
            program,
            &install,
            flags,
            format!("see that a pod of the server runs, and its log: kubectl{flags} get pods -n {home}"),
        ),
        program: "the server",
        roles: ["ClusterRole bindery-server", "Role bindery-server"],
    };
    judge(program, &checks, flags, found);
}

/// How a program that does not run is started: by `install` if it has no Deployment, by replicas if that has none, else by `restart`.
fn starting(program: &ProgramFacts, install: &str, flags: &str, restart: String) -> String {
    let (home, name) = (&program.account.0, program.deployment_name);
    match &program.deployment {
        Ok(None) => format!(
            "{install}; or, if it runs as another Deployment, see its pod, and its log: kubectl{flags} get pods -n {home}"
        ),
        Ok(Some(facts)) if facts.wanted == 0 => {
            format!("kubectl{flags} scale deployment/{name} -n {home} --replicas 1")
        }
        Ok(Some(_)) | Err(_) => restart,
    }
}

/// Judges a program on the cluster that `flags` reach.
fn judge(program: &ProgramFacts, checks: &ProgramChecks<'_>, flags: &str, found: &mut Findings) {
    account_rights(program, checks, found);
    policies::judge(&program.policies, &checks.policies, found);
    rollout(program, checks.deployment, flags, found);
    let replicas = &replicas(program);
    let lease = format!("Lease {}/{}", program.account.0, program.lease_name);
    match &program.lease {
        Err(unread) => found.unread(checks.lease, &format!("read {lease}"), unread, "get leases"),
        Ok(None) => found.fail(
            checks.lease,
            format!("{lease} does not exist: {} has never led{replicas}", checks.program),
            checks.restart.as_str(),
        ),
        Ok(Some(facts)) => holder(&lease, facts, checks, replicas, found),
    }
}

/// Judges the rollout of a Deployment of which replicas are available. If none is, nobody leads, which the check of the Lease tells.
fn rollout(program: &ProgramFacts, check: Check, flags: &str, found: &mut Findings) {
    let (home, name) = (&program.account.0, program.deployment_name);
    let named = format!("Deployment {home}/{name}");
    let facts = match &program.deployment {
        Err(unread) => return found.unread(check, &format!("read {named}"), unread, "get deployments"),
        Ok(None) => return found.skip(check, format!("there is no {named}")),
        Ok(Some(facts)) => facts,
    };
    let available = format!(
        "{} of {} replicas of {named} are available",
        facts.available, facts.wanted
    );
    if facts.is_rolled_out {
        return found.passed(check, available);
    }
    if facts.available == 0 {
        return found.skip(check, available);
    }
    let undo = match &facts.helm {
        Some((namespace, release)) => {
            let flags = of_helm(flags);
            format!("helm{flags} rollback {release} -n {namespace} --wait --force-conflicts")
        }
        None => format!("kubectl{flags} rollout undo deployment/{name} -n {home}"),
    };
    found.warn(
        check,
        format!("the last rollout of {named} is not complete: replicas of an earlier version serve meanwhile"),
        format!(
            "see why the new Pod does not start: kubectl{flags} get pods -n {home}, and kubectl{flags} logs POD --previous -n {home}; to take \
             the change back: {undo}"
        ),
    );
}

fn account_rights(program: &ProgramFacts, checks: &ProgramChecks<'_>, found: &mut Findings) {
    let (namespace, name) = &program.account;
    let account = format!("ServiceAccount {namespace}/{name}");
    let missing = match &program.missing_rights {
        Err(unread) => {
            let what = format!("review the rights of {account}");
            return found.unread(
                checks.rights,
                &what,
                unread,
                "create subjectaccessreviews.authorization.k8s.io",
            );
        }
        Ok(missing) if missing.is_empty() => {
            return found.passed(checks.rights, format!("{account} has the rights of the shipped roles"));
        }
        Ok(missing) => missing,
    };
    let rules = rights::as_rules(missing);
    // An account that lacks this many has lost its roles, and nobody adds them rule by rule.
    let is_for_hand = rules.len() <= RULES_MAX;
    let rules = rules.into_iter().map(|(namespace, rule)| {
        let [everywhere, here] = checks.roles;
        let role = namespace.map_or_else(
            || everywhere.to_owned(),
            |namespace| format!("{here} in namespace {namespace}"),
        );
        format!("\nin the rules of {role}: {}", json!(rule))
    });
    let mend = if is_for_hand {
        format!("{}\nor add:{}", checks.restore, rules.collect::<String>())
    } else {
        checks.restore.to_owned()
    };
    found.differs(
        checks.rights,
        format!("{account} may not {}", rights::in_words(missing)),
        mend,
        checks.policies.other_release,
    );
}

/// Judges who holds a Lease. The holder's clock may be wrong: a Lease that was seen to be renewed has a holder, whatever its time.
fn holder(lease: &str, facts: &LeaseFacts, checks: &ProgramChecks<'_>, replicas: &str, found: &mut Findings) {
    let Some(holder) = facts.holder.as_deref().filter(|holder| !holder.is_empty()) else {
        return found.fail(
            checks.lease,
            format!(
                "{lease} has no holder: {} does not run, or has just stopped{replicas}",
                checks.program
            ),
            checks.restart.as_str(),
        );
    };
    // How far the holder's clock is ahead, as of its last renewal.
    let ahead = facts.renewed.map(|renewed| renewed.duration_since(facts.read_at));
    let is_young =
        ahead.is_some_and(|ahead| ahead.abs() <= SignedDuration::try_from(facts.duration).unwrap_or_default());
    if !is_young && facts.seen_renewed != Some(true) {
        let since = facts.renewed.map_or_else(
            || "it was never renewed".to_owned(),
            |renewed| {
                format!(
                    "it was last renewed {} ago",
                    span((facts.read_at - renewed).get_seconds())
                )
            },
        );
        return found.fail(
            checks.lease,
            format!(
                "{lease} is held by {holder}, who did not renew it for {} s: {since}{replicas}",
                facts.watched.as_secs()
            ),
            checks.restart.as_str(),
        );
    }
    let seconds = facts
        .renewed
        .map(|renewed| facts.read_at.duration_since(renewed).as_secs().max(0));
    let renewed = match (facts.seen_renewed, seconds) {
        (Some(true), _) | (_, None) => "and was renewed just now".to_owned(),
        (_, Some(seconds)) => format!("and was renewed {seconds} s ago"),
    };
    found.passed(checks.lease, format!("{lease} is held by {holder}, {renewed}"));
    // A renewal may be as old as the Lease lasts, so only what is beyond that shows a clock that is behind.
    let ahead = match ahead {
        Some(ahead) if !is_young || !ahead.is_negative() => ahead,
        _ => SignedDuration::ZERO,
    };
    cluster::clock(checks.clock, checks.program, "its API server", ahead, found);
}

fn definitions(konnector: &KonnectorFacts, define: &str, found: &mut Findings) {
    let check = Check::KonnectorDefinitions;
    match &konnector.missing_definitions {
        Err(unread) => {
            found.unread(
                check,
                "list the APIs of this cluster",
                unread,
                "get customresourcedefinitions",
            );
        }
        Ok(missing) if missing.is_empty() => found.passed(check, "bindings and bundles are served"),
        Ok(missing) => found.fail(
            check,
            format!("this cluster does not serve {}", crate::text::joined(missing)),
            define,
        ),
    }
}

/// What the Deployment says, as the end of a sentence about a missing leader.
fn replicas(program: &ProgramFacts) -> String {
    let name = program.deployment_name;
    match &program.deployment {
        Ok(Some(deployment)) => format!(
            "; {} of {} replicas of Deployment {name} are available",
            deployment.available, deployment.wanted
        ),
        Ok(None) => format!("; there is no Deployment {name}"),
        Err(_) => String::new(),
    }
}

fn konnector_version(facts: &Facts, found: &mut Findings) {
    let check = Check::KonnectorVersion;
    let Some(version) = konnector_release(facts) else {
        return found.skip(
            check,
            "the version of the konnector is unknown: it reports it with its first heartbeat, and the tag of its image is no version",
        );
    };
    compare(
        check,
        ("this command", facts.own_version),
        ("the konnector", version),
        &facts.flags.consumer,
        found,
    );
}

/// The version of the konnector: the one that it reports, or else the tag of its image.
fn konnector_release(facts: &Facts) -> Option<&str> {
    let reported = facts.contracts.iter().find_map(reported_version);
    let image = match &facts.konnector.program.deployment {
        Ok(Some(deployment)) => deployment.image.as_deref(),
        Ok(None) | Err(_) => None,
    };
    reported.or_else(|| versions::of_image(image?))
}

/// The version of the server on the provider's cluster, if it is known which backend that is.
fn server_release(facts: &Facts) -> Option<&str> {
    let backend = match (facts.provider_backend(), facts.backends.as_slice()) {
        (Some(address), backends) => backends.iter().find(|backend| backend.address == address),
        (None, [only]) if facts.contracts.is_empty() => Some(only),
        (None, _) => None,
    };
    backend?.version.as_deref().ok()
}

/// What to do about a program of another release than this command, whose manifests may differ; none for the same release, and
/// for an unknown one.
fn other_release(facts: &Facts, program: &str, version: Option<&str>) -> Option<String> {
    let (own, version) = (facts.own_version, version?.trim_start_matches('v'));
    (!versions::is_same(own, version)).then(|| {
        format!(
            "{program} is of release {version}, and this command of {own}, whose manifests may differ: check with kubectl-bind {version}"
        )
    })
}

/// Whether namespace and ServiceAccount of a program are those of the shipped manifests.
fn is_as_shipped(program: &ProgramFacts, shipped: &ShippedNames) -> bool {
    let (home, name) = &program.account;
    home == KUBE_BIND_NAMESPACE && name == shipped.account
}

/// The flags with which Helm reaches the cluster that kubectl reaches with these.
fn of_helm(flags: &str) -> String {
    flags.replace("--context", "--kube-context")
}

/// How the shipped manifests of a program are installed again: by Helm if it did so before, else by `command`, or by hand if its namespace
/// or ServiceAccount here are other than in the manifests.
fn installing(program: &ProgramFacts, command: &str, shipped: &ShippedNames, flags: &str) -> String {
    if let Ok(Some(DeploymentFacts {
        helm: Some((namespace, release)),
        ..
    })) = &program.deployment
    {
        let flags = of_helm(flags);
        return format!(
            "helm{flags} upgrade {release} {} -n {namespace} --reset-then-reuse-values --force-conflicts --wait",
            shipped.chart
        );
    }
    if is_as_shipped(program, shipped) {
        return command.to_owned();
    }
    let (home, name) = &program.account;
    format!(
        "copy {0}, and in the copy replace namespace {KUBE_BIND_NAMESPACE} by {home} and ServiceAccount {1} by {name}, also in the \
         expressions of policies; then apply the copy: kubectl{flags} apply -f COPY",
        shipped.folder, shipped.account
    )
}

/// The version that the konnector reports in its heartbeats.
pub(super) fn reported_version(contract: &ContractFacts) -> Option<&str> {
    let binding = contract.cluster_binding.as_ref().ok()?.as_ref()?;
    binding.status.as_ref()?.konnector_version.as_deref()
}

/// Judges whether two programs are at most one minor version apart; `flags` reach the konnector's cluster.
pub(super) fn compare(
    check: Check,
    (one, one_version): (&str, &str),
    (other, other_version): (&str, &str),
    flags: &str,
    found: &mut Findings,
) {
    let both = format!("{one} is {one_version}, and {other} {other_version}");
    match versions::is_too_far(one_version, other_version) {
        Some(false) => found.passed(check, format!("{both}: at most one minor version apart")),
        Some(true) => found.fail(
            check,
            format!("{both}: more than one minor version apart"),
            format!(
                "upgrade the older one. The konnector: kubectl bind deploy{flags}, with the kubectl-bind of the new release. This command: install \
                 kubectl-bind {other_version}. The server: its admin upgrades it"
            ),
        ),
        None => found.warn(
            check,
            format!("{both}, which cannot be compared"),
            "make sure that they are at most one minor version apart",
        ),
    }
}
