//! Traces: what a collector gets of a bind, of a change, and of the status that follows it. Nothing of it is content, and no span is as long as
//! a stream.

use std::{collections::BTreeSet, fs, time::Duration};

use anyhow::{Context as _, Result, ensure};
use bindery_api::{annotations, names};
use bindery_e2e::{
    Consumer, Provider, claiming,
    collector::Collector,
    eventually, eventually_ok, holds_for, http, lease,
    offer::Offer,
    run,
    wildwest::{self, SOON},
};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt as _,
    api::{DynamicObject, Patch, PatchParams, PostParams},
};
use opentelemetry_proto::tonic::{
    common::v1::any_value::Value,
    trace::v1::{Span, span::SpanKind},
};
use serde_json::json;

/// Far longer than any call or change takes here, and far shorter than the streams of the test.
const SPAN_MAX: Duration = Duration::from_mins(1);
const PLANTED: &str = "planted-f3a9c1";
const OFFER: Offer = Offer { name: "traced" };

/// The span of this name for which `is_so` is true.
fn find(collector: &Collector, name: &str, is_so: impl Fn(&Span) -> bool) -> Result<Span> {
    let spans = collector.spans();
    let found = spans.iter().find(|span| span.name == name && is_so(span)).cloned();
    found.with_context(|| {
        let names: BTreeSet<_> = spans.iter().map(|span| &span.name).collect();
        format!("no such span {name} among {names:?}")
    })
}

fn attribute<'a>(span: &'a Span, key: &str) -> Option<&'a str> {
    let found = span.attributes.iter().find(|attribute| attribute.key == key)?;
    match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text),
        _ => None,
    }
}

fn is_child(span: &Span, parent: &Span) -> bool {
    (&span.trace_id, &span.parent_span_id) == (&parent.trace_id, &parent.span_id)
}

fn is_about(span: &Span, object: &str) -> bool {
    attribute(span, "bindery.object") == Some(object)
}

/// The clusters, with an API bound whose template claims Secrets.
struct World {
    provider: Provider,
    consumer: Consumer,
    collector: Collector,
    ours: Api<DynamicObject>,
    copies: Api<DynamicObject>,
    place: String,
    token: String,
}

impl World {
    async fn start() -> Result<Self> {
        let (collector, url) = Collector::start().await?;
        let endpoint = format!("--trace-endpoint={url}");
        let flags = [&lease::PATIENT[..], &[&endpoint, "--trace-sample=1"]].concat();
        let (provider, consumer) = tokio::try_join!(
            Provider::start_with("traced-p", &flags),
            Consumer::start_with("traced-c", &flags)
        )?;
        claiming::publish(&provider, OFFER).await?;
        let token = provider.principal("team", &[OFFER.name]).await?;
        consumer
            .bind(&provider, &token, &[OFFER.name, "--accept-claims"])
            .await?;
        let contract = Provider::contract(&consumer.identity().await?);
        let place = names::provider_namespace(&contract, OFFER.name);
        wildwest::namespace(consumer.plane.client(), OFFER.name).await?;
        Ok(Self {
            ours: Api::namespaced_with(consumer.plane.client(), OFFER.name, &OFFER.resource()),
            copies: Api::namespaced_with(provider.plane.client(), &place, &OFFER.resource()),
            place,
            token: fs::read_to_string(&token)?,
            provider,
            consumer,
            collector,
        })
    }

    /// Makes an object, and lets the provider report its status.
    async fn change(&self) -> Result<()> {
        let widget = OFFER.widget("wagon", PLANTED);
        self.ours.create(&PostParams::default(), &widget).await?;
        let copy = wildwest::wait("the copy", &self.copies, "wagon", |_| true).await?;
        ensure!(copy.annotations().contains_key(annotations::TRACEPARENT), "{copy:?}");
        let status = Patch::Merge(json!({"status": {"color": PLANTED}}));
        self.copies
            .patch_status("wagon", &PatchParams::default(), &status)
            .await?;
        let is_reported = |object: &DynamicObject| object.data["status"]["color"] == PLANTED;
        let object = wildwest::wait("the status", &self.ours, "wagon", is_reported).await?;
        ensure!(
            !object.annotations().contains_key(annotations::TRACEPARENT),
            "the consumer's object stays free of it: {object:?}"
        );
        Ok(())
    }

    /// Makes a Secret that the provider claims.
    async fn claimed(&self) -> Result<()> {
        let secret: Secret = serde_json::from_value(json!({
            "metadata": {"name": "permit", "labels": {"claims": "yes"}}, "stringData": {"token": PLANTED},
        }))?;
        let ours: Api<Secret> = Api::namespaced(self.consumer.plane.client(), OFFER.name);
        ours.create(&PostParams::default(), &secret).await?;
        let copies: Api<Secret> = Api::namespaced(self.provider.plane.client(), &self.place);
        eventually_ok("the copy of the Secret", SOON, async || {
            Ok(copies.get("permit").await?)
        })
        .await
        .map(drop)
    }
}

