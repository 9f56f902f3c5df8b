//! The attacker and the gRPC server: every method, with the other tenant's names and with tokens of all kinds.

mod probes;
mod wire;

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use bindery_api::v1alpha2::{APIServiceExport, BindableResourcesRequest};
use bindery_e2e::{NAMESPACE, ServiceAccountClaims, process};
use bindery_proto::v1alpha2::ErrorReason;
use bytes::Bytes;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{Api, ResourceExt as _, api::ListParams};
use tonic::Code;

use self::{
    probes::{Expect, Probe},
    wire::{Outcome, Wire},
};
use crate::{
    offers::MASKS,
    tenant::request_name,
    world::{Scope, World, attack},
};

/// What needs no token.
const OPEN: &str = "/kubebind.v1alpha2.ProviderService/GetProvider";

/// What shows one's own exports.
const LIST: &str = "/kubebind.v1alpha2.ExportService/ListExports";

/// Words by which the other would be known, where the caller has not said them itself.
fn secrets(world: &World) -> Vec<String> {
    let zorro = &world.zorro;
    let names = zorro.offers.iter().map(|offer| request_name(zorro.name, *offer));
    let own = [
        "zorro-gang",
        "Casa zorro",
        "zorros-wardrobe",
        MASKS.name,
        MASKS.kind,
        "zorro hides",
    ];
    let others = [&zorro.identity, &zorro.contract, &zorro.space].map(Clone::clone);
    names.chain(own.map(ToOwned::to_owned)).chain(others).collect()
}

/// Whether a call came to what it must, and told nothing.
fn check(world: &World, probe: &Probe, expect: Expect, outcome: &Outcome) -> Result<()> {
    match expect {
        Expect::Refused(reason) => ensure!(
            (outcome.code, outcome.reason) == (reason.code(), Some(reason)),
            "should be {}: {outcome:?}",
            reason.reason_str()
        ),
        Expect::Hidden => ensure!(outcome.code == Code::Ok, "should succeed: {outcome:?}"),
        Expect::Silent => {}
    }
    let said = String::from_utf8_lossy(&probe.body);
    for secret in secrets(world) {
        // The name of a contract is made from the identity, so that who knows the one knows the other.
        let known = said.contains(&secret) || (secret == world.zorro.contract && said.contains(&world.zorro.identity));
        ensure!(
            known || !outcome.told.contains(&secret),
            "tells {secret:?}: {outcome:?}"
        );
    }
    Ok(())
}

async fn with_own_tokens(world: &World) -> Result<()> {
    let probes = probes::all(world).await?;
    let wire = Wire::connect(&world.provider).await?;
    let before = state(world).await?;
    for probe in &probes {
        let (principal, contract) = (&world.joe.principal_token, &world.joe.backend_token);
        for (who, token, expect) in [
            ("principal", principal, probe.principal),
            ("kubeconfig", contract, probe.contract),
        ] {
            let outcome = wire.call(probe.path, &probe.body, Some(token)).await?;
            check(world, probe, expect, &outcome).with_context(|| format!("{who}: {} {:?}", probe.path, probe.body))?;
        }
    }
    // These are the words by which the other would be known.
    let own = wire
        .call(LIST, &Bytes::new(), Some(&world.zorro.principal_token))
        .await?;
    ensure!(
        secrets(world)
            .iter()
            .filter(|secret| own.told.contains(*secret))
            .count()
            > 3,
        "{own:?}"
    );
    ensure!(state(world).await? == before, "something of the other's has changed");
    Ok(())
}

/// Requests and exports of all, by UID.
async fn state(world: &World) -> Result<BTreeSet<String>> {
    let client = world.provider.plane.client();
    let requests: Api<BindableResourcesRequest> = Api::namespaced(client.clone(), NAMESPACE);
    let exports: Api<APIServiceExport> = Api::namespaced(client, &world.zorro.contract);
    let requests = requests.list(&ListParams::default()).await?.into_iter();
    let requests: Vec<_> = requests.filter_map(|request| request.uid()).collect();
    let exports = exports.list(&ListParams::default()).await?.into_iter();
    let state: BTreeSet<_> = exports.filter_map(|export| export.uid()).chain(requests).collect();
    ensure!(!state.is_empty());
    Ok(state)
}

