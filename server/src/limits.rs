//! The limits of tenants: how much of what one contract may have, and one principal. Everything here decides from numbers that it is
//! given. [`count`] counts.
//!
//! The flags of the server set the limits, and an annotation of a contract's namespace, which only the server and the provider's
//! admin can write, changes them for that contract.

use std::{collections::BTreeMap, fmt};

use bindery_api::annotations;
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;

pub mod admission;
pub mod count;
mod metrics;

pub use count::Counts;
pub use metrics::Refusals;

/// The reason of a condition that reports a limit.
pub const LIMIT_REACHED: &str = "LimitReached";

/// What a limit is about. The names are those in the annotation, in errors, in metrics and of ContractService.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LimitName {
    /// Contracts of one principal.
    Contracts,
    /// BindableResourcesRequests of one principal.
    Requests,
    /// APIServiceExportRequests of one contract.
    ExportRequests,
    /// APIServiceExports of one contract.
    Exports,
    /// Namespaces that one consumer has mapped.
    Namespaces,
    /// Copies that are retained for one contract.
    RetainedObjects,
    /// Streams that one caller has open.
    Streams,
    /// Calls a second of one caller.
    CallsPerSecond,
}

/// The limits of one tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Contracts of one principal.
    pub contracts: u32,
    /// BindableResourcesRequests of one principal.
    pub requests: u32,
    /// APIServiceExportRequests of one contract.
    pub export_requests: u32,
    /// APIServiceExports of one contract.
    pub exports: u32,
    /// Namespaces that one consumer has mapped.
    pub namespaces: u32,
    /// Copies that are retained for one contract.
    pub retained_objects: u32,
    /// Streams that one caller has open on one replica; half of them may be for one contract.
    pub streams: u32,
    /// Calls a second of one caller to one replica; a burst may be twice as many.
    pub calls_per_second: u32,
}

/// The refusal of one more than a limit allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitReached {
    /// What the limit is about.
    pub name: LimitName,
    /// The limit.
    pub limit: u32,
    /// The contract whose annotation can change the limit; `None` for a limit of a principal.
    pub contract: Option<String>,
}

// === impl LimitName ===

impl LimitName {
    /// Every limit.
    pub const ALL: [Self; 8] = [
        Self::Contracts,
        Self::Requests,
        Self::ExportRequests,
        Self::Exports,
        Self::Namespaces,
        Self::RetainedObjects,
        Self::Streams,
        Self::CallsPerSecond,
    ];

    /// The limits of a contract, which its annotation can change.
    pub const OF_CONTRACT: [Self; 6] = [
        Self::ExportRequests,
        Self::Exports,
        Self::Namespaces,
        Self::RetainedObjects,
        Self::Streams,
        Self::CallsPerSecond,
    ];

    /// The limits of a principal.
    pub const OF_PRINCIPAL: [Self; 4] = [Self::Contracts, Self::Requests, Self::Streams, Self::CallsPerSecond];

    /// The name of the limit, which does not change between versions.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Contracts => "contracts",
            Self::Requests => "requests",
            Self::ExportRequests => "exportRequests",
            Self::Exports => "exports",
            Self::Namespaces => "namespaces",
            Self::RetainedObjects => "retainedObjects",
            Self::Streams => "streams",
            Self::CallsPerSecond => "callsPerSecond",
        }
    }

    /// The flag of the server that sets the limit.
    pub const fn flag(self) -> &'static str {
        match self {
            Self::Contracts => "--limit-contracts",
            Self::Requests => "--limit-requests",
            Self::ExportRequests => "--limit-export-requests",
            Self::Exports => "--limit-exports",
            Self::Namespaces => "--max-namespaces-per-contract",
            Self::RetainedObjects => "--limit-retained-objects",
            Self::Streams => "--limit-streams",
            Self::CallsPerSecond => "--limit-calls-per-second",
        }
    }

    /// What is limited, as the object of a sentence.
    const fn what(self) -> &'static str {
        match self {
            Self::Contracts => "contracts",
            Self::Requests => "BindableResourcesRequests",
            Self::ExportRequests => "APIServiceExportRequests",
            Self::Exports => "exports",
            Self::Namespaces => {
                "namespaces on the provider, which includes namespaces that are kept for the objects in them"
            }
            Self::RetainedObjects => "retained objects",
            Self::Streams => "open streams",
            Self::CallsPerSecond => "calls a second",
        }
    }

    /// What the tenant itself can do about the limit.
    const fn mend(self) -> &'static str {
        match self {
            Self::Contracts => "have the provider's admin delete one that is not used any more",
            Self::Requests | Self::ExportRequests | Self::Namespaces => "delete one of them",
            Self::Exports => "unbind one of them",
            Self::RetainedObjects => "restore or discard some of them",
            Self::Streams => "close one",
            Self::CallsPerSecond => "retry after the delay of the RetryInfo",
        }
    }
}

