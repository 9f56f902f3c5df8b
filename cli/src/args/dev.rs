//! Flags of `dev`.

use clap::Subcommand;

/// Flags of `dev`.
#[derive(clap::Args, Debug)]
pub(crate) struct DevArgs {
    #[command(subcommand)]
    pub(crate) command: DevCommand,
}

/// The commands of `dev`.
#[derive(Subcommand, Debug)]
pub(crate) enum DevCommand {
    /// Install server, konnector and an example on two clusters, bind the example, and wait until an object is in sync.
    Up(Box<DevUpArgs>),
    /// Remove all that `dev up` made, from both clusters.
    Down(DevDownArgs),
}

/// The two clusters.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct DevClusters {
    /// Context of the provider's cluster, which gets the server and offers the example.
    #[arg(long, value_name = "CONTEXT")]
    pub(crate) provider: String,
    /// Context of the consumer's cluster, which gets the konnector and binds the example.
    #[arg(long, value_name = "CONTEXT")]
    pub(crate) consumer: String,
}

/// Flags of `dev up`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
For two clusters to try things on, such as two of kind, k3d or minikube, of which you are an admin. Both contexts are in one
kubeconfig. The command installs

  on the provider  the server, in namespace kube-bind, with certificates that it makes itself; the API cowboys.wildwest.dev with
                   its template; a request to bind it for the consumer
  on the consumer  the konnector, in namespace kube-bind; the binding cowboys; Cowboy billy-the-kid in namespace wild-west

and all CustomResourceDefinitions that these need. It changes nothing that it did not make: where something is in the way, it names
it and stops. A second run changes nothing, and one that was interrupted goes on. What no flag says stays as it is installed.

Addresses, as pods of the consumer reach them:

  --external-address    the server. By default a node of the provider and port 30443 of it, which a Service of type NodePort opens.
                        An address with a port from 30000 to 32767 makes the Service a NodePort of that port. Any other needs
                        something of yours in front of Service kube-bind/bindery-server.
  --kubernetes-address  the provider's Kubernetes API. By default that of the context, unless it is one of this machine alone, as
                        kind and k3d write it; then the address that the provider's API server publishes.

Nodes of kind clusters reach one another. For k3d create both clusters with the same --network, for minikube with the same
--network and driver.

Images are found where the nodes find them; a name without a registry must be loaded first, such as with `kind load docker-image`.

Examples:
  kubectl bind dev up --provider kind-provider --consumer kind-consumer
  kubectl bind dev up --provider p --consumer c --image-registry registry.example.com/bindery --image-version 0.1.0
  kubectl bind dev up --provider p --consumer c --external-address https://172.18.0.3:30443
  kubectl bind dev down --provider p --consumer c")]
pub(crate) struct DevUpArgs {
    #[command(flatten)]
    pub(crate) clusters: DevClusters,
    /// URL at which the konnector reaches the server; by default found as below.
    #[arg(long, value_name = "URL")]
    pub(crate) external_address: Option<String>,
    /// URL at which the konnector reaches the provider's Kubernetes API; by default found as below.
    #[arg(long, value_name = "URL")]
    pub(crate) kubernetes_address: Option<String>,
    /// Image of the server.
    #[arg(long, value_name = "IMAGE")]
    pub(crate) server_image: Option<String>,
    /// Image of the konnector.
    #[arg(long, value_name = "IMAGE")]
    pub(crate) konnector_image: Option<String>,
    /// Registry, or folder of one, that holds the images bindery-server and bindery-konnector.
    #[arg(long, value_name = "REGISTRY")]
    pub(crate) image_registry: Option<String>,
    /// Tag of both images; by default the version of this command.
    #[arg(long, value_name = "TAG")]
    pub(crate) image_version: Option<String>,
}

/// Flags of `dev down`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Unbinds the example, which deletes all cowboys of both clusters, and removes what `dev up` made, known by the label
kube-bind.io/dev-up. Nothing of it is left.

  contracts    Those of other consumers keep everything in place, until you end them; --all-contracts ends those that `dev up` made,
               such as for a cluster that is gone. A provider without the server of `dev up` keeps all contracts.
  namespaces   While namespace wild-west has objects of others, nothing is removed: the command names them. Namespace kube-bind goes
               with all that is in it.
  bindings     While there is an APIServiceBinding or APIServiceBindingBundle that `dev up` did not make, on this consumer or of another
               one, nothing is removed: the command names it.
  definitions  CustomResourceDefinitions that were there before `dev up` stay, and those of which there are other objects, or that
               cannot be listed.

Examples:
  kubectl bind dev down --provider kind-provider --consumer kind-consumer
  kubectl bind dev down --provider kind-provider --consumer kind-consumer --all-contracts")]
pub(crate) struct DevDownArgs {
    #[command(flatten)]
    pub(crate) clusters: DevClusters,
    /// End the contracts of other consumers too that `dev up` made, with all their data.
    #[arg(long)]
    pub(crate) all_contracts: bool,
}
