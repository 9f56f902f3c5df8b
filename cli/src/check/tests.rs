//! Each fault alone is found, with its mend, and nothing is found on a healthy installation.

mod fixtures;
mod page;

use bindery_api::{
    Condition, Severity,
    conditions::{false_condition, true_condition},
    revocation::Revocation,
    v1alpha2::{APIServiceBinding, APIServiceBindingSpec, APIServiceBindingStatus},
};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::{
    facts::{
        CertificateFault, Facts, LeaseFacts, LoginFacts, PolicyAnswer, ProgramFacts, TlsFacts, TokenAccess, Unread,
    },
    *,
};
use fixtures::{HOLDER, at, healthy, lease};

/// Checks that a change of a healthy installation makes this one check fail, and that message and mend say these words.
#[track_caller]
fn fails(expect: Check, says: &[&str], change: impl FnOnce(&mut Facts)) {
    found(&[(expect, Outcome::Failed)], says, change);
}

/// Checks that a change makes exactly these findings that are neither passed nor skipped.
#[track_caller]
fn found(expect: &[(Check, Outcome)], says: &[&str], change: impl FnOnce(&mut Facts)) {
    let mut facts = healthy();
    change(&mut facts);
    let all = judge(&facts);
    let bad: Vec<_> = all
        .iter()
        .filter(|finding| finding.outcome >= Outcome::Warning)
        .collect();
    let reported: Vec<_> = bad.iter().map(|finding| (finding.check, finding.outcome)).collect();
    assert_eq!(reported, expect, "{all:#?}");
    let texts = bad
        .iter()
        .flat_map(|finding| [Some(finding.message.as_str()), finding.mend.as_deref()]);
    let text = texts.flatten().collect::<Vec<_>>().join("\n");
    for part in says {
        assert!(text.contains(part), "{part:?} is missing in:\n{text}");
    }
    assert!(bad.iter().all(|finding| finding.mend.is_some()), "no mend: {bad:?}");
}

#[test]
fn an_id_token_that_opens_the_api_server_is_a_warning() {
    let accepted = |accepted_as| {
        move |facts: &mut Facts| {
            if let Some(LoginFacts::Tried { accepted_as: now, .. }) =
                facts.provider.as_mut().map(|provider| &mut provider.login)
            {
                *now = accepted_as;
            }
        }
    };
    let says = [
        "accepts the ID token of your login at https://bind.example.com, as user oidc:jane",
        "with issuer https://login.example.com",
        "instead of bindery",
        "--oidc-client-id",
    ];
    let warning = [(Check::LoginToken, Outcome::Warning)];
    found(&warning, &says, accepted(Ok(Some("oidc:jane".to_owned()))));
    let failed = Unread::Failed("500".to_owned());
    found(&warning, &["not checked: cannot ask"], accepted(Err(failed)));
    found(&[], &[], accepted(Err(Unread::Silent("no answer".to_owned()))));
    found(&[], &[], |facts| {
        let provider = facts.provider.as_mut().unwrap();
        provider.login = LoginFacts::NotTried("you have not logged in".to_owned());
    });
}

#[test]
fn nothing_is_found_on_a_healthy_installation() {
    found(&[], &[], |_| {});
    let all = judge(&healthy());
    assert!(all.iter().all(|finding| finding.outcome == Outcome::Passed), "{all:#?}");
    let reported: std::collections::BTreeSet<_> = all.iter().map(|finding| finding.check).collect();
    // There is no unusable Secret to report.
    let silent: Vec<_> = Check::ALL.iter().filter(|check| !reported.contains(check)).collect();
    assert_eq!(silent, [&Check::CredentialSecret]);
}

#[test]
fn findings_come_in_the_order_of_their_groups() {
    let groups: Vec<_> = judge(&healthy()).iter().map(|finding| finding.check.group()).collect();
    assert!(groups.is_sorted(), "{groups:?}");
}

