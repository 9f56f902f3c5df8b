//! Flags of `provider`, by which a provider's admin sees and ends contracts and grants templates, and of `share`.

use bindery_api::{names::KUBE_BIND_NAMESPACE, v1alpha2::GroupResource};
use clap::{ArgGroup, Subcommand, builder::NonEmptyStringValueParser};

use super::{RevokeArgs, health::ProviderClusterArgs, resource};

/// Flags of `provider`.
#[derive(clap::Args, Debug)]
#[command(
    arg_required_else_help = true,
    after_help = "\
`contracts`, `get` and `revoke` work over the backend (--server and a token), for owners of contracts and for those whom the
provider's RBAC lets get, list and delete clusterbindings; or on the provider's cluster, with --provider-context or
--provider-kubeconfig. `grant`, `take`, `transfer` and `released` need the provider's cluster.

Examples:
  kubectl bind provider contracts
  kubectl bind provider contracts --provider-context provider -o wide
  kubectl bind provider get kube-bind-5xqjs2 -o yaml
  kubectl bind provider grant cowboys --group ranchers --provider-context provider
  kubectl bind provider take cowboys --group ranchers --provider-context provider
  kubectl bind provider released --provider-context provider
  kubectl bind provider revoke kube-bind-5xqjs2 --reason \"lost laptop\"
  kubectl bind provider transfer kube-bind-5xqjs2 --to jane@example.com --provider-context provider"
)]
pub(crate) struct AdminArgs {
    #[command(subcommand)]
    pub(crate) command: AdminCommand,
}

/// The commands of `provider`.
#[derive(Subcommand, Debug)]
pub(crate) enum AdminCommand {
    /// List contracts: who has bound what, since when, and how its konnector is.
    Contracts(ContractsArgs),
    /// Show one contract.
    Get(ContractArgs),
    /// Let a user, a group or a ServiceAccount bind a template.
    Grant(GrantArgs),
    /// Take the right to bind a template away again; what is bound goes on.
    Take(GrantArgs),
    /// List the objects that you kept when bindings ended, and end them.
    Released(ReleasedArgs),
    /// End all credentials of a contract at once.
    Revoke(EndArgs),
    /// Give a contract to another owner, in place of all others, and end all its credentials.
    Transfer(TransferArgs),
}

/// Flags of `provider contracts`.
#[derive(clap::Args, Debug)]
pub(crate) struct ContractsArgs {
    /// Only contracts that you or one of your groups own, also if you may see all.
    #[arg(long, conflicts_with_all = ["provider_context", "provider_kubeconfig"])]
    pub(crate) owned: bool,
    #[command(flatten)]
    pub(crate) provider: ProviderClusterArgs,
}

/// Flags of `provider get`.
#[derive(clap::Args, Debug)]
pub(crate) struct ContractArgs {
    /// The contract: its namespace on the provider.
    pub(crate) contract: String,
    #[command(flatten)]
    pub(crate) provider: ProviderClusterArgs,
}

/// Flags of `provider revoke`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Ends all credentials of a contract at once, as `kubectl bind revoke --contract CONTRACT` does. Objects stay on both clusters and are
not synced any more, until an owner of the contract binds again.

Examples:
  kubectl bind provider revoke kube-bind-5xqjs2 --reason \"lost laptop\"
  kubectl bind provider revoke kube-bind-5xqjs2 --provider-context provider --dry-run")]
pub(crate) struct EndArgs {
    /// The contract: its namespace on the provider.
    pub(crate) contract: String,
    /// Why, for people; it is kept on the contract. At most 1024 characters.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    #[command(flatten)]
    pub(crate) provider: ProviderClusterArgs,
    /// Namespace of the server on the provider.
    #[arg(long, value_name = "NAME", default_value = KUBE_BIND_NAMESPACE)]
    pub(crate) server_namespace: String,
    /// Say what would stop working, and revoke nothing.
    #[arg(short = 'd', long)]
    pub(crate) dry_run: bool,
    /// Revoke without being asked.
    #[arg(short = 'y', long)]
    pub(crate) yes: bool,
}

