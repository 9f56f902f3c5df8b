//! What was typed. What it means is worked out in [`crate::settings`].

mod short;

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{ArgAction, Parser, Subcommand};
use secrecy::SecretString;

use crate::output::Format;

pub(crate) use short::parse;

const EXAMPLES: &str = "\
Examples:
  # What may I bind at this provider?
  export KUBECTL_BIND_SERVER=https://bind.example.com
  export KUBECTL_BIND_TOKEN_FILE=~/.config/bind-token
  kubectl bind templates

  # Bind a template. Both lines mean the same.
  kubectl bind cowboys
  kubectl bind apiservice cowboys

  # See first what would be installed on this cluster, and install nothing
  kubectl bind cowboys --dry-run

  # How are my bindings?
  kubectl bind status

  # End one: its API and its objects go, on this cluster and at the provider
  kubectl bind unbind cowboys

A first word that is no command is taken as the name of a template. A template that is named like a
command, such as `status`, is bound with `kubectl bind apiservice status`.

Exit codes:
  0  done
  1  failed
  2  the command line is wrong
  3  not logged in, or not allowed
  4  not found
  5  timed out: what was begun goes on, and may still succeed";

const GET_A_TOKEN: &str = "\
A token is for one provider alone: its audience is the address of the backend. On the provider's cluster,
`kubectl create token NAME --audience https://bind.example.com` makes one for a ServiceAccount.";

/// Binds APIs of a service provider to this cluster.
///
/// A bound API looks like any other API of this cluster: its objects are written here and synced to the provider, which
/// answers in their status.
#[derive(Parser, Debug)]
#[command(
    name = "kubectl-bind",
    bin_name = "kubectl bind",
    override_usage = "kubectl bind COMMAND [OPTIONS]\n       kubectl bind TEMPLATE [OPTIONS]",
    version,
    after_long_help = EXAMPLES,
    after_help = "Try --help for examples and exit codes.",
    arg_required_else_help = true,
    max_term_width = 110
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    #[command(flatten)]
    pub(crate) provider: ProviderArgs,
    #[command(flatten)]
    pub(crate) display: DisplayArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Which cluster is the consumer.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "This cluster (the consumer)")]
pub(crate) struct ClusterArgs {
    /// Kubeconfig of the cluster to bind to; found as kubectl finds it if left out.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; its current one if left out.
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) context: Option<String>,
}

/// Which backend, and who is asking.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "The provider")]
pub(crate) struct ProviderArgs {
    /// Address of the provider's backend, such as `https://bind.example.com`.
    #[arg(long, global = true, value_name = "URL", env = "KUBECTL_BIND_SERVER")]
    pub(crate) server: Option<String>,
    /// Token to log in with. Others on this machine can see it: rather use --token-file.
    #[arg(long, global = true, value_name = "TOKEN")]
    pub(crate) token: Option<SecretString>,
    /// File with the token to log in with, read again when it has changed. --token is preferred to it.
    #[arg(long, global = true, value_name = "FILE", env = "KUBECTL_BIND_TOKEN_FILE", long_help = format!(
        "File with the token to log in with, read again when it has changed. --token is preferred to it.\n\n{GET_A_TOKEN}"
    ))]
    pub(crate) token_file: Option<PathBuf>,
    /// File with the CA (PEM) that the backend's certificate is verified with; the system's CAs if left out.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) certificate_authority: Option<PathBuf>,
    /// Allow an `http://` address, on this machine's loopback alone.
    #[arg(long, global = true)]
    pub(crate) allow_plaintext: bool,
}

/// How results and progress are shown.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Display")]
pub(crate) struct DisplayArgs {
    /// Format of the result on standard output.
    #[arg(short, long, global = true, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) output: Format,
    /// Give up after this time, such as 90s or 5m.
    #[arg(long, global = true, value_name = "DURATION", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// Log to standard error what is asked and answered; twice for more.
    #[arg(short, long, global = true, action = ArgAction::Count, conflicts_with = "quiet")]
    pub(crate) verbose: u8,
    /// Show no progress, only the result and errors.
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// List the templates that you may bind, or show one.
    Templates(TemplatesArgs),
    /// List the collections of templates, or show one.
    Collections(CollectionsArgs),
    /// Bind a template to this cluster.
    Apiservice(Box<BindArgs>),
    /// Show the bindings of this cluster with their conditions.
    Status(StatusArgs),
    /// Give a binding new credentials, as its owner.
    Renew(RenewArgs),
    /// End a binding and delete its objects.
    Unbind(UnbindArgs),
    /// Show the version of this command, and of the backend if one is given.
    Version,
    /// Show by which identity the provider knows this cluster: the UID of its namespace kube-system.
    ClusterIdentity,
    /// Print a completion script for a shell.
    Completion(CompletionArgs),
    /// The short form: the name of a template and its flags.
    #[command(external_subcommand)]
    Short(Vec<OsString>),
}

/// Flags of `templates`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  kubectl bind templates
  kubectl bind templates -l tier=gold -o wide
  kubectl bind templates cowboys          # what would appear on this cluster
  kubectl bind templates cowboys -o yaml")]
pub(crate) struct TemplatesArgs {
    /// Name of one template.
    pub(crate) name: Option<String>,
    /// Only templates of this collection.
    #[arg(long, value_name = "NAME", conflicts_with = "name")]
    pub(crate) collection: Option<String>,
    /// Only templates with these labels.
    #[arg(short = 'l', long, value_name = "SELECTOR", conflicts_with = "name")]
    pub(crate) selector: Option<String>,
}

