//! A bundle with its Secret: what is wanted, and what of it is missing.

use bindery_api::{
    Conditions as _,
    conditions::ConditionStatus,
    names::{self, KUBE_BIND_NAMESPACE, KUBECONFIG_KEY},
    v1alpha2::{APIServiceBindingBundle, APIServiceBindingBundleSpec, ClusterSecretKeyRef, PermissionClaim},
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;

use crate::{
    kubeconfig::Credential,
    manifests::{self, Kubeconfig, is_ours},
    plan::{Conflict, Object, Op},
};

/// What stands on the consumer of it.
#[derive(Debug, Default)]
pub(crate) struct Installed {
    pub(crate) bundle: Option<APIServiceBindingBundle>,
    pub(crate) secret: Option<Secret>,
    /// The kubeconfig in the Secret, if it is a good one.
    pub(crate) credential: Option<Credential>,
}

/// What is to stand there.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) bundle: APIServiceBindingBundle,
    pub(crate) secret: Secret,
}

/// The Secret that a bundle of this name gets, unless it has one already.
pub(crate) fn secret_ref(bundle: &str) -> ClusterSecretKeyRef {
    ClusterSecretKeyRef {
        name: names::provider_kubeconfig_secret(&format!("bundle-{bundle}")),
        key: KUBECONFIG_KEY.to_owned(),
        namespace: KUBE_BIND_NAMESPACE.to_owned(),
    }
}

impl Wanted {
    /// A bundle that accepts these claims, beside those that it accepts already on other resources.
    pub(crate) fn new(name: &str, accepted: &[PermissionClaim], kubeconfig: Kubeconfig, seen: &Installed) -> Self {
        let reference = match &seen.bundle {
            Some(bundle) => bundle.spec.kubeconfig_secret_ref.clone(),
            None => secret_ref(name),
        };
        let is_new = |claim: &&PermissionClaim| accepted.iter().all(|new| new.group_resource != claim.group_resource);
        let before = seen.bundle.iter().flat_map(|bundle| &bundle.spec.accepted_claims);
        let spec = APIServiceBindingBundleSpec {
            accepted_claims: before.filter(is_new).chain(accepted).cloned().collect(),
            kubeconfig_secret_ref: reference.clone(),
            ..APIServiceBindingBundleSpec::default()
        };
        let mut bundle = APIServiceBindingBundle::new(name, spec);
        bundle.metadata = manifests::marked(name, None);
        Self {
            bundle,
            secret: manifests::secret(&reference, kubeconfig),
        }
    }
}

/// The writes that are missing: the bundle last, for the konnector acts on it. A bundle that somebody else made stays as it
/// is.
pub(crate) fn plan(wanted: &Wanted, seen: &Installed, now: Timestamp) -> Result<Vec<Op>, Conflict> {
    let bundle = wanted.bundle.name_any();
    if seen
        .bundle
        .as_ref()
        .is_some_and(|seen| seen.metadata.deletion_timestamp.is_some())
    {
        return Err(Conflict::UnbindingBundle { bundle });
    }
    let offered = wanted.secret.data.iter().flatten();
    let offered = offered.map(|(_, document)| Credential::parse(&document.0)).next();
    let offered = offered.and_then(Result::ok);
    if let Some(got) = &offered {
        same_contract(&bundle, seen, got, "")?;
    }
    let mut ops = Vec::new();
    match &seen.secret {
        Some(_) if keeps_credential(seen, offered.as_ref(), now) => {}
        Some(secret) if !is_ours(&secret.metadata) => {
            return Err(Conflict::ForeignObject {
                kind: "Secret",
                name: secret.name_any(),
            });
        }
        secret => ops.push(Op {
            object: Object::Secret(wanted.secret.clone()),
            exists: secret.is_some(),
        }),
    }
    let object = Object::Bundle(Box::new(wanted.bundle.clone()));
    match &seen.bundle {
        None => ops.push(Op { object, exists: false }),
        Some(seen) if is_ours(&seen.metadata) && seen.spec.accepted_claims != wanted.bundle.spec.accepted_claims => {
            ops.push(Op { object, exists: true });
        }
        Some(_) => {}
    }
    Ok(ops)
}

/// Whether a kubeconfig leads to the contract that the bundle uses.
pub(crate) fn same_contract(
    bundle: &str,
    seen: &Installed,
    got: &Credential,
    contract_uid: &str,
) -> Result<(), Conflict> {
    let status = seen.bundle.as_ref().and_then(|bundle| bundle.status.as_ref());
    let pinned = status.and_then(|status| status.contract_uid.as_deref());
    if pinned.is_some() && pinned == Some(contract_uid) {
        return Ok(());
    }
    match &seen.credential {
        Some(used) if used.server != got.server || used.namespace != got.namespace => {
            Err(Conflict::OtherProviderOfBundle {
                bundle: bundle.to_owned(),
                uses: format!("{} (contract {})", used.server, used.namespace),
                asked: format!("{} (contract {})", got.server, got.namespace),
            })
        }
        _ => Ok(()),
    }
}

