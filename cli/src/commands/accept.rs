//! `accept`: shows which contracts this cluster may not go on with, because another konnector may hold them, and goes on with one.

use std::{
    io::{IsTerminal as _, Write},
    time::Duration,
};

use bindery_api::{
    Conditions as _, annotations,
    conditions::OBJECTS_IN_SYNC,
    finalizers,
    holder::{HELD, HolderDigest, HolderOrder},
    v1alpha2::APIServiceBinding,
};
use jiff::Timestamp;
use kube::{ResourceExt as _, api::DynamicObject};
use serde::Serialize;

use super::Context;
use crate::{
    args::AcceptArgs,
    claims::is_plain_yes,
    consumer::{Consumer, kinds::kinds, wait::Watched},
    errors::Failure,
    render::output::{Show, age, printable},
};

/// How long it may take the konnector to go on, unless `--timeout` says otherwise.
const PATIENCE: Duration = Duration::from_mins(2);

/// What a binding waits for the user to accept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Waiting {
    binding: String,
    reason: String,
    since: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    writes: Option<Writes>,
    message: String,
    #[serde(skip)]
    order: HolderOrder,
}

/// What the konnector would write, as far as this cluster tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Writes {
    /// Objects here that note no copy: a copy is created, unless the provider has one.
    create: usize,
    /// Objects here that note a copy: it is written where it differs.
    update: usize,
    /// Objects here that are being deleted: their copies are deleted.
    delete: usize,
}

/// `kubectl bind accept [BINDING]`
pub(crate) async fn run<W: Write>(context: &mut Context<W>, args: &AcceptArgs) -> Result<(), Failure> {
    let consumer = Consumer::connect(&context.settings).await?;
    let Some(name) = &args.binding else {
        let bindings = consumer.bindings().await?;
        let waiting: Vec<_> = bindings.iter().filter_map(waiting).collect();
        if waiting.is_empty() {
            context.steps.note("every binding goes on; there is nothing to accept");
        }
        return context.printer.list(&waiting, Timestamp::now());
    };
    let binding = consumer.binding(name).await?;
    let Some(mut found) = waiting(&binding) else {
        context
            .steps
            .note(&format!("APIServiceBinding {name} goes on; there is nothing to accept"));
        return context.printer.list::<Waiting>(&[], Timestamp::now());
    };
    let writes = writes(&consumer, &binding).await?;
    found.writes = Some(writes);
    context.steps.note(&found.message);
    if let Some(advice) = advice(&found.reason) {
        context.steps.note(advice);
    }
    context.steps.note(&writes.told());
    confirm(&found, args.yes)?;
    consumer
        .annotate(&binding, annotations::ACCEPT_HOLDER, &found.order.to_string())
        .await?;
    // Started after that, so that a state without the order is one in which the konnector has answered it.
    let watched = Watched::<APIServiceBinding>::start(&consumer, "", name, context.settings.patience(PATIENCE));
    context.steps.done(&format!(
        "asked the konnector to go on with the contract of APIServiceBinding {name}"
    ));
    let mut left = vec![found.clone()];
    if args.wait {
        let after = watched.accepted(&found.order, &context.steps).await?;
        left = after.as_deref().and_then(waiting).into_iter().collect();
        context.steps.done(&if left.is_empty() {
            format!("APIServiceBinding {name} goes on")
        } else {
            format!("APIServiceBinding {name} still waits; events of the binding say why")
        });
    }
    context.printer.list(&left, Timestamp::now())
}

/// What a binding waits for the user to accept; `None` if it waits for nothing.
fn waiting(binding: &APIServiceBinding) -> Option<Waiting> {
    let held = binding.condition(HELD).filter(|held| !held.is_true());
    let found = held.and_then(|held| Some((held, HolderDigest::of_message(&held.message)?)));
    if let Some((held, digest)) = found {
        return Some(Waiting {
            binding: binding.name_any(),
            reason: held.reason.clone(),
            since: held.last_transition_time.0,
            writes: None,
            message: held.message.strip_suffix(&digest.closing())?.to_owned(),
            order: HolderOrder::Accept(digest),
        });
    }
    // Single objects may have gone back to an older state within the time that no record shows.
    let objects = binding
        .condition(OBJECTS_IN_SYNC)
        .filter(|objects| !objects.is_true())?;
    objects.message.contains("kubectl bind accept").then(|| Waiting {
        binding: binding.name_any(),
        reason: "OlderSource".to_owned(),
        since: objects.last_transition_time.0,
        writes: None,
        message: objects.message.clone(),
        order: HolderOrder::BeginAnew,
    })
}

/// What the user has to find out before accepting, by the reason of the condition Held.
fn advice(reason: &str) -> Option<&'static str> {
    match reason {
        "SecondInstall" => Some(
            "accept if the konnector of this cluster was removed and installed again, or its Lease was deleted; if another cluster or \
             another konnector of this one serves the contract, remove one of the two first",
        ),
        "OlderKonnector" => Some(
            "accept if the konnector of this cluster was rolled back and upgraded again; if a konnector of an older version still runs, \
             here or in a clone of this cluster, stop it first: it does not know of other holders, and goes on writing",
        ),
        "RecordDeleted" => Some(
            "accept if no other cluster was bound to the contract since its ClusterBinding was deleted; what differs on the two clusters \
             is written from this one",
        ),
        _ => None,
    }
}

