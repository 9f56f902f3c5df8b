//! Flags of the commands about what is bound.

use bindery_api::v1alpha2::GroupResource;
use clap::ArgAction;

use super::resource;

/// Flags of `status`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  kubectl bind status
  kubectl bind status cowboys -o wide     # with every condition, also those that hold
  kubectl bind status -o json | jq '.items[].credential.expires'")]
pub(crate) struct StatusArgs {
    /// Name of one binding, or of a bundle where no binding is named so.
    pub(crate) name: Option<String>,
}

/// Flags of `why`.
#[derive(clap::Args, Debug)]
#[command(
    override_usage = "kubectl bind why KIND/NAME [OPTIONS]\n       kubectl bind why KIND NAME [OPTIONS]",
    after_help = "\
Looks at the object, at its binding, at what the konnector reported of it, and, if you may read the binding's
Secret, at the copy on the provider. Nothing is written. What cannot be read is said, with what that leaves open.

For an object of a bound API it says where its copy is and what it waits for: the konnector, the provider, a
finalizer, you. For a Secret, a ConfigMap or another claimed object it says which claim selects it, if one does, and
whether that claim waits for your yes.

Examples:
  kubectl bind why cowboy/billy-the-kid -n wild-west
  kubectl bind why sheriff wyatt-earp
  kubectl bind why cowboys.wildwest.dev/billy-the-kid -n wild-west -o json | jq '.lines[].waitingFor'
  kubectl bind why secret/colt-45-permit -n wild-west"
)]
pub(crate) struct WhyArgs {
    /// KIND/NAME, or KIND and NAME. The kind may be written as for kubectl get.
    #[arg(required = true, num_args = 1..=2, value_name = "KIND/NAME")]
    pub(crate) object: Vec<String>,
    /// Namespace of the object; that of the kubeconfig's context if left out.
    #[arg(short, long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
}

/// Flags of `claims`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
A claim lets the provider have some objects of a resource copied to it, and put its own there on this cluster.

What was accepted is recorded on the binding, and no more than that takes effect: a claim that is new or became wider
since is shown as not accepted, with what is new, until you accept or reject it.

  --reject   first the binding says so; the konnector takes back what it copied, and then loses its right on the
             resource. Your own objects stay. Objects that the provider put here go.
  --accept   first the konnector gets the right, then the binding says so, and records the claim as it is now.

Nobody can give a right that they do not hold: to accept a claim you need the rights on the resource yourself.

Examples:
  kubectl bind claims cowboys
  kubectl bind claims cowboys --reject secrets
  kubectl bind claims cowboys --accept secrets --yes
  kubectl bind claims cowboys -o json | jq '.items[] | select(.state == \"InEffect\")'")]
pub(crate) struct ClaimsArgs {
    /// Name of the binding.
    pub(crate) binding: String,
    /// Accept the claim on this resource; once per claim.
    #[arg(long, value_name = "RESOURCE[.GROUP]", value_parser = resource)]
    pub(crate) accept: Vec<GroupResource>,
    /// Reject the claim on this resource; once per claim.
    #[arg(long, value_name = "RESOURCE[.GROUP]", value_parser = resource)]
    pub(crate) reject: Vec<GroupResource>,
    /// Accept without being asked, also a claim on every Secret.
    #[arg(short = 'y', long, visible_alias = "accept-claims")]
    pub(crate) yes: bool,
    /// Whether to wait until the konnector has taken up what is accepted and withdrawn what is rejected; only then is its
    /// right taken away.
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) wait: bool,
}

/// Flags of `renew`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
The konnector renews its credentials by itself. This command is for when they expired all the same, because the
konnector was off for too long, or when the provider revoked them: it binds again as you, for the same contract,
and puts the new kubeconfig into the Secret of the binding. Objects stay as they are.

All bindings that use the Secret get the new credentials. Those of a bundle use the Secret of the bundle: renew either.

Examples:
  kubectl bind renew cowboys
  kubectl bind renew --bundle acme")]
pub(crate) struct RenewArgs {
    /// Name of the binding, or of a bundle where no binding is named so.
    pub(crate) name: String,
    /// The name is that of a bundle.
    #[arg(long)]
    pub(crate) bundle: bool,
    /// What the provider knows this cluster by; the UID of its namespace kube-system if left out.
    #[arg(long, value_name = "ID")]
    pub(crate) cluster_identity: Option<String>,
    /// Whether to wait until the binding, or the bundle, is ready.
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

The binding of a bundle is refused, for the bundle would bind again: change the bundle's spec.selector, or delete the
bundle, which ends all its bindings.

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
