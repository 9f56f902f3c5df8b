//! The flags about the limits of tenants.

use std::num::NonZeroU32;

use crate::limits::Limits;

/// Flags about how much of what one contract, or one principal, may have. Annotation `backend.kube-bind.io/limits` on the namespace of a
/// contract changes those of a contract for that one.
#[derive(Clone, Debug, clap::Args)]
pub struct LimitArgs {
    /// How many contracts one principal may own. It cannot bind for one more cluster than that.
    #[arg(long, value_name = "COUNT", default_value_t = default(|limits| limits.contracts))]
    pub limit_contracts: NonZeroU32,
    /// How many BindableResourcesRequests one principal may have. A call that would make one more is refused; of those made as
    /// resources the oldest are served.
    #[arg(long, value_name = "COUNT", default_value_t = default(|limits| limits.requests))]
    pub limit_requests: NonZeroU32,
    /// How many APIServiceExportRequests one contract may have. Only the oldest are served.
    #[arg(long, value_name = "COUNT", default_value_t = default(|limits| limits.export_requests))]
    pub limit_export_requests: NonZeroU32,
    /// How many APIServiceExports one contract may have.
    #[arg(long, value_name = "COUNT", default_value_t = default(|limits| limits.exports))]
    pub limit_exports: NonZeroU32,
    /// How many namespaces a consumer may have mapped to this cluster. Those beyond it wait until others are given back.
    #[arg(long, value_name = "COUNT", default_value_t = default(|limits| limits.namespaces))]
    pub max_namespaces_per_contract: NonZeroU32,
    /// How many copies may be retained for one contract. Beyond it, those that would end first end at once.
    #[arg(long, value_name = "COUNT", default_value_t = default(|limits| limits.retained_objects))]
    pub limit_retained_objects: NonZeroU32,
    /// How many streams one caller may have open on one replica. Half of them may be for one contract.
    #[arg(long, value_name = "COUNT", default_value_t = default(|limits| limits.streams))]
    pub limit_streams: NonZeroU32,
    /// How many calls a second one caller may make to one replica. After a pause it may make twice as many at once.
    #[arg(long, value_name = "COUNT", default_value_t = default(|limits| limits.calls_per_second))]
    pub limit_calls_per_second: NonZeroU32,
}

impl LimitArgs {
    /// The limits that the flags give.
    pub(super) fn limits(&self) -> Limits {
        Limits {
            contracts: self.limit_contracts.get(),
            requests: self.limit_requests.get(),
            export_requests: self.limit_export_requests.get(),
            exports: self.limit_exports.get(),
            namespaces: self.max_namespaces_per_contract.get(),
            retained_objects: self.limit_retained_objects.get(),
            streams: self.limit_streams.get(),
            calls_per_second: self.limit_calls_per_second.get(),
        }
    }
}

fn default(limit: impl FnOnce(&Limits) -> u32) -> NonZeroU32 {
    NonZeroU32::new(limit(&Limits::default())).unwrap_or(NonZeroU32::MIN)
}
