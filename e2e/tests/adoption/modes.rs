//! One konnector after the other: off, opt-in, all. Over all cells at once.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use bindery_api::{adoption::Adoption, annotations};
use bindery_e2e::{holds_for, process, run, wildwest::SOON};
use futures::future::try_join_all;
use kube::{ResourceExt as _, api::DynamicObject};
use serde_json::{Value, json};

use crate::{
    cells::{Cell, MATRIX},
    counts::{Mark, written},
    side::{A_WHILE, Pair, Side, shown},
    world::{self, Changing},
};

const OPTED: &str = "opted";
/// Not asked for.
const OTHERS: [&str; 2] = ["plain", "declined"];
const LATER: &str = "asked-for-later";
/// On both sides from the start.
const EQUAL: &str = "alike";
const DIFFERENT: &str = "unlike";

/// What `kubectl bind adopt --dry-run` says of an object, under `opt-in` and under `all`.
type Foretold = BTreeMap<String, (String, String)>;

pub(crate) fn check() -> Result<()> {
    run(async {
        let world = world::get().await?;
        let mut changing = world.changing(Adoption::Off).await?;
        let side = |cell: &&'static Cell| changing.side(world, cell);
        let sides = MATRIX.iter().map(side).collect::<Result<Vec<_>>>()?;
        let outcome = modes(&mut changing, &sides).await;
        outcome.map_err(|error| changing.tails(&error))
    })
}

/// What the provider put into a cell.
struct Provided<'s> {
    side: &'s Side,
    /// What the consumer has not.
    objects: BTreeMap<String, DynamicObject>,
    /// What it has too, made for itself.
    both: BTreeMap<String, Pair>,
}

async fn modes(changing: &mut Changing, sides: &[Side]) -> Result<()> {
    try_join_all(sides.iter().map(|side| side.begin(&changing.consumer))).await?;
    let filled = try_join_all(sides.iter().map(Provided::put)).await?;
    let each = filled.iter();
    try_join_all(each.clone().map(Provided::off)).await?;
    try_join_all(each.clone().map(|provided| provided.is_foretold(changing))).await?;
    changing.restart(Adoption::OptIn).await?;
    try_join_all(each.clone().map(Provided::opt_in)).await?;
    changing.restart(Adoption::All).await?;
    try_join_all(each.clone().map(Provided::all)).await?;
    // All is the consumer's now: the next konnector has nothing to write.
    changing.stop().await?;
    let marks = sides.iter().map(Mark::now).collect::<Result<Vec<_>>>()?;
    changing.start(Adoption::All).await?;
    try_join_all(sides.iter().map(|side| side.made("sentinel-at-rest", "ride"))).await?;
    holds_for("nothing to be written", A_WHILE, async || {
        for (side, mark) in sides.iter().zip(&marks) {
            let (provider, consumer) = written(side, *mark, None)?;
            let old = provider
                .iter()
                .chain(&consumer)
                .find(|asked| !asked.name.contains("sentinel-at-rest"));
            ensure!(old.is_none(), "cell {}: {old:?}", side.cell.name);
        }
        Ok(())
    })
    .await
}

// === impl Provided ===

impl<'s> Provided<'s> {
    async fn put(side: &'s Side) -> Result<Self> {
        let mut objects = BTreeMap::new();
        objects.insert(OPTED.to_owned(), side.opted(OPTED, "ride"));
        for name in [OTHERS[0], LATER] {
            objects.insert(name.to_owned(), side.fresh(name, "ride"));
        }
        let mut declined = side.fresh(OTHERS[1], "ride");
        declined
            .annotations_mut()
            .insert(annotations::AUTOADOPT.to_owned(), "false".to_owned());
        objects.insert(OTHERS[1].to_owned(), declined);
        for object in objects.values_mut() {
            *object = side.put(object).await?;
        }
        let mut both = BTreeMap::new();
        for (name, word) in [(EQUAL, "ride"), (DIFFERENT, "stay")] {
            let copy = side.put(&side.fresh(name, "ride")).await?;
            let ours = side.create(&side.cell.object(name, word)).await?;
            both.insert(name.to_owned(), Pair { ours, copy });
        }
        Ok(Self { side, objects, both })
    }

    fn told(&self, mode: Adoption) -> impl FnOnce() -> String {
        let name = self.side.cell.name;
        move || format!("cell {name}, mode {mode}")
    }

