//! `retained`, `restore` and `discard`: deleted objects whose copies the provider retains, and how that ends before its time.

use std::{
    io::{IsTerminal as _, Write},
    time::Duration,
};

use bindery_api::{
    annotations,
    retention::{RetentionAction, RetentionOrder},
    v1alpha2::{APIServiceBinding, GroupResource, RetainedObject},
};
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde::Serialize;
use tokio::time::{Instant, sleep};

use super::{
    Context,
    why::{is_bound, words},
};
use crate::{
    args::{DiscardArgs, EndRetentionArgs, RetainedArgs},
    claims::is_plain_yes,
    consumer::{
        Consumer,
        kinds::{Kind, kinds, resolve},
    },
    errors::Failure,
    render::output::{Show, age, printable},
};

/// How long it may take to restore or to discard, unless `--timeout` says otherwise.
const PATIENCE: Duration = Duration::from_mins(2);
/// The pause before the binding and the object are read again.
const PAUSE: Duration = Duration::from_millis(500);

/// One deleted object whose copy is retained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    binding: String,
    resource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    namespace: String,
    name: String,
    since: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<Timestamp>,
}

/// The object that an order is about.
struct Ordered {
    binding: APIServiceBinding,
    kind: Kind,
    order: RetentionOrder,
}

/// `kubectl bind retained [BINDING]`
pub(crate) async fn run<W: Write>(context: &mut Context<W>, args: &RetainedArgs) -> Result<(), Failure> {
    let consumer = Consumer::connect(&context.settings).await?;
    let bindings = match &args.binding {
        Some(name) => vec![consumer.binding(name).await?],
        None => consumer.bindings().await?,
    };
    let listed: Vec<_> = bindings.iter().flat_map(listed).collect();
    if listed.is_empty() {
        context.steps.note("the provider retains no copy of a deleted object");
    }
    for binding in &bindings {
        let beyond = count(binding).saturating_sub(self::listed(binding).len());
        if beyond > 0 {
            let name = binding.name_any();
            context
                .steps
                .note(&format!("{beyond} more of APIServiceBinding {name} are not listed"));
        }
    }
    context.printer.list(&listed, Timestamp::now())
}

/// `kubectl bind restore KIND/NAME`
pub(crate) async fn restore<W: Write>(context: &mut Context<W>, args: &EndRetentionArgs) -> Result<(), Failure> {
    let consumer = Consumer::connect(&context.settings).await?;
    let ordered = ordered(&consumer, args, RetentionAction::Restore).await?;
    let Ordered { kind, order, .. } = &ordered;
    if consumer
        .object(&kind.api(), &order.namespace, &order.name)
        .await?
        .is_some()
    {
        return Err(Failure::Retention(format!(
            "{} exists; delete it first if you want the former object of that name back",
            named(order)
        )));
    }
    carry_out(context, &consumer, &ordered, args.wait).await
}

/// `kubectl bind discard KIND/NAME`
pub(crate) async fn discard<W: Write>(context: &mut Context<W>, args: &DiscardArgs) -> Result<(), Failure> {
    let consumer = Consumer::connect(&context.settings).await?;
    let ordered = ordered(&consumer, &args.of, RetentionAction::Discard).await?;
    confirm(&ordered.order, args.yes)?;
    carry_out(context, &consumer, &ordered, args.of.wait).await
}

