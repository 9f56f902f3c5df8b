use bindery_api::v1alpha2::{APIServiceNamespace, Scope};
use bindery_runtime::{cache::Cache, client::Clients, events::Recorder};
use k8s_openapi::{api::core::v1::Namespace, apimachinery::pkg::apis::meta::v1::OwnerReference};

use super::*;
use crate::{
    bound::{Engine, Target},
    engine::{Budget, Metrics},
    model::{BoundResource, Placement},
    references::References,
};

/// Clients of a cluster that never answers.
fn silent() -> Clients {
    let service = tower::service_fn(|_: http::Request<kube::client::Body>| {
        std::future::pending::<Result<http::Response<kube::client::Body>, std::io::Error>>()
    });
    let client = kube::Client::new(service, "default");
    Clients::of(client)
}

/// An engine between two clusters that never answer.
pub(super) fn engine() -> Engine {
    let target = Target {
        binding: "cowboys".into(),
        contract: "kube-bind-x".into(),
        export: OwnerReference::default(),
        since: None,
        resource: BoundResource {
            group: "wildwest.dev".into(),
            version: "v1alpha1".into(),
            plural: "cowboys".into(),
            kind: "Cowboy".into(),
            scope: Scope::Namespaced,
            status_subresource: true,
        },
        placement: Placement::Mapped,
        informer_scope: InformerScope::Namespaced,
        last_wins: false,
        retention: None,
        adoption: bindery_api::adoption::Adoption::Off,
        installed: None,
        own_namespace: "kube-bind".into(),
    };
    let (consumer, provider) = (silent(), silent());
    let around = Surroundings {
        namespaces: Cache::start(
            provider.watch.clone(),
            Source::of::<APIServiceNamespace>(Some("kube-bind-x")),
        ),
        unreadable_namespaces: tokio::sync::watch::channel(false).1,
        consumer_namespaces: Cache::start(consumer.watch.clone(), Source::of::<Namespace>(None)),
        recorder: Recorder::silent(),
        metrics: Metrics::register(&mut bindery_runtime::telemetry::registry()),
        budget: Budget::default(),
        tally: Tally::default(),
        holding: crate::holder::Holding::held(),
        guard: bindery_runtime::guard::Guard::unlimited(),
    };
    Engine::start(
        target,
        Sides { consumer, provider },
        around,
        Arc::default(),
        &References::default(),
    )
}

#[tokio::test]
async fn a_dropped_engine_leaves_no_task_behind() {
    let engine = engine();
    engine
        .running
        .shared
        .use_place(&"wild-west".into(), Some("kube-bind-x-wild-west".into()), false, false);
    tokio::task::yield_now().await;
    let left = Arc::downgrade(&engine.running.shared);
    drop(engine);
    for _ in 0..100 {
        if left.strong_count() == 0 {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("{} tasks hold a dropped engine", left.strong_count());
}
