//! Values that a chart refuses, with a message that names the value.

use anyhow::{Result, ensure};
use bindery_e2e::charts::{self, CHARTS, Helm, KONNECTOR, Release, SERVER};

#[track_caller]
fn check(helm: &Helm, release: Release<'_>, args: &[&str], says: &[&str]) -> Result<()> {
    let output = helm.try_template(release, args)?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(!output.status.success(), "{args:?} is not refused");
    for says in says {
        ensure!(stderr.contains(says), "{args:?}: {says:?} is missing in {stderr}");
    }
    Ok(())
}

#[test]
fn a_wrong_value_is_refused_by_its_name() -> Result<()> {
    let helm = Helm::locate()?;
    let both = [
        ("replicas=two", &["replicas", "integer"][..]),
        ("replica=2", &["replica", "not allowed"]),
        ("log.level=debug", &["log", "level", "not allowed"]),
        ("log.format=xml", &["log", "format"]),
        ("image.repository=", &["image", "repository"]),
        ("image.digest=latest", &["image", "digest"]),
        ("extraArgs={heartbeat}", &["extraArgs"]),
        ("extraEnv[0].value=1", &["extraEnv", "name"]),
        (
            r"podLabels.app\.kubernetes\.io/name=mine",
            &["podLabels", "app.kubernetes.io/name"],
        ),
        ("networkPolicy.egressPorts={0}", &["networkPolicy", "egressPorts"]),
        (
            "podDisruptionBudget.maxUnavailable=some",
            &["podDisruptionBudget", "maxUnavailable"],
        ),
    ];
    for (set, says) in both {
        for release in [SERVER, KONNECTOR] {
            check(&helm, release, &["--set", set], says)?;
        }
    }
    for (set, says) in [
        ("adoption=some", &["adoption"][..]),
        ("pollingInterval=15", &["pollingInterval"]),
        ("heartbeatInterval=soon", &["heartbeatInterval"]),
        ("bundleResources={cowboys}", &["bundleResources"]),
        ("bundleResources={*.wildwest.dev}", &["bundleResources"]),
    ] {
        check(&helm, KONNECTOR, &["--set", set], says)?;
    }
    for (set, says) in [
        ("tls.mode=secret", &["tls", "secretName"][..]),
        (
            r"podAnnotations.bindery\.kube-bind\.io/kubernetes-ca=mine",
            &["podAnnotations", "bindery.kube-bind.io/kubernetes-ca"],
        ),
        (
            "authentication.oidc.issuerUrl=https://a.example",
            &["authentication.oidc.clientId", "required"],
        ),
        (
            "authentication.oidc.clientId=a",
            &["authentication.oidc.clientId", "needs issuerUrl"],
        ),
        (
            "authentication.oidc.issuerUrl=http://a.example",
            &["authentication", "issuerUrl"],
        ),
        (
            "authentication.oidc.issuerUrl=https://a.example,authentication.config.kind=a",
            &["authentication", "exclude each other"],
        ),
        (
            "authentication.issuerKeys[0].issuer=https://a.example",
            &["issuerKeys", "jwks"],
        ),
        ("tls.mode=certManager", &["tls", "issuer", "name"]),
        ("tls.mode=none", &["tls", "mode"]),
        ("tls.secretName=mine", &["tls", "secretName"]),
        ("grpc.address=http://bind.example.com", &["grpc", "address"]),
        ("kubernetes.ca=/etc/ca.crt", &["kubernetes", "ca"]),
        ("isolation=some", &["isolation"]),
        ("consumerScope=all", &["consumerScope"]),
        ("claimableResources={secrets}", &["claimableResources"]),
        ("valuableResources={secrets}", &["valuableResources"]),
        ("namespacePrefix=bind", &["namespacePrefix"]),
        ("service.port=70000", &["service", "port"]),
    ] {
        check(&helm, SERVER, &["--set", set], says)?;
    }
    Ok(())
}

/// A program takes each flag once, so that a repeated flag would keep it from starting.
#[test]
fn a_flag_of_the_chart_is_not_given_again() -> Result<()> {
    let helm = Helm::locate()?;
    for (release, set, flag) in [
        (
            SERVER,
            "extraArgs={--external-grpc-address=https://a.example}",
            "--external-grpc-address",
        ),
        (SERVER, "isolation=none,extraArgs={--isolation=prefixed}", "--isolation"),
        (
            KONNECTOR,
            "extraArgs={--server-address=127.0.0.1:1}",
            "--server-address",
        ),
        (KONNECTOR, "log.filter=info,extraArgs={--log=debug}", "--log"),
    ] {
        check(
            &helm,
            release,
            &["--set", set],
            &["extraArgs", &format!("flag {flag} already")],
        )?;
    }
    Ok(())
}

#[test]
fn a_release_name_that_names_no_service_is_refused() -> Result<()> {
    let helm = Helm::locate()?;
    for release in [SERVER, KONNECTOR] {
        for name in ["a.b", "1a"] {
            check(&helm, Release { name, ..release }, &[], &[name, "begin with a letter"])?;
        }
    }
    Ok(())
}

#[test]
fn helm_lint_finds_nothing() -> Result<()> {
    let helm = Helm::locate()?;
    for chart in CHARTS {
        let folder = charts::folder(chart);
        let ha = folder.join("values-ha.yaml");
        for values in [None, Some(&ha)] {
            let mut command = helm.command(&["lint", "--strict"]);
            command.arg(&folder);
            command.args(values.map(|file| format!("--values={}", file.display())));
            let output = command.output()?;
            let said = String::from_utf8_lossy(&output.stdout);
            ensure!(
                output.status.success() && !said.contains("[WARNING]"),
                "{chart}: {said}"
            );
        }
    }
    Ok(())
}