#[test]
fn certificates_of_the_backend_are_told_apart() {
    let check = Check::BackendCertificate;
    let refused = |fault| move |facts: &mut Facts| facts.backends[0].tls = TlsFacts::Refused(fault);
    fails(
        check,
        &[
            "a CA that is not in the kubeconfig of Secret kube-bind/kubeconfig-cowboys",
            "kubectl bind renew cowboys",
            "--certificate-authority",
        ],
        refused(CertificateFault::Untrusted),
    );
    fails(
        check,
        &["expired at 1970-01-01T00:00:00Z", "--tls-cert-file"],
        refused(CertificateFault::Expired(Some(Timestamp::UNIX_EPOCH))),
    );
    fails(
        check,
        &[
            "is for other.example.com, and not for bind.example.com",
            "names bind.example.com",
        ],
        refused(CertificateFault::WrongName {
            dialled: "bind.example.com".to_owned(),
            names: vec!["other.example.com".to_owned()],
        }),
    );
    fails(
        check,
        &["not valid before", "timedatectl"],
        refused(CertificateFault::NotYetValid(Some(at(9_999)))),
    );
    found(&[(check, Outcome::Warning)], &["expires in 24h"], |facts| {
        facts.backends[0].tls = TlsFacts::Trusted(Some(at(24 * 3_600)));
    });
}

#[test]
fn certificates_of_the_api_server_are_told_apart() {
    fails(
        Check::ProviderCertificate,
        &["a CA that is not in the kubeconfig", "kubectl bind renew cowboys"],
        |facts| {
            let contract = &mut facts.contracts[0];
            contract.tls = TlsFacts::Refused(CertificateFault::Untrusted);
            let silent = || Unread::Silent("invalid peer certificate".to_owned());
            contract.cluster.api = Err(silent());
            contract.access = Err(silent());
            contract.cluster_binding = Err(silent());
        },
    );
}

#[test]
fn policies_are_there_bound_and_in_force() {
    fails(
        Check::KonnectorPolicy,
        &[
            "ValidatingAdmissionPolicy kube-bind-konnector does not exist",
            "kubectl bind deploy",
        ],
        |facts| facts.konnector.program.policies[0].policy = Ok(None),
    );
    fails(
        Check::KonnectorPolicyBinding,
        &[
            "ValidatingAdmissionPolicyBinding kube-bind-konnector does not exist",
            "kubectl bind deploy",
        ],
        |facts| facts.konnector.program.policies[0].binding = Ok(None),
    );
    fails(
        Check::KonnectorPolicyBinding,
        &[
            "spec.validationActions[0] differs",
            "kubectl --context consumer delete validatingadmissionpolicybinding kube-bind-konnector, then kubectl bind deploy",
        ],
        |facts| {
            let binding = json!({"spec": {"policyName": "kube-bind-konnector", "validationActions": ["Audit"]}});
            facts.konnector.program.policies[0].binding = Ok(Some(binding));
        },
    );
    fails(
        Check::KonnectorPolicyInForce,
        &["did not deny", "kubectl bind deploy"],
        |facts| {
            facts.konnector.program.policies[0].probe = Some(Ok(PolicyAnswer::Admitted));
        },
    );
    fails(
        Check::ServerPolicy,
        &["kubectl --context provider apply -f deploy/server/policy.yaml"],
        |facts| facts.provider.as_mut().unwrap().server.policies[0].policy = Ok(None),
    );
    fails(
        Check::ServerPolicyBinding,
        &["kubectl --context provider apply -f deploy/server/policy.yaml"],
        |facts| facts.provider.as_mut().unwrap().server.policies[0].binding = Ok(None),
    );
    // A user who may not impersonate gets no failure for it.
    found(
        &[(Check::KonnectorPolicyInForce, Outcome::Warning)],
        &["impersonate"],
        |facts| {
            let denied = Unread::Denied("users may not impersonate".to_owned());
            facts.konnector.program.policies[0].probe = Some(Err(denied));
        },
    );
}

#[test]
fn what_helm_installed_is_mended_by_helm() {
    let helm = |facts: &mut ProgramFacts, release: &str| {
        let deployment = facts.deployment.as_mut().unwrap().as_mut().unwrap();
        deployment.helm = Some(("kube-bind".to_owned(), release.to_owned()));
    };
    fails(
        Check::KonnectorPolicy,
        &["helm --kube-context consumer upgrade konnector deploy/charts/bindery-konnector -n kube-bind"],
        |facts| {
            helm(&mut facts.konnector.program, "konnector");
            facts.konnector.program.policies[0].policy = Ok(None);
        },
    );
    fails(
        Check::ServerPolicyBinding,
        &["helm --kube-context provider upgrade bindery-server deploy/charts/bindery-server -n kube-bind"],
        |facts| {
            let server = &mut facts.provider.as_mut().unwrap().server;
            helm(server, "bindery-server");
            server.policies[0].binding = Ok(None);
        },
    );
}

