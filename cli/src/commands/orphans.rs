//! `orphans`: shows which bindings have copies that lost their source, and ends such copies.

use std::{io::Write, time::Duration};

use bindery_api::{
    Conditions as _, annotations,
    conditions::ORPHANED_OBJECTS,
    orphans::{OrphanAction, OrphanOrder, OrphanSet},
    v1alpha2::APIServiceBinding,
};
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde::Serialize;

use super::{Context, consent};
use crate::{
    args::OrphansArgs,
    consumer::{Consumer, wait::Watched},
    errors::Failure,
    render::output::{Show, age, printable},
    text,
};

/// How long it may take to end orphans, unless `--timeout` says otherwise.
const PATIENCE: Duration = Duration::from_mins(2);

/// The orphans of one binding, as its condition tells them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Told {
    binding: String,
    count: usize,
    since: Timestamp,
    message: String,
    #[serde(skip)]
    set: OrphanSet,
}

/// `kubectl bind orphans [BINDING]`
pub(crate) async fn run<W: Write>(context: &mut Context<W>, args: &OrphansArgs) -> Result<(), Failure> {
    let consumer = Consumer::connect(&context.settings).await?;
    let bindings = match &args.binding {
        Some(name) => vec![consumer.binding(name).await?],
        None => consumer.bindings().await?,
    };
    let told: Vec<_> = bindings.iter().filter_map(told).collect();
    let (Some(action), [binding]) = (args.action(), &bindings[..]) else {
        if told.is_empty() {
            context.steps.note("no binding has orphans");
        }
        return context.printer.list(&told, Timestamp::now());
    };
    let [orphans] = &told[..] else {
        context
            .steps
            .note(&format!("APIServiceBinding {} has no orphans", binding.name_any()));
        return context.printer.list(&told, Timestamp::now());
    };
    context.steps.note(&orphans.message);
    confirm(action, orphans, args.yes)?;
    let order = OrphanOrder {
        action,
        orphans: orphans.set,
    };
    consumer
        .annotate(binding, annotations::END_ORPHANS, &order.to_string())
        .await?;
    // Started after that, so that a state without the order is one in which the konnector has answered it.
    let watched =
        Watched::<APIServiceBinding>::start(&consumer, "", &orphans.binding, context.settings.patience(PATIENCE));
    context.steps.done(&format!(
        "asked the konnector to {} {} of APIServiceBinding {}",
        action.as_str(),
        text::counted(orphans.count, "orphan"),
        orphans.binding
    ));
    let mut left = told.clone();
    if args.wait {
        let after = watched.orphans_ended(order, told_set, &context.steps).await?;
        left = after.as_deref().and_then(self::told).into_iter().collect();
        context.steps.done(&match left.first() {
            None => format!("APIServiceBinding {} has no orphans any more", orphans.binding),
            Some(left) => {
                let orphans = text::counted(left.count, "orphan");
                format!("APIServiceBinding {} has {orphans} now", left.binding)
            }
        });
    }
    context.printer.list(&left, Timestamp::now())
}

/// Asks the user, unless a flag has answered.
fn confirm(action: OrphanAction, orphans: &Told, answered: bool) -> Result<(), Failure> {
    let what = format!(
        "{} of APIServiceBinding {}",
        text::counted(orphans.count, "orphan"),
        printable(&orphans.binding)
    );
    let end = match action {
        OrphanAction::Delete => "Delete the copies on the provider",
        OrphanAction::Release => "Leave the copies to the provider",
        OrphanAction::Relink => "Link the copies to the new objects of the same names",
    };
    consent::confirm(&what, end, answered)
}

fn told_set(binding: &APIServiceBinding) -> Option<OrphanSet> {
    told(binding).map(|told| told.set)
}

/// The orphans of a binding; `None` if its condition tells none.
fn told(binding: &APIServiceBinding) -> Option<Told> {
    let condition = binding
        .condition(ORPHANED_OBJECTS)
        .filter(|condition| condition.is_true())?;
    let set = OrphanSet::of_message(&condition.message)?;
    Some(Told {
        binding: binding.name_any(),
        count: set.count,
        since: condition.last_transition_time.0,
        message: condition.message.strip_suffix(&set.closing())?.to_owned(),
        set,
    })
}

impl Show for Told {
    const HEADINGS: &'static [&'static str] = &["BINDING", "ORPHANS", "SINCE", "WHY"];
    const PLAIN: usize = 4;

    fn cells(&self, now: Timestamp) -> Vec<String> {
        vec![
            self.binding.clone(),
            self.count.to_string(),
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
        conditions::{self, true_condition},
        v1alpha2::APIServiceBindingSpec,
    };

    use super::*;

    #[test]
    fn what_the_condition_tells_is_shown_and_ordered() {
        let mut binding = APIServiceBinding::new("cowboys", APIServiceBindingSpec::default());
        assert_eq!(told(&binding), None);
        let mut set = OrphanSet::default();
        set.add("a");
        let mut condition = true_condition(ORPHANED_OBJECTS);
        condition.message = format!("1 copy has no source{}", set.closing());
        let status = binding.status.get_or_insert_default();
        conditions::set(&mut status.conditions, condition, Timestamp::UNIX_EPOCH);
        let found = told(&binding).unwrap();
        assert_eq!((found.count, found.set), (1, set));
        assert_eq!(found.message, "1 copy has no source");
        let now = Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_mins(5);
        assert_eq!(found.cells(now), ["cowboys", "1", "5m", "1 copy has no source"]);
    }

    #[test]
    fn a_flag_answers_where_there_is_no_terminal() {
        let orphans = Told {
            binding: "cowboys".to_owned(),
            count: 2,
            since: Timestamp::UNIX_EPOCH,
            message: String::new(),
            set: OrphanSet::default(),
        };
        assert!(confirm(OrphanAction::Delete, &orphans, true).is_ok());
    }
}