impl EndArgs {
    /// The same as flags of `revoke`.
    pub(crate) fn revoke(&self) -> RevokeArgs {
        RevokeArgs {
            name: None,
            bundle: false,
            contract: Some(self.contract.clone()),
            reason: self.reason.clone(),
            provider: self.provider.clone(),
            server_namespace: self.server_namespace.clone(),
            dry_run: self.dry_run,
            yes: self.yes,
        }
    }
}

/// Flags of `provider transfer`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
For a contract whose owner is wrong: somebody else has bound first for a cluster that is not theirs. The principal becomes the only
owner. All owners and owner groups from before lose the contract, and all credentials end at once. Objects stay on both clusters and
are not synced any more, until the new owner binds again. Be sure first that the cluster is the new owner's: ask for the UID of its
namespace kube-system, and compare it with the cluster identity that `kubectl bind provider get CONTRACT` shows.

PRINCIPAL is the username as `kubectl bind whoami` shows it to the new owner, such as system:serviceaccount:ci:deployer. By --uid, or
by --issuer and --subject, the name alone is not enough: a ServiceAccount that is made anew, or another person of that name, is then
no owner.

If the command was interrupted, run it again. To let more principals use a contract, use `kubectl bind share`.

Examples:
  kubectl bind provider transfer kube-bind-5xqjs2 --to jane@example.com --provider-context provider --dry-run
  kubectl bind provider transfer kube-bind-5xqjs2 --to system:serviceaccount:ci:deployer --provider-context provider")]
pub(crate) struct TransferArgs {
    /// The contract: its namespace on the provider.
    pub(crate) contract: String,
    /// The principal that becomes the only owner.
    #[arg(long, value_name = "PRINCIPAL", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) to: String,
    /// UID of the principal, if it is a ServiceAccount.
    #[arg(long, value_name = "UID")]
    pub(crate) uid: Option<String>,
    /// Issuer of the principal's ID tokens.
    #[arg(long, value_name = "URL", requires = "subject")]
    pub(crate) issuer: Option<String>,
    /// Subject of the principal's ID tokens.
    #[arg(long, value_name = "TEXT", requires = "issuer")]
    pub(crate) subject: Option<String>,
    /// Why, for people; it is kept on the contract. At most 1024 characters.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    #[command(flatten)]
    pub(crate) provider: ProviderClusterArgs,
    /// Namespace of the server on the provider.
    #[arg(long, value_name = "NAME", default_value = KUBE_BIND_NAMESPACE)]
    pub(crate) server_namespace: String,
    /// Say who would lose the contract, and change nothing.
    #[arg(short = 'd', long)]
    pub(crate) dry_run: bool,
    /// Transfer without being asked.
    #[arg(short = 'y', long)]
    pub(crate) yes: bool,
}

/// Flags of `provider released`.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(
    group(ArgGroup::new("end").args(["delete", "forget"])),
    after_help = "\
A copy is released when its binding, bundle or API ends on the consumer and nobody said that copies are deleted. It stays as
it is, and is linked again if the same contract binds again and makes an object of the same name and content.

  --delete  The objects are deleted.
  --forget  The objects stay and become your own: no later binding of the contract takes them into use by itself.

Either needs a selection. An object that has changed since it was listed is left as it is, and the command fails.

Examples:
  kubectl bind provider released --provider-context provider -o wide
  kubectl bind provider released --contract kube-bind-5xqjs2 --delete --provider-context provider
  kubectl bind provider released --resource cowboys.wildwest.dev --name billy --forget --yes --provider-context provider"
)]
pub(crate) struct ReleasedArgs {
    /// Only objects that this contract released: its namespace on the provider.
    #[arg(long, value_name = "NAME")]
    pub(crate) contract: Option<String>,
    /// Only objects of this resource.
    #[arg(long, value_name = "RESOURCE[.GROUP]", value_parser = resource)]
    pub(crate) resource: Option<GroupResource>,
    /// Only objects in this namespace of the provider.
    #[arg(short, long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// Only objects of this name; may be repeated.
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Vec<String>,
    /// Delete the objects.
    #[arg(long)]
    pub(crate) delete: bool,
    /// Make the objects your own.
    #[arg(long)]
    pub(crate) forget: bool,
    /// Do it without being asked.
    #[arg(short = 'y', long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) provider: ProviderClusterArgs,
}