#[test]
fn a_rollout_that_does_not_end_is_told_with_what_takes_it_back() {
    let unfinished = |facts: &mut ProgramFacts| {
        let deployment = facts.deployment.as_mut().unwrap().as_mut().unwrap();
        deployment.is_rolled_out = false;
    };
    found(
        &[(Check::KonnectorDeployment, Outcome::Warning)],
        &[
            "Deployment kube-bind/konnector is not complete",
            "kubectl --context consumer rollout undo deployment/konnector -n kube-bind",
        ],
        |facts| unfinished(&mut facts.konnector.program),
    );
    found(
        &[(Check::ServerDeployment, Outcome::Warning)],
        &["helm --kube-context provider rollback server -n kube-bind"],
        |facts| {
            let server = &mut facts.provider.as_mut().unwrap().server;
            unfinished(server);
            server.deployment.as_mut().unwrap().as_mut().unwrap().helm =
                Some(("kube-bind".to_owned(), "server".to_owned()));
        },
    );
}

#[test]
fn a_rollout_of_which_no_replica_is_available_is_left_to_the_check_of_the_lease() {
    let mut facts = healthy();
    let deployment = facts.konnector.program.deployment.as_mut().unwrap().as_mut().unwrap();
    deployment.is_rolled_out = false;
    deployment.available = 0;
    let findings = judge(&facts);
    let of_rollout = findings
        .iter()
        .find(|finding| finding.check == Check::KonnectorDeployment);
    assert_eq!(of_rollout.unwrap().outcome, Outcome::Skipped);
}

#[test]
fn missing_rules_are_printed_to_be_pasted() {
    let right = Right {
        namespace: None,
        group: "kube-bind.io".to_owned(),
        resource: "apiservicebindings/status".to_owned(),
        name: None,
        verb: "patch".to_owned(),
    };
    fails(
        Check::KonnectorRights,
        &[
            "ServiceAccount kube-bind/konnector may not patch apiservicebindings/status.kube-bind.io",
            "kubectl bind deploy",
            r#"ClusterRole kube-bind-konnector: {"apiGroups":["kube-bind.io"],"resources":["apiservicebindings/status"],"verbs":["patch"]}"#,
        ],
        |facts| facts.konnector.program.missing_rights = Ok(vec![right]),
    );
}

#[test]
fn clocks_are_compared() {
    let ahead = |seconds| {
        move |facts: &mut Facts| facts.consumer.api.as_mut().unwrap().ahead = SignedDuration::from_secs(seconds)
    };
    found(&[], &[], ahead(10));
    found(
        &[(Check::ConsumerClock, Outcome::Warning)],
        &["11 s ahead of", "timedatectl"],
        ahead(11),
    );
    found(
        &[(Check::ConsumerClock, Outcome::Failed)],
        &["3600 s behind", "timedatectl"],
        ahead(-3_600),
    );
    fails(Check::ProviderClock, &["3600 s ahead"], |facts| {
        let contract = &mut facts.contracts[0];
        contract.cluster.api.as_mut().unwrap().ahead = SignedDuration::from_secs(3_600);
        // Heartbeats are judged by the provider's clock.
        let status = contract
            .cluster_binding
            .as_mut()
            .unwrap()
            .as_mut()
            .unwrap()
            .status
            .as_mut()
            .unwrap();
        status.last_heartbeat_time.as_mut().unwrap().0 = at(-3_600);
    });
    fails(Check::KonnectorClock, &["the konnector is 3600 s ahead"], |facts| {
        facts.konnector.program.lease = Ok(Some(LeaseFacts {
            renewed: Some(at(3_600)),
            seen_renewed: Some(true),
            ..lease()
        }));
    });
    fails(Check::ServerClock, &["the server is 3600 s behind"], |facts| {
        facts.provider.as_mut().unwrap().server.lease = Ok(Some(LeaseFacts {
            renewed: Some(at(-3_600)),
            seen_renewed: Some(true),
            ..lease()
        }));
    });
}

