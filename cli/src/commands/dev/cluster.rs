//! One of the two clusters: its clients, and the set that is installed on it.

use std::time::Duration;

use bindery_api::{names::KUBE_BIND_NAMESPACE, v1alpha2::GROUP};
use bindery_runtime::{client, shutdown};
use bindery_synk::{Event, Failure as SetFailure, ObjectRef, Options, Target, delete::Deletion, plan::Allowed};
use http::Uri;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::{
    args::{ClusterArgs, dev::DevClusters, settings::Settings},
    commands::deploy,
    consumer::{Consumer, wait::Watched},
    dev::guard,
    errors::{Failure, conflict::Conflict},
    konnector,
    render::{
        applied::{Applied, Outcome},
        steps::Steps,
    },
};

/// The pause between two looks at what a step waits for.
const PAUSE: Duration = Duration::from_millis(200);

/// One of the two clusters.
pub(super) struct Cluster {
    /// `provider` or `consumer`.
    pub(super) role: &'static str,
    pub(super) args: ClusterArgs,
    pub(super) api: Consumer,
    /// URL of its API server, as this machine reaches it.
    pub(super) url: Uri,
}

/// Both clusters.
pub(super) struct Clusters {
    pub(super) provider: Cluster,
    pub(super) consumer: Cluster,
    /// The identity by which the provider knows the consumer.
    pub(super) identity: String,
}

impl Clusters {
    /// Connects to both clusters. Refuses one cluster in both roles.
    pub(super) async fn connect(settings: &Settings, named: &DevClusters) -> Result<Self, Failure> {
        let (provider, consumer) = tokio::try_join!(
            Cluster::connect(settings, "provider", &named.provider),
            Cluster::connect(settings, "consumer", &named.consumer)
        )?;
        let (theirs, identity) = (
            provider.on(provider.api.identity().await)?,
            consumer.on(consumer.api.identity().await)?,
        );
        if theirs == identity {
            return Err(Conflict::OneCluster {
                provider: named.provider.clone(),
                consumer: named.consumer.clone(),
            }
            .into());
        }
        Ok(Self {
            provider,
            consumer,
            identity,
        })
    }

    /// The command that removes everything again.
    pub(super) fn down(&self) -> String {
        format!(
            "kubectl bind dev down --provider {} --consumer {}",
            shell(self.provider.context()),
            shell(self.consumer.context())
        )
    }
}

impl Cluster {
    async fn connect(settings: &Settings, role: &'static str, context: &str) -> Result<Self, Failure> {
        let args = ClusterArgs {
            kubeconfig: settings.cluster.kubeconfig.clone(),
            context: Some(context.to_owned()),
        };
        let config = client::config(args.kubeconfig.as_deref(), args.context.as_deref()).await?;
        Ok(Self {
            role,
            api: Consumer::of(&config)?,
            url: config.cluster_url.clone(),
            args,
        })
    }

    /// Name of the context.
    pub(super) fn context(&self) -> &str {
        self.args.context.as_deref().unwrap_or_default()
    }

    /// Names this cluster in an error.
    pub(super) fn on<T>(&self, outcome: Result<T, impl Into<Failure>>) -> Result<T, Failure> {
        outcome.map_err(|failure| Failure::On {
            role: self.role,
            context: self.context().to_owned(),
            failure: Box::new(failure.into()),
        })
    }

    /// Refuses objects that exist already and were not made by `dev up`.
    pub(super) async fn refuse_foreign(&self, wanted: &[Value]) -> Result<(), Failure> {
        // The definitions of the project's own kinds may not be installed yet.
        let is_other = |object: &ObjectRef| object.gvk.group != GROUP;
        let wanted: Vec<_> = wanted.iter().filter_map(ObjectRef::of).filter(is_other).collect();
        let live = self.on(self.api.synk().live(&wanted).await)?;
        Ok(guard::refuse_foreign(self.context(), &wanted, &live)?)
    }

