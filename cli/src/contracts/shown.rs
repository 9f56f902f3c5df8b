//! A contract as it is printed, from the backend's answer or from the objects on the provider's cluster.

mod owner;

use bindery_api::{Conditions as _, annotations, conditions::READY, meta, revocation::revocation, v1alpha2 as api};
use bindery_proto::v1alpha2 as proto;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;
use serde::Serialize;

use owner::ShownOwner;

use crate::render::output::{Show, age, joined};

/// A contract.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ShownContract {
    pub(crate) name: String,
    pub(crate) uid: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) created: Option<Timestamp>,
    pub(crate) deleting: bool,
    pub(crate) cluster_identity: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) cluster_name: String,
    /// The usernames of the owners.
    pub(crate) owners: Vec<String>,
    /// The owners with what tells two of one username apart, in the same order.
    pub(crate) owner_identities: Vec<ShownOwner>,
    pub(crate) owner_groups: Vec<String>,
    pub(crate) exports: Vec<ShownExport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) konnector: Option<ShownKonnector>,
    /// Whether the konnector is well: status, reason and message of condition `Ready` of the ClusterBinding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ready: Option<ShownCondition>,
    /// Since when the credentials are revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) revoked: Option<Timestamp>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) revocation_reason: String,
}

/// What a contract has bound under one name.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ShownExport {
    pub(crate) name: String,
    pub(crate) template: String,
    pub(crate) resources: Vec<String>,
    pub(crate) ready: String,
}

/// What a konnector says of itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ShownKonnector {
    pub(crate) version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_heartbeat: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) credential_expires: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sync: Option<ShownSync>,
}

/// How far the objects of a contract are in sync.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ShownSync {
    pub(crate) objects: i64,
    pub(crate) pending: i64,
    pub(crate) failing: i64,
    /// How long the object that waits longest has waited, in seconds.
    pub(crate) lag_seconds: u64,
}