    /// Nothing is adopted nor linked, and what has a counterpart is marked.
    async fn off(&self) -> Result<()> {
        let off = async {
            self.side.made("sentinel-of-off", "last").await?;
            self.side.untouched(&self.objects).await?;
            for name in [EQUAL, DIFFERENT] {
                self.side.conflict(name).await?;
                self.is_left(name).await?;
            }
            anyhow::Ok(())
        };
        off.await.with_context(self.told(Adoption::Off))
    }

    /// Of two that have one name, neither was written.
    async fn is_left(&self, name: &str) -> Result<()> {
        let before = &self.both[name];
        let ours = self.side.ours().get(name).await?;
        let copy = self.side.copies().get(&self.side.copy_name(name)).await?;
        for (now, before) in [(&ours, &before.ours), (&copy, &before.copy)] {
            let same = now.resource_version() == before.resource_version();
            ensure!(same, "written: {}", shown(now));
        }
        Ok(())
    }

    /// What the command line says before it is switched on is what is to come.
    async fn is_foretold(&self, changing: &Changing) -> Result<()> {
        let expected = [
            (OPTED, "Adopt", "Adopt"),
            (OTHERS[0], "Nothing", "Adopt"),
            (OTHERS[1], "Nothing", "Adopt"),
            (LATER, "Nothing", "Adopt"),
            (EQUAL, "Conflict", "Link"),
            (DIFFERENT, "Conflict", "Conflict"),
            ("warm", "Nothing", "Nothing"),
            ("sentinel-of-off", "Nothing", "Nothing"),
        ];
        let owned = expected.map(|(name, opt_in, all)| (name.to_owned(), (opt_in.to_owned(), all.to_owned())));
        let expected = Foretold::from(owned);
        let told = foretold(self.side, changing).await?;
        let (told, others): (Foretold, Foretold) = told.into_iter().partition(|(name, _)| expected.contains_key(name));
        ensure!(told == expected, "cell {}: {told:?}", self.side.cell.name);
        // Where names are shared, other consumers' objects are seen too.
        let are_left = others
            .values()
            .all(|(opt_in, all)| opt_in == "Nothing" && all == "Nothing");
        let may_be = others.is_empty() || self.side.cell.shares_names();
        ensure!(are_left && may_be, "cell {}: {others:?}", self.side.cell.name);
        Ok(())
    }

    /// What is asked for is adopted, whenever that is asked.
    async fn opt_in(&self) -> Result<()> {
        let opt_in = async {
            self.side.adopted(OPTED, &self.objects[OPTED]).await?;
            let mut left = self.objects.clone();
            left.remove(OPTED);
            self.side.stay("sentinel-of-opt-in", &left).await?;
            let wish = json!({"metadata": {"annotations": {annotations::AUTOADOPT: "true"}}});
            self.side.patch_copy(LATER, wish).await?;
            self.side.adopted(LATER, &self.objects[LATER]).await?;
            left.remove(LATER);
            self.side.untouched(&left).await?;
            for name in [EQUAL, DIFFERENT] {
                self.is_left(name).await?;
            }
            anyhow::Ok(())
        };
        opt_in.await.with_context(self.told(Adoption::OptIn))
    }

    /// The rest.
    async fn all(&self) -> Result<()> {
        let all = async {
            for name in OTHERS {
                self.side.adopted(name, &self.objects[name]).await?;
            }
            let (before, linked) = (&self.both[EQUAL], self.side.linked(EQUAL).await?);
            ensure!(
                linked.ours.uid() == before.ours.uid() && linked.copy.uid() == before.copy.uid(),
                "made anew: {} and {}",
                shown(&linked.ours),
                shown(&linked.copy)
            );
            self.is_left(DIFFERENT).await?;
            let late = self.side.put(&self.side.fresh("late", "ride")).await?;
            self.side.adopted("late", &late).await.map(drop)
        };
        all.await.with_context(self.told(Adoption::All))
    }
}

/// What is said of the cell's objects, by their names on the consumer.
async fn foretold(side: &Side, changing: &Changing) -> Result<Foretold> {
    let mut command = changing.consumer.bind_command()?;
    command.args(["adopt", "--dry-run", side.cell.name, "--output", "json"]);
    let output = process::run(command, SOON).await?;
    let list: Value = serde_json::from_str(&process::stdout(&output)?)?;
    let items = list["items"].as_array().context("no list")?;
    let text = |item: &Value, key: &str| item[key].as_str().unwrap_or_default().to_owned();
    let of = |item: &Value| (text(item, "name"), (text(item, "optIn"), text(item, "all")));
    Ok(items.iter().map(of).collect())
}