#[test]
fn a_bind_and_a_change_are_traced_without_their_content() -> Result<()> {
    run(async {
        let mut world = World::start().await?;
        world.change().await?;
        world.claimed().await?;
        eventually_ok("the trace of the change", SOON, async || of_change(&world.collector)).await?;
        eventually_ok("the trace of the Secret", SOON, async || of_secret(&world.collector)).await?;
        eventually_ok("the trace of the bind", SOON, async || of_bind(&world.collector)).await?;
        eventually_ok("the opening of the stream", SOON, async || of_stream(&world.collector)).await?;
        let streams = http::get(world.provider.admin_port(), "/metrics").await?.1;
        let is_open = |line: &str| line.starts_with("bindery_grpc_streams{") && line.contains("WatchExports");
        let open = streams.lines().find(|line| is_open(line));
        ensure!(
            open.is_some_and(|line| line.ends_with(" 1")),
            "the stream is open still: {open:?}"
        );
        for span in world.collector.spans() {
            let length = Duration::from_nanos(span.end_time_unix_nano.saturating_sub(span.start_time_unix_nano));
            ensure!(length < SPAN_MAX, "{} is {length:?} long", span.name);
        }
        no_annotation_causes_a_write(&mut world).await?;
        let sent = format!("{:?}", world.collector.kept());
        for secret in [PLANTED, world.token.trim(), "cGxhbnRlZC"] {
            ensure!(!sent.contains(secret), "{secret} was sent to the collector");
        }
        Ok(())
    })
}

fn of_change(collector: &Collector) -> Result<()> {
    let change = find(collector, "change", |span| {
        is_about(span, "wagon") && span.parent_span_id.is_empty()
    })?;
    ensure!(attribute(&change, "bindery.resource") == Some("widgets"), "{change:?}");
    ensure!(attribute(&change, "bindery.binding") == Some(OFFER.name), "{change:?}");
    find(collector, "queue", |span| is_child(span, &change))?;
    // The provider namespace may not be there when the object is: then a later attempt makes the copy.
    let create = find(collector, "create", |span| {
        span.trace_id == change.trace_id && attribute(span, "bindery.code") == Some("ok")
    })?;
    ensure!(attribute(&create, "bindery.cluster") == Some("provider"), "{create:?}");
    let attempt = collector.spans();
    let attempt = attempt.iter().find(|span| is_child(&create, span));
    let attempt = attempt.context("the write has no parent")?;
    ensure!(
        attempt.span_id == change.span_id || is_child(attempt, &change),
        "{attempt:?}"
    );
    let status = find(collector, "status", |span| is_child(span, &create))?;
    ensure!(attribute(&status, "bindery.cluster") == Some("consumer"), "{status:?}");
    ensure!(status.kind == SpanKind::Client as i32, "{status:?}");
    Ok(())
}

fn of_secret(collector: &Collector) -> Result<()> {
    let change = find(collector, "change", |span| is_about(span, "permit"))?;
    find(collector, "create_copy", |span| span.trace_id == change.trace_id)?;
    Ok(())
}

/// One of the calls of the bind made the export: its trace has what each controller did for it.
fn of_bind(collector: &Collector) -> Result<()> {
    const NAME: &str = "kubebind.v1alpha2.BindingService/CreateBindableResourcesRequest";
    let spans = collector.spans();
    let calls = spans
        .iter()
        .filter(|span| span.name == NAME && span.kind == SpanKind::Server as i32 && span.parent_span_id.is_empty());
    let worked = calls.map(|call| {
        let of_call = spans
            .iter()
            .filter(|span| span.name == "reconcile" && is_child(span, call));
        let controllers: BTreeSet<_> = of_call
            .filter_map(|span| attribute(span, "bindery.controller"))
            .collect();
        (attribute(call, "bindery.code"), controllers)
    });
    let worked: Vec<_> = worked.collect();
    let all = BTreeSet::from(["export", "export-request", "request"]);
    ensure!(
        worked.contains(&(Some("OK"), all)),
        "controllers worked for the calls: {worked:?}"
    );
    Ok(())
}

/// The konnector's call and the server's are one trace.
fn of_stream(collector: &Collector) -> Result<()> {
    let name = "kubebind.v1alpha2.ExportService/WatchExports";
    let sent = find(collector, name, |span| span.kind == SpanKind::Client as i32)?;
    find(collector, name, |span| {
        span.kind == SpanKind::Server as i32 && is_child(span, &sent)
    })?;
    Ok(())
}

/// A konnector that traces nothing writes nothing because of what a former one traced. Its next write removes the annotation.
async fn no_annotation_causes_a_write(world: &mut World) -> Result<()> {
    let before = world.copies.get("wagon").await?;
    ensure!(
        before.annotations().contains_key(annotations::TRACEPARENT),
        "{before:?}"
    );
    world.consumer.stop_konnectors().await?;
    world.consumer.set_flag("--trace-sample", "0");
    world.consumer.start_konnector().await?;
    // A change of another object shows that it is in sync again.
    let other = OFFER.widget("other", "red");
    world.ours.create(&PostParams::default(), &other).await?;
    let copy = wildwest::wait("the copy of another object", &world.copies, "other", |_| true).await?;
    ensure!(!copy.annotations().contains_key(annotations::TRACEPARENT), "{copy:?}");
    holds_for("no write because of a trace", Duration::from_secs(2), async || {
        let now = world.copies.get("wagon").await?;
        ensure!(now.resource_version() == before.resource_version(), "{now:?}");
        Ok(())
    })
    .await?;
    let patch = Patch::Merge(json!({"spec": {"color": "blue"}}));
    world.ours.patch("wagon", &PatchParams::default(), &patch).await?;
    eventually("the annotation to go with the next write", SOON, || async {
        let copy = world.copies.get("wagon").await?;
        let is_written = copy.data["spec"]["color"] == "blue";
        let is_traced = copy.annotations().contains_key(annotations::TRACEPARENT);
        Ok((is_written && !is_traced).then_some(()))
    })
    .await
}
