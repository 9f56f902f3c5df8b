//! Who may call what: the table of methods, and the provider's own word on templates.

use bindery_proto::v1alpha2::ErrorReason;

use super::{
    auth::{Caller, Kind},
    error::{Failure, Outcome},
};

mod contracts;
mod live;
mod templates;

pub use contracts::ContractAccess;
pub use templates::TemplateAccess;

/// What a caller must have beyond its kind. The method itself sees to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// Nothing.
    None,
    /// The verb `bind` on the templates concerned.
    Template,
    /// The request: it was made by the same principal.
    Request,
    /// The contract: the caller is one of its owners, or its own ServiceAccount.
    Contract,
}

/// How fresh the check of a contract's token must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// It may have been made a moment ago.
    Remembered,
    /// It is made with the call, for what was done by a token that had been revoked would stay.
    Live,
}

/// How a method answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Once.
    Unary,
    /// With a stream.
    Stream,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Method {
    /// Its path.
    pub path: &'static str,
    /// It needs no token.
    pub open: bool,
    /// Principals may call it.
    pub principal: bool,
    /// The ServiceAccount of a contract may call it.
    pub contract: bool,
    /// What else is asked.
    pub ownership: Ownership,
    /// How fresh the check of a contract's token must be.
    pub freshness: Freshness,
    /// How it answers.
    pub shape: Shape,
}

impl Method {
    const fn open(path: &'static str, shape: Shape) -> Self {
        Self {
            path,
            open: true,
            principal: true,
            contract: true,
            ownership: Ownership::None,
            freshness: Freshness::Remembered,
            shape,
        }
    }

    const fn of_principals(path: &'static str, ownership: Ownership) -> Self {
        Self {
            path,
            open: false,
            principal: true,
            contract: false,
            ownership,
            freshness: Freshness::Remembered,
            shape: Shape::Unary,
        }
    }

    const fn of_contracts(path: &'static str) -> Self {
        Self {
            contract: true,
            ..Self::of_principals(path, Ownership::Contract)
        }
    }

    const fn live(self) -> Self {
        Self {
            freshness: Freshness::Live,
            ..self
        }
    }

    const fn streaming(self) -> Self {
        Self {
            shape: Shape::Stream,
            ..self
        }
    }

    /// Refuses callers of a kind that this method is not for.
    pub fn admit(&self, caller: &Caller) -> Outcome<()> {
        let admitted = match caller.kind {
            Kind::Principal => self.principal,
            Kind::Contract { .. } => self.contract,
        };
        if admitted {
            return Ok(());
        }
        Err(Failure::new(
            ErrorReason::MethodDenied,
            "the ServiceAccount of a contract may call ExportService and RenewKubeconfig alone; call as the one who binds",
        )
        .with("method", self.path))
    }
}

/// Every method that this server answers.
pub const METHODS: &[Method] = &[
    Method::open("/grpc.health.v1.Health/Check", Shape::Unary),
    Method::open("/grpc.health.v1.Health/List", Shape::Unary),
    Method::open("/grpc.health.v1.Health/Watch", Shape::Stream),
    Method::open(
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        Shape::Stream,
    ),
    Method::open(
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        Shape::Stream,
    ),
    Method::open("/kubebind.v1alpha2.ProviderService/GetProvider", Shape::Unary),
    Method::of_principals("/kubebind.v1alpha2.CatalogService/ListTemplates", Ownership::Template),
    Method::of_principals("/kubebind.v1alpha2.CatalogService/GetTemplate", Ownership::Template),
    Method::of_principals("/kubebind.v1alpha2.CatalogService/ListCollections", Ownership::Template),
    Method::of_principals("/kubebind.v1alpha2.CatalogService/GetCollection", Ownership::Template),
    Method::of_principals(
        "/kubebind.v1alpha2.BindingService/CreateBindableResourcesRequest",
        Ownership::Template,
    ),
    Method::of_principals(
        "/kubebind.v1alpha2.BindingService/GetBindableResourcesRequest",
        Ownership::Request,
    ),
    Method::of_principals(
        "/kubebind.v1alpha2.BindingService/ListBindableResourcesRequests",
        Ownership::Request,
    ),
    Method::of_principals(
        "/kubebind.v1alpha2.BindingService/WatchBindableResourcesRequests",
        Ownership::Request,
    )
    .streaming(),
    Method::of_principals(
        "/kubebind.v1alpha2.BindingService/DeleteBindableResourcesRequest",
        Ownership::Request,
    ),
    Method::of_contracts("/kubebind.v1alpha2.ExportService/ListExports"),
    Method::of_contracts("/kubebind.v1alpha2.ExportService/GetExport"),
    Method::of_contracts("/kubebind.v1alpha2.ExportService/WatchExports").streaming(),
    Method::of_contracts("/kubebind.v1alpha2.ExportService/GetBoundSchema"),
    Method::of_contracts("/kubebind.v1alpha2.ExportService/DeleteExport").live(),
    Method::of_contracts("/kubebind.v1alpha2.CredentialService/RenewKubeconfig").live(),
    Method::of_principals(
        "/kubebind.v1alpha2.CredentialService/RevokeCredentials",
        Ownership::Contract,
    ),
];

/// The row of a path.
pub fn method(path: &str) -> Option<&'static Method> {
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