/// Flags of `collections`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  kubectl bind collections
  kubectl bind collections wildwest -o yaml")]
pub(crate) struct CollectionsArgs {
    /// Name of one collection.
    pub(crate) name: Option<String>,
    /// Only collections with these labels.
    #[arg(short = 'l', long, value_name = "SELECTOR", conflicts_with = "name")]
    pub(crate) selector: Option<String>,
}

/// Flags of `apiservice` and of the short form.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
What it does:
  1. asks the provider what the template installs, and refuses what goes beyond its own APIs
  2. has the provider make the contract, the export and a kubeconfig for this cluster
  3. installs a Secret with it, a ClusterRole for the konnector, and the APIServiceBinding
  4. waits until the konnector reports the binding as ready

Binding the same template again changes nothing that need not change.

Examples:
  kubectl bind cowboys
  kubectl bind apiservice cowboys --name west
  kubectl bind cowboys --dry-run > review.yaml
  kubectl bind cowboys -o json | jq .status.boundSchemas")]
pub(crate) struct BindArgs {
    /// Name of the template.
    pub(crate) template: String,
    /// Name of the binding; that of the template if left out.
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// What the provider knows this cluster by; the UID of its namespace kube-system if left out.
    #[arg(long, value_name = "ID")]
    pub(crate) cluster_identity: Option<String>,
    /// Name of this cluster for people at the provider.
    #[arg(long, value_name = "NAME")]
    pub(crate) cluster_name: Option<String>,
    #[command(flatten)]
    pub(crate) konnector: KonnectorArgs,
    /// Print what would be installed and write nothing, neither here nor at the provider.
    #[arg(short = 'd', long)]
    pub(crate) dry_run: bool,
    /// With --dry-run, print a kubeconfig that is already installed instead of hiding it.
    #[arg(long, requires = "dry_run")]
    pub(crate) show_secrets: bool,
    /// Whether to wait until the binding is ready.
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) wait: bool,
}

/// Where the konnector of this cluster runs.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct KonnectorArgs {
    /// Namespace of the konnector, which also holds the kubeconfigs of providers.
    #[arg(long, value_name = "NAME", default_value = bindery_api::names::KUBE_BIND_NAMESPACE)]
    pub(crate) konnector_namespace: String,
    /// ServiceAccount that the konnector runs as.
    #[arg(long, value_name = "NAME", default_value = bindery_api::names::KONNECTOR)]
    pub(crate) konnector_service_account: String,
}

/// Flags of `status`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  kubectl bind status
  kubectl bind status cowboys -o wide     # with every condition, also those that hold
  kubectl bind status -o json | jq '.items[].credential.expires'")]
pub(crate) struct StatusArgs {
    /// Name of one binding.
    pub(crate) binding: Option<String>,
}

/// Flags of `renew`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
The konnector renews its credentials by itself. This command is for when they expired all the same, because the
konnector was off for too long, or when the provider revoked them: it binds again as you, for the same contract,
and puts the new kubeconfig into the Secret of the binding. Objects stay as they are.

Examples:
  kubectl bind renew cowboys")]
pub(crate) struct RenewArgs {
    /// Name of the binding.
    pub(crate) binding: String,
    /// What the provider knows this cluster by; the UID of its namespace kube-system if left out.
    #[arg(long, value_name = "ID")]
    pub(crate) cluster_identity: Option<String>,
    /// Whether to wait until the binding is ready.
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) wait: bool,
}

/// Flags of `unbind`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
The objects of the bound API are deleted on this cluster and at the provider, then the API itself, then the
binding with its role and its Secret. Nothing else of this cluster is touched. A binding whose
`spec.deletionPolicy` is Orphan leaves the provider's objects where they are.

Examples:
  kubectl bind unbind cowboys
  kubectl bind unbind cowboys --wait=false
  kubectl bind unbind cowboys --force     # the provider is gone for good")]
pub(crate) struct UnbindArgs {
    /// Name of the binding.
    pub(crate) binding: String,
    /// Whether to wait until the binding is gone.
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) wait: bool,
    /// End the binding although its provider cannot be reached. What is left there stays.
    #[arg(long)]
    pub(crate) force: bool,
    /// Succeed where there is no such binding.
    #[arg(long)]
    pub(crate) ignore_not_found: bool,
}

/// Flags of `completion`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  source <(kubectl-bind completion bash)
  kubectl-bind completion fish > ~/.config/fish/completions/kubectl-bind.fish")]
pub(crate) struct CompletionArgs {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
}

fn duration(text: &str) -> Result<Duration, String> {
    let parsed: jiff::SignedDuration = text
        .parse()
        .map_err(|_| "write a duration such as 90s or 1m30s".to_owned())?;
    match Duration::try_from(parsed) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err("must be longer than nothing".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn flags_do_not_contradict_each_other() {
        Args::command().debug_assert();
    }

    #[test]
    fn durations_have_a_unit_and_are_not_empty() {
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
        for nonsense in ["", "90", "0s", "-5s", "soon"] {
            assert!(duration(nonsense).is_err(), "{nonsense:?}");
        }
    }

    #[test]
    fn a_token_is_not_shown() {
        let args = parse(
            ["kubectl-bind", "--token", "hunter2", "templates"]
                .map(Into::into)
                .to_vec(),
        )
        .unwrap();
        assert!(!format!("{args:?}").contains("hunter2"));
    }
}
