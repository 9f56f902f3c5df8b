//! One API that is offered in three ways, as the example `sheriffs` is: who may replace the objects of those who share theirs
//! by choice writes none of those who chose otherwise.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bindery_api::{Conditions as _, annotations, names, v1alpha2::APIServiceExportTemplate};
use bindery_e2e::{Provider, eventually, eventually_ok, lease, manifests, run, wildwest::SOON};
use http::Method;
use kube::{
    Api, Client, Config, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

use crate::{
    attempt::{self, Attempt, Expect},
    tenant::wish,
};

const PREFIXED: &str = "sheriffs";
const FIRST_WINS: &str = "sheriffs-shared";
const LAST_WINS: &str = "sheriffs-last-wins";

/// How long a bind may take.
const PATIENCE: Duration = Duration::from_mins(2);
const SHERIFFS: &str = "/apis/wildwest.dev/v1alpha1/sheriffs";

/// A consumer with its kubeconfig.
struct Rider {
    contract: String,
    client: Client,
}

// === impl Rider ===

impl Rider {
    async fn settle(provider: &Provider, name: &str, templates: &[&str]) -> Result<Self> {
        let token = provider.principal(&format!("{name}-gang"), templates).await?;
        let builder = bindery_sdk::Client::builder(provider.address()).ca_pem(provider.plane.ca_pem());
        let caller = builder.token(std::fs::read_to_string(token)?).build()?;
        let mut bound = None;
        for template in templates {
            let wish = wish(
                &format!("{name}-{template}"),
                template,
                &format!("{name}-cluster"),
                name,
            );
            let answer = caller.bind_by_request(wish, PATIENCE, |_| ()).await;
            bound = Some(answer.with_context(|| format!("{name} binds {template}"))?);
        }
        let bound = bound.context("nothing is bound")?.to_response();
        let yaml = String::from_utf8(bound.kubeconfig.context("a kubeconfig")?.kubeconfig.to_vec())?;
        let document: Kubeconfig = serde_saphyr::from_str(&yaml)?;
        let config = Config::from_custom_kubeconfig(document, &KubeConfigOptions::default()).await?;
        Ok(Self {
            contract: bound.provider_namespace,
            client: Client::try_from(config)?,
        })
    }

    /// Puts an object there as the konnector would. Rights may come a moment after the bind that gives them.
    async fn put(&self, name: &str, is_shared: bool) -> Result<DynamicObject> {
        let mut object = sheriff(name, Some(&self.contract));
        if is_shared {
            let note = (
                format!("{}/{}", annotations::PROJECTION_OF, self.contract),
                "written".to_owned(),
            );
            object.annotations_mut().extend([note]);
        }
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource());
        eventually(format!("sheriff {name}"), SOON, || async {
            Ok(Some(api.create(&PostParams::default(), &object).await?))
        })
        .await
    }
}

fn resource() -> ApiResource {
    ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("wildwest.dev", "v1alpha1", "Sheriff"),
        "sheriffs",
    )
}

fn sheriff(name: &str, mark: Option<&str>) -> DynamicObject {
    let mut object = DynamicObject::new(name, &resource()).data(json!({"spec": {"intent": "watch"}}));
    let mark = mark.map(|mark| (annotations::CLUSTER_NAMESPACE.to_owned(), mark.to_owned()));
    object.annotations_mut().extend(mark);
    object
}

