//! What a Prometheus tells of faults: the seconds until each alert fires, and those until it is silent again.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{
    Prometheus, eventually,
    observe::{ALERTS, PANELS, Program, SLOS, anchor},
};
use tokio::time::Instant;

/// The longest wait for an alert, in either direction. The longest window is that of the slowest burn rate.
const PATIENCE: Duration = Duration::from_mins(4);
/// The range of rates of panels.
const RATE: &str = "10s";

/// Alerts, and what became of them.
pub(super) struct Board<'a> {
    prometheus: &'a Prometheus,
    rows: BTreeMap<&'static str, Row>,
    /// Expressions of panels that had no sample yet.
    without_samples: BTreeSet<String>,
}

/// The seconds of one alert.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    fires: f64,
    silent: f64,
}

impl<'a> Board<'a> {
    pub(super) fn new(prometheus: &'a Prometheus) -> Self {
        let expressions = |program: Program| {
            let panels = PANELS.iter().filter(move |panel| panel.program == program);
            panels.flat_map(move |panel| panel.expressions(program.name(), RATE))
        };
        Self {
            prometheus,
            rows: BTreeMap::new(),
            without_samples: Program::ALL.into_iter().flat_map(expressions).collect(),
        }
    }

    /// Waits until no alert fires.
    pub(super) async fn quiet(&self) -> Result<()> {
        eventually("no alert to fire", PATIENCE, async || {
            let firing = self.prometheus.firing().await?;
            ensure!(firing.is_empty(), "{firing:?} fire");
            Ok(Some(()))
        })
        .await
    }

    /// Waits until each of these alerts has fired since the fault.
    pub(super) async fn fire(&mut self, names: &[&'static str], fault: Instant) -> Result<()> {
        let mut left: BTreeSet<_> = names.iter().copied().collect();
        eventually(format!("{names:?} to fire"), PATIENCE, async || {
            let firing = self.prometheus.firing().await?;
            for name in left.extract_if(.., |name| firing.contains(*name)) {
                let seconds = fault.elapsed().as_secs_f64();
                self.rows.insert(
                    name,
                    Row {
                        fires: seconds,
                        silent: 0.0,
                    },
                );
            }
            ensure!(left.is_empty(), "{left:?} do not fire, {firing:?} do");
            Ok(Some(()))
        })
        .await?;
        self.look().await
    }

    /// Waits until each of these alerts is silent after the mend.
    pub(super) async fn fall_silent(&mut self, names: &[&'static str], mend: Instant) -> Result<()> {
        let mut left: BTreeSet<_> = names.iter().copied().collect();
        eventually(format!("{names:?} to be silent"), PATIENCE, async || {
            let firing = self.prometheus.firing().await?;
            for name in left.extract_if(.., |name| !firing.contains(*name)) {
                let row = self.rows.get_mut(name).context("it never fired")?;
                row.silent = mend.elapsed().as_secs_f64();
            }
            ensure!(left.is_empty(), "{left:?} fire still");
            Ok(Some(()))
        })
        .await?;
        self.look().await
    }

    /// Takes note of the panels that have samples now.
    pub(super) async fn look(&mut self) -> Result<()> {
        for expression in std::mem::take(&mut self.without_samples) {
            if self.prometheus.samples(&expression).await? == 0 {
                self.without_samples.insert(expression);
            }
        }
        Ok(())
    }

    /// Checks that every alert fired, and that every panel had samples. Returns the table of alerts.
    pub(super) fn finish(self) -> Result<String> {
        let symptoms = ALERTS.iter().map(|alert| (alert.name, alert.fault));
        let objectives = SLOS.iter().map(|slo| (slo.alert, slo.fault));
        let mut table = "| alert | fault | fires after | silent after | page |\n|---|---|---|---|---|\n".to_owned();
        for (name, fault) in symptoms.chain(objectives) {
            let row = self
                .rows
                .get(name)
                .with_context(|| format!("{name} was not made to fire"))?;
            let anchor = anchor(name);
            let Row { fires, silent } = row;
            let _ = writeln!(
                table,
                "| {name} | {fault} | {fires:.1} s | {silent:.1} s | docs/runbooks.md#{anchor} |"
            );
        }
        ensure!(
            self.without_samples.is_empty(),
            "these expressions of panels never had a sample: {:#?}",
            self.without_samples
        );
        Ok(table)
    }
}
