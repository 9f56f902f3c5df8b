//! What the values change in what is rendered.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::charts::{Helm, KONNECTOR, Release, SERVER};
use serde_json::{Value, json};

use crate::rendered::only;

/// A release with a name and a namespace of the user's choice.
const OTHER_SERVER: Release<'static> = Release {
    name: "prod",
    namespace: "bind",
    ..SERVER
};
const OTHER_KONNECTOR: Release<'static> = Release {
    name: "prod",
    namespace: "bind",
    ..KONNECTOR
};

fn args(objects: &[Value]) -> Result<Vec<String>> {
    let args = &only(objects, "Deployment")?["spec"]["template"]["spec"]["containers"][0]["args"];
    Ok(serde_json::from_value(args.clone())?)
}

/// The flags that values add to those of the default values.
fn added(helm: &Helm, release: Release<'_>, set: &str) -> Result<Vec<String>> {
    let default: BTreeSet<_> = args(&helm.objects(release, &[])?)?.into_iter().collect();
    let mut with = args(&helm.objects(release, &["--set", set])?)?;
    with.retain(|flag| !default.contains(flag));
    Ok(with)
}

#[test]
fn each_value_of_the_konnector_is_its_flag() -> Result<()> {
    let helm = Helm::locate()?;
    for (set, expect) in [
        ("replicas=3", &[][..]),
        ("pollingInterval=1m30s", &["--provider-polling-interval=1m30s"]),
        ("heartbeatInterval=1m", &["--heartbeat-interval=1m"]),
        (
            "providerMaxObjects=1000000,providerMaxBytes=1Gi",
            &["--provider-max-objects=1000000", "--provider-max-bytes=1Gi"],
        ),
        ("adoption=opt-in", &["--adoption=opt-in"]),
        ("onlyOwnBindings=true", &["--only-own-bindings"]),
        ("installCrds=false", &["--install-crds=false"]),
        (
            "log.filter=debug,log.format=json",
            &["--log=debug", "--log-format=json"],
        ),
        ("extraArgs={--lease-duration=30}", &["--lease-duration=30"]),
    ] {
        let added = added(&helm, KONNECTOR, set)?;
        ensure!(added == expect, "{set}: {added:?}");
    }
    let flags = args(&helm.objects(OTHER_KONNECTOR, &[])?)?;
    ensure!(
        flags.contains(&"--bundles-role=prod.bind.bundles".to_owned()),
        "{flags:?}"
    );
    Ok(())
}

#[test]
fn each_value_of_the_server_is_its_flag() -> Result<()> {
    let helm = Helm::locate()?;
    let secret = "tls.mode=secret,tls.secretName=grpc";
    let files = [
        "--tls-cert-file=/etc/bindery/tls/tls.crt",
        "--tls-key-file=/etc/bindery/tls/tls.key",
    ];
    for (set, expect) in [
        (
            "grpc.address=https://a.example",
            &["--external-grpc-address=https://a.example"][..],
        ),
        (
            "grpc.formerAddresses={https://b.example}",
            &["--former-grpc-address=https://b.example"],
        ),
        (
            "grpc.address=https://a.example/bindery",
            &["--external-grpc-address=https://a.example/bindery"],
        ),
        (
            "grpc.corsAllowedOrigins={https://c.example,http://localhost:3000}",
            &[
                "--cors-allowed-origins=https://c.example",
                "--cors-allowed-origins=http://localhost:3000",
            ],
        ),
        (
            "grpc.maxConnections=100,grpc.maxConnectionsPerPeer=10",
            &["--max-connections=100", "--max-connections-per-peer=10"],
        ),
        ("grpc.handshakeTimeout=5s", &["--handshake-timeout=5s"]),
        ("grpc.firstRequestTimeout=5s", &["--first-request-timeout=5s"]),
        ("grpc.connectionIdleTimeout=10m", &["--connection-idle-timeout=10m"]),
        ("grpc.maxConnectionAge=2h", &["--max-connection-age=2h"]),
        (
            "authentication.config.kind=AuthenticationConfiguration",
            &["--authentication-config=/etc/bindery/authentication/config.yaml"],
        ),
        (
            "authentication.oidc.issuerUrl=https://a.example,authentication.oidc.clientId=bindery",
            &["--oidc-issuer-url=https://a.example", "--oidc-client-id=bindery"],
        ),
        (
            "authentication.loginScopes={openid,groups}",
            &["--login-scopes=openid,groups"],
        ),
        (
            "kubernetes.address=https://k.example:6443",
            &["--external-address=https://k.example:6443"],
        ),
        ("kubernetes.serverName=k", &["--external-server-name=k"]),
        (secret, &files),
        (
            "tls.clientCaSecretName=ca",
            &["--client-ca-file=/etc/bindery/client-ca/ca.crt"],
        ),
        ("prettyName=Wild West", &["--pretty-name=Wild West"]),
        ("isolation=namespaced", &["--isolation=namespaced"]),
        ("consumerScope=cluster", &["--consumer-scope=cluster"]),
        ("claimableResources={a.b.c,d.e}", &["--claimable-resources=a.b.c,d.e"]),
        ("valuableResources={a.b.c,d.e}", &["--valuable-resources=a.b.c,d.e"]),
        (
            "dangerousClusterWideSecretClaims=true",
            &["--dangerous-cluster-wide-secret-claims"],
        ),
        (
            "maxNamespacesPerContract=1000000",
            &["--max-namespaces-per-contract=1000000"],
        ),
        ("withdrawWithoutPolicy=true", &["--withdraw-without-policy"]),
        ("namespacePrefix=bind-", &["--namespace-prefix=bind-"]),
        (
            "tokenLifetime=30m,renewalLifetime=48h",
            &["--token-lifetime=30m", "--renewal-lifetime=48h"],
        ),
        ("renewalMaxAge=2160h", &["--renewal-max-age=2160h"]),
        ("installCrds=false", &["--install-crds=false"]),
        ("grpcReflection=false", &["--grpc-reflection=false"]),
    ] {
        let added = added(&helm, SERVER, set)?;
        ensure!(added == expect, "{set}: {added:?}");
    }
    let default = args(&helm.objects(SERVER, &[])?)?;
    let own = "--external-grpc-address=https://bindery-server.kube-bind.svc:443";
    ensure!(
        default.contains(&own.to_owned()) && !default.iter().any(|flag| flag.contains("tls")),
        "{default:?}"
    );
    Ok(())
}