    /// Applies a set, and returns what became of each object.
    pub(super) async fn apply_set(
        &self,
        name: &str,
        manifests: Vec<Value>,
        steps: &Steps,
    ) -> Result<Vec<Applied>, Failure> {
        let target = target(name)?;
        let manifests = konnector::set_from(manifests, &format!("the {}'s manifests", self.role))?;
        // Every namespace that a manifest names is meant.
        let namespaces = manifests
            .iter()
            .filter_map(|manifest| manifest.object.namespace.clone());
        let options = Options {
            allowed: Allowed {
                prune: true,
                namespaces: namespaces.collect(),
                ..Allowed::default()
            },
            history: 1,
            stop: shutdown::on_signal()?,
            ..konnector::options()
        };
        let listener = |event: Event<'_>| deploy::tell(event, steps);
        let applied = self.api.synk().apply(&target, &manifests, &options, &listener).await;
        deploy::stopped(options.stop.clone(), &target)?;
        let report = self.on(applied)?;
        Ok(konnector::told(&report))
    }

    /// Deletes a set with all that it owns, and waits until that is gone. Returns whether there was one.
    pub(super) async fn delete_set(&self, name: &str, patience: Duration, steps: &Steps) -> Result<bool, Failure> {
        let target = target(name)?;
        let stop = shutdown::on_signal()?;
        let deletion = Deletion {
            wait: true,
            timeout: patience,
            stop: stop.clone(),
            ..Deletion::default()
        };
        let listener = |event: Event<'_>| deploy::tell(event, steps);
        let deleted = self.api.synk().delete(&target.set, &deletion, &listener).await;
        deploy::stopped(stop, &target)?;
        match deleted {
            Ok(_) => Ok(true),
            Err(SetFailure::NoSet(_) | SetFailure::NotInstalled) => Ok(false),
            Err(failure) => self.on(Err(failure)),
        }
    }

    /// The objects that a set lists, as deleted.
    pub(super) async fn listed(&self, name: &str) -> Result<Vec<Applied>, Failure> {
        let versions = match self.api.synk().versions(&target(name)?.set).await {
            Err(SetFailure::NotInstalled) => return Ok(Vec::new()),
            versions => self.on(versions)?,
        };
        let listed = konnector::listed(&versions).into_iter();
        Ok(listed
            .map(|object| konnector::applied(&object, Outcome::Deleted))
            .collect())
    }

    /// Reads a Deployment of the namespace of server and konnector.
    pub(super) async fn deployment(&self, name: &str) -> Result<Option<Deployment>, Failure> {
        let deployments = Api::namespaced(self.api.client(), KUBE_BIND_NAMESPACE);
        self.on(self.api.find(deployments, name).await)
    }

    /// Waits until all replicas of a Deployment are available.
    pub(super) async fn available(&self, name: &str, left: Duration, steps: &Steps) -> Result<(), Failure> {
        let watched = Watched::<Deployment>::start(&self.api, KUBE_BIND_NAMESPACE, name, left);
        self.on(watched.available(steps).await)
    }

    /// Looks again and again until there is something, or the time is over. `mend` says where to look then.
    pub(super) async fn until<T>(
        &self,
        (what, mend): (&str, &str),
        patience: Duration,
        look: impl AsyncFn() -> Result<Option<T>, Failure>,
    ) -> Result<T, Failure> {
        let start = Instant::now();
        loop {
            let seen = look().await;
            if let Ok(Some(found)) = seen {
                return Ok(found);
            }
            if start.elapsed() > patience {
                let timed_out = || Failure::TimedOut {
                    what: format!("{what} is not there"),
                    waited: start.elapsed(),
                    last: mend.to_owned(),
                };
                return self.on(Err(seen.err().unwrap_or_else(timed_out)));
            }
            sleep(PAUSE).await;
        }
    }
}

fn target(name: &str) -> Result<Target, Failure> {
    let set = name.parse();
    Ok(Target {
        set: set.map_err(|error| Failure::Format(format!("{error}")))?,
        namespace: KUBE_BIND_NAMESPACE.to_owned(),
    })
}

/// Quotes a word for a shell. No argument of this process has the byte 0, the only one that cannot be quoted.
fn shell(word: &str) -> String {
    shlex::try_quote(word).unwrap_or_default().into_owned()
}
