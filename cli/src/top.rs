//! What `top` shows of each binding, computed from scrapes of the konnector's metrics. Nothing here reads or writes.

pub(crate) mod exposition;

use std::{collections::BTreeMap, time::Duration};

use exposition::Exposition;
use serde::Serialize;

/// What one scrape tells of the konnector.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Scrape {
    pub(crate) leads: bool,
    /// By binding, and then by resource.
    bindings: BTreeMap<String, BTreeMap<String, Counts>>,
}

/// What one scrape tells of a resource of a binding. Counters run since its engine started.
#[derive(Clone, Debug, Default, PartialEq)]
struct Counts {
    objects: u64,
    pending: u64,
    /// Bytes of content that lists and watches showed.
    bytes: f64,
    /// How long changes took.
    lags: Lags,
}

/// The cumulative buckets of a histogram by their upper bound, in the order of the bounds.
#[derive(Clone, Debug, Default, PartialEq)]
struct Lags(Vec<(f64, f64)>);

/// What is shown of one binding; of claimed resources, which bindings share, of the contract.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    pub(crate) binding: String,
    pub(crate) objects: u64,
    /// Objects that wait to be worked on.
    pub(crate) pending: u64,
    /// Changes that were written to the other cluster since the konnector began to serve the binding.
    pub(crate) changes: f64,
    /// The same, each second between two scrapes.
    pub(crate) changes_per_second: f64,
    pub(crate) lag: LagSeconds,
    /// Bytes of the content of objects that both clusters showed, since the konnector began to serve the binding.
    pub(crate) bytes: f64,
    pub(crate) bytes_per_second: f64,
}

/// How long the changes between two scrapes took, in seconds; `None` if there was none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct LagSeconds {
    pub(crate) p50: Option<f64>,
    pub(crate) p99: Option<f64>,
}

// === impl Scrape ===

impl Scrape {
    /// Reads what a konnector serves.
    pub(crate) fn of(page: &Exposition) -> Self {
        let mut scrape = Self {
            leads: page.samples("bindery_leading").any(|sample| sample.value > 0.0),
            bindings: BTreeMap::new(),
        };
        let mut add = |name: &str, note: &dyn Fn(&mut Counts, &exposition::Sample)| {
            for sample in page.samples(name) {
                if let Some(binding) = sample.label("binding") {
                    let resources = scrape.bindings.entry(binding.to_owned()).or_default();
                    let resource = sample.label("resource").unwrap_or_default();
                    note(resources.entry(resource.to_owned()).or_default(), sample);
                }
            }
        };
        add("bindery_sync_objects", &|counts, sample| {
            counts.objects += whole(sample.value);
        });
        add("bindery_sync_pending", &|counts, sample| {
            counts.pending += whole(sample.value);
        });
        add("bindery_sync_received_bytes_total", &|counts, sample| {
            counts.bytes += sample.value;
        });
        add("bindery_sync_lag_seconds_bucket", &|counts, sample| {
            if let Some(bound) = sample.label("le").and_then(exposition::number) {
                counts.lags.add(bound, sample.value);
            }
        });
        scrape
    }

    /// What is shown of each binding, by name. `before` is a scrape of the same konnector that long ago.
    pub(crate) fn rows(&self, before: &Self, elapsed: Duration) -> Vec<Row> {
        let nothing = Counts::default();
        let rows = self.bindings.iter().map(|(binding, resources)| {
            let (mut all, mut since) = (Counts::default(), Counts::default());
            for (resource, counts) in resources {
                let before = before.bindings.get(binding).and_then(|known| known.get(resource));
                // Less than before: the resource was served anew meanwhile, from zero.
                let is_anew =
                    |before: &&Counts| counts.lags.count() < before.lags.count() || counts.bytes < before.bytes;
                let before = before.filter(|before| !is_anew(before)).unwrap_or(&nothing);
                all.add(counts);
                since.add(&Counts {
                    bytes: counts.bytes - before.bytes,
                    lags: counts.lags.since(&before.lags),
                    ..Counts::default()
                });
            }
            Row {
                binding: binding.clone(),
                objects: all.objects,
                pending: all.pending,
                changes: all.lags.count(),
                changes_per_second: rate(since.lags.count(), elapsed),
                lag: LagSeconds {
                    p50: since.lags.quantile(0.5),
                    p99: since.lags.quantile(0.99),
                },
                bytes: all.bytes,
                bytes_per_second: rate(since.bytes, elapsed),
            }
        });
        rows.collect()
    }
}

// === impl Counts ===

impl Counts {
    fn add(&mut self, other: &Self) {
        self.objects += other.objects;
        self.pending += other.pending;
        self.bytes += other.bytes;
        for (bound, count) in &other.lags.0 {
            self.lags.add(*bound, *count);
        }
    }
}

// === impl Lags ===

impl Lags {
    /// Adds the bucket of another series.
    fn add(&mut self, bound: f64, count: f64) {
        let at = self.0.partition_point(|(known, _)| *known < bound);
        match self.0.get_mut(at) {
            Some((known, total)) if known.total_cmp(&bound).is_eq() => *total += count,
            _ => self.0.insert(at, (bound, count)),
        }
    }

    /// How many changes were observed.
    fn count(&self) -> f64 {
        self.0.last().map_or(0.0, |(_, count)| *count)
    }

    /// The changes that were observed since.
    fn since(&self, before: &Self) -> Self {
        let earlier = |bound: f64| {
            let known = before.0.iter().find(|(known, _)| known.total_cmp(&bound).is_eq());
            known.map_or(0.0, |(_, count)| *count)
        };
        let buckets = self.0.iter();
        Self(
            buckets
                .map(|(bound, count)| (*bound, (count - earlier(*bound)).max(0.0)))
                .collect(),
        )
    }

    /// The quantile as Prometheus computes it with `histogram_quantile`: linear within a bucket, whose lower bound is 0 for the first. In the
    /// last bucket, which has no upper bound, it is the bound of the bucket before. `None` without observations.
    fn quantile(&self, quantile: f64) -> Option<f64> {
        let total = self.count();
        if total <= 0.0 {
            return None;
        }
        let rank = quantile * total;
        let at = self.0.iter().position(|(_, count)| *count >= rank)?;
        let (lower, below) = match at.checked_sub(1) {
            Some(before) => self.0[before],
            None => (0.0, 0.0),
        };
        let (upper, count) = self.0[at];
        if upper.is_infinite() {
            return Some(lower);
        }
        let within = count - below;
        if within <= 0.0 {
            return Some(upper);
        }
        Some(lower + (upper - lower) * (rank - below) / within)
    }
}

/// A count that is served as a number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast cuts what is out of range, and such a number of objects is none"
)]
fn whole(value: f64) -> u64 {
    value as u64
}

fn rate(count: f64, elapsed: Duration) -> f64 {
    if elapsed.is_zero() {
        0.0
    } else {
        count / elapsed.as_secs_f64()
    }
}

#[cfg(test)]
mod tests;