impl ReleasedArgs {
    /// Whether the flags select some objects and not others.
    pub(crate) fn selects(&self) -> bool {
        let is_named = self.contract.is_some() || self.namespace.is_some();
        is_named || self.resource.is_some() || !self.name.is_empty()
    }
}

/// Flags of `provider grant` and `provider take`.
#[derive(clap::Args, Debug)]
#[command(
    group = ArgGroup::new("subject").args(["user", "group", "service_account"]).required(true).multiple(true),
    after_help = "\
The right is the verb `bind` on apiserviceexporttemplates.kube-bind.io, in a ClusterRole and a ClusterRoleBinding of the
template that carry the label kube-bind.io/grant=true. `take` removes a subject from them, and both with the last subject;
rights by other roles stay. A right that is taken away ends no binding: `kubectl bind provider revoke` ends what a contract may do.

Examples:
  kubectl bind provider grant cowboys --group ranchers --provider-context provider
  kubectl bind provider grant cowboys --user jane@example.com --service-account ci:deployer --dry-run --provider-context provider
  kubectl bind provider take cowboys --user jane@example.com --provider-context provider"
)]
pub(crate) struct GrantArgs {
    /// Name of the template.
    pub(crate) template: String,
    /// A user, as the provider's API server names it; may be repeated.
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Vec<String>,
    /// A group, as `kubectl bind whoami` shows it to its members; may be repeated.
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Vec<String>,
    /// A ServiceAccount of the provider's cluster; may be repeated.
    #[arg(long, value_name = "NAMESPACE:NAME", value_parser = service_account)]
    pub(crate) service_account: Vec<(String, String)>,
    #[command(flatten)]
    pub(crate) provider: ProviderClusterArgs,
    /// Print the manifests as they would be, and write nothing.
    #[arg(short = 'd', long)]
    pub(crate) dry_run: bool,
}

/// Flags of `share`.
#[derive(clap::Args, Debug)]
#[command(
    override_usage = "kubectl bind share NAME --group GROUP [OPTIONS]\n       kubectl bind share --contract CONTRACT --group GROUP [OPTIONS]",
    group = ArgGroup::new("change").args(["group", "remove_group"]).required(true).multiple(true),
    after_help = "\
The members of a group that a contract is shared with use it as its owner does: they see, renew, unbind and revoke it, and
bind more templates for the same cluster. They cannot share it further.

The owner of a contract shares it with groups of its own, as `kubectl bind whoami` shows them; the provider's admin with any. No group
whose name begins with system: can own a contract. Without a change of groups, `kubectl bind provider get` shows them.

Examples:
  kubectl bind share cowboys --group ranchers
  kubectl bind share --contract kube-bind-5xqjs2 --group ranchers --remove-group bandits
  kubectl bind share cowboys --group ranchers --dry-run"
)]
pub(crate) struct ShareArgs {
    /// Name of the binding, or else of the bundle, whose contract is meant.
    #[arg(required_unless_present = "contract")]
    pub(crate) name: Option<String>,
    /// The name is that of a bundle, also if a binding has it too.
    #[arg(long, requires = "name")]
    pub(crate) bundle: bool,
    /// The contract: its namespace on the provider.
    #[arg(long, value_name = "NAMESPACE", conflicts_with = "name")]
    pub(crate) contract: Option<String>,
    /// A group that becomes an owner; may be repeated.
    #[arg(long, value_name = "GROUP")]
    pub(crate) group: Vec<String>,
    /// A group that is an owner no longer; may be repeated.
    #[arg(long, value_name = "GROUP")]
    pub(crate) remove_group: Vec<String>,
    /// Say which groups would own the contract, and change nothing.
    #[arg(short = 'd', long)]
    pub(crate) dry_run: bool,
}

/// Parses `NAMESPACE:NAME`.
fn service_account(text: &str) -> Result<(String, String), String> {
    match text.split_once(':') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains(':') => {
            Ok((namespace.to_owned(), name.to_owned()))
        }
        _ => Err("write NAMESPACE:NAME, such as ci:deployer".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_account_has_a_namespace() {
        assert_eq!(
            service_account("ci:deployer"),
            Ok(("ci".to_owned(), "deployer".to_owned()))
        );
        for wrong in ["", "ci", "ci:", ":deployer", "system:serviceaccount:ci:deployer"] {
            assert!(service_account(wrong).is_err(), "{wrong}");
        }
    }
}