#[test]
fn a_leader_is_who_renews() {
    let check = Check::KonnectorLease;
    let set = |lease| move |facts: &mut Facts| facts.konnector.program.lease = Ok(lease);
    let restart = "kubectl rollout restart deployment/konnector -n kube-bind";
    fails(check, &["Lease kube-bind/kube-bind does not exist", restart], set(None));
    fails(
        check,
        &["has no holder", "1 of 1 replicas", restart],
        set(Some(LeaseFacts {
            holder: None,
            ..lease()
        })),
    );
    let stale = LeaseFacts {
        renewed: Some(at(-300)),
        seen_renewed: Some(false),
        watched: std::time::Duration::from_secs(18),
        ..lease()
    };
    fails(
        check,
        &[HOLDER, "did not renew it for 18 s", "5m ago", restart],
        set(Some(stale)),
    );
    // A renewal that is as old as the Lease lasts shows no wrong clock.
    found(
        &[],
        &[],
        set(Some(LeaseFacts {
            renewed: Some(at(-14)),
            ..lease()
        })),
    );
}

#[test]
fn who_does_not_answer_is_named_once() {
    let silent = || Unread::Silent("connection refused".to_owned());
    fails(Check::ConsumerApi, &["connection refused", "--kubeconfig"], |facts| {
        facts.consumer.api = Err(silent());
    });
    fails(
        Check::ProviderApi,
        &[
            "the provider's API server https://kubernetes.example.com:6443 cannot be reached",
            "tell the provider's admin",
        ],
        |facts| {
            let contract = &mut facts.contracts[0];
            contract.tls = TlsFacts::NotConnected("connection refused".to_owned());
            contract.cluster.api = Err(silent());
            contract.access = Err(silent());
            contract.cluster_binding = Err(silent());
        },
    );
    fails(
        Check::BackendReachable,
        &["the backend https://bind.example.com cannot be reached"],
        |facts| {
            facts.backends[0].tls = TlsFacts::NotConnected("connection refused".to_owned());
            facts.backends[0].version = Err(silent());
            facts.contracts[0].renewal = Some(Err(silent()));
        },
    );
    fails(Check::ProviderAdminApi, &["--provider-context"], |facts| {
        facts.provider.as_mut().unwrap().cluster.api = Err(silent());
    });
}

#[test]
fn versions_may_be_one_minor_apart() {
    let konnector = |version: &'static str| {
        move |facts: &mut Facts| {
            let binding = facts.contracts[0].cluster_binding.as_mut().unwrap().as_mut().unwrap();
            binding.status.as_mut().unwrap().konnector_version = Some(version.to_owned());
        }
    };
    found(&[], &[], konnector("v0.2.0"));
    found(
        &[
            (Check::KonnectorVersion, Outcome::Failed),
            (Check::BackendVersion, Outcome::Failed),
        ],
        &[
            "the konnector v0.3.0: more than one minor version apart",
            "kubectl bind deploy",
        ],
        konnector("v0.3.0"),
    );
    fails(Check::ConsumerVersion, &["v1.29.0", "upgrade"], |facts| {
        facts.consumer.api.as_mut().unwrap().version = "v1.29.0".to_owned();
    });
    found(
        &[
            (Check::BackendVersion, Outcome::Failed),
            (Check::BackendVersion, Outcome::Failed),
        ],
        &["the server 0.9.0"],
        |facts| facts.backends[0].version = Ok("0.9.0".to_owned()),
    );
}

#[test]
fn credentials_that_are_revoked_expired_or_denied_are_told_apart() {
    let check = Check::Credential;
    let renew = "kubectl bind renew cowboys";
    let refused = || Ok(TokenAccess::Refused("Unauthorized".to_owned()));
    // The API server still knows the token for some seconds.
    fails(check, &["are revoked", renew], |facts| {
        facts.contracts[0].renewal = Some(Ok(TokenAccess::Revoked("revoked".to_owned())));
    });
    fails(check, &["before its time is over: it was revoked", renew], |facts| {
        facts.contracts[0].access = refused();
    });
    fails(check, &["has expired", renew], |facts| {
        facts.contracts[0].access = refused();
        facts.contracts[0].expires = Some(at(-1));
    });
    fails(
        check,
        &["may not read its contract", "RoleBinding kube-binder"],
        |facts| {
            facts.contracts[0].access = Ok(TokenAccess::Denied("forbidden".to_owned()));
        },
    );
    fails(check, &["does not exist on the provider"], |facts| {
        facts.contracts[0].access = Ok(TokenAccess::Gone);
    });
    fails(
        Check::ContractRevoked,
        &[
            "were revoked at 1970-01-01T00:00:00Z, because: lost laptop",
            "kubectl bind renew",
        ],
        |facts| {
            let revocation = Revocation {
                reason: Some("lost laptop".to_owned()),
                ..Revocation::default()
            };
            let contracts = facts.provider.as_mut().unwrap().revoked.as_mut().unwrap();
            contracts.insert("kube-bind-x".to_owned(), Some(revocation));
        },
    );
    found(
        &[(Check::CredentialRenewal, Outcome::Warning)],
        &["for 60m only"],
        |facts| {
            facts.contracts[0].renewable_until = Some(at(3_600));
        },
    );
}

