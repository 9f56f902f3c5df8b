//! Rounds of work in each of which the etcd of one side is backed up, and restored after more work: in place, with revisions that
//! are bumped, or beside its origin. No object is lost, no spec goes back unasked, and each copy that stays behind is shown.
//!
//! Beside its origin, only a consumer is restored: nobody reaches a second provider.

mod state;

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{
    Consumer, ControlPlane,
    bound::{Bound, free_lease, names},
    control_plane::Backup,
    eventually_ok, holds_for,
    lease::PATIENT,
    run,
    wildwest::{Cowboys, SOON},
};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

use self::state::{Herd, Holder, Intents, are_intended, are_kept, copies, orphans, sources, waits};
use super::random_kills::{SEED, number};

/// Set by `cargo xtask soak`.
const ROUNDS: &str = "BINDERY_SOAK_RESTORES";
const ROUNDS_IN_TESTS: u64 = 2;

/// Short, so that a konnector that runs on makes the holder's next step soon.
const HEARTBEAT: (&str, &str) = ("--heartbeat-interval", "30s");
/// How many cowboys there may be after a round's work.
const HERD_MAX: usize = 12;
/// How many resource versions a cluster gives out after a backup. Clients cannot tell that an API server went back in time while it is
/// no further back than it has come since.
const MEANWHILE: u64 = 1000;
/// Long enough for a konnector that means to write.
const PATIENCE: Duration = Duration::from_secs(3);

/// What is restored, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Restore {
    ConsumerInPlace,
    ProviderInPlace,
    ConsumerBeside,
    ConsumerBumped,
    ProviderBumped,
}

/// How the holder of the contract makes a step between the backup and the restore, which the backup lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// It makes none, unless a heartbeat happens to be due.
    None,
    Heartbeat,
    Restart,
}

/// One round, as it was drawn.
#[derive(Clone, Copy, Debug)]
struct Plan {
    restore: Restore,
    step: Step,
    /// Whether the programs are killed before the restore, and started after it.
    restarts: bool,
    /// What becomes of orphans: they are linked to new objects, or deleted.
    relinks: bool,
    /// Which of two consumers goes on: the restored one, or its origin.
    clone_goes_on: bool,
}

/// What there was at the backup and right before the restore.
struct Past {
    backup: Backup,
    /// What both clusters recorded at the backup.
    holder: Holder,
    /// The cowboys at the backup.
    then: Intents,
    then_copies: Herd,
    /// The cowboys right before the restore.
    now: Intents,
    sources: Herd,
    copies: Herd,
}

#[test]
#[expect(clippy::print_stdout, reason = "what it takes to have a round again")]
fn no_object_is_lost_and_no_spec_goes_back() -> Result<()> {
    run(async {
        let rounds = number(ROUNDS)?.unwrap_or(ROUNDS_IN_TESTS);
        let seed = number(SEED)?.unwrap_or_else(rand::random);
        println!("{SEED}={seed} {ROUNDS}={rounds}");
        let mut bound = Box::pin(Bound::prepare("restores", &PATIENT)).await?;
        bound.consumer.set_flag(HEARTBEAT.0, HEARTBEAT.1);
        bound.consumer.stop_konnectors().await?;
        bound.consumer.start_konnector().await?;
        bound.bind(&["cowboys"]).await?;
        for number in 0..rounds {
            let mut random = StdRng::seed_from_u64(seed.wrapping_add(number));
            let plan = Plan::draw(number, &mut random);
            println!("round {number}: {plan:?}");
            let round = Box::pin(plan.run(&mut bound, number, &mut random));
            round
                .await
                .with_context(|| format!("round {number} of seed {seed}: {plan:?}"))?;
        }
        bound.unbind().await
    })
}

// === impl Plan ===

impl Plan {
    fn draw(number: u64, random: &mut StdRng) -> Self {
        // In turn, so that a few rounds have each of them.
        let restore = match number % 5 {
            0 => Restore::ConsumerInPlace,
            1 => Restore::ProviderInPlace,
            2 => Restore::ConsumerBeside,
            3 => Restore::ConsumerBumped,
            _ => Restore::ProviderBumped,
        };
        let step = match random.random_range(0..4) {
            0 | 1 => Step::Restart,
            2 => Step::Heartbeat,
            _ => Step::None,
        };
        let mut coin = || random.random_range(0..2) == 0;
        Self {
            restore,
            step,
            // The konnector of the backup's Lease is not the one that runs, which ends.
            restarts: coin() || (step == Step::Restart && restore.is_of_consumer()),
            relinks: coin(),
            clone_goes_on: coin(),
        }
    }

