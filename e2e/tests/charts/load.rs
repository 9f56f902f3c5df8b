//! A steady stream of changes on the consumer, and when each of them arrives on the provider.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use bindery_api::{Conditions as _, conditions::ORPHANED_OBJECTS, v1alpha2::APIServiceBinding};
use bindery_e2e::{eventually_ok, offer::Offer, wildwest::SOON};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    runtime::{
        WatchStreamExt as _,
        watcher::{Config, Event, watcher},
    },
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{Instant, interval};

use crate::world::{NAMESPACE, World};

/// Between two changes.
const INTERVAL: Duration = Duration::from_millis(50);
/// How many objects are there all the time.
const LASTING: u64 = 40;
/// In so many changes, one creates an object and another one deletes one. All others change an object that stays.
const CYCLE: u64 = 10;
/// An object is deleted so many cycles after it was created.
const LIFE: u64 = 3;
/// How many statuses the stand-in for the operator reports at the same time.
const REPORTS: usize = 16;

/// The objects of a binding, whose colors are the numbers of the changes that gave them. A stand-in for the provider's operator
/// reports each color in the status.
pub(crate) struct Load {
    offer: Offer,
    ours: Api<DynamicObject>,
    copies: Api<DynamicObject>,
    /// Copies in all namespaces of the provider.
    all_copies: Api<DynamicObject>,
    bindings: Api<APIServiceBinding>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The number of the last change.
    number: u64,
    /// The objects that the consumer has, with the numbers of their last changes.
    objects: BTreeMap<String, u64>,
    /// The changes of each object that have not arrived yet.
    pending: BTreeMap<String, VecDeque<(u64, Instant)>>,
    /// The longest time from a change to its arrival.
    longest: Duration,
    /// Whether no more changes are to be made.
    is_stopped: bool,
}

/// UIDs of the lasting objects on both sides.
pub(crate) type Uids = BTreeSet<String>;

impl Load {
    pub(crate) async fn new(world: &World, offer: Offer) -> Result<Self> {
        let widgets = world.widgets(offer, None).await?;
        let load = Self {
            offer,
            ours: widgets.ours,
            copies: widgets.copies,
            all_copies: Api::all_with(world.clusters.provider.client(), &offer.resource()),
            bindings: Api::all(world.clusters.consumer.client()),
            state: Mutex::default(),
        };
        for number in 0..LASTING {
            load.create(&lasting(number)).await?;
        }
        Ok(load)
    }

    /// Changes objects at a steady rate, until it is stopped.
    pub(crate) async fn change(&self) -> Result<()> {
        let mut ticks = interval(INTERVAL);
        let mut next = (0..LASTING).map(lasting).cycle();
        for tick in 0.. {
            ticks.tick().await;
            if self.state.lock().is_stopped {
                break;
            }
            let cycle = tick / CYCLE;
            match tick % CYCLE {
                0 => self.create(&format!("passing-{cycle}")).await?,
                5 if cycle >= LIFE => self.delete(&format!("passing-{}", cycle - LIFE)).await?,
                _ => self.update(&next.next().context("a cycle has no end")?).await?,
            }
        }
        Ok(())
    }

    /// Ends [`Load::change`] after the change that is made now.
    pub(crate) fn stop(&self) {
        self.state.lock().is_stopped = true;
    }

    /// Notes arrivals on the provider, and reports each of them in a status. Ends only with an error, which is none of the watch: it
    /// begins anew. Reports go side by side, so that a slow API server does not make arrivals look late. When an old report overtakes
    /// a new one, the watch shows the wrong status, and it is reported once more.
    pub(crate) async fn follow(&self) -> Result<()> {
        let events = watcher(self.copies.clone(), Config::default()).default_backoff();
        let events = events.filter_map(async |event| event.ok().map(Ok));
        events
            .try_for_each_concurrent(REPORTS, async |event| self.shown(event).await)
            .await?;
        bail!("the watch of copies has ended")
    }

    async fn shown(&self, event: Event<DynamicObject>) -> Result<()> {
        match event {
            Event::Apply(copy) | Event::InitApply(copy) => {
                let color = copy.data["spec"]["color"].as_str().context("a copy without a color")?;
                self.arrived(&copy.name_any(), color.parse()?);
                if copy.data["status"]["color"] != color && copy.metadata.deletion_timestamp.is_none() {
                    self.report(&copy.name_any(), color).await?;
                }
            }
            Event::Delete(copy) => self.arrived(&copy.name_any(), u64::MAX),
            Event::Init | Event::InitDone => {}
        }
        Ok(())
    }

    /// Waits until all changes that were made so far have arrived. Returns the longest time that one took since the last call.
    pub(crate) async fn settled(&self) -> Result<Duration> {
        let now = Instant::now();
        let arrival = eventually_ok("all changes to arrive", SOON, async || {
            self.forget_what_never_arrives().await?;
            let state = self.state.lock();
            let first = |changes: &VecDeque<(u64, Instant)>| changes.front().copied().filter(|(_, begin)| *begin < now);
            let late = state
                .pending
                .iter()
                .filter_map(|(name, changes)| Some((first(changes)?, name)));
            let late: BTreeMap<_, _> = late.collect();
            ensure!(late.is_empty(), "{} objects are late: {late:?}", late.len());
            Ok(())
        });
        if let Err(error) = arrival.await {
            return Err(error.context(self.told().await?));
        }
        Ok(std::mem::take(&mut self.state.lock().longest))
    }

