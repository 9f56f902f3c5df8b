//! Why it is not known at which URLs the konnector reaches a provider.

/// An address that is not found, or is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AddressProblem {
    /// The flag holds no URL that a konnector can use.
    #[error("{flag} {given:?}: {why}; write a URL such as https://172.18.0.3:30443")]
    Invalid {
        flag: &'static str,
        given: String,
        why: String,
    },
    /// No node of the provider has an address.
    #[error(
        "no node of the provider has an address, so it is not known how the konnector reaches the server; lead a URL to Service \
         kube-bind/bindery-server, and give it with --external-address URL"
    )]
    NoNode,
    /// Nothing tells how consumers reach the Kubernetes API.
    #[error(
        "the context {context} reaches the provider's Kubernetes API at {url}, which only this machine can, and Endpoints \
         default/kubernetes has no address; give the one that pods of the consumer reach with --kubernetes-address URL"
    )]
    NoKubernetes { context: String, url: String },
}