    async fn run(self, bound: &mut Bound, number: u64, random: &mut StdRng) -> Result<()> {
        // Started before the backup, which so may be from within one heartbeat.
        let beside = match self.restore {
            Restore::ConsumerBeside => Some(ControlPlane::start_before_controllers(&format!("beside-{number}")).await?),
            _ => None,
        };
        work(bound, random, &format!("early-{number}")).await?;
        let past = Box::pin(self.past(bound, number, random)).await?;
        match (beside, self.restore.is_of_consumer()) {
            (Some(plane), _) => Box::pin(self.beside(bound, plane, &past)).await?,
            (None, true) => Box::pin(self.consumer(bound, &past)).await?,
            (None, false) => Box::pin(self.provider(bound, &past)).await?,
        }
        bound.converged().await?;
        bound.status_flows(&format!("round {number}")).await?;
        bound.bound_once().await?;
        ensure!(orphans(bound).await? == 0, "orphans are left");
        Ok(())
    }

    /// Makes a backup, and lets life go on.
    async fn past(self, bound: &mut Bound, number: u64, random: &mut StdRng) -> Result<Past> {
        let (backup, holder) = loop {
            let holder = Holder::settled(bound).await?;
            let backup = self.plane(bound).backup()?;
            // No step was made meanwhile.
            if Holder::read(bound).await? == holder {
                break (backup, holder);
            }
        };
        let (then, then_copies) = (bound.expected.clone(), copies(bound).await?);
        self.plane(bound).spend_revisions(MEANWHILE).await?;
        work(bound, random, &format!("late-{number}")).await?;
        self.step.make(bound).await?;
        Ok(Past {
            backup,
            holder,
            then,
            then_copies,
            now: bound.expected.clone(),
            sources: sources(bound).await?,
            copies: copies(bound).await?,
        })
    }

    fn plane(self, bound: &Bound) -> &ControlPlane {
        if self.restore.is_of_consumer() {
            &bound.consumer.plane
        } else {
            &bound.provider.plane
        }
    }

    /// Restores in place. Returns whether the konnector has to wait for the user.
    async fn restore(self, bound: &mut Bound, past: &Past) -> Result<bool> {
        Holder::settled(bound).await?;
        let of_consumer = self.restore.is_of_consumer();
        if self.restarts {
            let mut konnector = bound.consumer.konnectors.pop().context("none was started")?;
            konnector.kill9()?;
            konnector.hush();
            if !of_consumer {
                bound.provider.servers[0].kill9()?;
            }
        }
        let plane = self.plane(bound);
        plane.stop_api_server()?;
        if matches!(self.restore, Restore::ConsumerBumped | Restore::ProviderBumped) {
            plane.restore_bumped(&past.backup).await?;
        } else {
            plane.restore(&past.backup).await?;
        }
        // The cluster that was not restored has not changed since the API server of the other was stopped.
        let is_held = if of_consumer {
            let recorded = state::recorded(bound).await?;
            past.holder.chain.contains(recorded.record.as_ref())
        } else {
            let chain = state::chain(bound).await?;
            chain.contains(past.holder.recorded.record.as_ref())
        };
        plane.start_api_server().await?;
        if self.restarts {
            if !of_consumer {
                free_lease(bound.provider.plane.client(), "bindery-server").await?;
                bound.provider.keep_server_up().await?;
            }
            free_lease(bound.consumer.plane.client(), "kube-bind").await?;
            bound.consumer.start_konnector().await?;
        }
        Ok(!is_held)
    }

