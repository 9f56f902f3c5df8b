//! A server that accepts only clients with a certificate. A client without one does not get beyond the handshake.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Result, ensure};
use bindery_e2e::{
    Consumer, Provider, Workdir,
    bound::Bound,
    eventually_ok, lease,
    pki::{Authority, Identity},
    process, run,
    wildwest::SOON,
};

use crate::managed::streams;

/// Files of a client certificate.
struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

impl Files {
    fn write(folder: &Workdir, name: &str, identity: &Identity) -> Result<Self> {
        Ok(Self {
            certificate: folder.write(&format!("{name}.crt"), &identity.certificate)?,
            key: folder.write(&format!("{name}.key"), &identity.key)?,
        })
    }
}

#[test]
fn clients_without_a_certificate_are_refused() -> Result<()> {
    run(async {
        let folder = Workdir::new("client-certificates")?;
        let (ca, other) = (Authority::new("clients")?, Authority::new("others")?);
        let cas = folder.write("clients.crt", ca.pem())?;
        let good = Files::write(&folder, "good", &ca.client("team", "teams")?)?;
        let wrong = Files::write(&folder, "wrong", &other.client("team", "teams")?)?;
        let flag = format!("--client-ca-file={}", cas.display());
        let flags = [&[&*flag][..], &lease::PATIENT].concat();
        let konnector = [
            format!("--client-certificate={}", good.certificate.display()),
            format!("--client-key={}", good.key.display()),
        ];
        let konnector: Vec<_> = konnector.iter().map(String::as_str).chain(lease::PATIENT).collect();
        let (provider, consumer) = tokio::try_join!(
            Provider::start_managed("mtls-p", &flags),
            Consumer::start_with("mtls-c", &konnector)
        )?;
        let mut bound = Bound::between(provider, consumer).await?;
        let command = |files: Option<&Files>| templates(&bound, files);
        refused(command(None)?).await?;
        refused(command(Some(&wrong))?).await?;
        accepted(command(Some(&good))?).await?;
        // Half a pair is an error of the command line.
        let mut half = command(None)?;
        half.arg("--client-certificate").arg(&good.certificate);
        let output = process::run(half, SOON).await?;
        ensure!(output.status.code() == Some(2), "{output:?}");

        let mut bind = bound.consumer.bind_command_for(&bound.provider, &bound.token)?;
        bind.env("KUBECTL_BIND_CLIENT_CERTIFICATE", &good.certificate);
        bind.env("KUBECTL_BIND_CLIENT_KEY", &good.key);
        bind.arg("cowboys");
        process::stdout(&process::run(bind, SOON).await?)?;
        streams(&bound.provider).await?;
        bound.create(["billy".to_owned()]).await?;
        bound.converged().await?;

        // Other CAs are accepted without a restart.
        std::fs::write(&cas, other.pem())?;
        eventually_ok("the other CA to be accepted", SOON, async || {
            accepted(templates(&bound, Some(&wrong))?).await
        })
        .await?;
        refused(templates(&bound, Some(&good))?).await?;
        // What cannot be read changes nothing.
        std::fs::write(&cas, "nonsense")?;
        bound.provider.servers[0]
            .wait_for_line("the former CA of client certificates stays in use", SOON)
            .await?;
        accepted(templates(&bound, Some(&wrong))?).await
    })
}

fn templates(bound: &Bound, files: Option<&Files>) -> Result<Command> {
    let mut command = bound.consumer.bind_command_for(&bound.provider, &bound.token)?;
    command.arg("templates");
    if let Some(Files { certificate, key }) = files {
        let flag = |name: &str, path: &Path| format!("{name}={}", path.display());
        command.args([flag("--client-certificate", certificate), flag("--client-key", key)]);
    }
    Ok(command)
}

async fn accepted(command: Command) -> Result<()> {
    let listed = process::stdout(&process::run(command, SOON).await?)?;
    ensure!(listed.contains("cowboys"), "{listed}");
    Ok(())
}

async fn refused(command: Command) -> Result<()> {
    let output = process::run(command, SOON).await?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(1), "{}: {text}", output.status);
    for word in ["accepts only clients with a certificate", "--client-certificate"] {
        ensure!(text.contains(word), "{text}");
    }
    Ok(())
}