/// Finds the binding of the object, and fails if it certainly has no retained copy.
async fn ordered(consumer: &Consumer, args: &EndRetentionArgs, action: RetentionAction) -> Result<Ordered, Failure> {
    let (word, name) = words(&args.object)?;
    let (served, bindings) = tokio::join!(consumer.kinds(), consumer.bindings());
    let (kinds, bindings) = (kinds(served?), bindings?);
    let is_any = |resource: &GroupResource| bindings.iter().any(|binding| is_bound(binding, resource));
    let kind = resolve(&kinds, word, is_any).map_err(Failure::Usage)?;
    let resource = kind.resource();
    let namespace = match (kind.namespaced, &args.namespace) {
        (false, _) => String::new(),
        (true, Some(namespace)) => namespace.clone(),
        (true, None) => consumer.namespace.clone(),
    };
    let order = RetentionOrder {
        action,
        resource: resource.clone(),
        namespace,
        name: name.to_owned(),
    };
    let binding = bindings.into_iter().find(|binding| is_bound(binding, &resource));
    let Some(binding) = binding else {
        return Err(Failure::Retention(format!("no binding brings {resource}")));
    };
    if !may_be_retained(&binding, &order) {
        return Err(Failure::Retention(format!(
            "the provider retains no copy of {}; kubectl bind retained lists what can be restored",
            named(&order)
        )));
    }
    Ok(Ordered { binding, kind, order })
}

/// Writes the order, and waits until it is carried out.
async fn carry_out<W: Write>(
    context: &mut Context<W>,
    consumer: &Consumer,
    ordered: &Ordered,
    waits: bool,
) -> Result<(), Failure> {
    let Ordered { binding, order, .. } = ordered;
    let key = annotations::END_RETENTION;
    if binding.annotations().contains_key(key) {
        return Err(Failure::Retention(format!(
            "the konnector has not taken the order before this one yet; try again, or remove annotation {key} of APIServiceBinding {}",
            binding.name_any()
        )));
    }
    let before: Vec<_> = listed(binding)
        .into_iter()
        .filter(|listed| listed.is_of(order))
        .collect();
    consumer.annotate(binding, key, &order.to_string()).await?;
    context.steps.done(&format!(
        "asked the konnector to {} {}",
        order.action.as_str(),
        named(order)
    ));
    if waits {
        let patience = context.settings.patience(PATIENCE);
        carried_out(consumer, ordered, patience).await?;
        context.steps.done(&match order.action {
            RetentionAction::Restore => format!("{} is restored", named(order)),
            RetentionAction::Discard => format!("the copy of {} is deleted", named(order)),
        });
    }
    context.printer.list(&before, Timestamp::now())
}

/// Waits until the order is carried out.
async fn carried_out(consumer: &Consumer, ordered: &Ordered, patience: Duration) -> Result<(), Failure> {
    let Ordered { binding, kind, order } = ordered;
    let start = Instant::now();
    loop {
        let now = consumer.binding(&binding.name_any()).await?;
        let is_taken = !now.annotations().contains_key(annotations::END_RETENTION);
        let is_done = match order.action {
            RetentionAction::Restore => consumer
                .object(&kind.api(), &order.namespace, &order.name)
                .await?
                .is_some(),
            RetentionAction::Discard => !listed(&now).iter().any(|listed| listed.is_of(order)),
        };
        if is_taken && is_done {
            return Ok(());
        }
        if start.elapsed() + PAUSE > patience {
            return Err(Failure::TimedOut {
                what: format!("{} is not done", order.action.as_str()),
                waited: start.elapsed(),
                last: if is_taken {
                    format!("events of APIServiceBinding {} say why", binding.name_any())
                } else {
                    "the konnector has not taken the order".to_owned()
                },
            });
        }
        sleep(PAUSE).await;
    }
}

/// Asks the user, unless a flag has answered.
fn confirm(order: &RetentionOrder, answered: bool) -> Result<(), Failure> {
    if answered {
        return Ok(());
    }
    let what = format!("the copy of {}", printable(&named(order)));
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(Failure::Usage(format!(
            "{what} is deleted only after a yes, and there is no terminal to ask on; add --yes"
        )));
    }
    let mut terminal = std::io::stderr().lock();
    write!(terminal, "Delete {what} on the provider? [y/N] ")?;
    terminal.flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    if is_plain_yes(&answer) {
        return Ok(());
    }
    Err(Failure::Retention(format!("{what} stays: you did not confirm it")))
}

