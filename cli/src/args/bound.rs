//! Flags of the commands about bindings and bundles.

use bindery_api::{orphans::OrphanAction, v1alpha2::GroupResource};
use clap::{ArgAction, ValueEnum};
use clap_complete::Shell;

use super::resource;

/// Flags of `status`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  kubectl bind status
  kubectl bind status cowboys -o wide     # with every condition, also those that hold
  kubectl bind status -o json | jq '.items[].credential.expires'")]
pub(crate) struct StatusArgs {
    /// Name of one binding, or else of one bundle; by default all are shown.
    pub(crate) name: Option<String>,
}

/// Flags of `why`.
#[derive(clap::Args, Debug)]
#[command(
    override_usage = "kubectl bind why KIND/NAME [OPTIONS]\n       kubectl bind why KIND NAME [OPTIONS]",
    after_help = "\
Reads the object, its binding, the konnector's reports about it, and, if you may read the binding's Secret, the copy on
the provider. Nothing is written. If something cannot be read, the command says so, and what stays unknown.

For an object of a bound API it says where its copy is and what it waits for: the konnector, the provider, a
finalizer, or you. For a Secret, a ConfigMap or another claimed object it says which claim selects it, if one does, and
whether you still have to accept that claim.

Examples:
  kubectl bind why cowboy/billy-the-kid -n wild-west
  kubectl bind why sheriff wyatt-earp
  kubectl bind why cowboy/billy-the-kid -n wild-west --wait --timeout 30s
  kubectl bind why cowboys.wildwest.dev/billy-the-kid -n wild-west -o json | jq '.lines[].waitingFor'
  kubectl bind why secret/colt-45-permit -n wild-west"
)]
pub(crate) struct WhyArgs {
    /// KIND/NAME, or KIND and NAME. The kind may be written as for kubectl get.
    #[arg(required = true, num_args = 1..=2, value_name = "KIND/NAME")]
    pub(crate) object: Vec<String>,
    /// Namespace of the object; by default that of the kubeconfig's context.
    #[arg(short, long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// Look again until the object is in sync, for two minutes unless --timeout says otherwise.
    #[arg(long)]
    pub(crate) wait: bool,
}

/// Flags of `claims`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
A claim lets a provider get copies of some of your objects of a resource, and put objects of its own on this cluster.

The binding records what was accepted, and nothing else takes effect: a claim that is new or became wider since is
shown as not accepted, with what is new, until you accept or reject it.

  --reject   The binding rejects the claim; the konnector deletes its copies, and then loses its right on the resource.
             Your own objects stay. Objects that the provider put here are deleted.
  --accept   The konnector gets the right, and the binding records the claim as it is now.

To accept a claim, you need the rights on the resource yourself: only a user who holds a right can give it away.

Examples:
  kubectl bind claims cowboys
  kubectl bind claims cowboys --reject secrets
  kubectl bind claims cowboys --accept secrets --yes
  kubectl bind claims cowboys -o json | jq '.items[] | select(.state == \"InEffect\")'")]
pub(crate) struct ClaimsArgs {
    /// Name of the binding.
    pub(crate) binding: String,
    /// Accept the claim on this resource, such as secrets; may be repeated.
    #[arg(long, value_name = "RESOURCE[.GROUP]", value_parser = resource)]
    pub(crate) accept: Vec<GroupResource>,
    /// Reject the claim on this resource, such as secrets; may be repeated.
    #[arg(long, value_name = "RESOURCE[.GROUP]", value_parser = resource)]
    pub(crate) reject: Vec<GroupResource>,
    /// Accept without being asked, also a claim on every Secret.
    #[arg(short = 'y', long, visible_alias = "accept-claims")]
    pub(crate) yes: bool,
    /// Wait until the konnector has copied what is accepted and withdrawn what is rejected; only then its right is taken
    /// away. --wait=false does not wait, and leaves the right.
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) wait: bool,
}

/// Flags of `renew`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
The konnector renews its credentials by itself. Use this command if they have expired, because the konnector was off for
too long, or if the provider revoked them: it binds again as you, for the same contract, and puts the new kubeconfig
into the Secret of the binding. Objects stay as they are.

All bindings that use the Secret get the new credentials. Those of a bundle use the Secret of the bundle: renew either.

Examples:
  kubectl bind renew cowboys
  kubectl bind renew --bundle acme")]
