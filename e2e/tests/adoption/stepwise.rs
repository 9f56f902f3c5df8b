//! The konnector is killed between two writes of an adoption, and the consumer's user acts before the next konnector does.

use anyhow::{Context as _, Result, bail, ensure};
use bindery_api::{adoption::Adoption, annotations};
use bindery_e2e::{eventually_ok, run, wildwest::SOON};
use kube::{
    ResourceExt as _,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    cells::STEPWISE,
    side::{Pair, Side, shown},
    world::{self, Changing},
};

/// On an object of the provider that no contract may write: at all, or in so far as it would be marked. Of the provider's
/// cluster alone, so that it is not carried along.
const SHUT: &str = "test.k8s.io/shut";
/// What the provider's operator fills in while an object is being adopted.
const LATE: &str = "filled in late";
/// More than an adoption takes.
const WRITES_MAX: usize = 8;

/// What the user does with the object that came.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Nothing,
    Edit,
    Delete,
}

const DEEDS: [Deed; 3] = [Deed::Nothing, Deed::Edit, Deed::Delete];

pub(crate) fn after_each_write_on_the_consumer() -> Result<()> {
    run(async {
        let world = world::get().await?;
        let mut changing = world.changing(Adoption::All).await?;
        let side = changing.side(world, &STEPWISE)?;
        let outcome = async {
            bound(&changing, &side).await?;
            for deed in DEEDS {
                let mut steps = 0;
                while step(&mut changing, &side, steps + 1, deed)
                    .await
                    .with_context(|| format!("killed after write {}, then {deed:?}", steps + 1))?
                {
                    steps += 1;
                    ensure!(steps < WRITES_MAX, "it takes ever more writes");
                }
                ensure!(steps > 0, "no write was seen");
            }
            anyhow::Ok(())
        };
        let outcome = outcome.await;
        outcome.map_err(|error| changing.tails(&error))
    })
}

/// Answers whether there were that many writes.
async fn step(changing: &mut Changing, side: &Side, nth: usize, deed: Deed) -> Result<bool> {
    let name = format!("step-{nth}-{deed:?}").to_lowercase();
    let group = side.cell.group();
    changing.gate.shut_after(nth, move |write| write.contains(&group));
    let source = side.put(&side.fresh(&name, "ride")).await?;
    side.report(&name, "found").await?;
    let is_shut = tokio::select! {
        () = changing.gate.silent() => true,
        done = side.adopted(&name, &source) => {
            done?;
            false
        }
    };
    if is_shut {
        changing.kill().await?;
        changing.gate.open();
        act(side, &name, deed).await?;
        changing.start(Adoption::All).await?;
        ended(side, &name, &source, deed, None).await?;
    }
    changing.gate.open();
    Ok(is_shut)
}

pub(crate) fn before_each_write_on_the_provider() -> Result<()> {
    run(async {
        let world = world::get().await?;
        let mut changing = world.changing(Adoption::All).await?;
        let side = changing.side(world, &STEPWISE)?;
        let outcome = async {
            bound(&changing, &side).await?;
            shut_where_marked(&side).await?;
            for shut in ["all", "marks"] {
                let step = blocked(&mut changing, &side, shut).await;
                step.with_context(|| format!("with no write of {shut} on the provider"))?;
            }
            anyhow::Ok(())
        };
        let outcome = outcome.await;
        outcome.map_err(|error| changing.tails(&error))
    })
}

async fn blocked(changing: &mut Changing, side: &Side, shut: &str) -> Result<()> {
    let mut sources = Vec::new();
    for deed in DEEDS {
        let name = format!("{shut}-{deed:?}").to_lowercase();
        let mut object = side.fresh(&name, "ride");
        object.annotations_mut().insert(SHUT.to_owned(), shut.to_owned());
        sources.push((deed, name, side.put(&object).await?));
    }
    for (_, name, source) in &sources {
        let of_it = |ours: &DynamicObject| ours.annotations().get(annotations::ADOPTED) == source.metadata.uid.as_ref();
        side.ours_is(name, of_it).await?;
    }
    changing.kill().await?;
    for (deed, name, _) in &sources {
        let copy = side.copies().get(&side.copy_name(name)).await?;
        ensure!(
            !copy.annotations().contains_key(annotations::CONSUMER_UID),
            "marked: {}",
            shown(&copy)
        );
        act(side, name, *deed).await?;
        let late = json!({"metadata": {"annotations": {SHUT: null}}, "spec": {"brand": LATE}});
        side.patch_copy(name, late).await?;
    }
    changing.start(Adoption::All).await?;
    for (deed, name, source) in &sources {
        ended(side, name, source, *deed, Some(LATE)).await?;
    }
    Ok(())
}