    /// The consumer is restored: the provider keeps what it has until the user accepts.
    async fn consumer(self, bound: &mut Bound, past: &Past) -> Result<()> {
        if self.restore(bound, past).await? {
            waits(&bound.consumer, &["RestoredOrCloned"]).await?;
            writes_nothing(bound, &past.copies, None).await?;
            bound.bind(&["accept", "cowboys", "--yes"]).await?;
        } else {
            // It is from within one heartbeat, and goes on. No copy goes back to an older state of its source.
            eventually_ok("what differs to be shown", SOON, async || {
                are_kept(&past.copies, &copies(bound).await?)?;
                ensure!(orphans(bound).await? == past.came().len(), "orphans are not shown");
                let is_shown = state::has_older_sources(bound).await?;
                ensure!(is_shown == past.has_changed(), "older sources: {is_shown}");
                Ok(())
            })
            .await?;
            holds_for("no spec goes back", PATIENCE, async || {
                are_kept(&past.copies, &copies(bound).await?)
            })
            .await?;
            // While the API server that came back refuses something else first, the binding tells of that, and there is nothing to accept.
            eventually_ok("what the user accepts to be written", SOON, async || {
                if state::has_older_sources(bound).await? {
                    bound.bind(&["accept", "cowboys", "--yes"]).await?;
                }
                are_intended(&past.then, &copies(bound).await?)
            })
            .await?;
        }
        self.after_a_consumer(bound, past).await
    }

    /// The consumer that goes on has the objects of the backup. The copies of those that came since are orphans.
    async fn after_a_consumer(self, bound: &mut Bound, past: &Past) -> Result<()> {
        let came = past.came();
        let kept = state::only(&past.copies, &came);
        eventually_ok("the state of the backup, with orphans", SOON, async || {
            let copies = copies(bound).await?;
            are_intended(&past.then, &copies)?;
            are_kept(&kept, &copies)?;
            ensure!(copies.len() == past.then.len() + came.len(), "there are other copies");
            ensure!(orphans(bound).await? == came.len(), "orphans are not shown");
            Ok(())
        })
        .await?;
        bound.expected.clone_from(&past.then);
        if came.is_empty() {
            return Ok(());
        }
        if !self.relinks {
            bound.bind(&["orphans", "cowboys", "--delete", "--yes"]).await?;
            return Ok(());
        }
        for name in &came {
            let intent = &past.now[name];
            bound.cowboys.create(name, intent).await?;
            bound.expected.insert(name.clone(), intent.clone());
        }
        state::are_replaced(bound, came.len()).await?;
        bound.bind(&["orphans", "cowboys", "--relink", "--yes"]).await?;
        bound.converged().await?;
        are_kept(&kept, &copies(bound).await?).context("after they were linked")?;
        eventually_ok("no orphan to be left", SOON, async || {
            ensure!(orphans(bound).await? == 0, "some are shown");
            Ok(())
        })
        .await
    }

    /// The provider is restored: the consumer keeps what it has, and nothing is made anew until the user accepts.
    async fn provider(self, bound: &mut Bound, past: &Past) -> Result<()> {
        if self.restore(bound, past).await? {
            waits(&bound.consumer, &["ProviderWentBack"]).await?;
            writes_nothing(bound, &past.then_copies, Some(&past.sources)).await?;
            bound.bind(&["accept", "cowboys", "--yes"]).await?;
        }
        after_a_provider(bound, past).await
    }

    /// A clone of the consumer is started: it waits, or both do.
    async fn beside(self, bound: &mut Bound, plane: ControlPlane, past: &Past) -> Result<()> {
        plane.stop_api_server()?;
        plane.restore(&past.backup).await?;
        plane.start_api_server().await?;
        free_lease(plane.client(), "kube-bind").await?;
        let flag = format!("{}={}", HEARTBEAT.0, HEARTBEAT.1);
        let flags = [&PATIENT[..], &[flag.as_str()][..]].concat();
        let mut clone = Consumer::start_on(plane, &flags).await?;
        let reason = waits(&clone, &["RestoredOrCloned", "Contested"]).await?;
        if reason == "Contested" {
            // It was started from within one heartbeat.
            waits(&bound.consumer, &["Contested"]).await?;
            holds_for("no copy goes, and no spec goes back", PATIENCE, async || {
                are_kept(&past.sources, &sources(bound).await?)?;
                are_kept(&past.copies, &copies(bound).await?)
            })
            .await?;
            clone.stop_konnectors().await?;
            bound.bind(&["accept", "cowboys", "--yes"]).await?;
            return after_a_provider(bound, past).await;
        }
        writes_nothing(bound, &past.copies, Some(&past.sources)).await?;
        if !self.clone_goes_on {
            clone.stop_konnectors().await?;
            let name = bound.expected.keys().next().cloned().context("no cowboys")?;
            return bound.intend(&name, "ride alone").await;
        }
        bound.consumer.stop_konnectors().await?;
        bound.consumer = clone;
        bound.cowboys = Cowboys::of(&bound.provider, &bound.consumer, "wild-west").await?;
        bound.bind(&["accept", "cowboys", "--yes"]).await?;
        self.after_a_consumer(bound, past).await
    }
}

