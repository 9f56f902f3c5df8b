//! Flags of the commands about the konnector: `deploy`, `undeploy` and `adopt`.

use std::path::PathBuf;

use bindery_api::{adoption::Adoption, v1alpha2::GroupResource};
use clap::{
    ArgAction, ArgGroup, ValueEnum,
    builder::{PossibleValuesParser, TypedValueParser as _},
};

use super::{AnswerArgs, resource};

/// Whether `deploy` writes anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum DryRun {
    /// Write to the cluster.
    #[default]
    None,
    /// Print the manifests, without reading from the cluster or writing to it.
    Client,
}

/// Flags of `deploy`.
#[derive(clap::Args, Debug, Default)]
#[command(
    group = ArgGroup::new("answer").args(["file", "secret"]),
    after_help = "\
What it does:
  1. installs the definitions of APIServiceBinding and APIServiceBindingBundle, unless a newer release has done so
  2. applies the konnector as one set: its namespace kube-bind, ServiceAccount, roles, policies, Deployment
  3. with -f or --secret, stores the kubeconfig that a provider gave, and binds what it offers

It prints what became of each object. Running it again changes only what differs; flags that are left out keep what is
installed: the image, if it has another name than that of this release, replicas, adoption, the resources of bundles,
and flags of the konnector that somebody added to its Deployment. The command returns when all is applied, as kubectl apply does; with --wait, when the konnector runs and all
that is bound is ready.

A ResourceSet, konnector.v1 and so on, lists what was installed. Objects that a later run does not need any more are
deleted, and `kubectl bind undeploy` removes all of them. Objects that kubectl or a former release applied are taken
over: fields that those set and this release does not are removed.

ClusterRole kube-bind-konnector-bundles holds the konnector's rights on what bundles bind. --bundle-resource adds a
right and never takes one away: for that, edit the role.

A provider's answer (-f, --secret) is a BindingResourceResponse, or the Secret that a BindableResourcesRequest was
answered with, or, for a bundle, a kubeconfig. Its claims are shown, accepted and rejected as with
`kubectl bind apiservice`.

Examples:
  kubectl bind deploy
  kubectl bind deploy --konnector-image registry.example.com/bindery-konnector:1.2 --wait
  kubectl bind deploy --dry-run=client -o yaml > konnector.yaml
  kubectl bind deploy --bundle-resource cowboys.wildwest.dev --bundle-resource sheriffs.wildwest.dev
  kubectl bind deploy --adoption opt-in          # see `kubectl bind adopt --dry-run` before

  # Bind what a provider answered to a BindableResourcesRequest, as it answered
  kubectl get secret cowboys-binding-response -o yaml --kubeconfig provider.kubeconfig | kubectl bind deploy -f -
  kubectl bind deploy --provider-kubeconfig provider.kubeconfig --secret team-a/cowboys-binding-response
  kubectl bind deploy -f response.yaml --bundle acme"
)]
pub(crate) struct DeployArgs {
    /// Image of the konnector, with the program bindery-konnector on its PATH; by default that of this release.
    #[arg(long, value_name = "IMAGE")]
    pub(crate) konnector_image: Option<String>,
    /// Number of konnectors, 0 to 10, of which one works at a time; by default what is installed, or 1.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=10))]
    pub(crate) replicas: Option<u32>,
    /// Which objects that a provider made become objects of this cluster: off; opt-in, those with the annotation
    /// kube-bind.io/autoadopt=true; or all. By default what is installed, or off.
    #[arg(long, value_name = "MODE",
          value_parser = PossibleValuesParser::new(["off", "opt-in", "all"]).try_map(|mode| mode.parse::<Adoption>()))]
    pub(crate) adoption: Option<Adoption>,
    /// Let the konnector bind this resource, such as cowboys.wildwest.dev, through bundles; may be repeated.
    #[arg(long, value_name = "RESOURCE[.GROUP]", value_parser = resource)]
    pub(crate) bundle_resource: Vec<GroupResource>,
    /// File with a provider's answer, or `-` for standard input.
    #[arg(short, long, visible_alias = "filename", value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Secret with a provider's answer, on the cluster of --provider-kubeconfig.
    #[arg(long, value_name = "NAMESPACE/NAME", requires = "provider_kubeconfig", value_parser = namespaced)]
    pub(crate) secret: Option<(String, String)>,
    /// Key of the answer in its Secret; by default binding-response, or else kubeconfig.
    #[arg(long, value_name = "KEY", requires = "answer")]
    pub(crate) secret_key: Option<String>,
    /// Kubeconfig of the cluster that holds --secret.
    #[arg(long, value_name = "FILE", requires = "secret")]
    pub(crate) provider_kubeconfig: Option<PathBuf>,
    /// Make a bundle of this name, which binds all exports that the kubeconfig reaches, instead of single bindings.
    #[arg(long, value_name = "NAME", requires = "answer")]
    pub(crate) bundle: Option<String>,
    #[command(flatten)]
    pub(crate) answers: AnswerArgs,
    /// With client, print all manifests, without reading from a cluster or writing to it.
    #[arg(long, value_enum, value_name = "MODE", default_value_t, num_args = 0..=1, require_equals = true,
          default_missing_value = "client")]
    pub(crate) dry_run: DryRun,
    /// With --dry-run, print the provider's kubeconfig instead of hiding it.
    #[arg(long, requires = "dry_run")]
    pub(crate) show_secrets: bool,
    /// Wait until the konnector runs and all that is bound is ready.
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) wait: bool,
}