fn send(method: Method, path: &str, body: Option<(&'static str, Value)>, expect: Expect) -> Attempt {
    let separator = if path.contains('?') { '&' } else { '?' };
    let mut attempt = Attempt::new(method, format!("{path}{separator}dryRun=All"), expect);
    attempt.body = body;
    attempt
}

/// Every way to change or to delete an object that is there, and to make it one's own.
fn changes(object: &DynamicObject, own: &str, expect: Expect) -> Result<Vec<Attempt>> {
    const MERGE: &str = "application/merge-patch+json";
    let name = object.name_any();
    let path = format!("{SHERIFFS}/{name}");
    let mut replaced = serde_json::to_value(object)?;
    replaced["spec"]["intent"] = json!("steal");
    let apply = format!("{path}?fieldManager=joe&force=true");
    let applied = serde_json::to_value(sheriff(&name, Some(own)))?;
    let mark = json!({annotations::CLUSTER_NAMESPACE: own});
    let unmark = json!({annotations::CLUSTER_NAMESPACE: null});
    let note = json!({format!("{}/{own}", annotations::PROJECTION_OF): "written"});
    let annotate = |marks: &Value| json!({"metadata": {"annotations": marks}});
    let mut attempts = vec![
        send(Method::PUT, &path, Some(("application/json", replaced)), expect),
        send(
            Method::PATCH,
            &apply,
            Some(("application/apply-patch+yaml", applied)),
            expect,
        ),
        send(
            Method::PATCH,
            &path,
            Some((MERGE, json!({"spec": {"intent": "steal"}}))),
            expect,
        ),
        send(Method::DELETE, &path, None, expect),
    ];
    attempts
        .extend([mark, unmark, note].map(|marks| send(Method::PATCH, &path, Some((MERGE, annotate(&marks))), expect)));
    Ok(attempts)
}

/// Making an object, by every verb that makes.
fn creations(name: &str, mark: Option<&str>, expect: Expect) -> Result<Vec<Attempt>> {
    let object = serde_json::to_value(sheriff(name, mark))?;
    let apply = format!("{SHERIFFS}/{name}?fieldManager=joe&force=true");
    Ok(vec![
        send(
            Method::POST,
            SHERIFFS,
            Some(("application/json", object.clone())),
            expect,
        ),
        send(
            Method::PATCH,
            &apply,
            Some(("application/apply-patch+yaml", object)),
            expect,
        ),
    ])
}

async fn offered() -> Result<Provider> {
    let provider = Provider::start_with("attack-modes", &lease::PATIENT).await?;
    provider
        .plane
        .apply(&manifests::folder("examples/sheriffs/provider")?)
        .await?;
    let templates: Api<APIServiceExportTemplate> = Api::all(provider.plane.client());
    for name in [PREFIXED, FIRST_WINS, LAST_WINS] {
        eventually_ok(format!("template {name} to be ready"), SOON, async || {
            let template = templates.get(name).await?;
            ensure!(template.is_condition_true("Ready"), "{:?}", template.conditions());
            Ok(())
        })
        .await?;
    }
    Ok(provider)
}

#[test]
fn who_overwrites_what_is_shared_writes_nothing_that_others_have_of_the_same_api() -> Result<()> {
    run(async {
        let provider = offered().await?;
        let (joe, zorro) = tokio::try_join!(
            Rider::settle(&provider, "joe", &[LAST_WINS]),
            Rider::settle(&provider, "zorro", &[PREFIXED, FIRST_WINS, LAST_WINS])
        )?;
        let (own, other) = (joe.contract.as_str(), zorro.contract.as_str());
        let shared = zorro.put("shared-by-choice", true).await?;
        let others = [
            zorro.put(&names::prefixed_name(other, "wyatt"), false).await?,
            zorro.put("first-come", false).await?,
        ];
        // What it may, which also shows that its rights are there.
        joe.put("joes", true).await?;
        attempt::all(&joe.client, &changes(&shared, own, Expect::Own)?).await?;
        attempt::all(&joe.client, &creations("joes-new", Some(own), Expect::Own)?).await?;

        let mut attempts = Vec::new();
        for object in &others {
            attempts.extend(changes(object, own, Expect::Policy)?);
        }
        for mark in [None, Some(own), Some(other)] {
            attempts.extend(creations(&names::prefixed_name(other, "new"), mark, Expect::Policy)?);
        }
        attempt::all(&joe.client, &attempts).await
    })
}