/// A condition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ShownCondition {
    pub(crate) status: String,
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl From<proto::Contract> for ShownContract {
    fn from(contract: proto::Contract) -> Self {
        let ready = contract
            .conditions
            .into_iter()
            .find(|condition| condition.r#type == READY);
        let revocation = contract.revocation;
        let owners: Vec<_> = contract.owners.into_iter().map(ShownOwner::from).collect();
        Self {
            name: contract.name,
            uid: contract.uid,
            created: time(contract.creation_time),
            deleting: contract.deletion_time.is_some(),
            cluster_identity: contract.cluster_identity,
            cluster_name: contract.cluster_pretty_name,
            owners: owner::usernames(&owners),
            owner_identities: owners,
            owner_groups: contract.owner_groups,
            exports: contract.exports.into_iter().map(ShownExport::from).collect(),
            konnector: contract.konnector.map(ShownKonnector::from),
            ready: ready.map(|ready| ShownCondition {
                status: ready.status,
                reason: ready.reason,
                message: ready.message,
            }),
            revoked: revocation.as_ref().and_then(|revocation| time(revocation.time)),
            revocation_reason: revocation.map(|revocation| revocation.reason).unwrap_or_default(),
        }
    }
}

impl From<proto::ContractExport> for ShownExport {
    fn from(export: proto::ContractExport) -> Self {
        let resource = |resource: proto::Resource| {
            api::GroupResource::new(resource.group.as_str(), resource.resource.as_str()).to_string()
        };
        Self {
            name: export.name,
            template: export.template,
            resources: export.resources.into_iter().map(resource).collect(),
            ready: export.ready.map_or_else(|| "Unknown".to_owned(), |ready| ready.status),
        }
    }
}

impl From<proto::ContractKonnector> for ShownKonnector {
    fn from(konnector: proto::ContractKonnector) -> Self {
        let sync = |sync: proto::ContractSync| ShownSync {
            objects: sync.objects,
            pending: sync.pending,
            failing: sync.failing,
            lag_seconds: sync
                .lag
                .and_then(|lag| u64::try_from(lag.seconds).ok())
                .unwrap_or_default(),
        };
        Self {
            version: konnector.version,
            last_heartbeat: time(konnector.last_heartbeat_time),
            credential_expires: time(konnector.credential_expire_time),
            sync: konnector.sync.map(sync),
        }
    }
}

fn time(time: Option<prost_types::Timestamp>) -> Option<Timestamp> {
    Timestamp::from_second(time?.seconds).ok()
}

/// A contract as its objects on the provider's cluster show it.
pub(crate) fn of_objects(
    namespace: &Namespace,
    binding: Option<&api::ClusterBinding>,
    exports: &[&api::APIServiceExport],
) -> ShownContract {
    let annotation = |key: &str| namespace.annotations().get(key).cloned().unwrap_or_default();
    let owners: Vec<ShownOwner> = serde_json::from_str(&annotation(annotations::OWNERS)).unwrap_or_default();
    let revocation = binding.and_then(revocation);
    let ready = binding.and_then(|binding| binding.condition(READY));
    ShownContract {
        name: namespace.name_any(),
        uid: namespace.uid().unwrap_or_default(),
        created: namespace.creation_timestamp().map(|time| time.0),
        deleting: namespace.metadata.deletion_timestamp.is_some(),
        cluster_identity: meta::identity(&namespace.metadata).unwrap_or_default().to_owned(),
        cluster_name: annotation(annotations::CLUSTER_PRETTY_NAME),
        owners: owner::usernames(&owners),
        owner_identities: owners,
        owner_groups: serde_json::from_str(&annotation(annotations::OWNER_GROUPS)).unwrap_or_default(),
        exports: exports.iter().map(|export| of_export(export)).collect(),
        konnector: binding.and_then(|binding| of_status(binding.status.as_ref()?)),
        ready: ready.map(|ready| ShownCondition {
            status: ready.status.as_str().to_owned(),
            reason: ready.reason.clone(),
            message: ready.message.clone(),
        }),
        revoked: revocation.as_ref().map(|revocation| revocation.time),
        revocation_reason: revocation.and_then(|revocation| revocation.reason).unwrap_or_default(),
    }
}

fn of_export(export: &api::APIServiceExport) -> ShownExport {
    let ready = export.condition(READY);
    ShownExport {
        name: export.name_any(),
        template: export
            .annotations()
            .get(annotations::TEMPLATE)
            .cloned()
            .unwrap_or_default(),
        resources: export
            .spec
            .resources
            .iter()
            .map(|resource| resource.group_resource.to_string())
            .collect(),
        ready: ready.map_or_else(|| "Unknown".to_owned(), |ready| ready.status.as_str().to_owned()),
    }
}

fn of_status(status: &api::ClusterBindingStatus) -> Option<ShownKonnector> {
    let last = status.last_heartbeat_time.as_ref()?;
    let sync = |sync: &api::ClusterBindingSync| ShownSync {
        objects: sync.objects.unwrap_or_default(),
        pending: sync.pending.unwrap_or_default(),
        failing: sync.failing.unwrap_or_default(),
        lag_seconds: sync
            .lag
            .as_ref()
            .and_then(|lag| lag.parse().ok())
            .map_or(0, |lag| lag.as_secs()),
    };
    Some(ShownKonnector {
        version: status.konnector_version.clone().unwrap_or_default(),
        last_heartbeat: Some(last.0),
        credential_expires: status.credential_expiration_time.as_ref().map(|time| time.0),
        sync: status.sync.as_ref().map(sync),
    })
}

impl ShownContract {
    /// The state in one word: whether the contract is revoked or ending, else whether its konnector is well.
    fn state(&self) -> &str {
        match &self.ready {
            _ if self.deleting => "Deleting",
            _ if self.revoked.is_some() => "Revoked",
            Some(ready) => &ready.status,
            None => "Unknown",
        }
    }

    /// The contract for people, line by line.
    pub(crate) fn described(&self, now: Timestamp) -> Vec<(&'static str, String)> {
        let since = |time: Option<Timestamp>| age(time, now);
        let mut lines = vec![
            ("Contract", self.name.clone()),
            ("Cluster", self.cluster()),
            ("Owners", self.identities()),
            ("Owner groups", joined(&self.owner_groups)),
            ("Age", since(self.created)),
            ("Ready", self.state().to_owned()),
        ];
        if let Some(ready) = self.ready.as_ref().filter(|ready| !ready.message.is_empty()) {
            lines.push(("", ready.message.clone()));
        }
        if let Some(revoked) = self.revoked {
            let why = if self.revocation_reason.is_empty() {
                String::new()
            } else {
                format!(": {}", self.revocation_reason)
            };
            lines.push(("Revoked", format!("{revoked}{why}")));
        }
        if let Some(konnector) = &self.konnector {
            lines.push(("Konnector", konnector.version.clone()));
            lines.push(("Heartbeat", format!("{} ago", since(konnector.last_heartbeat))));
            if let Some(expires) = konnector.credential_expires {
                lines.push(("Expires", expires.to_string()));
            }
            if let Some(sync) = &konnector.sync {
                lines.push(("Objects", sync.to_string()));
            }
        }
        for export in &self.exports {
            let resources = joined(&export.resources);
            let text = format!("{} ({}) from template {}", export.name, resources, export.template);
            lines.push(("Bound", format!("{text}, ready: {}", export.ready)));
        }
        lines
    }

    /// The owners, each with what tells two of one username apart.
    fn identities(&self) -> String {
        joined(&self.owner_identities)
    }

    fn cluster(&self) -> String {
        match self.cluster_name.as_str() {
            "" => self.cluster_identity.clone(),
            name => format!("{name} ({})", self.cluster_identity),
        }
    }
}

impl std::fmt::Display for ShownSync {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}, {} waiting (longest {}s), {} failing",
            self.objects, self.pending, self.lag_seconds, self.failing
        )
    }
}