pub(crate) struct RenewArgs {
    /// Name of the binding, or else of the bundle.
    pub(crate) name: String,
    /// The name is that of a bundle, also if a binding has it too.
    #[arg(long)]
    pub(crate) bundle: bool,
    /// Identity by which the provider knows this cluster; by default the UID of its namespace kube-system.
    #[arg(long, value_name = "ID")]
    pub(crate) cluster_identity: Option<String>,
    /// Wait until the konnector uses the new credentials; --wait=false does not wait.
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) wait: bool,
}

/// Flags of `unbind`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Deletes the objects of the bound API on this cluster, then the API itself, then the binding with its role and its Secret.
Nothing else on this cluster is deleted.

The provider keeps its copies and marks them as released, unless --delete-objects, your answer, or Delete in the binding's
`spec.deletionPolicy` says that they are deleted too. On a terminal you are asked if neither a flag nor the binding says it;
elsewhere they are kept. If you bind the API again, an object that has the name and the content of a released copy is linked
to it.

The binding of a bundle cannot be ended this way, because the bundle would bind again: change the bundle's
spec.selector, or delete the bundle, which ends all its bindings.

Examples:
  kubectl bind unbind cowboys
  kubectl bind unbind cowboys --wait=false
  kubectl bind unbind cowboys --delete-objects
  kubectl bind unbind cowboys --force     # if the provider does not exist any more")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct UnbindArgs {
    /// Name of the binding.
    pub(crate) binding: String,
    /// Wait until the binding is gone; --wait=false does not wait.
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) wait: bool,
    /// End the binding although its provider cannot be reached. Objects at the provider stay there.
    #[arg(long)]
    pub(crate) force: bool,
    /// Delete the provider's objects too.
    #[arg(long, conflicts_with_all = ["keep_objects", "force"])]
    pub(crate) delete_objects: bool,
    /// Leave the objects at the provider, also if the binding says Delete.
    #[arg(long)]
    pub(crate) keep_objects: bool,
    /// Do not ask: the provider's objects are kept, unless the binding says Delete.
    #[arg(short = 'y', long)]
    pub(crate) yes: bool,
    /// Succeed if the binding does not exist.
    #[arg(long)]
    pub(crate) ignore_not_found: bool,
}

/// Flags of `orphans`.
#[derive(clap::Args, Debug)]
#[command(
    group(clap::ArgGroup::new("action").args(["delete", "release", "relink"]).requires("binding")),
    after_help = "\
An orphan is a copy on the provider whose object is missing here although nobody was seen to delete it: this cluster lost
it, or was restored from a backup, or is not the one that it was. The konnector keeps such copies, and goes on with one when
its object is back. Check that this is the right cluster before you end them.

  --delete   The copies are deleted on the provider.
  --release  The copies stay on the provider, are marked as released, and are no longer those of this binding.
  --relink   Where a new object has the name of the missing one, the copy becomes that of the new object.

The konnector does it for exactly the orphans that this command has shown: if they are others by then, it does nothing and
says so in an event of the binding.

Examples:
  kubectl bind orphans
  kubectl bind orphans cowboys --delete
  kubectl bind orphans cowboys --relink --yes"
)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct OrphansArgs {
    /// Name of the binding; by default all bindings with orphans are shown.
    pub(crate) binding: Option<String>,
    /// Delete the copies on the provider.
    #[arg(long)]
    pub(crate) delete: bool,
    /// Leave the copies to the provider.
    #[arg(long)]
    pub(crate) release: bool,
    /// Link the copies to the new objects of the same names.
    #[arg(long)]
    pub(crate) relink: bool,
    /// Do it without being asked.
    #[arg(short = 'y', long)]
    pub(crate) yes: bool,
    /// Wait until the konnector has done it; --wait=false does not wait.
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) wait: bool,
}

impl OrphansArgs {
    /// What is to be done; `None` if orphans are only shown.
    pub(crate) fn action(&self) -> Option<OrphanAction> {
        match (self.delete, self.release, self.relink) {
            (true, _, _) => Some(OrphanAction::Delete),
            (_, true, _) => Some(OrphanAction::Release),
            (_, _, true) => Some(OrphanAction::Relink),
            _ => None,
        }
    }
}

/// Flags of `retained`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
A provider may offer that the copy of an object that you delete stays for some time, suspended. Until then you can restore the object with
`kubectl bind restore`, and its name cannot be used for a new one, unless you give the copy up with `kubectl bind discard`.