#[test]
fn every_method_is_refused_with_the_names_of_another() -> Result<()> {
    attack(Scope::Namespaced, with_own_tokens)
}

#[test]
fn every_method_is_refused_without_a_token_for_it() -> Result<()> {
    attack(Scope::Namespaced, async |world| {
        let plane = &world.provider.plane;
        let elsewhere = plane
            .token_for("joe-gang", "binder", &["https://elsewhere.example.com"], 3600)
            .await?;
        let no_audience = plane.token_for("joe-gang", "binder", &[], 3600).await?;
        let expired = [
            expired(world, "joe-gang", "binder").await?,
            expired(world, &world.joe.contract, "kube-binder").await?,
        ];
        let wire = Wire::connect(&world.provider).await?;
        let (audience, ended) = (ErrorReason::TokenAudienceWrong, ErrorReason::TokenExpired);
        let tokens = [
            (None, ErrorReason::TokenMissing),
            (Some(elsewhere.as_str()), audience),
            (Some(&no_audience), audience),
            (Some(&world.joe.api_token), audience),
            (Some(&world.zorro.api_token), audience),
            (Some(&expired[0]), ended),
            (Some(&expired[1]), ended),
        ];
        for probe in probes::all(world).await?.iter().filter(|probe| probe.path != OPEN) {
            for (token, reason) in tokens {
                let outcome = wire.call(probe.path, &probe.body, token).await?;
                check(world, probe, Expect::Refused(reason), &outcome).with_context(|| probe.path)?;
            }
        }
        Ok(())
    })
}

/// A token of a ServiceAccount for the server that the cluster itself signed, and that has ended.
async fn expired(world: &World, namespace: &str, name: &str) -> Result<String> {
    let plane = &world.provider.plane;
    let account = Api::<ServiceAccount>::namespaced(plane.client(), namespace)
        .get(name)
        .await?;
    let uid = account.uid().context("no UID")?;
    let claims = ServiceAccountClaims::new(namespace, name, &uid, Duration::ZERO);
    let mut claims = claims.audiences(&[&world.provider.address()]).without_leeway();
    claims.issued_at -= Duration::from_mins(10);
    claims.expires_at -= Duration::from_mins(1);
    plane.sign_service_account_token(&claims)
}

#[test]
fn no_method_is_left_out() -> Result<()> {
    attack(Scope::Namespaced, async |world| {
        let probed: BTreeSet<_> = probes::all(world).await?.iter().map(|probe| probe.path).collect();
        let left: Vec<_> = bindery_proto::idempotency::method_paths()
            .filter(|path| !probed.contains(path))
            .collect();
        ensure!(left.is_empty(), "not attacked: {left:?}");
        // What the server says it serves is that, and what tells no one anything.
        let mut command = std::process::Command::new(world.provider.plane.grpcurl_path());
        command.arg("-cacert").arg(world.provider.ca_path());
        command.args([world.provider.address().trim_start_matches("https://"), "list"]);
        let services = process::stdout(&process::run(command, Duration::from_mins(2)).await?)?;
        for service in services.lines().filter(|service| !service.starts_with("grpc.")) {
            if !probed.iter().any(|path| path.starts_with(&format!("/{service}/"))) {
                bail!("not attacked: {service}");
            }
        }
        let others: BTreeSet<_> = services
            .lines()
            .filter(|service| service.starts_with("grpc."))
            .collect();
        let open = [
            "grpc.health.v1.Health",
            "grpc.reflection.v1.ServerReflection",
            "grpc.reflection.v1alpha.ServerReflection",
        ];
        ensure!(others.is_subset(&open.into()), "services: {others:?}");
        Ok(())
    })
}
