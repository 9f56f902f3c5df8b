//! The command line as it is typed: flags, help and examples. [`settings`] checks what was typed.

mod bound;
pub(crate) mod complete;
mod deploy;
pub(crate) mod dev;
mod health;
mod login;
pub(crate) mod settings;
mod short;
mod teams;
mod top;

use std::{ffi::OsString, path::PathBuf, time::Duration};

use bindery_api::v1alpha2::GroupResource;
use bindery_runtime::terminal::duration;
use clap::{ArgAction, Parser, Subcommand, ValueEnum};
use secrecy::SecretString;

use crate::render::output::Format;

pub(crate) use bound::{
    AcceptArgs, ClaimsArgs, CompletionArgs, DiscardArgs, EndRetentionArgs, OrphansArgs, RenewArgs, RetainedArgs,
    StatusArgs, UnbindArgs, WhyArgs,
};
pub(crate) use deploy::{AdoptArgs, DeployArgs, DryRun, UndeployArgs};
pub(crate) use health::{CheckArgs, KubeContext, RevokeArgs, ServerArgs};
pub(crate) use login::{LoginArgs, LogoutArgs, ServersArgs, ServersCommand, TokenArgs};
pub(crate) use short::parse;
pub(crate) use teams::{
    AdminArgs, AdminCommand, ContractArgs, ContractsArgs, GrantArgs, ReleasedArgs, ShareArgs, TransferArgs,
};
pub(crate) use top::TopArgs;

const EXAMPLES: &str = "\
Examples:
  # Install the konnector on this cluster
  kubectl bind deploy

  # Log in at a provider. What may I bind there?
  kubectl bind login https://bind.example.com
  kubectl bind templates

  # Without a person: a token of a ServiceAccount
  export KUBECTL_BIND_SERVER=https://bind.example.com
  export KUBECTL_BIND_TOKEN_FILE=~/.config/bind-token

  # Bind a template. Both lines mean the same.
  kubectl bind cowboys
  kubectl bind apiservice cowboys

  # See first what would be installed on this cluster, and install nothing
  kubectl bind cowboys --dry-run

  # How are my bindings? What is wrong with this installation?
  kubectl bind status
  kubectl bind check

  # Where is my object, and what does it wait for?
  kubectl bind why cowboy/billy-the-kid -n wild-west

  # What may the provider see and write beside its API? Refuse some of it.
  kubectl bind claims cowboys
  kubectl bind claims cowboys --reject secrets

  # End one: its API and its objects go on this cluster; the provider keeps its copies unless you say otherwise
  kubectl bind unbind cowboys

  # Remove the konnector when nothing is bound any more
  kubectl bind undeploy

  # Try all of it on two clusters of your own, and leave nothing
  kubectl bind dev up --provider kind-provider --consumer kind-consumer
  kubectl bind dev down --provider kind-provider --consumer kind-consumer

A first word that is not a command is taken as the name of a template. A template that is named like a
command, such as `status`, is bound with `kubectl bind apiservice status`.

Exit codes:
  0  done
  1  failed
  2  the command line is wrong
  3  not logged in, or not allowed
  4  not found
  5  timed out: the work goes on, and may still succeed
  130  stopped by Ctrl-C";

const GET_A_TOKEN: &str = "\
A token is good for one provider: its audience is the address of the backend. On the provider's cluster,
`kubectl create token NAME --audience https://bind.example.com` makes one for a ServiceAccount.";

/// Binds APIs of a service provider to this cluster.
///
/// A bound API looks like any other API of this cluster. You write its objects here; they are synced to the provider, which
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

/// Flags that choose the consumer cluster.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "This cluster (the consumer)")]
pub(crate) struct ClusterArgs {
    /// Kubeconfig of this cluster; by default $KUBECONFIG, then ~/.kube/config, as with kubectl.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; by default its current context.
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) context: Option<String>,
}

/// Flags that choose the provider's backend and the token for it.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "The provider")]
pub(crate) struct ProviderArgs {
    /// Address of the provider's backend, such as `https://bind.example.com`; by default the current one of your logins.
    #[arg(long, global = true, value_name = "URL", env = "KUBECTL_BIND_SERVER")]
    pub(crate) server: Option<String>,
    /// Token to log in with. Other users of this machine can see it, so prefer --token-file.
    #[arg(long, global = true, value_name = "TOKEN")]
    pub(crate) token: Option<SecretString>,
    /// File with the token to log in with; read again when it changes. --token wins over it.
    #[arg(long, global = true, value_name = "FILE", env = "KUBECTL_BIND_TOKEN_FILE", long_help = format!(
        "File with the token to log in with; read again when it changes. --token wins over it.\n\n{GET_A_TOKEN}"
    ))]
    pub(crate) token_file: Option<PathBuf>,
    /// File with the CA (PEM) that signed the backend's certificate; by default the CAs of the system.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) certificate_authority: Option<PathBuf>,
    /// File with a client certificate (PEM), for a backend that accepts only clients with one.
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        requires = "client_key",
        env = "KUBECTL_BIND_CLIENT_CERTIFICATE"
    )]
    pub(crate) client_certificate: Option<PathBuf>,
    /// File with the private key (PEM) of the client certificate.
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        requires = "client_certificate",
        env = "KUBECTL_BIND_CLIENT_KEY"
    )]
    pub(crate) client_key: Option<PathBuf>,
    /// Allow an `http://` address of this machine, such as http://localhost:8080; other addresses need TLS.
    #[arg(long, global = true)]
    pub(crate) allow_plaintext: bool,
}