/// Counts what the konnector would write for the bound objects of this cluster.
async fn writes(consumer: &Consumer, binding: &APIServiceBinding) -> Result<Writes, Failure> {
    let status = binding.status.as_ref();
    let bound = status.map(|status| status.bound_schemas.as_slice()).unwrap_or_default();
    let mut writes = Writes::default();
    for kind in kinds(consumer.kinds().await?) {
        if !bound.contains(&kind.resource()) {
            continue;
        }
        for object in consumer.everywhere(&kind.api()).await? {
            writes.count(&object);
        }
    }
    Ok(writes)
}

/// Asks the user, unless a flag has answered.
fn confirm(waiting: &Waiting, answered: bool) -> Result<(), Failure> {
    if answered {
        return Ok(());
    }
    let what = format!(
        "this cluster goes on with APIServiceBinding {}",
        printable(&waiting.binding)
    );
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(Failure::Usage(format!(
            "{what} only after a yes, and there is no terminal to ask on; add --yes"
        )));
    }
    let mut terminal = std::io::stderr().lock();
    write!(
        terminal,
        "Is this the cluster that goes on with APIServiceBinding {}? Any other one stops. [y/N] ",
        printable(&waiting.binding)
    )?;
    terminal.flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    if is_plain_yes(&answer) {
        return Ok(());
    }
    Err(Failure::WaitsStill(waiting.binding.clone()))
}

// === impl Writes ===

impl Writes {
    fn count(&mut self, object: &DynamicObject) {
        let has_copy = object.annotations().contains_key(annotations::PROVIDER_UID);
        let is_held = object.finalizers().iter().any(|one| one == finalizers::SYNCER);
        match object.metadata.deletion_timestamp {
            Some(_) if is_held => self.delete += 1,
            Some(_) => {}
            None if has_copy => self.update += 1,
            None => self.create += 1,
        }
    }

    /// Tells what would be written.
    fn told(self) -> String {
        format!(
            "by what this cluster has, the konnector would create {} copies, write up to {} that differ from their objects here, and \
             delete {} whose objects are being deleted; copies of objects that this cluster does not have are kept as orphans",
            self.create, self.update, self.delete
        )
    }
}

impl Show for Waiting {
    const HEADINGS: &'static [&'static str] = &["BINDING", "REASON", "SINCE", "WHY"];
    const PLAIN: usize = 4;

    fn cells(&self, now: Timestamp) -> Vec<String> {
        vec![
            self.binding.clone(),
            self.reason.clone(),
            age(Some(self.since), now),
            self.message.clone(),
        ]
    }

    fn reference(&self) -> String {
        format!("apiservicebinding.kube-bind.io/{}", self.binding)
    }
}

#[cfg(test)]
mod tests {
    use bindery_api::{
        Severity,
        conditions::{self, false_condition},
        holder::RecordedHolder,
        v1alpha2::APIServiceBindingSpec,
    };
    use serde_json::json;

    use super::*;

    fn told(kind: &str, reason: &str, message: &str) -> APIServiceBinding {
        let mut binding = APIServiceBinding::new("cowboys", APIServiceBindingSpec::default());
        let status = binding.status.get_or_insert_default();
        let condition = false_condition(kind, Severity::Error, reason, message);
        conditions::set(&mut status.conditions, condition, Timestamp::UNIX_EPOCH);
        binding
    }

    #[test]
    fn what_the_condition_tells_is_shown_and_accepted() {
        assert_eq!(
            waiting(&APIServiceBinding::new("cowboys", APIServiceBindingSpec::default())),
            None
        );
        let digest = RecordedHolder::default().digest();
        let found = waiting(&told(HELD, "SecondInstall", &format!("it waits{}", digest.closing()))).unwrap();
        assert_eq!(found.message, "it waits");
        assert_eq!(found.order, HolderOrder::Accept(digest));
        let now = Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_mins(5);
        assert_eq!(found.cells(now), ["cowboys", "SecondInstall", "5m", "it waits"]);
        let older = told(OBJECTS_IN_SYNC, "ObjectsFailing", "some are older: kubectl bind accept");
        assert_eq!(waiting(&older).unwrap().order, HolderOrder::BeginAnew);
        assert_eq!(waiting(&told(OBJECTS_IN_SYNC, "ObjectsFailing", "other")), None);
    }

    #[test]
    fn who_has_to_find_out_something_is_told_what() {
        for (reason, says) in [
            ("SecondInstall", "removed and installed again"),
            ("OlderKonnector", "rolled back and upgraded again"),
            ("RecordDeleted", "no other cluster was bound"),
        ] {
            assert!(advice(reason).is_some_and(|advice| advice.contains(says)), "{reason}");
        }
        assert_eq!(advice("RestoredOrCloned"), None, "its message says all");
    }

    #[test]
    fn what_would_be_written_is_counted() {
        let object = |meta: serde_json::Value| -> DynamicObject {
            serde_json::from_value(json!({"apiVersion": "a/v1", "kind": "A", "metadata": meta})).unwrap()
        };
        let mut writes = Writes::default();
        let copied = json!({annotations::PROVIDER_UID: "u"});
        let ended = "2026-01-01T00:00:00Z";
        for meta in [
            json!({"name": "new"}),
            json!({"name": "old", "annotations": copied}),
            json!({"name": "ends", "annotations": copied, "finalizers": [finalizers::SYNCER], "deletionTimestamp": ended}),
            json!({"name": "ends-without-us", "finalizers": ["x/y"], "deletionTimestamp": ended}),
        ] {
            writes.count(&object(meta));
        }
        assert_eq!(
            writes,
            Writes {
                create: 1,
                update: 1,
                delete: 1
            }
        );
        assert!(writes.told().contains("create 1 copies"));
    }
}