#[test]
fn a_silent_konnector_is_found_by_its_heartbeat() {
    fails(Check::Heartbeat, &["is 11m old", "due every 5m"], |facts| {
        let binding = facts.contracts[0].cluster_binding.as_mut().unwrap().as_mut().unwrap();
        binding.status.as_mut().unwrap().last_heartbeat_time.as_mut().unwrap().0 = at(-700);
    });
}

fn with_ready(condition: Option<Condition>) -> APIServiceBinding {
    let mut binding = APIServiceBinding::new("cowboys", APIServiceBindingSpec::default());
    binding.status = Some(APIServiceBindingStatus {
        conditions: condition.into_iter().collect(),
        ..APIServiceBindingStatus::default()
    });
    binding
}

#[test]
fn conditions_are_passed_on_with_their_severity() {
    let ready = |severity| with_ready(Some(false_condition("Ready", severity, "SomeReason", "some message")));
    let set = |binding| move |facts: &mut Facts| facts.bindings = Ok(vec![binding]);
    let says = [
        "APIServiceBinding cowboys is not ready since",
        "some message (SomeReason)",
        "kubectl bind status cowboys",
    ];
    found(&[], &[], set(with_ready(Some(true_condition("Ready")))));
    found(
        &[(Check::BindingReady, Outcome::Failed)],
        &says,
        set(ready(Severity::Error)),
    );
    found(
        &[(Check::BindingReady, Outcome::Warning)],
        &says,
        set(ready(Severity::Info)),
    );
    found(
        &[(Check::BindingReady, Outcome::Warning)],
        &["has not seen"],
        set(with_ready(None)),
    );
}

#[test]
fn what_a_user_may_not_read_is_no_failure() {
    let denied = || Unread::Denied("forbidden".to_owned());
    found(
        &[(Check::KonnectorRights, Outcome::Warning)],
        &["create subjectaccessreviews.authorization.k8s.io"],
        |facts| facts.konnector.program.missing_rights = Err(denied()),
    );
    found(&[], &[], |facts| {
        facts.unusable_secrets.push(facts::UnusableSecret {
            owners: vec!["APIServiceBinding cowboys".to_owned()],
            why: "Secret kube-bind/kubeconfig-cowboys is not visible to you".to_owned(),
            is_hidden: true,
        });
        facts.contracts.clear();
        facts.backends.clear();
    });
}

#[test]
fn lines_have_marks_mends_and_links() {
    let mut facts = healthy();
    facts.konnector.program.lease = Ok(None);
    let findings = judge(&facts);
    let text = render(&findings, Marks::Words);
    assert!(text.is_ascii(), "{text}");
    assert!(
        text.starts_with("This cluster\nok   this cluster's API server"),
        "{text}"
    );
    let failure = "\nFAIL Lease kube-bind/kube-bind does not exist";
    assert!(text.contains(failure), "{text}");
    assert!(
        text.contains("\n    see:  docs/reference/check.md#konnector-lease\n"),
        "{text}"
    );
    assert!(text.contains("\nFailed: 1 ("), "{text}");
    assert!(render(&findings, Marks::Signs).contains("\n✗ Lease"));
    let well = render(&judge(&healthy()), Marks::Words);
    assert!(well.contains("\nAll is well ("), "{well}");
}

