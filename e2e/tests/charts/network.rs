//! Whether the NetworkPolicies let through the connections that the programs make, and no others. Nothing enforces
//! NetworkPolicies on the test clusters.

use std::{collections::BTreeSet, net::SocketAddr};

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::charts::{Helm, KONNECTOR, Release, SERVER};
use serde_json::Value;

use crate::rendered::only;

#[derive(Clone, Copy, Debug)]
enum Direction {
    Ingress,
    Egress,
}

/// A connection of a pod, to or from an address outside of all pods that a policy selects by label.
#[derive(Clone, Copy, Debug)]
struct Connection {
    direction: Direction,
    port: u16,
    protocol: &'static str,
    /// The address of the other end.
    peer: &'static str,
}

const fn to(port: u16, peer: &'static str) -> Connection {
    Connection {
        direction: Direction::Egress,
        port,
        protocol: "TCP",
        peer,
    }
}

const fn from(port: u16) -> Connection {
    Connection {
        direction: Direction::Ingress,
        port,
        protocol: "TCP",
        peer: "10.1.0.7",
    }
}

/// A release with a NetworkPolicy and the Deployment whose pods it selects.
struct Policy {
    spec: Value,
    container: Value,
}

impl Policy {
    fn render(helm: &Helm, release: Release<'_>, set: &str) -> Result<Self> {
        let enabled = format!("networkPolicy.enabled=true,{set}");
        let objects = helm.objects(release, &["--set", enabled.trim_end_matches(',')])?;
        let spec = only(&objects, "NetworkPolicy")?["spec"].clone();
        let template = &only(&objects, "Deployment")?["spec"]["template"];
        ensure!(
            spec["podSelector"]["matchLabels"] == template["metadata"]["labels"],
            "the policy selects other pods: {spec}"
        );
        ensure!(
            spec["policyTypes"] == serde_json::json!(["Ingress", "Egress"]),
            "{spec}"
        );
        Ok(Self {
            container: template["spec"]["containers"][0].clone(),
            spec,
        })
    }

