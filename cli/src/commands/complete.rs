//! Finds the names for a completion: within a short time, and without a word about what fails.

use std::{ffi::OsString, sync::mpsc, thread, time::Duration};

use bindery_proto::v1alpha2::{ListCollectionsRequest, ListContractsRequest, ListTemplatesRequest};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, ResourceExt, api::ListParams, config::Kubeconfig};

use crate::{
    args::{
        DisplayArgs,
        complete::{self, Names, Place},
        settings::Settings,
    },
    consumer::Consumer,
    errors::Failure,
    login::store::{Folder, KnownServer, StoredTokens},
    provider::{Backend, Login, Provider, contract::PAGE},
    render::output::Format,
};

/// How long the shell waits for names.
const PATIENCE: Duration = Duration::from_secs(2);

/// The answer to a completion of these words, for kubectl.
pub(crate) fn answer(words: Vec<OsString>) -> String {
    complete::answer(words, |names, place| within(PATIENCE, names, place.clone()))
}

/// Names that are found in time. A thread of its own, because what finds them may block, such as a credential plugin of the
/// kubeconfig; the process ends without it.
fn within(patience: Duration, names: Names, place: Place) -> Vec<String> {
    let (sender, found) = mpsc::channel();
    thread::spawn(move || {
        // Nobody listens any more if the time is over.
        let _ = sender.send(find(names, place));
    });
    found.recv_timeout(patience).ok().flatten().unwrap_or_default()
}

/// Names, or nothing if they cannot be found.
fn find(names: Names, place: Place) -> Option<Vec<String>> {
    let display = DisplayArgs {
        output: Format::Name,
        timeout: Some(PATIENCE),
        verbose: 0,
        quiet: true,
    };
    let settings = Settings::new(place.cluster, place.provider, &display, Folder::from_env()).ok()?;
    let known = |get: fn(&KnownServer) -> &String| {
        let servers = settings.folder.servers().ok()?;
        let mut found: Vec<_> = servers.servers.iter().map(|known| get(known).clone()).collect();
        found.sort();
        found.dedup();
        Some(found)
    };
    match names {
        Names::Servers => known(|known| &known.address),
        Names::Issuers => known(|known| &known.issuer.url),
        Names::Contexts => {
            let read = settings
                .cluster
                .kubeconfig
                .as_ref()
                .map_or_else(Kubeconfig::read, Kubeconfig::read_from);
            Some(read.ok()?.contexts.into_iter().map(|context| context.name).collect())
        }
        _ => {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .ok()?;
            runtime.block_on(listed(names, &settings)).ok()
        }
    }
}

async fn listed(names: Names, settings: &Settings) -> Result<Vec<String>, Failure> {
    match names {
        Names::Templates | Names::Collections | Names::Offers | Names::Contracts => {
            Box::pin(offered(names, settings)).await
        }
        Names::Namespaces => {
            let namespaces: Api<Namespace> = Api::all(Consumer::connect(settings).await?.client());
            let listed = namespaces.list_metadata(&ListParams::default().limit(PAGE)).await;
            let listed = listed.map_err(Failure::cluster("list namespaces"))?;
            Ok(listed.items.iter().map(ResourceExt::name_any).collect())
        }
        _ => {
            let consumer = Consumer::connect(settings).await?;
            let mut found: Vec<_> = consumer.bindings().await?.iter().map(ResourceExt::name_any).collect();
            if names == Names::Owners {
                found.extend(consumer.bundles().await?.iter().map(ResourceExt::name_any));
            }
            Ok(found)
        }
    }
}

async fn offered(names: Names, settings: &Settings) -> Result<Vec<String>, Failure> {
    let backend = unrefreshed(settings.backend()?)?;
    let provider = Provider::new(&backend, settings.timeout)?;
    let templates = async {
        let found = provider.templates(ListTemplatesRequest::default()).await?;
        Ok::<_, Failure>(
            found
                .into_iter()
                .filter_map(|found| Some(found.metadata?.name))
                .collect(),
        )
    };
    let collections = async {
        let found = provider.collections(ListCollectionsRequest::default()).await?;
        Ok::<_, Failure>(
            found
                .into_iter()
                .filter_map(|found| Some(found.metadata?.name))
                .collect(),
        )
    };
    match names {
        Names::Collections => collections.await,
        Names::Contracts => {
            let found = provider.contracts(ListContractsRequest::default()).await?;
            Ok(found.into_iter().map(|contract| contract.name).collect())
        }
        Names::Offers => {
            let (templates, collections): (Vec<_>, Vec<_>) = tokio::try_join!(templates, collections)?;
            Ok(templates.into_iter().chain(collections).collect())
        }
        _ => templates.await,
    }
}

/// The backend with the stored token as it is. A completion never refreshes a login: its process ends when its time is over, and an
/// issuer may have made the stored refresh token void by then.
fn unrefreshed(backend: &Backend) -> Result<Backend, Failure> {
    let login = match &backend.login {
        Login::Stored(login) => {
            let is_good = |tokens: &StoredTokens| tokens.is_of(login.issuer()) && Timestamp::now() < tokens.expires_at;
            let tokens = login.file().read()?.filter(is_good);
            tokens.map_or(Login::None, |tokens| Login::Token(tokens.id_token))
        }
        login => login.clone(),
    };
    Ok(Backend {
        login,
        ..backend.clone()
    })
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_server_that_does_not_answer_costs_a_bounded_time() {
        // It accepts connections, and says nothing.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", silent.local_addr().unwrap());
        let words = [
            "--allow-plaintext",
            "--token",
            "t",
            "--server",
            &address,
            "templates",
            "",
        ];
        let start = Instant::now();
        let answer = answer(words.map(Into::into).to_vec());
        assert_eq!(answer, ":4\n");
        let took = start.elapsed();
        assert!(took >= PATIENCE && took < Duration::from_secs(10), "{took:?}");
        silent.set_nonblocking(true).unwrap();
        assert!(silent.accept().is_ok(), "the server was not asked");
    }
}