/// Each field of the one issuer is the flag of the same name, and its files are keys of the ConfigMap.
#[test]
fn issuers_are_flags_and_files() -> Result<()> {
    let helm = Helm::locate()?;
    let ca = "authentication.oidc.ca=-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let set = "authentication.oidc.issuerUrl=https://a.example,authentication.oidc.clientId=bindery,\
               authentication.oidc.usernameClaim=email,authentication.oidc.usernamePrefix=-,\
               authentication.oidc.groupsClaim=groups,authentication.oidc.groupsPrefix=oidc:,\
               authentication.issuerKeys[0].issuer=https://b.example";
    let keys = r#"authentication.issuerKeys[0].jwks={"keys":[]}"#;
    let objects = helm.objects(SERVER, &["--set", set, "--set-string", ca, "--set-literal", keys])?;
    let flags = args(&objects)?;
    for flag in [
        "--oidc-username-claim=email",
        "--oidc-username-prefix=-",
        "--oidc-groups-claim=groups",
        "--oidc-groups-prefix=oidc:",
        "--oidc-ca-file=/etc/bindery/authentication/ca.crt",
    ] {
        ensure!(
            flags.iter().any(|found| found == flag),
            "{flag} is missing in {flags:?}"
        );
    }
    let data = &only(&objects, "ConfigMap")?["data"];
    let prefix = "--issuer-keys=https://b.example=/etc/bindery/authentication/";
    let file = flags
        .iter()
        .find_map(|flag| flag.strip_prefix(prefix))
        .context("no keys")?;
    ensure!(data[file] == r#"{"keys":[]}"#, "{data}");
    ensure!(
        data["ca.crt"].as_str().is_some_and(|pem| pem.contains("AAAA")),
        "{data}"
    );
    let pod = &only(&objects, "Deployment")?["spec"]["template"]["spec"];
    let mount = &pod["containers"][0]["volumeMounts"][0];
    ensure!(
        mount["mountPath"] == "/etc/bindery/authentication" && mount["subPath"].is_null(),
        "{mount}"
    );
    Ok(())
}

/// What a pod mounts is where the flags say.
#[test]
fn files_are_mounted_where_the_flags_say() -> Result<()> {
    let helm = Helm::locate()?;
    let ca = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let ca = format!("kubernetes.ca={ca}");
    let set = "tls.mode=certManager,tls.certManager.issuer.name=own,tls.privateCa=true,tls.clientCaSecretName=clients,\
               grpc.address=https://bind.example.com:8443";
    let objects = helm.objects(SERVER, &["--set", set, "--set-string", &ca])?;
    let pod = &only(&objects, "Deployment")?["spec"]["template"]["spec"];
    let mounts = pod["containers"][0]["volumeMounts"].as_array().context("no mounts")?;
    let flags = args(&objects)?;
    let flags: Vec<_> = flags.iter().filter(|flag| flag.contains("=/")).collect();
    ensure!(flags.len() == 5, "{flags:?}");
    for flag in flags {
        let (_, path) = flag.split_once('=').context("a flag with a value")?;
        let mount = mounts
            .iter()
            .find(|mount| path.starts_with(mount["mountPath"].as_str().unwrap_or("-")));
        let name = &mount.with_context(|| format!("{path} is not mounted"))?["name"];
        let mut volumes = pod["volumes"].as_array().into_iter().flatten();
        ensure!(volumes.any(|volume| volume["name"] == *name), "{name} is no volume");
    }
    let certificate = &only(&objects, "Certificate")?["spec"];
    ensure!(certificate["secretName"] == "bindery-server-grpc", "{certificate}");
    ensure!(
        certificate["dnsNames"] == json!(["bind.example.com", "bindery-server.kube-bind.svc"]),
        "{certificate}"
    );
    ensure!(
        pod["volumes"][0]["secret"]["secretName"] == "bindery-server-grpc",
        "{pod}"
    );
    let map = &only(&objects, "ConfigMap")?["data"]["ca.crt"];
    ensure!(
        map.as_str()
            .is_some_and(|text| text.ends_with("-----END CERTIFICATE-----\n")),
        "{map}"
    );
    Ok(())
}

/// Two releases of the konnector share no object, and each policy and each role names its own account.
#[test]
fn names_follow_the_release() -> Result<()> {
    let helm = Helm::locate()?;
    let set = ["--set", "adoption=all,bundleResources={cowboys.wildwest.dev}"];
    let key = |object: &Value| {
        let meta = &object["metadata"];
        format!("{} {} {}", object["kind"], meta["namespace"], meta["name"])
    };
    let here = helm.objects(KONNECTOR, &set)?;
    let there = helm.objects(OTHER_KONNECTOR, &set)?;
    let names: BTreeSet<_> = here.iter().chain(&there).map(key).collect();
    ensure!(names.len() == here.len() * 2, "releases share an object: {names:?}");
    for object in there.iter().chain(&helm.objects(OTHER_SERVER, &[])?) {
        let text = object.to_string();
        ensure!(!text.contains("system:serviceaccount:kube-bind"), "{text}");
        for subject in object["subjects"].as_array().into_iter().flatten() {
            ensure!(subject["name"] == "prod" && subject["namespace"] == "bind", "{text}");
        }
        let namespace = &object["metadata"]["namespace"];
        // The cluster publishes the address of its API in kube-public.
        let is_own = namespace.is_null() || namespace == "bind" || namespace == "kube-public";
        ensure!(is_own, "{text}");
    }
    Ok(())
}

/// Names that YAML would read as something else stay names.
#[test]
fn a_namespace_may_look_like_a_number() -> Result<()> {
    let helm = Helm::locate()?;
    for release in [SERVER, KONNECTOR] {
        let objects = helm.objects(
            Release {
                name: "off",
                namespace: "123",
                ..release
            },
            &[],
        )?;
        let account = &only(&objects, "ServiceAccount")?["metadata"];
        ensure!(account["name"] == "off" && account["namespace"] == "123", "{account}");
    }
    Ok(())
}

/// Values that YAML would read as something else stay what they are.
#[test]
fn awkward_values_stay_strings() -> Result<()> {
    let helm = Helm::locate()?;
    let set = "grpc.address=https://a:,kubernetes.serverName=a: b,tls.mode=secret,image.repository=*a";
    let numbers = "tls.secretName=123,tls.clientCaSecretName=1e3";
    let objects = helm.objects(SERVER, &["--set", set, "--set-string", numbers])?;
    let flags = args(&objects)?;
    for flag in ["--external-grpc-address=https://a:", "--external-server-name=a: b"] {
        ensure!(
            flags.iter().any(|found| found == flag),
            "{flag} is missing in {flags:?}"
        );
    }
    let pod = &only(&objects, "Deployment")?["spec"]["template"]["spec"];
    let names = [0, 1].map(|volume| &pod["volumes"][volume]["secret"]["secretName"]);
    ensure!(names[0] == "123" && names[1] == "1e3", "{names:?}");
    let image = &pod["containers"][0]["image"];
    ensure!(image == concat!("*a:", env!("CARGO_PKG_VERSION")), "{image}");

    let set = "tls.mode=certManager,tls.certManager.issuer.name=own,tls.certManager.extraDnsNames={*.example.com}";
    let objects = helm.objects(SERVER, &["--set", set, "--set-string", "tls.secretName=123"])?;
    let certificate = &only(&objects, "Certificate")?["spec"];
    ensure!(
        certificate["dnsNames"] == json!(["bindery-server.kube-bind.svc", "*.example.com"])
            && certificate["secretName"] == "123",
        "{certificate}"
    );

    let objects = helm.objects(KONNECTOR, &["--set", "bundleResources={no.example.com}"])?;
    let mut rules = objects
        .iter()
        .flat_map(|object| object["rules"].as_array().into_iter().flatten());
    ensure!(
        rules.any(|rule| rule["resources"] == json!(["no"])),
        "no rule for no.example.com"
    );
    Ok(())
}