/// Whether the installed kubeconfig is as good as the new one, and nobody complains of it.
fn keeps_credential(seen: &Installed, offered: Option<&Credential>, now: Timestamp) -> bool {
    let Some(installed) = &seen.credential else {
        return false;
    };
    let complaint = seen.bundle.as_ref().is_some_and(|bundle| {
        ["SecretValid", "ProviderReachable"].iter().any(|type_| {
            bundle
                .condition(type_)
                .is_some_and(|condition| condition.status == ConditionStatus::False)
        })
    });
    let same = offered.is_none_or(|offered| offered.differs_by_token_alone(installed));
    same && installed.is_valid_at(now) && !complaint
}

#[cfg(test)]
mod tests {
    use bindery_api::{
        conditions::{Severity, false_condition},
        v1alpha2::GroupResource,
    };
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::Value;

    use super::*;
    use crate::kubeconfig::tests::{kubeconfig, parse};

    fn claim(resource: &str) -> PermissionClaim {
        PermissionClaim {
            group_resource: GroupResource::new("", resource),
            ..PermissionClaim::default()
        }
    }

    fn wanted(document: &Value, accepted: &[PermissionClaim], seen: &Installed) -> Wanted {
        Wanted::new(
            "acme",
            accepted,
            Kubeconfig::Is(document.to_string().into_bytes()),
            seen,
        )
    }

    /// After a first run.
    fn installed(expires: i64) -> Installed {
        let document = kubeconfig(expires, expires);
        let wanted = wanted(&document, &[], &Installed::default());
        Installed {
            bundle: Some(wanted.bundle),
            secret: Some(wanted.secret),
            credential: parse(&document).ok(),
        }
    }

    #[track_caller]
    fn check(seen: &Installed, document: &Value, accepted: &[PermissionClaim], expect: &[&str]) {
        let now = Timestamp::from_second(50).unwrap();
        let ops = plan(&wanted(document, accepted, seen), seen, now);
        let ops = match ops {
            Ok(ops) => ops.iter().map(|op| op.object.to_string()).collect(),
            Err(conflict) => vec![conflict.to_string()],
        };
        assert_eq!(ops.len(), expect.len(), "{ops:?}");
        for (op, expect) in ops.iter().zip(expect) {
            assert!(op.contains(expect), "{op}");
        }
    }

    const SECRET: &str = "Secret kube-bind/kubeconfig-bundle-acme";
    const BUNDLE: &str = "APIServiceBindingBundle acme";

    #[test]
    fn only_what_is_missing_is_written() {
        let document = kubeconfig(100, 100);
        check(&Installed::default(), &document, &[], &[SECRET, BUNDLE]);
        check(&installed(100), &document, &[], &[]);
        check(&installed(100), &kubeconfig(200, 200), &[], &[]);
        check(&installed(40), &document, &[], &[SECRET]);
        check(&installed(100), &document, &[claim("secrets")], &[BUNDLE]);
    }

    #[test]
    fn a_credential_that_fails_is_replaced() {
        let mut seen = installed(100);
        let refused = false_condition("ProviderReachable", Severity::Error, "ProviderUnauthorized", "401");
        seen.bundle
            .as_mut()
            .unwrap()
            .set_condition(refused, Timestamp::UNIX_EPOCH);
        check(&seen, &kubeconfig(100, 100), &[], &[SECRET]);
    }

    #[test]
    fn what_stands_in_the_way_is_named() {
        let document = kubeconfig(100, 100);
        let mut elsewhere = document.clone();
        elsewhere["clusters"][0]["cluster"]["server"] = "https://other.example.com".into();
        check(&installed(100), &elsewhere, &[], &["https://other.example.com"]);
        let mut foreign = installed(40);
        foreign.secret.as_mut().unwrap().metadata.labels = None;
        check(&foreign, &document, &[], &["not made by kubectl bind"]);
        let mut going = installed(100);
        going.bundle.as_mut().unwrap().metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        check(&going, &document, &[], &["being deleted"]);
    }

    #[test]
    fn somebody_elses_bundle_stays_as_it_is() {
        let mut seen = installed(100);
        seen.bundle.as_mut().unwrap().metadata.labels = None;
        check(&seen, &kubeconfig(100, 100), &[claim("secrets")], &[]);
    }

    #[test]
    fn what_was_accepted_before_stays_accepted() {
        let mut seen = installed(100);
        seen.bundle.as_mut().unwrap().spec.accepted_claims = vec![claim("configmaps"), claim("secrets")];
        let wanted = wanted(&kubeconfig(100, 100), &[claim("secrets")], &seen);
        assert_eq!(
            wanted.bundle.spec.accepted_claims,
            [claim("configmaps"), claim("secrets")]
        );
    }
}