/// Creates, changes and deletes cowboys, and waits until all is in sync.
async fn work(bound: &mut Bound, random: &mut StdRng, prefix: &str) -> Result<()> {
    bound.create(names(prefix, 0..random.random_range(1..4))).await?;
    for change in 0..random.random_range(1..4) {
        let name = any(bound, random)?;
        bound.intend(&name, &format!("{prefix} {change}")).await?;
    }
    let surplus = bound.expected.len().saturating_sub(HERD_MAX);
    for _ in 0..surplus.max(random.random_range(0..3)) {
        let name = any(bound, random)?;
        // One stays, so that the provider namespace does.
        if bound.expected.len() > 1 {
            bound.delete(&name).await?;
        }
    }
    bound.converged().await
}

fn any(bound: &Bound, random: &mut StdRng) -> Result<String> {
    let drawn = random.random_range(0..bound.expected.len());
    bound.expected.keys().nth(drawn).cloned().context("no cowboys")
}

/// Fails if a copy, or a source, is written within a while.
async fn writes_nothing(bound: &Bound, copied: &Herd, ours: Option<&Herd>) -> Result<()> {
    holds_for("nothing is written", PATIENCE, async || {
        ensure!(copies(bound).await? == *copied, "copies changed");
        if let Some(ours) = ours {
            ensure!(sources(bound).await? == *ours, "sources changed");
        }
        Ok(())
    })
    .await
}

/// The consumer has kept all its objects, and the provider gets them. Copies of objects that went are deleted, or shown as orphans.
async fn after_a_provider(bound: &Bound, past: &Past) -> Result<()> {
    let left = eventually_ok("the consumer's state, with orphans", SOON, async || {
        let (sources, copies) = (sources(bound).await?, copies(bound).await?);
        are_kept(&past.sources, &sources)?;
        ensure!(sources.len() == past.now.len(), "there are other sources");
        are_intended(&past.now, &copies)?;
        let left: Vec<_> = copies.keys().filter(|name| !past.now.contains_key(*name)).collect();
        ensure!(
            left.iter().all(|name| past.then.contains_key(*name)),
            "there are other copies: {left:?}"
        );
        ensure!(orphans(bound).await? == left.len(), "orphans are not shown: {left:?}");
        Ok(left.len())
    })
    .await?;
    if left > 0 {
        bound.bind(&["orphans", "cowboys", "--delete", "--yes"]).await?;
    }
    Ok(())
}

// === impl Restore ===

impl Restore {
    fn is_of_consumer(self) -> bool {
        !matches!(self, Self::ProviderInPlace | Self::ProviderBumped)
    }
}

// === impl Step ===

impl Step {
    async fn make(self, bound: &mut Bound) -> Result<()> {
        let before = state::recorded(bound).await?;
        match self {
            Self::None => return Ok(()),
            Self::Heartbeat => {}
            Self::Restart => {
                bound.consumer.stop_konnectors().await?;
                bound.consumer.start_konnector().await?;
            }
        }
        let bound = &*bound;
        eventually_ok("the next step of the holder", SOON, async || {
            ensure!(state::recorded(bound).await? != before, "it is {before:?}");
            Ok(())
        })
        .await
    }
}

// === impl Past ===

impl Past {
    /// The cowboys that came after the backup.
    fn came(&self) -> BTreeSet<String> {
        let came = self.now.keys().filter(|name| !self.then.contains_key(*name));
        came.cloned().collect()
    }

    /// Whether a cowboy that the backup has intends something else since.
    fn has_changed(&self) -> bool {
        let mut now = self.now.iter();
        now.any(|(name, intent)| self.then.get(name).is_some_and(|then| then != intent))
    }
}
