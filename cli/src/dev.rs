//! What `dev up` installs on two clusters, and what of it `dev down` removes. Nothing here reads or writes.

pub(crate) mod addresses;
pub(crate) mod guard;
pub(crate) mod images;
pub(crate) mod manifests;

/// Label of all objects that `dev up` makes.
pub(crate) const LABEL: &str = "kube-bind.io/dev-up";
/// Value of [`LABEL`].
pub(crate) const LABELLED: &str = "true";
/// Name of the API that the example offers, and of its template, request, export and binding.
pub(crate) const EXAMPLE: &str = "cowboys";
/// Name for people of the consumer in requests that `dev up` makes, and so in the contracts that begin with one.
pub(crate) const PRETTY_NAME: &str = "kubectl bind dev";
/// Name of the Secret with the response to the request to bind the example.
pub(crate) const RESPONSE: &str = "cowboys-binding-response";
/// Name of the set of the server's manifests.
pub(crate) const PROVIDER_SET: &str = "bindery-dev-provider";
/// Name of the set of the konnector's manifests.
pub(crate) const CONSUMER_SET: &str = "bindery-dev-consumer";
/// Name of the definition of the API that the example offers.
pub(crate) const EXAMPLE_DEFINITION: &str = "cowboys.wildwest.dev";
/// Namespace and name of the consumer's object.
pub(crate) const EXAMPLE_OBJECT: (&str, &str) = ("wild-west", "billy-the-kid");
