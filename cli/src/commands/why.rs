//! `kubectl bind why`: reads all about one object, which [`crate::why`] explains.

mod claims;

use std::{io::Write, time::Duration};

use bindery_api::{
    annotations, meta,
    placement::Placement,
    v1alpha2::{APIServiceBinding, Scope},
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt as _;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::Context;
use crate::{
    args::WhyArgs,
    consumer::{
        Consumer,
        kinds::{Kind, kinds, resolve},
    },
    errors::Failure,
    install::owner::bundle_of,
    provider::contract::Contract,
    render::output::Format,
    why::{
        self, BindingFacts, BindingLink, CopyLocation, EventFacts, Facts, Level, MappedNamespaces, ObjectFacts,
        Relation, Seen, diagnose,
    },
};

/// How long `why --wait` repeats itself, unless `--timeout` says otherwise.
const PATIENCE: Duration = Duration::from_mins(2);
/// The pause before `why --wait` looks again.
const PAUSE: Duration = Duration::from_millis(500);
/// The namespace of events about cluster-scoped objects.
const CLUSTER_SCOPED_NAMESPACE: &str = "default";
/// The component that reports events about synced objects.
const REPORTER: &str = "kube-bind.io/konnector";

/// One call of the command: the object, and the client that reads it.
struct Asked<'a> {
    consumer: &'a Consumer,
    kinds: Vec<Kind>,
    kind: Kind,
    namespace: String,
    name: String,
}

/// `kubectl bind why KIND/NAME`
pub(crate) async fn run<W: Write>(context: &mut Context<W>, args: &WhyArgs) -> Result<(), Failure> {
    let (word, name) = words(&args.object)?;
    let consumer = Consumer::connect(&context.settings).await?;
    let (served, bindings) = tokio::join!(consumer.kinds(), consumer.bindings());
    let kinds = kinds(served?);
    let bindings = bindings.map_err(|failure| failure.to_string());
    let known = bindings.as_deref().unwrap_or_default();
    let kind = resolve(&kinds, word, |resource| {
        known
            .iter()
            .any(|binding| is_bound(binding, resource) || claims::is_claimed(binding, resource))
    })
    .map_err(Failure::Usage)?;
    let namespace = match (kind.namespaced, &args.namespace) {
        (false, _) => String::new(),
        (true, Some(namespace)) => namespace.clone(),
        (true, None) => consumer.namespace.clone(),
    };
    let asked = Asked {
        consumer: &consumer,
        kinds,
        kind,
        namespace,
        name: name.to_owned(),
    };
    let (start, patience) = (Instant::now(), context.settings.patience(PATIENCE));
    let mut bindings = bindings;
    let (facts, lines) = loop {
        let facts = asked.facts(bindings).await;
        if facts.is_nowhere() {
            return Err(Failure::NoObject(facts.title()));
        }
        let lines = diagnose(&facts);
        if !args.wait || unsettled(&lines).is_none() || start.elapsed() + PAUSE > patience {
            break (facts, lines);
        }
        sleep(PAUSE).await;
        bindings = consumer.bindings().await.map_err(|failure| failure.to_string());
    };
    let printer = &mut context.printer;
    match printer.format() {
        Format::Json | Format::Yaml => printer.document(&document(&facts, &lines)?),
        Format::Name => printer.text(&format!("{}/{}\n", facts.kind.resource(), facts.name)),
        Format::Table | Format::Wide => printer.text(&why::render(&facts, &lines, Timestamp::now())),
    }?;
    match unsettled(&lines).filter(|_| args.wait) {
        Some(line) => Err(Failure::TimedOut {
            what: format!("{} is not in sync", facts.title()),
            waited: start.elapsed(),
            last: line.what.clone(),
        }),
        None => Ok(()),
    }
}

/// What the object waits for, if anything.
fn unsettled(lines: &[why::Finding]) -> Option<&why::Finding> {
    lines.iter().find(|line| line.level != Level::Well)
}

/// Parses `KIND/NAME`, or `KIND` and `NAME`.
pub(super) fn words(words: &[String]) -> Result<(&str, &str), Failure> {
    let found = match words {
        [both] => both.split_once('/'),
        [kind, name] => Some((kind.as_str(), name.as_str())),
        _ => None,
    };
    found
        .filter(|(kind, name)| !kind.is_empty() && !name.is_empty() && !name.contains('/'))
        .ok_or_else(|| Failure::Usage("write KIND/NAME, such as cowboy/billy-the-kid, or KIND NAME".to_owned()))
}

fn document(facts: &Facts, lines: &[why::Finding]) -> Result<Value, Failure> {
    let mut document = serde_json::to_value(facts).map_err(|error| Failure::Format(error.to_string()))?;
    document["lines"] = json!(lines);
    Ok(document)
}