Of each binding the first 100 are listed, by resource, namespace and name. All can be restored.

Examples:
  kubectl bind retained
  kubectl bind retained cowboys -o json | jq '.items[].until'")]
pub(crate) struct RetainedArgs {
    /// Name of one binding; by default those of all bindings are listed.
    pub(crate) binding: Option<String>,
}

/// Flags of `restore`, and of `discard` beside its own.
#[derive(clap::Args, Debug)]
#[command(
    override_usage = "kubectl bind restore KIND/NAME [OPTIONS]\n       kubectl bind restore KIND NAME [OPTIONS]",
    after_help = "\
Examples:
  kubectl bind restore cowboy/billy-the-kid -n wild-west
  kubectl bind restore sheriff wyatt-earp --wait=false"
)]
pub(crate) struct EndRetentionArgs {
    /// KIND/NAME, or KIND and NAME, of the object that was deleted. The kind may be written as for kubectl get.
    #[arg(required = true, num_args = 1..=2, value_name = "KIND/NAME")]
    pub(crate) object: Vec<String>,
    /// Namespace of the object; by default that of the kubeconfig's context.
    #[arg(short, long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// Wait until it is done; --wait=false does not wait.
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) wait: bool,
}

/// Flags of `discard`.
#[derive(clap::Args, Debug)]
#[command(
    override_usage = "kubectl bind discard KIND/NAME [OPTIONS]\n       kubectl bind discard KIND NAME [OPTIONS]",
    after_help = "\
The copy is deleted on the provider at once, with what the provider's operator keeps for it. The object cannot be restored after that.

Examples:
  kubectl bind discard cowboy/billy-the-kid -n wild-west --yes"
)]
pub(crate) struct DiscardArgs {
    #[command(flatten)]
    pub(crate) of: EndRetentionArgs,
    /// Do it without being asked.
    #[arg(short = 'y', long)]
    pub(crate) yes: bool,
}

/// Flags of `accept`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
A contract has one holder: the konnector that may write its objects. A konnector that is not known as the holder writes nothing on
either cluster and waits: in a clone of this cluster, after a restore of this cluster or of the provider from a backup, or where a
second konnector was installed. Condition Held of the binding says what was seen.

With a binding, this command shows what would be written, asks, and lets the konnector of this cluster go on. Every other konnector
of the contract then stops. One answer is enough for all bindings of the contract.

Examples:
  kubectl bind accept
  kubectl bind accept cowboys
  kubectl bind accept cowboys --yes")]
pub(crate) struct AcceptArgs {
    /// Name of the binding; by default all bindings that wait are shown.
    pub(crate) binding: Option<String>,
    /// Do it without being asked.
    #[arg(short = 'y', long, requires = "binding")]
    pub(crate) yes: bool,
    /// Wait until the konnector goes on; --wait=false does not wait.
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) wait: bool,
}

/// Flags of `completion`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
For kubectl, it prints the program kubectl_complete-bind, which completes `kubectl bind` in every shell in which kubectl itself is
completed: put it on your PATH. It also completes the names of templates, collections, bindings, contracts, namespaces, servers and
contexts, as far as they are found within two seconds.

For a shell, it prints a script that completes commands and flags of `kubectl-bind`, with the dash.

Examples:
  kubectl bind completion kubectl > ~/.local/bin/kubectl_complete-bind && chmod +x ~/.local/bin/kubectl_complete-bind
  source <(kubectl-bind completion bash)
  kubectl-bind completion fish > ~/.config/fish/completions/kubectl-bind.fish")]
pub(crate) struct CompletionArgs {
    /// What reads the script.
    #[arg(value_name = "KUBECTL|SHELL")]
    pub(crate) reader: CompletionReader,
}

/// What reads a completion script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompletionReader {
    Kubectl,
    Bash,
    Elvish,
    Fish,
    #[value(name = "powershell")]
    PowerShell,
    Zsh,
}

impl CompletionReader {
    /// The shell; none for kubectl, which asks for each completion.
    pub(crate) fn shell(self) -> Option<Shell> {
        match self {
            Self::Kubectl => None,
            Self::Bash => Some(Shell::Bash),
            Self::Elvish => Some(Shell::Elvish),
            Self::Fish => Some(Shell::Fish),
            Self::PowerShell => Some(Shell::PowerShell),
            Self::Zsh => Some(Shell::Zsh),
        }
    }
}