#[test]
fn an_answer_that_is_none_of_an_api_server_is_no_success() {
    let failed = || Unread::Failed("it answers 503 Service Unavailable".to_owned());
    fails(
        Check::ProviderApi,
        &["does not answer as an API server does: it answers 503", "load balancer"],
        |facts| {
            let contract = &mut facts.contracts[0];
            contract.cluster.api = Err(failed());
            contract.access = Err(failed());
            contract.cluster_binding = Err(failed());
        },
    );
    found(
        &[(Check::Credential, Outcome::Warning)],
        &["the token of contract kube-bind-x is not checked"],
        |facts| facts.contracts[0].access = Err(failed()),
    );
    found(
        &[(Check::Heartbeat, Outcome::Warning)],
        &["heartbeats of contract kube-bind-x are not checked"],
        |facts| facts.contracts[0].cluster_binding = Err(failed()),
    );
    found(
        &[(Check::CredentialRenewal, Outcome::Warning)],
        &["the CA of the backend in the kubeconfig is not base64"],
        |facts| {
            let why = "the CA of the backend in the kubeconfig is not base64".to_owned();
            facts.contracts[0].renewal = Some(Err(Unread::Failed(why)));
        },
    );
}

#[test]
fn an_api_server_that_hides_its_version_answers() {
    found(&[], &[], |facts| {
        facts.consumer.api = Err(Unread::Denied("the API server answers 403".to_owned()));
    });
}

/// Adds a second contract with a provider and a backend of its own.
fn add_provider(facts: &mut Facts) {
    let mut contract = facts.contracts[0].clone();
    contract.name = "kube-bind-y".to_owned();
    contract.backend = Some("https://other.example.com".to_owned());
    facts.contracts.push(contract);
    let mut backend = facts.backends[0].clone();
    backend.address = "https://other.example.com".to_owned();
    facts.backends.push(backend);
}

#[test]
fn a_fault_of_one_provider_hides_nothing_of_another() {
    let refused = || Ok(TokenAccess::Refused("Unauthorized".to_owned()));
    found(
        &[
            (Check::Credential, Outcome::Failed),
            (Check::CredentialRenewal, Outcome::Failed),
        ],
        &["the backend refuses the token that renews the credentials of contract kube-bind-y"],
        |facts| {
            add_provider(facts);
            facts.contracts[0].access = refused();
            facts.contracts[1].renewal = Some(refused());
        },
    );
    found(
        &[
            (Check::BackendCertificate, Outcome::Failed),
            (Check::BackendAnswers, Outcome::Failed),
        ],
        &["the backend https://other.example.com does not answer"],
        |facts| {
            add_provider(facts);
            facts.backends[0].tls = TlsFacts::Refused(CertificateFault::Expired(None));
            facts.backends[1].version = Err(Unread::Silent("no answer within 10 s".to_owned()));
        },
    );
}

#[test]
fn what_another_release_ships_is_no_failure() {
    let of_konnector = |facts: &mut Facts, version: &str| {
        let binding = facts.contracts[0].cluster_binding.as_mut().unwrap().as_mut().unwrap();
        binding.status.as_mut().unwrap().konnector_version = Some(version.to_owned());
    };
    let altered = || Ok(Some(json!({"spec": {"failurePolicy": "Fail"}})));
    found(
        &[(Check::KonnectorPolicy, Outcome::Warning)],
        &[
            "spec.validations differs",
            "the konnector is of release 0.2.0, and this command of 0.1.0",
            "check with kubectl-bind 0.2.0",
        ],
        |facts| {
            of_konnector(facts, "v0.2.0");
            facts.konnector.program.policies[0].policy = altered();
        },
    );
    // A policy of each release denies the probe.
    fails(Check::KonnectorPolicyInForce, &["did not deny"], |facts| {
        of_konnector(facts, "v0.2.0");
        facts.konnector.program.policies[0].probe = Some(Ok(PolicyAnswer::Admitted));
    });
    found(
        &[(Check::ServerPolicy, Outcome::Warning)],
        &["the server is of release 0.2.0", "check with kubectl-bind 0.2.0"],
        |facts| {
            facts.backends[0].version = Ok("0.2.0".to_owned());
            facts.provider.as_mut().unwrap().server.policies[0].policy = Ok(None);
        },
    );
}

#[test]
fn a_program_without_pods_is_scaled_or_installed() {
    fails(
        Check::KonnectorLease,
        &[
            "0 of 0 replicas",
            "kubectl --context consumer scale deployment/konnector -n kube-bind --replicas 1",
        ],
        |facts| {
            facts.konnector.program.lease = Ok(None);
            let deployment = facts.konnector.program.deployment.as_mut().unwrap().as_mut().unwrap();
            (deployment.wanted, deployment.available) = (0, 0);
        },
    );
    fails(
        Check::KonnectorLease,
        &["kubectl bind deploy --context consumer; or, if it runs as another Deployment"],
        |facts| {
            facts.konnector.program.lease = Ok(None);
            facts.konnector.program.deployment = Ok(None);
        },
    );
}

