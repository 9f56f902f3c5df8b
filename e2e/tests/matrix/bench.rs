//! A cell with both consumers bound, and objects that both have under one name.

use anyhow::{Context as _, Result, bail, ensure};
use bindery_api::{Conditions as _, annotations, v1alpha2::APIServiceExportTemplate};
use bindery_e2e::{eventually, wildwest::SOON};
use kube::{Api, ResourceExt as _, api::DynamicObject};

use crate::{
    cells::Cell,
    kinds::Kind,
    side::{Side, Versions, shown},
    world::World,
};

/// Both consumers of a cell.
pub(crate) struct Bench {
    pub(crate) cell: &'static Cell,
    pub(crate) a: Side<'static>,
    pub(crate) b: Side<'static>,
}

/// An object of one name on both consumers: one acts, and nothing of the other's may change by it.
pub(crate) struct Twin<'a> {
    pub(crate) actor: &'a Side<'a>,
    pub(crate) other: &'a Side<'a>,
    kind: Kind,
    name: String,
    before: Versions,
}

// === impl Bench ===

impl Bench {
    /// Binds both consumers, and waits until an object of each is in sync.
    pub(crate) async fn start(world: &'static World, cell: &'static Cell) -> Result<Self> {
        let provider = world.provider(cell);
        let templates: Api<APIServiceExportTemplate> = Api::all(provider.plane.client());
        eventually(format!("template {} to be ready", cell.name), SOON, async || {
            let template = templates.get(cell.name).await?;
            ensure!(template.is_condition_true("Ready"), "{:?}", template.conditions());
            Ok(Some(()))
        })
        .await?;
        let side = |who, consumer| Side::new(who, cell, provider, consumer, world.token(cell, who));
        let bench = Self {
            cell,
            a: side("a", &world.a),
            b: side("b", &world.b),
        };
        tokio::try_join!(bench.a.bind(), bench.b.bind())?;
        tokio::try_join!(warm(&bench.a), warm(&bench.b))?;
        Ok(bench)
    }

    /// An object that the claim selects, or a bound one, of both consumers.
    pub(crate) async fn twin<'a>(
        &self,
        actor: &'a Side<'a>,
        other: &'a Side<'a>,
        kind: Kind,
        name: &str,
    ) -> Result<Twin<'a>> {
        let make = |word: &str| match kind {
            Kind::Bound => kind.object(self.cell, name, word),
            _ => kind.labelled(self.cell, name, word),
        };
        self.twin_of(actor, other, kind, name, make).await
    }

    /// The same of objects that are made otherwise.
    pub(crate) async fn twin_of<'a>(
        &self,
        actor: &'a Side<'a>,
        other: &'a Side<'a>,
        kind: Kind,
        name: &str,
        make: impl Fn(&str) -> DynamicObject,
    ) -> Result<Twin<'a>> {
        actor.create(kind, &make(actor.who)).await?;
        actor.settled(kind, name, actor.who).await?;
        let theirs = other.create(kind, &make(other.who)).await?;
        if self.cell.shares_names() {
            other.conflict(kind, name).await?;
        } else {
            other.settled(kind, name, other.who).await?;
        }
        let before = other.versions(kind, name).await?;
        if kind == Kind::Bound && self.cell.shares_names() {
            // The konnector may have taken hold of the object before it knew that there is no place for it.
            let now = other.ours(kind).get(name).await?;
            let known = now.annotations().contains_key(annotations::PROVIDER_UID);
            ensure!(
                !known && now.data == theirs.data,
                "in spite of a conflict it is {}",
                shown(&now)
            );
        } else if kind != Kind::Bound {
            let untouched = (theirs.metadata.uid, theirs.metadata.resource_version);
            let seen = before[0].clone().context("it is gone")?;
            if (Some(seen.0), Some(seen.1)) != untouched {
                let now = other.ours(kind).get(name).await?;
                bail!("{name} of {} was written: {}", other.who, shown(&now));
            }
        }
        Ok(Twin {
            actor,
            other,
            kind,
            name: name.to_owned(),
            before,
        })
    }
}

/// With the first of each kind come the provider's namespaces, and the rights in them.
async fn warm(side: &Side<'_>) -> Result<()> {
    let name = format!("warm-{}", side.who);
    for kind in [Kind::Bound, Kind::Secret] {
        side.create(kind, &kind.labelled(side.cell, &name, side.who)).await?;
        side.settled(kind, &name, side.who).await?;
    }
    Ok(())
}

// === impl Twin ===

impl Twin<'_> {
    /// Nothing of the other consumer's was written, neither its object nor its copy.
    pub(crate) async fn left_the_other_alone(&self) -> Result<()> {
        let now = self.other.versions(self.kind, &self.name).await?;
        ensure!(
            now == self.before,
            "by {}'s doing, {}'s {} changed: {:?} became {now:?}",
            self.actor.who,
            self.other.who,
            self.name,
            self.before
        );
        if self.other.cell.shares_names() {
            return Ok(());
        }
        let word = self.other.who;
        self.other
            .settled(self.kind, &self.name, word)
            .await
            .map(drop)
            .with_context(|| format!("after {} acted", self.actor.who))
    }
}
