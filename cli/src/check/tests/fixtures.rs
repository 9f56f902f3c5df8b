//! A healthy installation.

use std::{collections::BTreeMap, time::Duration};

use bindery_api::v1alpha2::{ClusterBinding, ClusterBindingSpec, ClusterBindingStatus};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use crate::check::facts::{
    ApiFacts, BackendFacts, ClusterFacts, ClusterFlags, ContractFacts, DeploymentFacts, Facts, KonnectorFacts,
    LeaseFacts, LoginFacts, PolicyAnswer, PolicyFacts, ProgramFacts, ProviderFacts, Shipped, TlsFacts, TokenAccess,
};

/// The time of all clocks.
const NOW: i64 = 1_800_000_000;
const DAY: i64 = 24 * 3_600;
pub(super) const HOLDER: &str = "konnector-abc_01";

/// The time that lies this number of seconds after now.
pub(super) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(NOW + seconds).unwrap()
}

fn cluster(server: &str) -> ClusterFacts {
    ClusterFacts {
        server: server.to_owned(),
        api: Ok(ApiFacts {
            version: "v1.34.1".to_owned(),
            ahead: SignedDuration::from_millis(300),
        }),
    }
}

pub(super) fn lease() -> LeaseFacts {
    LeaseFacts {
        holder: Some(HOLDER.to_owned()),
        renewed: Some(at(-1)),
        duration: Duration::from_secs(15),
        read_at: at(0),
        seen_renewed: None,
        watched: Duration::ZERO,
    }
}

fn policy(name: &str) -> PolicyFacts {
    let shipped = Shipped {
        policy: json!({"spec": {"failurePolicy": "Fail", "validations": [{"expression": "x"}]}}),
        binding: json!({"spec": {"policyName": name, "validationActions": ["Deny"]}}),
    };
    PolicyFacts {
        name: name.to_owned(),
        policy: Ok(Some(shipped.policy.clone())),
        binding: Ok(Some(shipped.binding.clone())),
        shipped,
        probe: Some(Ok(PolicyAnswer::Denied)),
    }
}

fn program(name: &'static str, lease_name: &'static str, policies: [&str; 2]) -> ProgramFacts {
    ProgramFacts {
        account: ("kube-bind".to_owned(), name.to_owned()),
        deployment_name: name,
        deployment: Ok(Some(DeploymentFacts {
            image: Some(format!("{name}:0.1.0")),
            wanted: 1,
            available: 1,
            is_rolled_out: true,
            helm: None,
        })),
        missing_rights: Ok(Vec::new()),
        policies: policies.map(policy).into(),
        lease: Ok(Some(lease())),
        lease_name,
    }
}

fn cluster_binding() -> ClusterBinding {
    let mut binding = ClusterBinding::new("cluster", ClusterBindingSpec::default());
    binding.status = Some(ClusterBindingStatus {
        last_heartbeat_time: Some(Time(at(-100))),
        heartbeat_interval: Some(Duration::from_mins(5).into()),
        konnector_version: Some("v0.1.0".to_owned()),
        ..ClusterBindingStatus::default()
    });
    binding
}

/// All facts of an installation where all is well.
pub(super) fn healthy() -> Facts {
    Facts {
        own_version: "0.1.0",
        flags: ClusterFlags {
            consumer: " --context consumer".to_owned(),
            provider: " --context provider".to_owned(),
        },
        now: at(0),
        consumer: cluster("https://consumer.example.com:6443"),
        konnector: KonnectorFacts {
            missing_definitions: Ok(Vec::new()),
            program: program(
                "konnector",
                "kube-bind",
                ["kube-bind-konnector", "kube-bind-konnector-claims"],
            ),
        },
        bindings: Ok(Vec::new()),
        bundles: Ok(Vec::new()),
        unusable_secrets: Vec::new(),
        contracts: vec![ContractFacts {
            name: "kube-bind-x".to_owned(),
            renew: "cowboys".to_owned(),
            secret: "kube-bind/kubeconfig-cowboys".to_owned(),
            cluster: cluster("https://kubernetes.example.com:6443"),
            tls: TlsFacts::Trusted(Some(at(100 * DAY))),
            expires: Some(at(1_800)),
            renewable_until: Some(at(6 * DAY)),
            access: Ok(TokenAccess::Accepted),
            renewal: Some(Ok(TokenAccess::Accepted)),
            cluster_binding: Ok(Some(cluster_binding())),
            backend: Some("https://bind.example.com".to_owned()),
        }],
        backends: vec![BackendFacts {
            address: "https://bind.example.com".to_owned(),
            ca_from: "the kubeconfig of Secret kube-bind/kubeconfig-cowboys".to_owned(),
            renew: Some("cowboys".to_owned()),
            tls: TlsFacts::Trusted(None),
            version: Ok("0.1.0".to_owned()),
        }],
        provider: Some(ProviderFacts {
            cluster: cluster("https://kubernetes.example.com:6443"),
            server: program(
                "bindery-server",
                "bindery-server",
                ["kube-bind-binder", "kube-bind-requests"],
            ),
            revoked: Ok(BTreeMap::from([("kube-bind-x".to_owned(), None)])),
            unready_templates: Ok(Vec::new()),
            login: LoginFacts::Tried {
                backend: "https://bind.example.com".to_owned(),
                issuer: "https://login.example.com".to_owned(),
                client_id: "bindery".to_owned(),
                accepted_as: Ok(None),
            },
        }),
    }
}