fn named(order: &RetentionOrder) -> String {
    let RetentionOrder {
        resource,
        namespace,
        name,
        ..
    } = order;
    if namespace.is_empty() {
        format!("{resource} {name}")
    } else {
        format!("{resource} {namespace}/{name}")
    }
}

/// The retained copies that the status of a binding lists.
fn listed(binding: &APIServiceBinding) -> Vec<Listed> {
    let of = |object: &RetainedObject| Listed {
        binding: binding.name_any(),
        resource: object.group_resource.to_string(),
        namespace: object.namespace.clone(),
        name: object.name.clone(),
        since: object.since.0,
        until: object.until(),
    };
    let retained = binding.status.as_ref().and_then(|status| status.retained.as_ref());
    retained
        .into_iter()
        .flat_map(|retained| &retained.first)
        .map(of)
        .collect()
}

/// The number of retained copies of a binding.
fn count(binding: &APIServiceBinding) -> usize {
    let retained = binding.status.as_ref().and_then(|status| status.retained.as_ref());
    retained.map_or(0, |retained| usize::try_from(retained.count).unwrap_or_default())
}

/// Whether the object is listed, or others are that are not listed.
fn may_be_retained(binding: &APIServiceBinding, order: &RetentionOrder) -> bool {
    let listed = listed(binding);
    count(binding) > listed.len() || listed.iter().any(|listed| listed.is_of(order))
}

// === impl Listed ===

impl Listed {
    fn is_of(&self, order: &RetentionOrder) -> bool {
        (&self.resource, &self.namespace, &self.name) == (&order.resource.to_string(), &order.namespace, &order.name)
    }
}

impl Show for Listed {
    const HEADINGS: &'static [&'static str] = &["RESOURCE", "NAMESPACE", "NAME", "DELETED", "UNTIL", "BINDING"];
    const PLAIN: usize = 5;

    fn cells(&self, now: Timestamp) -> Vec<String> {
        vec![
            self.resource.clone(),
            self.namespace.clone(),
            self.name.clone(),
            age(Some(self.since), now),
            self.until.map(|until| until.to_string()).unwrap_or_default(),
            self.binding.clone(),
        ]
    }

    fn reference(&self) -> String {
        format!("{}/{}", self.resource, self.name)
    }
}

#[cfg(test)]
mod tests {
    use bindery_api::v1alpha2::{APIServiceBindingSpec, RetainedObjects};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn binding(count: i64) -> APIServiceBinding {
        let mut binding = APIServiceBinding::new("cowboys", APIServiceBindingSpec::default());
        let status = binding.status.get_or_insert_default();
        status.retained = Some(RetainedObjects {
            count,
            first: vec![RetainedObject {
                group_resource: GroupResource::new("wildwest.dev", "cowboys"),
                namespace: "wild-west".to_owned(),
                name: "billy".to_owned(),
                since: Time(Timestamp::UNIX_EPOCH),
                until: None,
            }],
        });
        binding
    }

    fn order(name: &str) -> RetentionOrder {
        format!("restore/cowboys.wildwest.dev/wild-west/{name}")
            .parse()
            .unwrap()
    }

    #[test]
    fn what_the_status_lists_is_shown_and_found() {
        let listed = listed(&binding(1));
        let now = Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_mins(5);
        assert_eq!(
            listed[0].cells(now),
            ["cowboys.wildwest.dev", "wild-west", "billy", "5m", "", "cowboys"]
        );
        assert_eq!(listed[0].reference(), "cowboys.wildwest.dev/billy");
        assert!(may_be_retained(&binding(1), &order("billy")));
        assert!(!may_be_retained(&binding(1), &order("jesse")));
        assert!(may_be_retained(&binding(200), &order("jesse")), "not all are listed");
    }

    #[test]
    fn a_flag_answers_where_there_is_no_terminal() {
        assert!(confirm(&order("billy"), true).is_ok());
    }
}