/// Flags for results, progress, logs and waiting.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Display")]
pub(crate) struct DisplayArgs {
    /// Format of the result on standard output.
    #[arg(short, long, global = true, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) output: Format,
    /// How long to wait before giving up, such as 90s or 5m; by default 2 or 5 minutes, by command.
    #[arg(long, global = true, value_name = "DURATION", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// Log requests and answers to standard error; -vv logs more.
    #[arg(short, long, global = true, action = ArgAction::Count, conflicts_with = "quiet")]
    pub(crate) verbose: u8,
    /// Show no progress, only the result and errors.
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// List the templates that you may bind, or show one.
    Templates(TemplatesArgs),
    /// List the collections of templates, or show one.
    Collections(CollectionsArgs),
    /// Bind a template, or all templates of a collection, to this cluster.
    Apiservice(Box<BindArgs>),
    /// Show the bindings and bundles of this cluster with their conditions.
    Status(StatusArgs),
    /// Say where an object is and what it waits for.
    Why(WhyArgs),
    /// Show the claims of a binding, which let its provider see and write other objects; accept or reject them.
    Claims(ClaimsArgs),
    /// Show the copies on the provider that lost their object here, and end them.
    Orphans(OrphansArgs),
    /// List the deleted objects whose copies the provider retains, and until when you can restore them.
    Retained(RetainedArgs),
    /// Create a deleted object anew from the copy that the provider retains, with its status.
    Restore(EndRetentionArgs),
    /// End the copy that the provider retains of a deleted object.
    Discard(DiscardArgs),
    /// Show which bindings wait because another cluster may serve their contract, and go on with one.
    Accept(AcceptArgs),
    /// Look for what is wrong with this installation, and say what mends it.
    Check(Box<CheckArgs>),
    /// Show live how many objects and changes each binding has, and how long changes take.
    Top(TopArgs),
    /// Give a binding or a bundle new credentials, as its owner.
    Renew(RenewArgs),
    /// End all credentials of a contract at once, as its owner or as the provider's admin.
    Revoke(RevokeArgs),
    /// Let groups use a contract as its owner does.
    Share(ShareArgs),
    /// See and revoke contracts, end released objects, and grant templates, as the provider's admin.
    Provider(Box<AdminArgs>),
    /// End a binding and its objects on this cluster.
    Unbind(UnbindArgs),
    /// Install the konnector on this cluster, and bind what a provider answered.
    Deploy(Box<DeployArgs>),
    /// Remove the konnector from this cluster, once nothing is bound.
    Undeploy(UndeployArgs),
    /// Install server, konnector and an example on two clusters to try things on, or remove them again.
    Dev(dev::DevArgs),
    /// Say which of the provider's objects the konnector would create here, before you switch adoption on.
    Adopt(AdoptArgs),
    /// Show the version of this command, and of the backend if one is given.
    Version,
    /// Show the identity by which the provider knows this cluster: the UID of its namespace kube-system.
    ClusterIdentity,
    /// Print what completes commands, flags and names, for kubectl or for a shell.
    Completion(CompletionArgs),
    /// Log in at a provider with your company's identity provider.
    Login(LoginArgs),
    /// End a login, at the identity provider and on this machine.
    Logout(LogoutArgs),
    /// Show who you are to the provider, and what lets you bind each template.
    Whoami,
    /// Print the token of your login, for grpcurl and other programs.
    Token(TokenArgs),
    /// List the servers that you have logged in to, and choose the current one.
    Server(ServersArgs),
    /// Say where you stand, and what to do next, as `kubectl bind` alone does.
    #[command(name = short::NEXT, hide = true)]
    Next,
    /// The short form: the name of a template and its flags.
    #[command(external_subcommand)]
    Short(Vec<OsString>),
}

impl Command {
    /// The flags of the provider as the command means them: those that log in name the server themselves, and use no token that
    /// was typed.
    pub(crate) fn provider(&self, typed: ProviderArgs) -> ProviderArgs {
        match self {
            Self::Login(LoginArgs { url, .. }) => ProviderArgs {
                server: url.clone().or(typed.server),
                token: None,
                token_file: None,
                ..typed
            },
            _ => typed,
        }
    }
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
    /// Name of one template; by default all templates are listed.
    pub(crate) name: Option<String>,
    /// Only templates of this collection.
    #[arg(long, value_name = "NAME", conflicts_with = "name")]
    pub(crate) collection: Option<String>,
    /// Only templates with these labels, such as tier=gold,region!=eu.
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
    /// Name of one collection; by default all collections are listed.
    pub(crate) name: Option<String>,
    /// Only collections with these labels, such as tier=gold.
    #[arg(short = 'l', long, value_name = "SELECTOR", conflicts_with = "name")]
    pub(crate) selector: Option<String>,
}

