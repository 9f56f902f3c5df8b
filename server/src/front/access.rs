//! Authorisation: the table of methods, access to templates and access to contracts.

use bindery_proto::v1alpha2::ErrorReason;

use crate::front::{
    Failure, Outcome,
    audit::AuditAction,
    auth::{Caller, Kind},
};

mod contract_account;
mod contracts;
mod reviews;
mod templates;

pub(crate) use contract_account::Backend;
pub(crate) use contracts::{ContractAccess, ContractVerb};
pub(crate) use reviews::{Grant, Reviews};
pub(crate) use templates::TemplateAccess;

/// How fresh the check of a contract's token must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// A cached check is enough.
    Cached,
    /// The check is made with the call, for the effect of a call with a revoked token would last.
    Live,
}

/// One row of the table of methods.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Method {
    /// Its path, such as `/kubebind.v1alpha2.ExportService/GetExport`.
    pub path: &'static str,
    /// Whether it takes calls without a token.
    pub open: bool,
    /// Whether principals may call it.
    pub principal: bool,
    /// Whether the ServiceAccount of a contract may call it.
    pub contract: bool,
    /// How fresh the check of a contract's token must be.
    pub freshness: Freshness,
    /// What it does, if its calls are audited.
    pub audit: Option<AuditAction>,
}

impl Method {
    const fn open(path: &'static str) -> Self {
        Self {
            path,
            open: true,
            principal: true,
            contract: true,
            freshness: Freshness::Cached,
            audit: None,
        }
    }

    const fn of_principals(path: &'static str) -> Self {
        Self {
            path,
            open: false,
            principal: true,
            contract: false,
            freshness: Freshness::Cached,
            audit: None,
        }
    }

    const fn of_contracts(path: &'static str) -> Self {
        Self {
            contract: true,
            ..Self::of_principals(path)
        }
    }

    const fn live(self) -> Self {
        Self {
            freshness: Freshness::Live,
            ..self
        }
    }

    const fn audited(self, action: AuditAction) -> Self {
        Self {
            audit: Some(action),
            ..self
        }
    }

    /// Refuses callers of a kind that may not call this method.
    pub(crate) fn admit(&self, caller: &Caller) -> Outcome<()> {
        let admitted = match caller.kind {
            Kind::Principal => self.principal,
            Kind::Contract { .. } => self.contract,
        };
        if admitted {
            return Ok(());
        }
        Err(Failure::new(
            ErrorReason::MethodDenied,
            "the ServiceAccount of a contract may call ExportService and RenewKubeconfig alone; call with the token of a principal that owns the contract",
        )
        .with("method", self.path))
    }
}

