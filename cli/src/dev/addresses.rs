//! At which URLs the konnector reaches the provider: the server, and the Kubernetes API.

use std::net::IpAddr;

use bindery_sdk::Address;
use http::Uri;
use k8s_openapi::api::{core::v1::Node, discovery::v1::EndpointSlice};
use kube::ResourceExt as _;

use crate::errors::address::AddressProblem;

/// The port of a node that leads to the server, where no flag says another.
const NODE_PORT: u16 = 30443;
/// The ports that a Service may open on nodes, unless the API server is told otherwise.
const NODE_PORTS: std::ops::RangeInclusive<u16> = 30000..=32767;

/// How the konnector reaches the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerAddress {
    pub(crate) url: String,
    /// The port that the Service opens on nodes; none if something of the user's leads to the Service.
    pub(crate) node_port: Option<u16>,
}

/// Chooses how the konnector reaches the server: by the URL that is known from the flag or from what is installed, or else by a
/// node.
pub(crate) fn server(known: Option<&str>, nodes: &[Node]) -> Result<ServerAddress, AddressProblem> {
    let Some(text) = known else {
        let mut addresses: Vec<_> = nodes.iter().filter_map(node_address).collect();
        addresses.sort();
        let (_, address) = addresses.into_iter().next().ok_or(AddressProblem::NoNode)?;
        return Ok(ServerAddress {
            url: url(address, NODE_PORT),
            node_port: Some(NODE_PORT),
        });
    };
    let url = valid("--external-address", text)?;
    let port = text.parse::<Uri>().ok().and_then(|uri| uri.port_u16());
    Ok(ServerAddress {
        url,
        node_port: port.filter(|port| NODE_PORTS.contains(port)),
    })
}

/// Chooses how consumers reach the Kubernetes API: by the URL that is known from the flag or from what is installed, or else as this
/// machine does, or else as the API server publishes it in the cluster.
pub(crate) fn kubernetes(
    known: Option<&str>,
    (context, own): (&str, &Uri),
    published: Option<&EndpointSlice>,
) -> Result<String, AddressProblem> {
    if let Some(text) = known {
        return valid("--kubernetes-address", text);
    }
    let own_url = own.to_string().trim_end_matches('/').to_owned();
    if own.host().is_some_and(|host| !is_of_this_machine(host)) {
        return Ok(own_url);
    }
    let published = published.and_then(endpoint);
    published.ok_or_else(|| AddressProblem::NoKubernetes {
        context: context.to_owned(),
        url: own_url,
    })
}

fn valid(flag: &'static str, text: &str) -> Result<String, AddressProblem> {
    let invalid = |why: String| AddressProblem::Invalid {
        flag,
        given: text.to_owned(),
        why,
    };
    let address: Address = text
        .parse()
        .map_err(|error: bindery_sdk::AddressError| invalid(error.to_string()))?;
    if !text.starts_with("https://") {
        return Err(invalid("it is not https".to_owned()));
    }
    Ok(address.to_string())
}

/// Name and internal address of a node.
fn node_address(node: &Node) -> Option<(String, IpAddr)> {
    let addresses = node.status.as_ref()?.addresses.as_ref()?;
    let internal = addresses.iter().find(|address| address.type_ == "InternalIP")?;
    Some((node.name_any(), internal.address.parse().ok()?))
}

/// The URL of the first address and port of a slice.
fn endpoint(slice: &EndpointSlice) -> Option<String> {
    let address = slice.endpoints.iter().find_map(|endpoint| endpoint.addresses.first())?;
    let port = slice.ports.iter().flatten().find_map(|port| port.port)?;
    Some(url(address.parse().ok()?, u16::try_from(port).ok()?))
}

fn url(address: IpAddr, port: u16) -> String {
    format!("https://{}", std::net::SocketAddr::new(address, port))
}

/// Whether a host is this machine, as seen from itself.
fn is_of_this_machine(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    let is_local = |address: IpAddr| address.is_loopback() || address.is_unspecified();
    address == "localhost" || address.parse().is_ok_and(is_local)
}

#[cfg(test)]
#[path = "addresses/tests.rs"]
mod tests;