#[test]
fn mends_reach_the_cluster_that_was_checked() {
    fails(
        Check::KonnectorLease,
        &[
            "kubectl rollout restart deployment/konnector -n kube-bind --context consumer;",
            "kubectl logs deployment/konnector -n kube-bind --context consumer",
        ],
        |facts| facts.konnector.program.lease = Ok(None),
    );
    let policy = |facts: &mut Facts| facts.konnector.program.policies[0].policy = Ok(None);
    fails(
        Check::KonnectorPolicy,
        &["kubectl bind deploy --context consumer"],
        policy,
    );
    fails(
        Check::Credential,
        &["kubectl bind renew cowboys --context consumer"],
        |facts| facts.contracts[0].access = Ok(TokenAccess::Refused("Unauthorized".to_owned())),
    );
    fails(Check::Heartbeat, &["-n other --context consumer"], |facts| {
        facts.konnector.program.account.0 = "other".to_owned();
        let binding = facts.contracts[0].cluster_binding.as_mut().unwrap().as_mut().unwrap();
        binding.status.as_mut().unwrap().last_heartbeat_time.as_mut().unwrap().0 = at(-700);
    });
}

#[test]
fn other_names_than_the_shipped_ones_are_put_into_a_copy() {
    fails(
        Check::KonnectorPolicy,
        &[
            "copy deploy/konnector, and in the copy replace namespace kube-bind by other and ServiceAccount konnector by konnector",
            "kubectl --context consumer apply -f COPY",
        ],
        |facts| {
            facts.konnector.program.account.0 = "other".to_owned();
            facts.konnector.program.policies[0].policy = Ok(None);
        },
    );
    fails(
        Check::ServerPolicy,
        &[
            "copy deploy/server",
            "ServiceAccount bindery-server by backend",
            "kubectl --context provider apply",
        ],
        |facts| {
            let server = &mut facts.provider.as_mut().unwrap().server;
            server.account.1 = "backend".to_owned();
            server.policies[0].policy = Ok(None);
        },
    );
}

#[test]
fn a_wrong_clock_of_the_konnector_is_one_failure() {
    fails(Check::KonnectorClock, &["the konnector is 3600 s behind"], |facts| {
        facts.konnector.program.lease = Ok(Some(LeaseFacts {
            renewed: Some(at(-3_600)),
            seen_renewed: Some(true),
            ..lease()
        }));
        let binding = facts.contracts[0].cluster_binding.as_mut().unwrap().as_mut().unwrap();
        binding.status.as_mut().unwrap().last_heartbeat_time.as_mut().unwrap().0 = at(-3_700);
    });
}

#[test]
fn the_backend_of_the_provider_is_the_one_that_its_contracts_name() {
    let mut facts = healthy();
    assert_eq!(facts.provider_backend(), Some("https://bind.example.com"));
    // The contract of another provider comes first.
    add_provider(&mut facts);
    facts.contracts.reverse();
    assert_eq!(facts.provider_backend(), Some("https://bind.example.com"));
    facts.contracts[0].name = "kube-bind-x".to_owned();
    assert_eq!(
        facts.provider_backend(),
        None,
        "two providers have a contract of this name"
    );
    facts.contracts.clear();
    assert_eq!(facts.provider_backend(), None);
}

#[test]
fn what_could_not_be_checked_is_counted() {
    let denied = || Unread::Denied("forbidden".to_owned());
    let last = |facts: &Facts| {
        render(&judge(facts), Marks::Words)
            .lines()
            .last()
            .unwrap_or_default()
            .to_owned()
    };
    let mut facts = healthy();
    facts.bindings = Err(denied());
    let text = last(&facts);
    assert!(
        text.starts_with("Nothing failed, but not all could be checked, not checked: 1 ("),
        "{text}"
    );
    facts.contracts[0].renewable_until = Some(at(3_600));
    let text = last(&facts);
    assert!(text.contains("not checked: 1, warnings: 1 ("), "{text}");
    facts.bindings = Ok(Vec::new());
    let text = last(&facts);
    assert!(text.starts_with("It works, warnings: 1 ("), "{text}");
    facts.konnector.program.lease = Ok(None);
    let text = last(&facts);
    assert!(text.starts_with("Failed: 1, warnings: 1 ("), "{text}");
}
