//! What was typed. What it means is worked out in [`crate::settings`].

mod bound;
mod deploy;
mod short;

use std::{ffi::OsString, path::PathBuf, time::Duration};

use bindery_api::v1alpha2::GroupResource;
use bindery_runtime::terminal::duration;
use clap::{ArgAction, Parser, Subcommand};
use secrecy::SecretString;

use crate::output::Format;

pub(crate) use bound::{ClaimsArgs, CompletionArgs, RenewArgs, StatusArgs, UnbindArgs, WhyArgs};
pub(crate) use deploy::{AdoptArgs, DeployArgs, DryRun, UndeployArgs};
pub(crate) use short::parse;

const EXAMPLES: &str = "\
Examples:
  # Install the konnector on this cluster
  kubectl bind deploy

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

  # Where is my object, and what does it wait for?
  kubectl bind why cowboy/billy-the-kid -n wild-west

  # What may the provider see and write beside its API? Refuse some of it.
  kubectl bind claims cowboys
  kubectl bind claims cowboys --reject secrets

  # End one: its API and its objects go, on this cluster and at the provider
  kubectl bind unbind cowboys

  # Remove the konnector when nothing is bound any more
  kubectl bind undeploy

A first word that is no command is taken as the name of a template. A template that is named like a
command, such as `status`, is bound with `kubectl bind apiservice status`.

Exit codes:
  0  done
  1  failed
  2  the command line is wrong
  3  not logged in, or not allowed
  4  not found
  5  timed out: what was begun goes on, and may still succeed
  130  stopped by Ctrl-C";

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
    /// Show the bindings and bundles of this cluster with their conditions.
    Status(StatusArgs),
    /// Say where an object is and what it waits for.
    Why(WhyArgs),
    /// Show what a binding lets its provider see and write beside its API, accept or reject some of it.
    Claims(ClaimsArgs),
    /// Give a binding or a bundle new credentials, as its owner.
    Renew(RenewArgs),
    /// End a binding and delete its objects.
    Unbind(UnbindArgs),
    /// Install the konnector on this cluster, and bind what a provider answered.
    Deploy(Box<DeployArgs>),
    /// Remove the konnector from this cluster, once nothing is bound.
    Undeploy(UndeployArgs),
    /// Say which of the provider's objects the konnector would create here, before it is told to.
    Adopt(AdoptArgs),
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

A template may claim other objects of this cluster, such as Secrets. What it claims is shown before anything is
installed. On a terminal you are asked for a yes; elsewhere claims are accepted, save one on every Secret, which
needs --accept-claims. Of a claim that is rejected nothing is ever read or written, and the konnector gets no right
on it. `kubectl bind claims` changes your mind later.

What you accept is recorded on the binding. Claims that become wider later take effect only once you accept them, with
`kubectl bind claims` or by binding again.

Binding the same template again changes nothing that need not change, and keeps to what you rejected before.

Examples:
  kubectl bind cowboys
  kubectl bind cowboys-with-secrets --reject-claim secrets
  kubectl bind cowboys-with-secrets --accept-claims
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
    #[command(flatten)]
    pub(crate) answers: AnswerArgs,
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

/// What becomes of a provider's claims.
#[derive(clap::Args, Debug)]
pub(crate) struct AnswerArgs {
    /// Reject the provider's claim on this resource, such as secrets; once per claim.
    #[arg(long = "reject-claim", value_name = "RESOURCE[.GROUP]", value_parser = resource)]
    pub(crate) reject_claims: Vec<GroupResource>,
    /// Accept all claims that are not rejected, without being asked.
    #[arg(short = 'y', long, visible_alias = "yes")]
    pub(crate) accept_claims: bool,
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

/// `RESOURCE` of the core group, or `RESOURCE.GROUP`, as in the name of a CRD.
fn resource(text: &str) -> Result<GroupResource, String> {
    let (resource, group) = text.split_once('.').unwrap_or((text, ""));
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let valid = !resource.is_empty() && resource.bytes().all(inner);
    if valid && group.bytes().all(|byte| inner(byte) || byte == b'.') {
        return Ok(GroupResource::new(group, resource));
    }
    Err("write the plural name, such as secrets or certificates.example.com".to_owned())
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
    fn resources_are_named_as_crds_are() {
        assert_eq!(resource("secrets"), Ok(GroupResource::new("", "secrets")));
        assert_eq!(
            resource("a.b.example.com"),
            Ok(GroupResource::new("b.example.com", "a"))
        );
        for nonsense in ["", ".", "Secrets", "secrets/x", "*", "a.B", "*.example.com"] {
            assert!(resource(nonsense).is_err(), "{nonsense:?}");
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
