//! Flags of the commands about the konnector itself.

use std::path::PathBuf;

use bindery_api::{adoption::Adoption, v1alpha2::GroupResource};
use clap::{
    ArgAction, ArgGroup, ValueEnum,
    builder::{PossibleValuesParser, TypedValueParser as _},
};

use super::{AnswerArgs, resource};

/// Whether anything is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum DryRun {
    /// Everything is written.
    #[default]
    None,
    /// Nothing is written, nor is the cluster asked.
    Client,
}

/// Flags of `deploy`.
#[derive(clap::Args, Debug)]
#[command(
    group = ArgGroup::new("answer").args(["file", "secret"]),
    after_help = "\
What it does:
  1. installs the definitions of APIServiceBinding and APIServiceBindingBundle,
     unless a newer release has
  2. applies what the konnector takes, as one set: its namespace kube-bind,
     ServiceAccount, roles, policies, Deployment
  3. with -f or --secret, stores the kubeconfig that a provider gave and binds
     what it offers

It prints what became of each object. Running it again changes nothing that need not change; flags that are left out
keep what is installed: the image, if it has another name than that of this release, replicas, adoption, and the
resources of bundles. The command comes back when all is applied, as kubectl apply does; with --wait, when the
konnector runs, and what is bound is ready.

What was installed is listed in a ResourceSet, konnector.v1 and so on: what a later run does not need any more is
deleted, and `kubectl bind undeploy` removes all of it. What kubectl or a former release applied before is taken over:
of these objects, fields that they set and this release does not go.

The konnector's rights on what bundles bind stand in ClusterRole kube-bind-konnector-bundles. --bundle-resource adds
to it; it never takes a right away: for that, edit the role.

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
    /// Image of the konnector, with the program bindery-konnector on its PATH; that of this release if left out.
    #[arg(long, value_name = "IMAGE")]
    pub(crate) konnector_image: Option<String>,
    /// How many konnectors stand by; one of them works.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=10))]
    pub(crate) replicas: Option<u32>,
    /// Which objects that a provider made are created on this cluster, whose own they are from then on: off, opt-in for
    /// those with the annotation kube-bind.io/autoadopt=true, or all.
    #[arg(long, value_name = "MODE",
          value_parser = PossibleValuesParser::new(["off", "opt-in", "all"]).try_map(|mode| mode.parse::<Adoption>()))]
    pub(crate) adoption: Option<Adoption>,
    /// Let the konnector bind this resource, such as cowboys.wildwest.dev, through bundles; once per resource.
    #[arg(long, value_name = "RESOURCE[.GROUP]", value_parser = resource)]
    pub(crate) bundle_resource: Vec<GroupResource>,
    /// File with a provider's answer, or `-` for standard input.
    #[arg(short, long, visible_alias = "filename", value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Secret with a provider's answer, on the cluster of --provider-kubeconfig.
    #[arg(long, value_name = "NAMESPACE/NAME", requires = "provider_kubeconfig", value_parser = namespaced)]
    pub(crate) secret: Option<(String, String)>,
    /// Key of the answer in its Secret; binding-response if left out, or else kubeconfig.
    #[arg(long, value_name = "KEY", requires = "answer")]
    pub(crate) secret_key: Option<String>,
    /// Kubeconfig of the cluster that holds --secret.
    #[arg(long, value_name = "FILE", requires = "secret")]
    pub(crate) provider_kubeconfig: Option<PathBuf>,
    /// Make a bundle of this name, which binds all that the provider's kubeconfig reaches, instead of single bindings.
    #[arg(long, value_name = "NAME", requires = "answer")]
    pub(crate) bundle: Option<String>,
    #[command(flatten)]
    pub(crate) answers: AnswerArgs,
    /// With client, print all manifests and write nothing, without asking any cluster.
    #[arg(long, value_enum, value_name = "MODE", default_value_t, num_args = 0..=1, require_equals = true,
          default_missing_value = "client")]
    pub(crate) dry_run: DryRun,
    /// With --dry-run, print the provider's kubeconfig instead of hiding it.
    #[arg(long, requires = "dry_run")]
    pub(crate) show_secrets: bool,
    /// Wait until the konnector runs and what is bound is ready.
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) wait: bool,
}

/// Flags of `undeploy`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
It deletes what `kubectl bind deploy` installed, as the ResourceSet `konnector.vN`
lists and owns it: the Deployment, roles, policies, and the namespace kube-bind
with the kubeconfigs that kubectl bind and the konnector kept there.

What stays:
  bindings       While there is an APIServiceBinding or APIServiceBindingBundle,
                 nothing is removed: only the konnector can end them, and delete
                 their objects on both sides. `kubectl bind status` lists them.
  definitions    Those of bindings, bundles and ResourceSets: with a definition
                 goes every object of its kind.
  the namespace  If anybody else keeps something in it, such as a Secret of yours
                 or the server of a provider.

A konnector that kubectl or another tool applied is not removed: delete it with what applied it.

Examples:
  kubectl bind undeploy --dry-run
  kubectl bind undeploy
  kubectl bind undeploy --wait=false --ignore-not-found")]
pub(crate) struct UndeployArgs {
    /// Print what would be deleted, and delete nothing.
    #[arg(short = 'd', long)]
    pub(crate) dry_run: bool,
    /// Whether to wait until all of it is gone.
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) wait: bool,
    /// Succeed where no konnector is installed.
    #[arg(long)]
    pub(crate) ignore_not_found: bool,
}

