//! Flags of `check` and `revoke`, which look at both clusters.

use std::path::{Path, PathBuf};

use bindery_api::names::{KUBE_BIND_NAMESPACE, SERVER};
use clap::ArgAction;

use super::{ClusterArgs, KonnectorArgs};

/// Flags that reach the provider's cluster, as its admin does.
#[derive(clap::Args, Debug, Clone, Default)]
pub(crate) struct ProviderClusterArgs {
    /// Kubeconfig of the provider's cluster; with --provider-context alone, the one of this cluster.
    #[arg(long, value_name = "FILE")]
    pub(crate) provider_kubeconfig: Option<PathBuf>,
    /// Context of the provider's cluster; by default the current one of --provider-kubeconfig.
    #[arg(long, value_name = "NAME")]
    pub(crate) provider_context: Option<String>,
}

/// A cluster by its kubeconfig and context; without either, as kubectl finds it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KubeContext<'a> {
    pub(crate) kubeconfig: Option<&'a Path>,
    pub(crate) context: Option<&'a str>,
}

impl KubeContext<'_> {
    /// The flags with which kubectl and kubectl-bind reach this cluster, quoted for a shell, each with a space before it.
    pub(crate) fn flags(&self) -> String {
        let file = self.kubeconfig.map(|file| ("kubeconfig", file.to_string_lossy()));
        let context = self.context.map(|name| ("context", name.into()));
        let mut flags = String::new();
        for (flag, value) in file.into_iter().chain(context) {
            // No argument of this process has the byte 0, the only one that cannot be quoted.
            let value = shlex::try_quote(&value).unwrap_or_default();
            flags.extend([" --", flag, " ", &value]);
        }
        flags
    }
}

impl ClusterArgs {
    /// The cluster that the flags name.
    pub(crate) fn cluster(&self) -> KubeContext<'_> {
        KubeContext {
            kubeconfig: self.kubeconfig.as_deref(),
            context: self.context.as_deref(),
        }
    }
}

impl ProviderClusterArgs {
    /// The provider's cluster; none if the flags name none. `own` is this cluster, whose kubeconfig may have the context.
    pub(crate) fn cluster<'a>(&'a self, own: &'a ClusterArgs) -> Option<KubeContext<'a>> {
        let given = self.provider_kubeconfig.as_deref();
        if given.is_none() && self.provider_context.is_none() {
            return None;
        }
        Some(KubeContext {
            kubeconfig: given.or(own.kubeconfig.as_deref()),
            context: self.provider_context.as_deref(),
        })
    }
}

/// Flags that say where the server runs on the provider's cluster.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct ServerArgs {
    /// Namespace of the server.
    #[arg(long, value_name = "NAME", default_value = KUBE_BIND_NAMESPACE)]
    pub(crate) server_namespace: String,
    /// ServiceAccount that the server runs as.
    #[arg(long, value_name = "NAME", default_value = SERVER)]
    pub(crate) server_service_account: String,
}

/// Flags of `check`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
What it looks at: the API servers, their versions and clocks; the konnector's rights, policies and Lease; what the konnector
reports about bindings and bundles; the provider's API server and the backend with the credentials of the bindings, as
far as you may read their Secrets; with access to the provider's cluster, also the server there and its contracts.

Each line begins with ✓ (well), ! (a warning), ✗ (a failure) or - (not checked); with ok, WARN, FAIL and skip where the
output is no terminal. Below a warning or a failure stands what mends it. docs/reference/check.md explains each check.

Nothing is written: policies are tried by dry runs. --end-to-end binds a probe API and cleans up after itself.

The exit code is 0 if nothing failed, also with warnings, and 1 otherwise.

Examples:
  kubectl bind check
  kubectl bind check --wait --timeout 5m
  kubectl bind check --provider-context provider
  kubectl bind check -o json | jq '.findings[] | select(.outcome == \"Failed\") | .check'")]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) provider: ProviderClusterArgs,
    #[command(flatten)]
    pub(crate) konnector: KonnectorArgs,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// If nothing fails, offer a probe API on the provider's cluster, bind it, sync an object both ways, and remove all of it; prints
    /// the time of each step. Needs --provider-context or --provider-kubeconfig, with the rights of an admin.
    #[arg(long)]
    pub(crate) end_to_end: bool,
    /// Check again until nothing fails, for 2 minutes at most, or --timeout.
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) wait: bool,
}

/// Flags of `revoke`.
#[derive(clap::Args, Debug)]
#[command(
    override_usage = "kubectl bind revoke NAME [OPTIONS]\n       kubectl bind revoke --contract CONTRACT [OPTIONS]",
    after_help = "\
Ends all credentials of a contract at once: the tokens for the provider's API server and those that renew them, of all
konnectors that hold them. Objects stay on both clusters and are not synced any more, until an owner of the contract binds
again with `kubectl bind renew NAME`, which gives new credentials.

The owner of a contract revokes through the backend (--server and a token), by the name of a binding or a bundle of this
cluster, or by the contract. The provider's admin revokes on the provider's cluster (--provider-context or
--provider-kubeconfig), by the contract, also while the server is away.

An API server accepts a token that it has just checked for about ten seconds more.

Examples:
  kubectl bind revoke cowboys --reason \"lost laptop\"
  kubectl bind revoke --contract kube-bind-5xqjs2 --yes
  kubectl bind revoke --contract kube-bind-5xqjs2 --provider-context provider --dry-run"
)]
pub(crate) struct RevokeArgs {
    /// Name of the binding, or else of the bundle, whose contract is meant.
    #[arg(required_unless_present = "contract")]
    pub(crate) name: Option<String>,
    /// The name is that of a bundle, also if a binding has it too.
    #[arg(long, requires = "name")]
    pub(crate) bundle: bool,
    /// The contract: its namespace on the provider.
    #[arg(long, value_name = "NAMESPACE", conflicts_with = "name")]
    pub(crate) contract: Option<String>,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn own(kubeconfig: Option<&str>) -> ClusterArgs {
        ClusterArgs {
            kubeconfig: kubeconfig.map(PathBuf::from),
            context: Some("consumer".to_owned()),
        }
    }

    fn provider(kubeconfig: Option<&str>, context: Option<&str>) -> ProviderClusterArgs {
        ProviderClusterArgs {
            provider_kubeconfig: kubeconfig.map(PathBuf::from),
            provider_context: context.map(ToOwned::to_owned),
        }
    }

    #[test]
    fn flags_reach_the_cluster_that_was_checked() {
        assert_eq!(own(None).cluster().flags(), " --context consumer");
        for (kubeconfig, context, own_kubeconfig, expect) in [
            (None, None, Some("a"), None),
            (None, Some("p"), None, Some(" --context p")),
            // The context is in the kubeconfig of this cluster.
            (None, Some("p"), Some("a"), Some(" --kubeconfig a --context p")),
            (Some("b"), None, Some("a"), Some(" --kubeconfig b")),
            (
                Some("my file"),
                Some("it's"),
                None,
                Some(r#" --kubeconfig 'my file' --context "it's""#),
            ),
        ] {
            let own = own(own_kubeconfig);
            let args = provider(kubeconfig, context);
            let flags = args.cluster(&own).map(|cluster| cluster.flags());
            assert_eq!(flags.as_deref(), expect);
        }
    }
}
