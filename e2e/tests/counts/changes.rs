//! What each change costs: the writes that make it, and nothing else on either cluster.

use anyhow::{Result, ensure};
use kube::api::DeleteParams;

use crate::{
    asked::{self, Mark, Tally, tally},
    rest::{self, is_routine},
    world::{Claimed, PLACES, World},
};

/// How many objects come and go at once.
const BURST: usize = 40;

/// The binding says how many objects are claimed.
const NUMBERS: &str = "Konnector patch apiservicebindings/status";
/// How often the binding may say how many objects are claimed now: once for each that comes and each that goes.
const NUMBERS_MAX: usize = 8;
/// Whether the CRD is being deleted, which the konnector asks before it deletes a copy that the end of the CRD keeps.
const CRD_CHECK: &str = "Konnector get customresourcedefinitions";
const MANY_DELETIONS: &str = "many deletions at once";

/// A step, with all that it may ask.
struct Step {
    what: &'static str,
    began: Mark,
    asks: &'static [(&'static str, usize)],
    /// Whether it may be told in the status of the binding, sooner or later.
    is_claimed: bool,
}

/// Steps one after the other, which are counted when all are done: what comes late counts for a later one, which does not
/// allow it.
struct Steps<'w> {
    world: &'w World,
    steps: Vec<Step>,
}

pub(crate) async fn are_written_once(world: &World) -> Result<()> {
    let began = Mark::now(world)?;
    let mut steps = Steps {
        world,
        steps: Vec::new(),
    };
    bound(&mut steps).await?;
    burst(&mut steps).await?;
    claimed(&mut steps).await?;
    let end = steps.begin("after all of them", &[])?;
    rest::renewed_since(world, end).await?;
    steps.check()?;
    rest::goes_on_at_its_pace(&asked::between(world, began, None)?)?;
    let discovery = asked::about_nothing(world, began)?;
    ensure!(discovery.is_empty(), "asked of no resource: {discovery:?}");
    Ok(())
}

async fn bound(steps: &mut Steps<'_>) -> Result<()> {
    let cowboys = &steps.world.cowboys(PLACES[0]);
    steps.begin(
        "a creation",
        &[("Binder patch cowboys", 1), ("Konnector patch cowboys", 1)],
    )?;
    cowboys.create("counted", "ride").await?;
    steps.world.held(PLACES[0], "counted").await?;
    steps.begin("a change of spec", &[("Binder patch cowboys", 1)])?;
    cowboys.intend("counted", "hide").await?;
    cowboys.copied("counted", "hide").await?;
    steps.begin("a change of status", &[("Konnector patch cowboys/status", 1)])?;
    cowboys.report("counted", "caught").await?;
    cowboys.reported("counted", "caught").await?;
    steps.begin(
        "a deletion",
        &[
            (CRD_CHECK, 1),
            ("Binder delete cowboys", 1),
            ("Konnector patch cowboys", 1),
        ],
    )?;
    cowboys.ours.delete("counted", &DeleteParams::default()).await?;
    cowboys.gone("counted").await
}

async fn claimed(steps: &mut Steps<'_>) -> Result<()> {
    let world = steps.world;
    for kind in [Claimed::Secret, Claimed::ConfigMap] {
        let (ours, copies) = (&world.ours(kind, PLACES[0]), &world.copies(kind, PLACES[0]));
        let (once, deletion) = match kind {
            Claimed::Secret => (&[("Binder patch secrets", 1)], &[("Binder delete secrets", 1)]),
            Claimed::ConfigMap => (&[("Binder patch configmaps", 1)], &[("Binder delete configmaps", 1)]),
        };
        steps.begin("a claimed creation", once)?;
        kind.create(ours, "counted", "one").await?;
        kind.says(copies, "counted", "one").await?;
        steps.begin("a change of a claimed object", once)?;
        kind.change(ours, "counted", "two").await?;
        kind.says(copies, "counted", "two").await?;
        steps.begin("the deletion of a claimed object", deletion)?;
        ours.delete("counted", &DeleteParams::default()).await?;
        kind.gone(copies, "counted").await?;
    }
    for kind in [Claimed::Secret, Claimed::ConfigMap] {
        let (ours, sources) = (&world.ours(kind, PLACES[0]), &world.copies(kind, PLACES[0]));
        let (once, deletion) = match kind {
            Claimed::Secret => (&[("Konnector patch secrets", 1)], &[("Konnector delete secrets", 1)]),
            Claimed::ConfigMap => (
                &[("Konnector patch configmaps", 1)],
                &[("Konnector delete configmaps", 1)],
            ),
        };
        steps.begin("a creation of the provider's", once)?;
        kind.create(sources, "down", "one").await?;
        kind.says(ours, "down", "one").await?;
        steps.begin("a change of what the provider has", once)?;
        kind.change(sources, "down", "two").await?;
        kind.says(ours, "down", "two").await?;
        steps.begin("the deletion of what the provider has", deletion)?;
        sources.delete("down", &DeleteParams::default()).await?;
        kind.gone(ours, "down").await?;
    }
    Ok(())
}

/// Many at once cost as much each as one alone.
async fn burst(steps: &mut Steps<'_>) -> Result<()> {
    let names: Vec<_> = (0..BURST).map(|number| format!("burst-{number}")).collect();
    let cowboys = steps.world.cowboys(PLACES[1]);
    steps.begin(
        "many creations at once",
        &[("Binder patch cowboys", BURST), ("Konnector patch cowboys", BURST)],
    )?;
    bindery_e2e::bound::create(&cowboys, names.clone()).await?;
    for name in &names {
        steps.world.held(PLACES[1], name).await?;
    }
    steps.begin(
        MANY_DELETIONS,
        &[("Binder delete cowboys", BURST), ("Konnector patch cowboys", BURST)],
    )?;
    for name in &names {
        cowboys.ours.delete(name, &DeleteParams::default()).await?;
    }
    for name in &names {
        cowboys.gone(name).await?;
    }
    Ok(())
}

// === impl Steps ===

impl Steps<'_> {
    /// The next step begins. Answers when.
    fn begin(&mut self, what: &'static str, asks: &'static [(&'static str, usize)]) -> Result<Mark> {
        let began = Mark::now(self.world)?;
        let is_claimed = self.steps.last().is_some_and(|last| last.is_claimed) || what.contains("claimed");
        self.steps.push(Step {
            what,
            began,
            asks,
            is_claimed,
        });
        Ok(began)
    }

    fn check(&self) -> Result<()> {
        let mut numbers = 0;
        for (index, step) in self.steps.iter().enumerate() {
            let next = self.steps.get(index + 1).map(|next| next.began);
            let requests = asked::between(self.world, step.began, next)?;
            let mut asked = tally(requests.iter().filter(|request| !is_routine(request)));
            if step.what == MANY_DELETIONS {
                // Deletions that are seen at once share an answer.
                let checks = asked.remove(CRD_CHECK).unwrap_or_default();
                ensure!((1..=BURST).contains(&checks), "{checks} times {CRD_CHECK}");
            }
            if step.is_claimed {
                numbers += asked.remove(NUMBERS).unwrap_or_default();
            }
            let allowed: Tally = step
                .asks
                .iter()
                .map(|(told, times)| ((*told).to_owned(), *times))
                .collect();
            ensure!(asked == allowed, "{} asked {asked:?} and not {allowed:?}", step.what);
        }
        ensure!(numbers <= NUMBERS_MAX, "{numbers} times {NUMBERS}");
        Ok(())
    }
}