pub(super) fn is_bound(binding: &APIServiceBinding, resource: &bindery_api::v1alpha2::GroupResource) -> bool {
    binding
        .status
        .as_ref()
        .is_some_and(|status| status.bound_schemas.contains(resource))
}

impl Asked<'_> {
    fn key(&self) -> (&str, &str) {
        (&self.namespace, &self.name)
    }

    async fn facts(&self, bindings: Result<Vec<APIServiceBinding>, String>) -> Facts {
        let object = self.object().await;
        let (events, links) = tokio::join!(self.events(&object), self.links(&object, bindings));
        // The konnector writes to the object before it makes the copy: read after its copy, the object shows that write.
        let object = self.object().await;
        Facts {
            kind: self.kind.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            object,
            events,
            links,
        }
    }

    async fn object(&self) -> Seen<ObjectFacts> {
        let object = self
            .consumer
            .object(&self.kind.api(), &self.namespace, &self.name)
            .await;
        Seen::of(object.map_err(|failure| failure.to_string())).map(ObjectFacts::of)
    }

    async fn events(&self, object: &Seen<ObjectFacts>) -> Seen<Vec<EventFacts>> {
        let fields = match object {
            Seen::Is(object) => format!("involvedObject.uid={}", object.uid),
            Seen::Absent | Seen::Unknown(_) => {
                format!(
                    "involvedObject.kind={},involvedObject.name={}",
                    self.kind.name, self.name
                )
            }
        };
        let namespace = match self.namespace.as_str() {
            "" => CLUSTER_SCOPED_NAMESPACE,
            namespace => namespace,
        };
        match self.consumer.events(namespace, &fields).await {
            Ok(events) => Seen::Is(reported(events)),
            Err(failure) => Seen::Unknown(failure.to_string()),
        }
    }

    async fn links(
        &self,
        object: &Seen<ObjectFacts>,
        bindings: Result<Vec<APIServiceBinding>, String>,
    ) -> Vec<BindingLink> {
        let bindings = match bindings {
            Ok(bindings) => bindings,
            Err(why) => return unseen(object, &why),
        };
        let resource = self.kind.resource();
        let owner = self.owner().await;
        let mut links = Vec::new();
        for binding in &bindings {
            if is_bound(binding, &resource) || owner.as_deref() == Some(&binding.name_any()) {
                links.push(self.bound(binding).await);
            }
            links.extend(self.claimed(binding, object).await);
        }
        links
    }

    /// Reads from the CRD which binding the API belongs to, if the CRD can be read. The status of the binding says so only once it is
    /// bound.
    async fn owner(&self) -> Option<String> {
        let resource = self.kind.resource();
        if resource.is_core() {
            return None;
        }
        let apis = self.consumer.apis([&resource]).await.ok()?;
        apis.into_iter().find_map(|api| api.binding)
    }

    /// Reads what concerns the object of a binding that brings its API.
    async fn bound(&self, binding: &APIServiceBinding) -> BindingLink {
        let mut link = link(binding, Relation::Bound);
        let contract = match self.consumer.contract(binding).await {
            Ok(contract) => contract,
            Err(why) => return link.unseen(&why),
        };
        link.server = Some(contract.server.clone());
        let export = match contract.export(binding.export_name()).await {
            Ok(Some(export)) => export.spec,
            Ok(None) => {
                return link.unseen(&format!(
                    "the provider has no export {} any more",
                    binding.export_name()
                ));
            }
            Err(why) => return link.unseen(&why),
        };
        let scope = if self.kind.namespaced {
            Scope::Namespaced
        } else {
            Scope::Cluster
        };
        let placement = Placement::of(&export, scope);
        link.last_wins = placement.last_wins(&export);
        link.place = match self.mapped(&contract, &placement).await {
            Ok(mapped) => Seen::Is(why::place(&placement, &contract.name, self.key(), &mapped)),
            Err(why) => return link.unseen(&why),
        };
        link.copy = self.copy(&contract, &link.place).await;
        link
    }

    async fn mapped(&self, contract: &Contract, placement: &Placement) -> Result<MappedNamespaces, String> {
        match placement.request(&self.namespace.as_str().into()) {
            None => Ok(MappedNamespaces::default()),
            Some(namespace) => Ok(MappedNamespaces::of(contract.place(&namespace).await?.as_ref())),
        }
    }

    async fn copy(&self, contract: &Contract, place: &Seen<CopyLocation>) -> Seen<ObjectFacts> {
        match place {
            Seen::Is(CopyLocation::At { namespace, name }) => {
                let copy = contract.object(&self.kind.api(), namespace, name).await;
                Seen::of(copy).map(ObjectFacts::of)
            }
            Seen::Is(CopyLocation::Unmapped { .. }) | Seen::Absent => Seen::Absent,
            Seen::Unknown(why) => Seen::Unknown(why.clone()),
        }
    }
}