impl fmt::Display for LimitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

// === impl Limits ===

impl Default for Limits {
    /// The defaults of the flags.
    fn default() -> Self {
        Self {
            contracts: 20_000,
            requests: 50_000,
            export_requests: 1_000,
            exports: 1_000,
            namespaces: 1_000,
            retained_objects: 100_000,
            streams: 4,
            calls_per_second: 100,
        }
    }
}

impl Limits {
    /// The limit of that name.
    pub const fn get(&self, name: LimitName) -> u32 {
        match name {
            LimitName::Contracts => self.contracts,
            LimitName::Requests => self.requests,
            LimitName::ExportRequests => self.export_requests,
            LimitName::Exports => self.exports,
            LimitName::Namespaces => self.namespaces,
            LimitName::RetainedObjects => self.retained_objects,
            LimitName::Streams => self.streams,
            LimitName::CallsPerSecond => self.calls_per_second,
        }
    }

    fn get_mut(&mut self, name: LimitName) -> &mut u32 {
        match name {
            LimitName::Contracts => &mut self.contracts,
            LimitName::Requests => &mut self.requests,
            LimitName::ExportRequests => &mut self.export_requests,
            LimitName::Exports => &mut self.exports,
            LimitName::Namespaces => &mut self.namespaces,
            LimitName::RetainedObjects => &mut self.retained_objects,
            LimitName::Streams => &mut self.streams,
            LimitName::CallsPerSecond => &mut self.calls_per_second,
        }
    }

    /// The limits of a contract: those that its annotation changes, and else these. A name that is no limit of a contract, or a number
    /// below 1, changes nothing; nor does an annotation that is no JSON object.
    #[must_use]
    pub fn of_contract(&self, contract: &Namespace) -> Self {
        let mut limits = *self;
        let Some(json) = contract.annotations().get(annotations::LIMITS) else {
            return limits;
        };
        let changed: BTreeMap<String, serde_json::Value> = serde_json::from_str(json).unwrap_or_default();
        for name in LimitName::OF_CONTRACT {
            let value = changed.get(name.as_str()).and_then(serde_json::Value::as_u64);
            if let Some(limit) = value.filter(|limit| *limit > 0) {
                *limits.get_mut(name) = u32::try_from(limit).unwrap_or(u32::MAX);
            }
        }
        limits
    }

    /// Refuses one more where a tenant has `used` already. `contract` is the contract whose limit it is; `None` for a principal's.
    pub fn check(&self, name: LimitName, used: usize, contract: Option<&str>) -> Result<(), LimitReached> {
        let limit = self.get(name);
        if u64::try_from(used).unwrap_or(u64::MAX) < u64::from(limit) {
            return Ok(());
        }
        Err(self.reached(name, contract))
    }

    /// The refusal by the limit of that name.
    pub fn reached(&self, name: LimitName, contract: Option<&str>) -> LimitReached {
        LimitReached {
            name,
            limit: self.get(name),
            contract: contract.map(ToOwned::to_owned),
        }
    }
}

// === impl LimitReached ===

impl fmt::Display for LimitReached {
    /// The limit, its number, what the tenant can do, and how the provider's admin changes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, limit, contract } = self;
        let (what, mend, flag) = (name.what(), name.mend(), name.flag());
        match contract {
            Some(contract) => write!(
                f,
                "contract {contract} has reached its limit of {limit} {what}; {mend}, or ask the provider's admin to raise limit {name} in \
                 annotation {} of namespace {contract}, or {flag} of the server",
                annotations::LIMITS
            ),
            None => write!(
                f,
                "the caller has reached its limit of {limit} {what}; {mend}, or ask the provider's admin to raise {flag} of the server"
            ),
        }
    }
}

impl std::error::Error for LimitReached {}

#[cfg(test)]
mod tests;
