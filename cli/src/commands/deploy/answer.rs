//! Reads a provider's answer from a file, or from a Secret of the provider.

use std::{io::Read as _, path::Path};

use bindery_runtime::client::{self, Clients};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;

use crate::{
    args::DeployArgs,
    errors::Failure,
    provider::response::{self, Response, Unreadable},
};

/// Reads the provider's answer that the flags name, if they name one. Without a bundle, the answer must say what to bind.
pub(super) async fn read(args: &DeployArgs) -> Result<Option<Response>, Failure> {
    let (from, document) = match (&args.file, &args.secret, &args.provider_kubeconfig) {
        (Some(file), _, _) => (file.display().to_string(), of_file(file)?),
        (None, Some((namespace, name)), Some(kubeconfig)) => {
            let document = of_provider(kubeconfig, namespace, name).await?;
            (format!("Secret {namespace}/{name} of the provider"), document)
        }
        _ => return Ok(None),
    };
    match response::read(&document, args.secret_key.as_deref()) {
        Ok(response) if args.bundle.is_none() && response.requests.is_empty() => Err(Failure::Answer {
            from,
            source: Unreadable::NoRequests,
        }),
        Ok(response) => Ok(Some(response)),
        Err(source) => Err(Failure::Answer { from, source }),
    }
}

fn of_file(file: &Path) -> Result<Vec<u8>, Failure> {
    let read = if file == Path::new("-") {
        let mut document = Vec::new();
        std::io::stdin().read_to_end(&mut document).map(|_| document)
    } else {
        std::fs::read(file)
    };
    read.map_err(|error| Failure::Usage(format!("cannot read {}: {error}", file.display())))
}

async fn of_provider(kubeconfig: &Path, namespace: &str, name: &str) -> Result<Vec<u8>, Failure> {
    let config = client::config(Some(kubeconfig), None).await?;
    let secrets = Api::<Secret>::namespaced(Clients::new(&config, 1)?.write, namespace);
    let found = secrets.get_opt(name).await.map_err(Failure::cluster(format!(
        "read Secret {namespace}/{name} of the provider"
    )))?;
    let secret = found.ok_or_else(|| Failure::NoSecret(format!("{namespace}/{name}")))?;
    serde_json::to_vec(&secret).map_err(|error| Failure::Format(error.to_string()))
}