impl Show for ShownContract {
    const HEADINGS: &'static [&'static str] = &[
        "CONTRACT",
        "CLUSTER",
        "OWNERS",
        "BOUND",
        "READY",
        "HEARTBEAT",
        "AGE",
        "GROUPS",
        "KONNECTOR",
        "OBJECTS",
        "PENDING",
        "LAG",
        "EXPIRES",
        "OWNER IDENTITIES",
    ];
    const PLAIN: usize = 7;

    fn cells(&self, now: Timestamp) -> Vec<String> {
        let konnector = self.konnector.as_ref();
        let sync = konnector.and_then(|konnector| konnector.sync.as_ref());
        let number = |number: Option<i64>| number.map_or_else(|| "<unknown>".to_owned(), |number| number.to_string());
        let expires = konnector.and_then(|konnector| konnector.credential_expires);
        vec![
            self.name.clone(),
            if self.cluster_name.is_empty() {
                self.cluster_identity.clone()
            } else {
                self.cluster_name.clone()
            },
            joined(&self.owners),
            joined(self.exports.iter().map(|export| &export.name)),
            self.state().to_owned(),
            age(konnector.and_then(|konnector| konnector.last_heartbeat), now),
            age(self.created, now),
            joined(&self.owner_groups),
            konnector.map_or_else(|| "<none>".to_owned(), |konnector| konnector.version.clone()),
            number(sync.map(|sync| sync.objects)),
            number(sync.map(|sync| sync.pending)),
            sync.map_or_else(|| "<unknown>".to_owned(), |sync| format!("{}s", sync.lag_seconds)),
            expires.map_or_else(|| "<unknown>".to_owned(), |expires| expires.to_string()),
            self.identities(),
        ]
    }

    fn reference(&self) -> String {
        format!("contract.kube-bind.io/{}", self.name)
    }
}

#[cfg(test)]
mod tests;
