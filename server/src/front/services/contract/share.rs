//! Sharing: the call replaces the owner groups of a contract, an annotation of its Namespace.

use bindery_api::names::ContractName;
use bindery_proto::v1alpha2::{ErrorReason, ShareContractResponse};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;

use super::require_uid;
use crate::{
    audit::cut,
    contract::{
        self,
        sharing::{self, Change, SharingError},
    },
    front::{
        Failure, Front, Outcome, access::ContractVerb, auth::Caller, transport::interceptor::Call,
        wire::validate::ShareContract,
    },
    writes::Write,
};

impl Front {
    pub(super) async fn share_contract(&self, call: &Call, message: ShareContract) -> Outcome<ShareContractResponse> {
        let caller = call.caller()?;
        let name = &message.contract;
        call.note.add(|noted| {
            noted.contract = name.to_string();
            noted.dry_run = message.validate_only;
            let added = message.add.iter().map(|group| format!("+{group}"));
            let removed = message.remove.iter().map(|group| format!("-{group}"));
            noted.groups = added.chain(removed).map(|group| cut(&group)).collect();
        });
        let seen = self.contracts.one_by(caller, name, ContractVerb::Share).await?;
        require_uid(&seen, message.uid.as_ref())?;
        // The cache may lag behind another change of the owners, which this one must not undo.
        let namespace = self.contract_now(name).await?;
        require_uid(&namespace, message.uid.as_ref())?;
        let change = Change {
            add: message.add,
            remove: message.remove,
        };
        let before = sharing::owner_groups(&namespace);
        let owns = contract::is_owned_by(&namespace, &caller.principal());
        let by_owner = owns.then(|| sharing::after(&before, &change, Some(&caller.identity.groups)));
        let after = match by_owner {
            Some(Ok(after)) => after,
            refused => {
                if !self.contracts.may(caller, ContractVerb::Share, Some(name)).await? {
                    return Err(match refused {
                        Some(Err(error)) => of_sharing(name, &error),
                        _ => not_an_owner(name, caller),
                    });
                }
                sharing::after(&before, &change, None).map_err(|error| of_sharing(name, &error))?
            }
        };
        let mut shared = namespace;
        if after != before && !message.validate_only {
            let write = Write::patch("a contract is shared", &shared, sharing::patch(&shared, &after));
            let written = write.apply_as(&self.state.clients.write).await;
            shared = written.map_err(|error| Failure::of_write("share the contract", &error))?;
            tracing::info!(contract = %name, groups = ?after, "owner groups changed");
        }
        let mut answer = self.show_contract(&shared);
        answer.owner_groups = after.into_iter().collect();
        Ok(ShareContractResponse { contract: Some(answer) })
    }

    /// Reads a contract that the cache has from the API server.
    async fn contract_now(&self, name: &ContractName) -> Outcome<Namespace> {
        let namespaces: Api<Namespace> = Api::all(self.state.clients.write.clone());
        let found = namespaces.get_opt(name).await;
        let found = found.map_err(|error| Failure::of_kube("read the contract", &error))?;
        found.filter(contract::is_contract).ok_or_else(|| {
            Failure::new(ErrorReason::ContractNotFound, format!("contract {name} does not exist"))
                .with("contract", &**name)
        })
    }
}

fn not_an_owner(name: &ContractName, caller: &Caller) -> Failure {
    let text = format!(
        "{} uses contract {name} as a member of an owner group, and only its owners themselves or the provider's admin share it; \
         ask one of them",
        caller.username()
    );
    Failure::new(ErrorReason::MethodDenied, text).with("contract", &**name)
}

fn of_sharing(name: &ContractName, error: &SharingError) -> Failure {
    let text = format!("contract {name} cannot be shared so: {error}");
    let (reason, group) = match error {
        SharingError::ForeignGroup { group } => (ErrorReason::MethodDenied, Some(group)),
        SharingError::TooMany { .. } => (ErrorReason::FieldInvalid, None),
    };
    let failure = Failure::new(reason, text).with("contract", &**name);
    match group {
        Some(group) => failure.with("group", group),
        None => failure,
    }
}