/// Every method that this server answers.
pub(crate) const METHODS: &[Method] = &[
    Method::open("/grpc.health.v1.Health/Check"),
    Method::open("/grpc.health.v1.Health/List"),
    Method::open("/grpc.health.v1.Health/Watch"),
    Method::open("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"),
    Method::open("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"),
    Method::open("/kubebind.v1alpha2.ProviderService/GetProvider"),
    Method::of_principals("/kubebind.v1alpha2.ProviderService/GetCaller"),
    Method::of_principals("/kubebind.v1alpha2.CatalogService/ListTemplates"),
    Method::of_principals("/kubebind.v1alpha2.CatalogService/GetTemplate"),
    Method::of_principals("/kubebind.v1alpha2.CatalogService/ListCollections"),
    Method::of_principals("/kubebind.v1alpha2.CatalogService/GetCollection"),
    Method::of_principals("/kubebind.v1alpha2.BindingService/CreateBindableResourcesRequest")
        .audited(AuditAction::Bind),
    Method::of_principals("/kubebind.v1alpha2.BindingService/GetBindableResourcesRequest"),
    Method::of_principals("/kubebind.v1alpha2.BindingService/ListBindableResourcesRequests"),
    Method::of_principals("/kubebind.v1alpha2.BindingService/WatchBindableResourcesRequests"),
    Method::of_principals("/kubebind.v1alpha2.BindingService/DeleteBindableResourcesRequest"),
    Method::of_contracts("/kubebind.v1alpha2.ExportService/ListExports"),
    Method::of_contracts("/kubebind.v1alpha2.ExportService/GetExport"),
    Method::of_contracts("/kubebind.v1alpha2.ExportService/WatchExports"),
    Method::of_contracts("/kubebind.v1alpha2.ExportService/GetBoundSchema"),
    Method::of_contracts("/kubebind.v1alpha2.ExportService/DeleteExport")
        .live()
        .audited(AuditAction::Unbind),
    Method::of_contracts("/kubebind.v1alpha2.CredentialService/RenewKubeconfig")
        .live()
        .audited(AuditAction::Renew),
    Method::of_principals("/kubebind.v1alpha2.CredentialService/RevokeCredentials").audited(AuditAction::Revoke),
    Method::of_principals("/kubebind.v1alpha2.ContractService/ListContracts"),
    Method::of_principals("/kubebind.v1alpha2.ContractService/GetContract"),
    Method::of_principals("/kubebind.v1alpha2.ContractService/WatchContracts"),
    Method::of_principals("/kubebind.v1alpha2.ContractService/ShareContract").audited(AuditAction::Share),
    Method::of_principals("/kubebind.v1alpha2.ContractService/RevokeContract").audited(AuditAction::Revoke),
    Method::of_principals("/kubebind.v1alpha2.ContractService/UnbindContract").audited(AuditAction::Unbind),
];

/// The method with this path.
pub(crate) fn method(path: &str) -> Option<&'static Method> {
    METHODS.iter().find(|method| method.path == path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::auth::Identity;

    fn caller(kind: Kind) -> Caller {
        Caller {
            identity: Identity::default(),
            kind,
        }
    }

    #[test]
    fn the_table_has_every_method_once() {
        let ours: Vec<_> = METHODS
            .iter()
            .map(|method| method.path)
            .filter(|path| path.starts_with("/kubebind"))
            .collect();
        let mut sorted = ours.clone();
        sorted.sort_unstable();
        assert!(
            sorted.iter().copied().eq(bindery_proto::idempotency::method_paths()),
            "{sorted:?}"
        );
    }

    #[test]
    fn only_health_reflection_and_the_provider_are_open() {
        let open = METHODS.iter().filter(|method| method.open).map(|method| method.path);
        assert!(
            open.clone()
                .all(|path| path.starts_with("/grpc.") || path.ends_with("/GetProvider"))
        );
        assert_eq!(open.count(), 6);
    }

    #[test]
    fn what_writes_is_audited_except_the_removal_of_a_record() {
        for method in METHODS.iter().filter(|method| method.path.starts_with("/kubebind")) {
            let writes = bindery_proto::idempotency::idempotency(method.path)
                != bindery_proto::idempotency::Idempotency::NoSideEffects;
            let is_record = method.path.ends_with("/DeleteBindableResourcesRequest");
            assert_eq!(method.audit.is_some(), writes && !is_record, "{}", method.path);
        }
    }

    #[test]
    fn a_contract_may_look_at_its_exports_and_renew_and_nothing_else() {
        let contract = caller(Kind::Contract {
            namespace: "kube-bind-a".to_owned(),
        });
        for method in METHODS.iter().filter(|method| !method.open) {
            let own = method.path.contains(".ExportService/") || method.path.ends_with("/RenewKubeconfig");
            assert_eq!(method.admit(&contract).is_ok(), own, "{}", method.path);
            assert!(method.admit(&caller(Kind::Principal)).is_ok(), "{}", method.path);
            let lasting = method.path.ends_with("/DeleteExport") || method.path.ends_with("/RenewKubeconfig");
            assert_eq!(method.freshness == Freshness::Live, lasting, "{}", method.path);
        }
    }
}