/// A link to a binding, with nothing of the provider read yet.
fn link(binding: &APIServiceBinding, relation: Relation) -> BindingLink {
    let status = binding.status.clone().unwrap_or_default();
    let facts = BindingFacts {
        name: binding.name_any(),
        contract: status.provider_namespace,
        home: binding.spec.kubeconfig_secret_ref.namespace.clone(),
        bundle: bundle_of(binding).map(|(name, _)| name.to_owned()),
        paused: meta::is_paused(&binding.metadata),
        deleting: binding.metadata.deletion_timestamp.as_ref().map(|time| time.0),
        conditions: status.conditions,
    };
    BindingLink {
        binding: Seen::Is(facts),
        relation,
        server: None,
        place: Seen::Absent,
        copy: Seen::Absent,
        last_wins: false,
    }
}

/// The links where bindings cannot be listed: one, if the object itself tells that it has a binding.
fn unseen(object: &Seen<ObjectFacts>, why: &str) -> Vec<BindingLink> {
    let is_bound = object
        .is()
        .is_none_or(|object| object.is_held() || object.annotation(annotations::PROVIDER_NAMESPACE).is_some());
    let link = BindingLink {
        binding: Seen::Unknown(why.to_owned()),
        relation: Relation::Bound,
        server: None,
        place: Seen::Unknown(why.to_owned()),
        copy: Seen::Unknown(why.to_owned()),
        last_wins: false,
    };
    is_bound.then_some(link).into_iter().collect()
}

/// Picks the konnector's events, the newest first.
fn reported(events: Vec<Event>) -> Vec<EventFacts> {
    let events = events
        .into_iter()
        .filter(|event| event.reporting_component.as_deref() == Some(REPORTER));
    let mut reported: Vec<_> = events
        .map(|event| EventFacts {
            at: event
                .series
                .and_then(|series| series.last_observed_time)
                .or(event.event_time)
                .map(|time| time.0)
                .or_else(|| event.last_timestamp.map(|time| time.0)),
            warning: event.type_.as_deref() == Some("Warning"),
            reason: event.reason.unwrap_or_default(),
            message: event.message.unwrap_or_default(),
        })
        .collect();
    reported.sort_by_key(|event| std::cmp::Reverse(event.at));
    reported
}

impl BindingLink {
    fn unseen(mut self, why: &str) -> Self {
        self.place = Seen::Unknown(why.to_owned());
        self.copy = Seen::Unknown(why.to_owned());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_named_with_or_without_a_slash() {
        let split = |list: &[&str]| {
            let list: Vec<_> = list.iter().map(|word| (*word).to_owned()).collect();
            words(&list).map(|(kind, name)| format!("{kind} {name}")).ok()
        };
        assert_eq!(split(&["cowboy/billy"]).as_deref(), Some("cowboy billy"));
        assert_eq!(split(&["cowboy", "billy"]).as_deref(), Some("cowboy billy"));
        for nonsense in [
            &["cowboy"][..],
            &["/billy"],
            &["cowboy/"],
            &["a/b/c"],
            &["cowboy", "west/billy"],
        ] {
            assert_eq!(split(nonsense), None, "{nonsense:?}");
        }
    }

    #[test]
    fn the_newest_report_of_the_konnector_comes_first() {
        let event = |component: &str, reason: &str, at: &str, series: Option<&str>| {
            serde_json::from_value::<Event>(json!({
                "metadata": {}, "involvedObject": {}, "reportingComponent": component, "reason": reason, "type": "Warning",
                "eventTime": at, "series": series.map(|at| json!({ "count": 2, "lastObservedTime": at })),
            }))
            .unwrap()
        };
        let reported = reported(vec![
            event(REPORTER, "Old", "2026-01-01T00:00:01.000000Z", None),
            event("kubelet", "Other", "2026-01-01T00:00:09.000000Z", None),
            event(
                REPORTER,
                "Again",
                "2026-01-01T00:00:00.000000Z",
                Some("2026-01-01T00:00:05.000000Z"),
            ),
        ]);
        assert_eq!(
            reported.iter().map(|event| event.reason.as_str()).collect::<Vec<_>>(),
            ["Again", "Old"]
        );
        assert!(reported[0].warning);
    }

    #[test]
    fn an_object_tells_of_a_binding_that_nobody_shows() {
        let held = ObjectFacts {
            finalizers: vec![bindery_api::finalizers::SYNCER.to_owned()],
            ..ObjectFacts::default()
        };
        assert_eq!(unseen(&Seen::Is(held), "forbidden").len(), 1);
        assert_eq!(unseen(&Seen::Is(ObjectFacts::default()), "forbidden").len(), 0);
        assert_eq!(unseen(&Seen::Absent, "forbidden").len(), 1);
    }
}