    /// Whether a rule lets the connection through, as Kubernetes documents NetworkPolicies.
    fn allows(&self, connection: Connection) -> Result<bool> {
        let (rules, peers) = match connection.direction {
            Direction::Ingress => (&self.spec["ingress"], "from"),
            Direction::Egress => (&self.spec["egress"], "to"),
        };
        for rule in rules.as_array().context("no rules")? {
            let ports = rule["ports"].as_array();
            let port = ports.is_none_or(|ports| ports.iter().any(|port| self.is_port(port, connection)));
            let peers = rule[peers].as_array();
            let peer = match peers {
                None => true,
                Some(peers) => peers.iter().try_fold(false, |found, peer| {
                    Ok::<_, anyhow::Error>(found || is_peer(peer, connection.peer)?)
                })?,
            };
            if port && peer {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn is_port(&self, port: &Value, connection: Connection) -> bool {
        let named = |name: &str| {
            let mut ports = self.container["ports"].as_array().into_iter().flatten();
            ports.find(|port| port["name"] == name)?["containerPort"].as_u64()
        };
        let number = port["port"].as_u64().or_else(|| named(port["port"].as_str()?));
        number == Some(connection.port.into()) && port["protocol"].as_str().unwrap_or("TCP") == connection.protocol
    }
}

/// Whether an address is in the block of a peer. Pods are selected by label elsewhere.
fn is_peer(peer: &Value, address: &str) -> Result<bool> {
    let Some(block) = peer["ipBlock"]["cidr"].as_str() else {
        return Ok(false);
    };
    let (network, length) = block.split_once('/').context("a block has a length")?;
    let [network, address]: [u32; 2] = [
        network.parse::<std::net::Ipv4Addr>()?.into(),
        address.parse::<std::net::Ipv4Addr>()?.into(),
    ];
    let mask = u32::MAX.checked_shl(32 - length.parse::<u32>()?).unwrap_or(0);
    Ok(network & mask == address & mask)
}

/// Holds the NetworkPolicy of a release to the connections that its Pods made. They went to these addresses of loopback, each at
/// least once, and the policy lets them through if its values name the ports.
pub(crate) fn lets_through(release: Release<'_>, made: &BTreeSet<SocketAddr>, expected: &[SocketAddr]) -> Result<()> {
    let expected: BTreeSet<_> = expected.iter().copied().collect();
    ensure!(
        *made == expected,
        "{} connected to {made:?}, not {expected:?}",
        release.name
    );
    let helm = Helm::locate()?;
    let policy = |ports: &BTreeSet<u16>| {
        let ports: Vec<_> = ports.iter().map(u16::to_string).collect();
        Policy::render(
            &helm,
            release,
            &format!("networkPolicy.egressPorts={{{}}}", ports.join(",")),
        )
    };
    let ports: BTreeSet<_> = made.iter().map(SocketAddr::port).collect();
    for port in &ports {
        let one = [to(*port, "127.0.0.1")];
        check(&policy(&ports)?, &one, true)?;
        let others: BTreeSet<_> = ports.iter().copied().filter(|other| other != port).chain([1]).collect();
        check(&policy(&others)?, &one, false)?;
    }
    Ok(())
}

#[track_caller]
fn check(policy: &Policy, connections: &[Connection], expect: bool) -> Result<()> {
    for connection in connections {
        ensure!(policy.allows(*connection)? == expect, "{connection:?}: {}", policy.spec);
    }
    Ok(())
}

const API_SERVER: &str = "10.0.0.1";
const PROVIDER: &str = "203.0.113.9";
const NAMES: [Connection; 2] = [
    Connection {
        protocol: "UDP",
        ..to(53, "10.0.0.10")
    },
    to(53, "10.0.0.10"),
];

#[test]
fn the_konnector_calls_both_clusters_and_is_called_for_metrics_alone() -> Result<()> {
    let helm = Helm::locate()?;
    let policy = Policy::render(&helm, KONNECTOR, "")?;
    let own = [to(443, API_SERVER), to(6443, API_SERVER)];
    let theirs = [to(6443, PROVIDER), to(443, PROVIDER), to(8443, PROVIDER)];
    check(&policy, &[&own[..], &theirs, &NAMES, &[from(8090)]].concat(), true)?;
    check(
        &policy,
        &[
            from(8443),
            from(443),
            to(25, PROVIDER),
            to(8090, PROVIDER),
            to(80, PROVIDER),
        ],
        false,
    )?;
    let limits =
        "networkPolicy.egressTo[0].ipBlock.cidr=10.0.0.0/8,networkPolicy.metricsFrom[0].ipBlock.cidr=10.2.0.0/16";
    let limited = Policy::render(&helm, KONNECTOR, limits)?;
    check(&limited, &[&own[..], &NAMES].concat(), true)?;
    check(&limited, &[&theirs[..], &[from(8090)]].concat(), false)
}

#[test]
fn the_server_is_called_and_calls_its_own_api_server_alone() -> Result<()> {
    let helm = Helm::locate()?;
    let policy = Policy::render(&helm, SERVER, "")?;
    let own = [to(443, API_SERVER), to(6443, API_SERVER)];
    check(&policy, &[&own[..], &NAMES, &[from(8443), from(8081)]].concat(), true)?;
    check(
        &policy,
        &[from(443), from(8090), to(8443, PROVIDER), to(80, PROVIDER)],
        false,
    )?;
    let limits = "networkPolicy.grpcFrom[0].ipBlock.cidr=198.51.100.0/24,networkPolicy.egressPorts={6443}";
    let limited = Policy::render(&helm, SERVER, limits)?;
    check(&limited, &[from(8081), to(6443, API_SERVER)], true)?;
    check(&limited, &[from(8443), to(443, API_SERVER)], false)
}

#[test]
fn the_server_calls_issuers_where_there_are_any() -> Result<()> {
    let helm = Helm::locate()?;
    let own = "networkPolicy.egressTo[0].ipBlock.cidr=10.0.0.0/8,networkPolicy.issuerPorts={443,8443},";
    let without = Policy::render(&helm, SERVER, own)?;
    check(&without, &[to(443, PROVIDER), to(8443, PROVIDER)], false)?;
    let issuer = "authentication.oidc.issuerUrl=https://a.example,authentication.oidc.clientId=bindery";
    let with = Policy::render(&helm, SERVER, &format!("{own}{issuer}"))?;
    check(
        &with,
        &[to(443, PROVIDER), to(8443, PROVIDER), to(6443, API_SERVER)],
        true,
    )?;
    check(&with, &[to(6443, PROVIDER), to(80, PROVIDER)], false)?;
    let limit = "networkPolicy.issuersTo[0].ipBlock.cidr=198.51.100.0/24";
    let limited = Policy::render(&helm, SERVER, &format!("{own}{issuer},{limit}"))?;
    check(&limited, &[to(443, "198.51.100.7"), to(443, API_SERVER)], true)?;
    check(&limited, &[to(443, PROVIDER)], false)
}
