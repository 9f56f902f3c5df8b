//! Binds a template without a human: a program that runs as a ServiceAccount of the provider's cluster asks the backend
//! with its projected token, and writes the Secret that the konnector of the consumer needs.
//!
//! All it takes is in its environment, as `deploy/examples/headless/job/job.yaml` has it:
//!
//! - `BIND_SERVER`: the backend's URL, which is also the audience of the token
//! - `BIND_CA_FILE`: the CA of its certificate; if absent, those of the system
//! - `BIND_TOKEN_FILE`: the projected token
//! - `BIND_TEMPLATE`: the template, whose name the binding gets
//! - `BIND_CLUSTER_IDENTITY`: the UID of the consumer's namespace `kube-system`
//! - `BIND_SECRET`: name of the Secret, in the konnector's namespace
//! - `BIND_OUTPUT`: the file that the Secret is written to
//!
//! It can be run again at any time: the backend answers the same request with what is there, and a fresh kubeconfig.

use std::{env, fs::File, io::Write as _, os::unix::fs::OpenOptionsExt as _, path::Path};

use anyhow::{Context as _, Result};
use bindery_sdk::{Client, FileToken};
use k8s_openapi::{ByteString, api::core::v1::Secret};

/// Where the konnector reads kubeconfigs, and nowhere else.
const KONNECTOR_NAMESPACE: &str = "kube-bind";
/// The key that bindings and bundles name.
const KUBECONFIG_KEY: &str = "kubeconfig";

#[tokio::main]
async fn main() -> Result<()> {
    let client = client()?;
    // Who asks is not in the request: the backend knows it from the token. The request stays pending while the provider's admin has
    // something to mend. Failures that pass are tried again by the client; the others come with a reason and its mend.
    let bound = client
        .bind_template(variable("BIND_TEMPLATE")?, variable("BIND_CLUSTER_IDENTITY")?)
        .await?;
    let kubeconfig = bound.response.kubeconfig.context("the answer has no kubeconfig")?;
    let secret = secret(&variable("BIND_SECRET")?, kubeconfig.kubeconfig.to_vec());
    write(Path::new(&variable("BIND_OUTPUT")?), &secret)
}

/// A client that sends the token which the file holds at the time: the kubelet writes a new one before it expires.
fn client() -> Result<Client> {
    let token = FileToken::new(variable("BIND_TOKEN_FILE")?);
    let mut builder = Client::builder(variable("BIND_SERVER")?).token_source(token);
    if let Ok(path) = env::var("BIND_CA_FILE") {
        builder = builder.ca_pem(std::fs::read(&path).with_context(|| format!("cannot read the CA file {path}"))?);
    }
    Ok(builder.build()?)
}

/// What the consumer applies. The konnector renews the credentials in it, so that this is needed once.
fn secret(name: &str, kubeconfig: Vec<u8>) -> Secret {
    let mut secret = Secret::default();
    secret.metadata.name = Some(name.to_owned());
    secret.metadata.namespace = Some(KONNECTOR_NAMESPACE.to_owned());
    secret.data = Some([(KUBECONFIG_KEY.to_owned(), ByteString(kubeconfig))].into());
    secret
}

/// To a file that its owner alone reads, and not to standard output, which in a pod is a log.
fn write(path: &Path, secret: &Secret) -> Result<()> {
    let mut options = File::options();
    options.write(true).create(true).truncate(true).mode(0o600);
    let file = options.open(path);
    let mut file = file.with_context(|| format!("cannot write {}", path.display()))?;
    file.write_all(&serde_json::to_vec(secret)?)?;
    Ok(())
}

fn variable(name: &str) -> Result<String> {
    env::var(name).with_context(|| format!("{name} is not set"))
}