/// Binds, unless that was done.
async fn bound(changing: &Changing, side: &Side) -> Result<()> {
    match side.bindings().get_opt(side.cell.name).await? {
        Some(_) => Ok(()),
        None => side.begin(&changing.consumer).await,
    }
}

/// What the user does while no konnector runs.
async fn act(side: &Side, name: &str, deed: Deed) -> Result<()> {
    match deed {
        Deed::Nothing => Ok(()),
        Deed::Edit => {
            let patch = json!({"spec": {"intent": "hide"}, "metadata": {"labels": {"own": "yes"}}});
            side.patch(name, patch).await.map(drop)
        }
        Deed::Delete => side.delete(name).await,
    }
}

/// Whatever happened, there is one of it on either side, which say what the user said last; or none. What the provider's
/// operator filled in since, the provider's keeps.
async fn ended(side: &Side, name: &str, source: &DynamicObject, deed: Deed, late: Option<&str>) -> Result<()> {
    let word = match deed {
        Deed::Delete => return side.gone(name).await,
        Deed::Edit => "hide",
        Deed::Nothing => "ride",
    };
    let Pair { ours, copy } = side.adopted(name, source).await?;
    let copy = if copy.data["spec"]["intent"] == word {
        copy
    } else {
        side.copy_is(name, |copy| copy.data["spec"]["intent"] == word).await?
    };
    ensure!(ours.data["spec"]["intent"] == word, "{}", shown(&ours));
    ensure!(ours.labels() == copy.labels(), "{} and {}", shown(&ours), shown(&copy));
    // What was the provider's when it was adopted is the consumer's.
    side.patch(name, json!({"spec": {"intent": null, "badge": "star"}}))
        .await?;
    let mut spec = json!({"badge": "star"});
    if let Some(late) = late {
        spec["brand"] = json!(late);
    }
    side.copy_is(name, |copy| copy.data["spec"] == spec).await.map(drop)
}

/// Has the provider refuse what no contract may write, and waits until it does.
async fn shut_where_marked(side: &Side) -> Result<()> {
    side.provider.plane.apply(&policy(side).to_string()).await?;
    let mut probe = side.fresh("probe", "ride");
    let other = (annotations::CLUSTER_NAMESPACE.to_owned(), "kube-bind-other".to_owned());
    probe
        .annotations_mut()
        .extend([other, (SHUT.to_owned(), "all".to_owned())]);
    side.put(&probe).await?;
    let binder = side
        .provider
        .plane
        .service_account_client(&side.contract, "kube-binder")
        .await?;
    let api = kube::Api::<DynamicObject>::all_with(binder, &side.cell.resource());
    let (params, patch) = (
        PatchParams::default().dry_run(),
        Patch::Merge(json!({"spec": {"intent": "x"}})),
    );
    eventually_ok("the provider to refuse writes", SOON, async || {
        match api.patch(&side.copy_name("probe"), &params, &patch).await {
            Err(kube::Error::Api(status)) if status.message.contains(SHUT) => Ok(()),
            outcome => bail!("not yet: {outcome:?}"),
        }
    })
    .await
}

fn policy(side: &Side) -> Value {
    let name = "adoption-test";
    let said = format!(
        "(has(oldObject.metadata.annotations) && '{SHUT}' in oldObject.metadata.annotations ? oldObject.metadata.annotations['{SHUT}'] : '')"
    );
    let marks = format!(
        "has(object.metadata.annotations) && '{}' in object.metadata.annotations",
        annotations::CONSUMER_UID
    );
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [{
                    "apiGroups": [side.cell.group()], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["riders"],
                }]},
                "matchConditions": [{
                    "name": "is-binder", "expression": "request.userInfo.username.endsWith(':kube-binder')",
                }],
                "validations": [{
                    "expression": format!("!({said} == 'all' || ({said} == 'marks' && {marks}))"),
                    "message": format!("annotation {SHUT} says that it is not to be written"),
                }],
            },
        },
        {
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]},
        },
    ]})
}