/// Flags of `apiservice` and of the short form.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
What it does:
  1. asks the provider what the template installs, and refuses what goes beyond its own APIs
  2. asks the provider to make the contract, the export and a kubeconfig for this cluster
  3. installs a Secret with it, a ClusterRole for the konnector, and the APIServiceBinding
  4. waits until the konnector reports the binding as ready

A template may claim other objects of this cluster, such as Secrets. What it claims is shown before anything is
installed. On a terminal you are asked to accept it; elsewhere claims are accepted, save one on every Secret, which
needs --accept-claims. Objects of a rejected claim are never read or written, and the konnector gets no right on them.
You can accept or reject claims later with `kubectl bind claims`.

What you accept is recorded on the binding. Claims that become wider later take effect only once you accept them, with
`kubectl bind claims` or by binding again.

Binding the same template again changes only what differs, and keeps rejected what you rejected before.

The name of a collection binds all its templates that you may bind, each by a binding of the template's name. Nothing is
written until all of them are checked and their claims accepted. If one fails, the others stay, and the same command goes on.

Examples:
  kubectl bind cowboys
  kubectl bind cowboys-with-secrets --reject-claim secrets
  kubectl bind cowboys-with-secrets --accept-claims
  kubectl bind apiservice cowboys --name west
  kubectl bind wildwest --kind collection         # all templates of a collection
  kubectl bind cowboys --dry-run > review.yaml
  kubectl bind cowboys -o json | jq .status.boundSchemas")]
pub(crate) struct BindArgs {
    /// Name of the template, or of the collection whose templates are all bound.
    pub(crate) template: String,
    /// What the name is, where the provider has a template and a collection of the same name.
    #[arg(long, value_enum, value_name = "KIND")]
    pub(crate) kind: Option<NameKind>,
    /// Name of the binding; by default that of the template.
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Namespace of this cluster that the claims concern, in both directions; may be repeated. The konnector gets rights on claimed objects
    /// there alone. By default objects of all namespaces are given to the provider, and its own come down into those that have an object of
    /// the bound API.
    #[arg(long = "claim-namespace", value_name = "NAME")]
    pub(crate) claim_namespaces: Vec<String>,
    /// Identity by which the provider knows this cluster; by default the UID of its namespace kube-system.
    #[arg(long, value_name = "ID")]
    pub(crate) cluster_identity: Option<String>,
    /// Name of this cluster that is shown to people at the provider, such as production-eu.
    #[arg(long, value_name = "NAME")]
    pub(crate) cluster_name: Option<String>,
    #[command(flatten)]
    pub(crate) konnector: KonnectorArgs,
    #[command(flatten)]
    pub(crate) answers: AnswerArgs,
    /// Print what would be installed, and write nothing, neither here nor at the provider.
    #[arg(short = 'd', long)]
    pub(crate) dry_run: bool,
    /// With --dry-run, print a kubeconfig that is installed already instead of hiding it.
    #[arg(long, requires = "dry_run")]
    pub(crate) show_secrets: bool,
    /// Wait until the binding is ready; --wait=false does not wait.
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) wait: bool,
}

/// What the name of a bind is the name of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum NameKind {
    /// A template.
    Template,
    /// A collection of templates.
    Collection,
}

/// Flags that accept and reject a provider's claims.
#[derive(clap::Args, Debug, Default)]
pub(crate) struct AnswerArgs {
    /// Reject the provider's claim on this resource, such as secrets; may be repeated.
    #[arg(long = "reject-claim", value_name = "RESOURCE[.GROUP]", value_parser = resource)]
    pub(crate) reject_claims: Vec<GroupResource>,
    /// Accept all claims that are not rejected, without being asked.
    #[arg(short = 'y', long, visible_alias = "yes")]
    pub(crate) accept_claims: bool,
}

/// Flags that say where the konnector of this cluster runs.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct KonnectorArgs {
    /// Namespace of the konnector, which also holds the kubeconfigs of providers.
    #[arg(long, value_name = "NAME", default_value = bindery_api::names::KUBE_BIND_NAMESPACE)]
    pub(crate) konnector_namespace: String,
    /// ServiceAccount that the konnector runs as.
    #[arg(long, value_name = "NAME", default_value = bindery_api::names::KONNECTOR)]
    pub(crate) konnector_service_account: String,
}

/// Parses `RESOURCE` of the core group, or `RESOURCE.GROUP`, as in the name of a CustomResourceDefinition.
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
mod tests;