/// Flags of `adopt`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Adoption creates on this cluster what a provider made for it before: the object appears here with the provider's spec,
labels and annotations, and belongs to this cluster from then on. It is the konnector that adopts, all the time, once it
is switched on:

  kubectl bind deploy --adoption opt-in    # only objects with the annotation kube-bind.io/autoadopt=true
  kubectl bind deploy --adoption all       # every object that never had a counterpart here

Before that, this command says what would happen to each object that the provider holds for this cluster:

  adopt     it would be created here, if need be with its namespace
  link      it is here already and says the same: both become one
  conflict  it is here already and says something else: neither is changed
  -         nothing: it has or had a counterpart, belongs to another consumer, or nobody opted it in

It reads with the credentials of the bindings, which you must be allowed to read, and writes nothing.

An object that was deleted here while a konnector of an older release ran, and never marked, would come back. Look for
such objects before you switch adoption on, and delete them at the provider.

Examples:
  kubectl bind adopt --dry-run
  kubectl bind adopt --dry-run cowboys -o wide
  kubectl bind adopt --dry-run -o json | jq '.items[] | select(.all == \"Adopt\")'")]
pub(crate) struct AdoptArgs {
    /// Name of one binding; all if left out.
    pub(crate) binding: Option<String>,
    /// Say what would be adopted. Without it, nothing is done: adopting is the konnector's work.
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
mod tests {
    use clap::error::ErrorKind;

    use super::*;
    use crate::args::{Command, parse};

    fn words(line: &str) -> Vec<std::ffi::OsString> {
        ["kubectl-bind"]
            .into_iter()
            .chain(line.split_whitespace())
            .map(Into::into)
            .collect()
    }

    #[track_caller]
    fn deploy(line: &str) -> DeployArgs {
        match parse(words(line)).unwrap().command {
            Command::Deploy(args) => *args,
            other => panic!("{line:?} is {other:?}"),
        }
    }

    #[track_caller]
    fn check_refused(line: &str, kind: ErrorKind) {
        let error = parse(words(line)).expect_err(line);
        assert_eq!(error.kind(), kind, "{line:?}: {error}");
    }

    #[test]
    fn what_is_left_out_is_left_as_it_is() {
        let plain = deploy("deploy");
        assert_eq!(
            (plain.adoption, plain.replicas, plain.konnector_image),
            (None, None, None)
        );
        assert_eq!((plain.dry_run, plain.wait), (DryRun::None, false));
        let all = deploy("deploy --adoption all --replicas=2 --wait --bundle-resource a.b.c --bundle-resource secrets");
        assert_eq!(
            (all.adoption, all.replicas, all.wait),
            (Some(Adoption::All), Some(2), true)
        );
        assert_eq!(
            all.bundle_resource,
            [GroupResource::new("b.c", "a"), GroupResource::new("", "secrets")]
        );
    }

    #[test]
    fn a_removal_waits_and_is_for_real_unless_told_otherwise() {
        let undeploy = |line: &str| match parse(words(line)).unwrap().command {
            Command::Undeploy(args) => (args.dry_run, args.wait, args.ignore_not_found),
            other => panic!("{line:?} is {other:?}"),
        };
        assert_eq!(undeploy("undeploy"), (false, true, false));
        assert_eq!(
            undeploy("undeploy -d --wait=false --ignore-not-found"),
            (true, false, true)
        );
        check_refused("undeploy konnector", ErrorKind::UnknownArgument);
        check_refused("undeply", ErrorKind::InvalidSubcommand);
    }

    #[test]
    fn a_dry_run_is_that_of_a_client() {
        for (line, expect) in [
            ("deploy --dry-run", DryRun::Client),
            ("deploy --dry-run=client -o yaml", DryRun::Client),
            ("deploy --dry-run=none", DryRun::None),
        ] {
            assert_eq!(deploy(line).dry_run, expect, "{line}");
        }
        check_refused("deploy --dry-run=server", ErrorKind::InvalidValue);
        check_refused("deploy --show-secrets", ErrorKind::MissingRequiredArgument);
    }

    #[test]
    fn an_answer_lies_in_one_place() {
        let file = deploy("deploy -f - --bundle acme --secret-key kubeconfig");
        assert_eq!(file.file.as_deref(), Some(std::path::Path::new("-")));
        assert!(deploy("deploy --filename x").file.is_some());
        let secret = deploy("deploy --secret team-a/x --provider-kubeconfig k").secret;
        assert_eq!(secret, Some(("team-a".to_owned(), "x".to_owned())));
        check_refused("deploy --secret team-a/x", ErrorKind::MissingRequiredArgument);
        check_refused("deploy --provider-kubeconfig k", ErrorKind::MissingRequiredArgument);
        check_refused("deploy --bundle acme", ErrorKind::MissingRequiredArgument);
        check_refused("deploy --secret-key x", ErrorKind::MissingRequiredArgument);
        check_refused(
            "deploy -f x --secret a/b --provider-kubeconfig k",
            ErrorKind::ArgumentConflict,
        );
        for nonsense in ["x", "a/b/c", "/x", "a/"] {
            let line = format!("deploy --secret {nonsense} --provider-kubeconfig k");
            check_refused(&line, ErrorKind::ValueValidation);
        }
    }

    #[test]
    fn slips_of_the_finger_deploy_nothing() {
        for line in ["deplyo", "deply", "adpot", "adopts"] {
            check_refused(line, ErrorKind::InvalidSubcommand);
        }
        check_refused("deploy --namespace other", ErrorKind::UnknownArgument);
    }
}