/// Flags of `undeploy`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Deletes what `kubectl bind deploy` installed, as the ResourceSet `konnector.vN` lists and owns it: the Deployment,
roles, policies, and the namespace kube-bind with the kubeconfigs that kubectl bind and the konnector keep there.

What stays:
  bindings       While there is an APIServiceBinding or APIServiceBindingBundle, nothing is removed: only the konnector
                 can end them, and delete their objects on both sides. `kubectl bind status` lists them.
  definitions    Those of bindings, bundles and ResourceSets: deleting a definition deletes every object of its kind.
  the namespace  If it holds objects of others, such as a Secret of yours or the server of a provider.

A konnector that kubectl or another tool applied is not removed: delete it with what applied it.

Examples:
  kubectl bind undeploy --dry-run
  kubectl bind undeploy
  kubectl bind undeploy --wait=false --ignore-not-found")]
pub(crate) struct UndeployArgs {
    /// Print the objects that would be deleted, and delete nothing.
    #[arg(short = 'd', long)]
    pub(crate) dry_run: bool,
    /// Wait until all of it is gone; --wait=false does not wait.
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) wait: bool,
    /// Succeed if no konnector is installed.
    #[arg(long)]
    pub(crate) ignore_not_found: bool,
}

/// Flags of `adopt`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Adoption creates objects on this cluster that a provider made for it: an object appears here with the provider's spec,
labels and annotations, and belongs to this cluster from then on. The konnector adopts, continuously, once adoption is
switched on:

  kubectl bind deploy --adoption opt-in    # only objects with the annotation kube-bind.io/autoadopt=true
  kubectl bind deploy --adoption all       # every object that never had a counterpart here

This command says what would happen to each object that the provider holds for this cluster:

  adopt     it would be created here, with its namespace if that does not exist
  link      it exists here with the same content: both become one object
  conflict  it exists here with other content: neither is changed
  -         nothing: it has or had a counterpart, belongs to another consumer, or is not opted in

It uses the credentials of the bindings, whose Secrets you must be allowed to read, and writes nothing.

An object that was deleted here while a konnector of an older release ran may lack the annotation kube-bind.io/bound, and
would come back. Look for such objects before you switch adoption on, and delete them at the provider.

Examples:
  kubectl bind adopt --dry-run
  kubectl bind adopt --dry-run cowboys -o wide
  kubectl bind adopt --dry-run -o json | jq '.items[] | select(.all == \"Adopt\")'")]
pub(crate) struct AdoptArgs {
    /// Name of one binding; by default all bindings.
    pub(crate) binding: Option<String>,
    /// Say what would be adopted. The command requires this flag, because the konnector adopts, not this command.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

fn namespaced(text: &str) -> Result<(String, String), String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok((namespace.to_owned(), name.to_owned()))
        }
        _ => Err("write NAMESPACE/NAME, such as team-a/cowboys-binding-response".to_owned()),
    }
}

#[cfg(test)]
mod tests;