    /// What the binding tells of orphans.
    async fn orphans(&self) -> Result<String> {
        let bindings = self.bindings.list(&ListParams::default()).await?.items;
        let told = bindings
            .iter()
            .filter_map(|binding| binding.condition(ORPHANED_OBJECTS));
        Ok(told.map(|condition| condition.message.as_str()).collect())
    }

    /// What the binding tells, and what the copies have.
    async fn told(&self) -> Result<String> {
        let bindings = self.bindings.list(&ListParams::default()).await?.items;
        let conditions: Vec<_> = bindings.iter().flat_map(APIServiceBinding::conditions).collect();
        let colors = self.copies.list(&ListParams::default()).await?.items;
        let colors = colors
            .iter()
            .map(|copy| (copy.name_any(), text(&copy.data["spec"]["color"])));
        Ok(format!(
            "{conditions:?}; copies have {:?}",
            colors.collect::<BTreeMap<_, _>>()
        ))
    }

    /// An object that came and went while nothing was in sync never had a copy, so that the watch does not show its deletion. One that
    /// went between the creation of its copy and the konnector's finalizer, while the konnector ended, left an orphan: it is told, and the
    /// provider's admin ends it.
    async fn forget_what_never_arrives(&self) -> Result<()> {
        let deleted: Vec<_> = {
            let state = self.state.lock();
            let names = state.pending.keys();
            names
                .filter(|name| !state.objects.contains_key(*name))
                .cloned()
                .collect()
        };
        for name in deleted {
            if self.copies.get_opt(&name).await?.is_none() {
                self.state.lock().pending.remove(&name);
            } else if self.orphans().await?.contains(&format!("{NAMESPACE}/{name}")) {
                self.copies.delete(&name, &DeleteParams::default()).await?;
            }
        }
        Ok(())
    }

    /// Waits until both sides have the same objects, with the same specs and statuses, and returns the UIDs of those that last.
    pub(crate) async fn in_sync(&self) -> Result<Uids> {
        eventually_ok("both sides to be equal", SOON, async || {
            let ours = self.ours.list(&ListParams::default()).await?.items;
            let copies = self.all_copies.list(&ListParams::default()).await?.items;
            let colors = |objects: &[DynamicObject]| -> BTreeMap<String, _> {
                let colors =
                    |it: &DynamicObject| (it.data["spec"]["color"].clone(), it.data["status"]["color"].clone());
                objects.iter().map(|it| (it.name_any(), colors(it))).collect()
            };
            let (present, provided) = (colors(&ours), colors(&copies));
            let state = self.state.lock();
            let expected = state.objects.iter().map(|(name, number)| (name, number.to_string()));
            let is_expected = expected.eq(present.iter().map(|(name, (spec, _))| (name, text(spec))));
            ensure!(is_expected, "instead of {:?} there are {present:?}", state.objects);
            ensure!(present == provided, "{present:?}\non the provider:\n{provided:?}");
            ensure!(copies.len() == provided.len(), "a copy is doubled: {copies:?}");
            let reported = present.values().all(|(spec, status)| spec == status);
            ensure!(reported, "a status is missing: {present:?}");
            let all = ours.iter().chain(&copies);
            let lasting = all.filter(|it| it.name_any().starts_with("lasting-"));
            Ok(lasting.filter_map(kube::ResourceExt::uid).collect())
        })
        .await
    }

    /// Waits until each lasting object was changed once more.
    pub(crate) async fn goes_on(&self) -> Result<()> {
        let enough = self.count() + 2 * LASTING;
        eventually_ok("more changes", SOON, async || {
            ensure!(self.count() >= enough, "{}", self.count());
            Ok(())
        })
        .await
    }

    /// How many changes were made.
    pub(crate) fn count(&self) -> u64 {
        self.state.lock().number
    }

    async fn create(&self, name: &str) -> Result<()> {
        let number = self.begin(name);
        let mut widget = self.offer.widget(name, &number.to_string());
        widget.metadata.namespace = Some(NAMESPACE.to_owned());
        self.ours.create(&PostParams::default(), &widget).await?;
        Ok(())
    }

    async fn update(&self, name: &str) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": {"color": self.begin(name).to_string()}}));
        self.ours.patch(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    async fn delete(&self, name: &str) -> Result<()> {
        self.begin(name);
        self.state.lock().objects.remove(name);
        self.ours.delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Sets the status of a copy. One that is deleted meanwhile needs none.
    async fn report(&self, name: &str, color: &str) -> Result<()> {
        let patch = Patch::Merge(json!({"status": {"color": color}}));
        match self.copies.patch_status(name, &PatchParams::default(), &patch).await {
            Err(kube::Error::Api(error)) if error.code == 404 => Ok(()),
            outcome => outcome.map(drop).map_err(Into::into),
        }
    }

    /// Notes a change that is about to be made, and returns its number.
    fn begin(&self, name: &str) -> u64 {
        let mut state = self.state.lock();
        state.number += 1;
        let number = state.number;
        state.objects.insert(name.to_owned(), number);
        state
            .pending
            .entry(name.to_owned())
            .or_default()
            .push_back((number, Instant::now()));
        number
    }

    /// Notes that a change of an object, and with it all earlier ones, is on the provider.
    fn arrived(&self, name: &str, number: u64) {
        let mut state = self.state.lock();
        let State { pending, longest, .. } = &mut *state;
        let Some(changes) = pending.get_mut(name) else {
            return;
        };
        while let Some((_, begin)) = changes.pop_front_if(|change| change.0 <= number) {
            *longest = begin.elapsed().max(*longest);
        }
        if changes.is_empty() {
            pending.remove(name);
        }
    }
}

fn lasting(number: u64) -> String {
    format!("lasting-{number:02}")
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
