//! Rounds of work in which server and konnector are killed at random moments. The seed is printed and can be given, so
//! that a round that failed can be had again.

use std::{fmt, time::Duration};

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{
    bound::{self, Bound, free_lease, names},
    lease::PATIENT,
    run,
};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use tokio::time::sleep;

use super::foreign::Foreign;

/// Set by `cargo xtask soak`.
const ROUNDS: &str = "BINDERY_SOAK_ROUNDS";
pub(super) const SEED: &str = "BINDERY_SOAK_SEED";
const ROUNDS_IN_TESTS: u64 = 5;

const HERD: usize = 30;
/// A round's work is done in less.
const LATEST_MS: u64 = 700;

/// What is done while something is killed.
#[derive(Clone, Copy, Debug)]
enum Work {
    Create,
    Update,
    Delete,
    Unbind,
}

/// What is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Server,
    Konnector,
    Both,
}

struct Blow {
    victim: Victim,
    after: Duration,
}

#[test]
#[expect(clippy::print_stdout, reason = "what it takes to have a round again")]
fn killed_at_random_moments() -> Result<()> {
    run(async {
        let rounds = number(ROUNDS)?.unwrap_or(ROUNDS_IN_TESTS);
        let seed = number(SEED)?.unwrap_or_else(rand::random);
        println!("{SEED}={seed} {ROUNDS}={rounds}");
        let mut bound = Bound::start("kills", &PATIENT).await?;
        let contract = bound.contract.clone();
        let foreign = Foreign::plant(&bound.provider, &contract).await?;
        for number in 0..rounds {
            let mut random = StdRng::seed_from_u64(seed.wrapping_add(number));
            for work in [Work::Create, Work::Update, Work::Delete, Work::Unbind] {
                let blow = Blow::random(&mut random);
                println!("round {number}: {work:?}, {blow}");
                let outcome = strike(&mut bound, &foreign, number, work, &blow).await;
                outcome.with_context(|| format!("round {number} of seed {seed}: {work:?}, {blow}"))?;
            }
        }
        Ok(())
    })
}

async fn strike(bound: &mut Bound, foreign: &Foreign, round: u64, work: Work, blow: &Blow) -> Result<()> {
    match work {
        Work::Create => {
            let herd: Vec<_> = names(&format!("round-{round}"), 0..HERD).collect();
            let creating = tokio::spawn({
                let (cowboys, herd) = (bound.cowboys.clone(), herd.clone());
                async move { bound::create(&cowboys, herd).await }
            });
            bound
                .expected
                .extend(herd.into_iter().map(|name| (name, "ride".to_owned())));
            blow.fall(bound).await?;
            creating.await??;
        }
        Work::Update => {
            let all: Vec<_> = bound.expected.keys().cloned().collect();
            let (first, second) = all.split_at(all.len() / 2);
            for name in first {
                bound.intend(name, &format!("hide {round}")).await?;
            }
            blow.fall(bound).await?;
            for name in second {
                bound.intend(name, &format!("hide {round}")).await?;
            }
        }
        Work::Delete => {
            let all: Vec<_> = bound.expected.keys().cloned().collect();
            for name in all.iter().step_by(2) {
                bound.delete(name).await?;
            }
            blow.fall(bound).await?;
        }
        Work::Unbind => {
            bound
                .bind(&["unbind", "cowboys", "--delete-objects", "--wait=false"])
                .await?;
            blow.fall(bound).await?;
            bound.is_gone().await?;
            foreign.is_untouched().await?;
            bound.expected.clear();
            bound.bind(&["cowboys"]).await?;
            return bound.bound_once().await;
        }
    }
    bound.converged().await?;
    bound.status_flows(&format!("{work:?} {round}")).await?;
    bound.bound_once().await?;
    foreign.is_untouched().await
}

/// The number in a variable of the environment, if it is set.
pub(super) fn number(variable: &str) -> Result<Option<u64>> {
    let Ok(text) = std::env::var(variable) else {
        return Ok(None);
    };
    let number = text.parse();
    Ok(Some(number.with_context(|| format!("{variable}={text} is no number"))?))
}

// === impl Blow ===

impl Blow {
    fn random(random: &mut StdRng) -> Self {
        let victim = match random.random_range(0..5) {
            0 | 1 => Victim::Server,
            2 | 3 => Victim::Konnector,
            _ => Victim::Both,
        };
        let after = Duration::from_millis(random.random_range(0..LATEST_MS));
        Self { victim, after }
    }

    /// Kills after a while, and starts again at once.
    async fn fall(&self, bound: &mut Bound) -> Result<()> {
        sleep(self.after).await;
        let (server, konnector) = (self.victim != Victim::Konnector, self.victim != Victim::Server);
        if server {
            bound.provider.servers[0].kill9()?;
        }
        if konnector {
            let last = bound.consumer.konnectors.last_mut().context("none was started")?;
            ensure!(last.is_running(), "it ended by itself");
            last.kill9()?;
        }
        if server {
            free_lease(bound.provider.plane.client(), "bindery-server").await?;
            bound.provider.restart_server().await?;
        }
        if konnector {
            free_lease(bound.consumer.plane.client(), "kube-bind").await?;
            bound.consumer.start_konnector().await?;
        }
        Ok(())
    }
}

impl fmt::Display for Blow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} killed after {:?}", self.victim, self.after)
    }
}
