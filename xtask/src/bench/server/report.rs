//! The report of the server benchmark, with the bars (limits of what is measured) that it misses.

use serde::Serialize;

use super::{Answer, agents::Percentiles, counts::Counted};
use crate::bench::{self, proc::Memory, table::Table};

/// The most MiB of memory that the server may use with all agents connected.
const MEMORY_MIB: f64 = 400.0;
/// A change may take at most this many times as long as on a bare watch of the API server (p99).
const CHANGE_RATIO: f64 = 3.0;
/// Until all changes have arrived, it may take at most this many times as long as all the writes took.
const ARRIVAL_RATIO: f64 = 1.3;
/// After a restart of the server, it may take at most this many times as long to serve all agents as it took to connect them.
const RESTART_RATIO: f64 = 3.0;
/// While strangers attack the port, a renewal or a change may take at most this many times as long as without them (p99).
const ATTACK_RATIO: f64 = 2.0;

/// While another tenant has a crowd in the queues, a bind may take at most this many times as long as without it (p99).
const CROWD_RATIO: f64 = 2.0;

/// With fewer agents or changes, bars are not checked: even a bad server would meet them.
const AGENTS: u32 = 5000;
const CHANGES: usize = 500;
/// With fewer renewals, or strangers from fewer addresses, the attack is not judged.
const RENEWALS: usize = 200;
const STRANGERS: u8 = 64;
/// With fewer objects in the queues, or fewer binds, the crowd is not judged.
const CROWD: u32 = 100_000;
const CROWD_BINDS: usize = 100;
/// The share of the crowd's objects that has to be in the queues still when the last bind is done.
const CROWD_SHARE: f64 = 0.5;

/// The result of the benchmark.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    bench: &'static str,
    settings: serde_json::Value,
    rows: Vec<Row>,
    notes: Vec<String>,
    missed: Vec<String>,
    /// Bars that are not checked, because there are too few agents or changes.
    not_judged: Vec<String>,
}

/// What was measured in one phase.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    pub(super) phase: String,
    pub(super) count: Option<usize>,
    pub(super) seconds: Option<f64>,
    /// Time until the last request was answered.
    pub(super) load_seconds: Option<f64>,
    /// Latencies in milliseconds: p50, p90, p99, max.
    pub(super) percentiles: Option<[f64; 4]>,
    /// Latencies of the same changes on a bare watch of the API server.
    pub(super) bare: Option<[f64; 4]>,
    /// Latencies of renewals meanwhile, and how many there were.
    pub(super) renewals: Option<[f64; 4]>,
    pub(super) renewed: Option<usize>,
    /// How often a stranger opened a connection meanwhile.
    pub(super) strangers: Option<usize>,
    /// How many keys waited for the server's controllers at the end.
    pub(super) queued: Option<f64>,
    /// Processor time of the server.
    pub(super) cpu_seconds: Option<f64>,
    /// Processor time of the control plane.
    pub(super) plane_cpu_seconds: Option<f64>,
    /// Memory of the server.
    pub(super) memory: Memory,
    /// The server's requests to the API server in the phase.
    pub(super) asked: Option<Counted>,
}

/// How much took part in the benchmark.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) agents: u32,
    /// Addresses from which the port was attacked.
    pub(super) strangers: u8,
    /// Objects of one tenant in the queues.
    pub(super) crowd: u32,
}

/// Measurements that belong to no single phase.
#[derive(Debug)]
pub(super) struct Settled {
    /// Number of streams with a complete snapshot, with all agents connected.
    pub(super) streams: usize,
    /// The server's requests to the API server while nothing happens.
    pub(super) at_rest: Counted,
    /// The server's requests to the API server since its restart.
    pub(super) after: Counted,
}

// === impl Row ===

impl Row {
    pub(super) fn new(phase: &str, answer: Option<&Answer>, memory: Memory) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "nobody waits for 2^52 microseconds")]
        let milliseconds = |micros: u64| micros as f64 / 1e3;
        let milliseconds = |of: Percentiles| [of.p50, of.p90, of.p99, of.max].map(milliseconds);
        Self {
            phase: phase.to_owned(),
            count: answer.map(|answer| answer.count),
            seconds: answer.map(|answer| answer.seconds),
            load_seconds: answer.and_then(|answer| answer.load_seconds),
            percentiles: answer.and_then(|answer| answer.percentiles).map(milliseconds),
            bare: answer.and_then(|answer| answer.bare).map(milliseconds),
            renewals: answer.and_then(|answer| answer.renewals).map(milliseconds),
            renewed: answer.and_then(|answer| answer.renewed),
            strangers: None,
            queued: None,
            cpu_seconds: None,
            plane_cpu_seconds: None,
            memory,
            asked: None,
        }
    }

    fn rate(&self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "nobody counts to 2^52")]
        let count = self.count? as f64;
        self.seconds
            .filter(|seconds| *seconds > 0.0)
            .map(|seconds| count / seconds)
    }

    /// Lines of the table: the phase, and the bare watch and the renewals beside it, if there were any.
    fn lines(&self) -> Vec<Vec<String>> {
        let beside = |what: &str, count: Option<usize>, times: [f64; 4]| {
            let mut cells = vec![
                format!("{}, {what}", self.phase),
                count.map_or_else(String::new, |count| count.to_string()),
                String::new(),
                String::new(),
            ];
            cells.extend(times.map(|value| format!("{value:.1}")));
            cells.resize(12, String::new());
            cells
        };
        let bare = self.bare.map(|times| beside("bare watch", None, times));
        let renewals = self.renewals.map(|times| beside("renewals", self.renewed, times));
        std::iter::once(self.cells()).chain(bare).chain(renewals).collect()
    }

    fn cells(&self) -> Vec<String> {
        let number =
            |value: Option<f64>, digits: usize| value.map_or_else(String::new, |value| format!("{value:.digits$}"));
        let [p50, p90, p99, max] = self.percentiles.map_or([None; 4], |all| all.map(Some));
        vec![
            self.phase.clone(),
            self.count.map_or_else(String::new, |count| count.to_string()),
            number(self.seconds, 2),
            number(self.rate(), 0),
            number(p50, 1),
            number(p90, 1),
            number(p99, 1),
            number(max, 1),
            number(self.cpu_seconds, 2),
            number(self.plane_cpu_seconds, 2),
            number(Some(self.memory.rss_mib), 0),
            number(Some(self.memory.peak_mib), 0),
        ]
    }
}

// === impl Report ===

impl Report {
    pub(super) fn new(settings: serde_json::Value, sizes: Sizes, rows: Vec<Row>, settled: &Settled) -> Self {
        let mut report = Self {
            bench: "server",
            settings,
            rows,
            notes: Vec::new(),
            missed: Vec::new(),
            not_judged: Vec::new(),
        };
        report.judge(sizes, settled);
        report
    }

    fn judge(&mut self, sizes: Sizes, settled: &Settled) {
        let agents = sizes.agents;
        let wanted = agents as usize;
        let held = settled.streams;
        self.bar(held == wanted, format!("{held} streams are held, of {wanted} agents"));
        // What is not there is no good figure.
        let rss = |name: &str| self.row(name).map_or(f64::INFINITY, |row| row.memory.rss_mib);
        let (before, with) = (rss("no contract"), rss("connected").max(rss("restarted")));
        let per_agent = (with - before) * 1024.0 / f64::from(agents);
        let text = format!(
            "the server has {with:.0} MiB with all agents, {per_agent:.1} KiB for each; at most {MEMORY_MIB} are wanted"
        );
        self.bar_of(agents >= AGENTS, with <= MEMORY_MIB, text);
        let change = self.row("change");
        let times = change.and_then(|row| row.percentiles.zip(row.bare));
        let ratio = times.map_or(f64::INFINITY, |(ours, bare)| ours[2] / bare[2]);
        let is_enough = change.and_then(|row| row.count).is_none_or(|count| count >= CHANGES);
        let text = format!(
            "a change arrives within {ratio:.2} times the time of a bare watch (p99); {CHANGE_RATIO} are wanted"
        );
        self.bar_of(is_enough, ratio <= CHANGE_RATIO, text);
        let times = self.row("change all").and_then(|row| row.seconds.zip(row.load_seconds));
        let ratio = times.map_or(f64::INFINITY, |(seconds, load)| seconds / load);
        let text = format!(
            "all changed exports arrive within {ratio:.2} times the time of the writes; {ARRIVAL_RATIO} are wanted"
        );
        self.bar_of(agents as usize >= CHANGES, ratio <= ARRIVAL_RATIO, text);
        let seconds = |phase: &str| self.row(phase).and_then(|row| row.seconds);
        let ratio = seconds("restart").zip(seconds("connect"));
        let ratio = ratio.map_or(f64::INFINITY, |(restart, connect)| restart / connect);
        let text = format!(
            "after a restart all are served within {ratio:.2} times the time to connect; {RESTART_RATIO} are wanted"
        );
        self.bar_of(agents >= AGENTS, ratio <= RESTART_RATIO, text);
        self.judge_attack(sizes.strangers);
        self.judge_crowd(sizes.crowd);
        let writes = (settled.at_rest.writes, settled.after.writes);
        let text = format!(
            "at rest the server writes nothing but its Lease ({} writes: {:?}), nor after a restart ({}: {:?})",
            writes.0, settled.at_rest.written, writes.1, settled.after.written
        );
        // Nobody writes who does nothing, or who has another name.
        let is_seen = settled.at_rest.leases > 0 && settled.after.leases > 0;
        self.bar(is_seen && writes == (0, 0), text);
        if let Some((count, asked)) = self.row("bind").and_then(|row| row.count.zip(row.asked.clone())) {
            #[expect(clippy::cast_precision_loss, reason = "nobody binds 2^52 times")]
            let per = |number: usize| number as f64 / count.max(1) as f64;
            let (reads, writes, reviews) = (per(asked.reads), per(asked.writes), per(asked.reviews));
            self.notes.push(format!(
                "a bind costs the server {writes:.1} writes, {reads:.1} reads and {reviews:.1} reviews"
            ));
        }
        let asked = &settled.after;
        self.notes.push(format!(
            "from the restart on the server asked for {} reviews and {} other reads",
            asked.reviews, asked.reads
        ));
        self.notes.push(
            "ms: of a bind or list from the call, of a change from the time it was meant for, else from the begin of the \
             phase; CPU and MiB are the server's; agents and control plane share the machine"
                .to_owned(),
        );
    }

    /// Judges what known clients notice of an attack.
    fn judge_attack(&mut self, strangers: u8) {
        let (calm, attacked) = (self.row("calm"), self.row("attacked"));
        let p99 = |of: fn(&Row) -> Option<[f64; 4]>| {
            let times = calm.and_then(of).zip(attacked.and_then(of));
            times.map_or([f64::INFINITY; 3], |(calm, attacked)| {
                [calm[2], attacked[2], attacked[2] / calm[2]]
            })
        };
        let figures = [
            ("a renewal takes", p99(|row| row.renewals)),
            ("a change arrives after", p99(|row| row.percentiles)),
        ];
        let least = |of: fn(&Row) -> Option<usize>| calm.and_then(of).min(attacked.and_then(of));
        let is_enough = strangers >= STRANGERS
            && least(|row| row.renewed).is_none_or(|count| count >= RENEWALS)
            && least(|row| row.count).is_none_or(|count| count >= CHANGES);
        let opened = attacked.and_then(|row| row.strangers).unwrap_or_default();
        for (what, [calm, attacked, ratio]) in figures {
            let text = format!(
                "while {strangers} addresses attack the port, {what} {attacked:.1} ms, without them {calm:.1} ms (p99): {ratio:.2} times; \
                 {ATTACK_RATIO} are wanted"
            );
            // No attack is withstood without one.
            self.bar_of(is_enough, opened > 0 && ratio <= ATTACK_RATIO, text);
        }
        self.notes.push(format!("the strangers opened {opened} connections"));
    }

    /// Judges what a tenant notices of another one that has a crowd in the queues.
    fn judge_crowd(&mut self, crowd: u32) {
        let (idle, crowded) = (self.row("bind idle"), self.row("bind crowded"));
        let p99 = |row: Option<&Row>| row.and_then(|row| row.percentiles).map_or(f64::INFINITY, |all| all[2]);
        let (idle_ms, crowded_ms) = (p99(idle), p99(crowded));
        let ratio = if idle_ms.is_finite() {
            crowded_ms / idle_ms
        } else {
            f64::INFINITY
        };
        let count = |row: Option<&Row>| row.and_then(|row| row.count);
        let binds = count(idle).min(count(crowded));
        let queued = crowded.and_then(|row| row.queued).unwrap_or_default();
        let text = format!(
            "with {crowd} objects of another tenant, of which {queued} wait in the queues to the end, a bind takes {crowded_ms:.1} ms, without \
             them {idle_ms:.1} ms (p99): {ratio:.2} times; {CROWD_RATIO} are wanted"
        );
        let is_enough = crowd >= CROWD && binds.is_none_or(|count| count >= CROWD_BINDS);
        // No crowd is withstood without one.
        let is_crowd = queued >= CROWD_SHARE * f64::from(crowd);
        self.bar_of(is_enough, is_crowd && ratio <= CROWD_RATIO, text);
    }

    fn row(&self, phase: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.phase == phase)
    }

    fn bar(&mut self, holds: bool, text: String) {
        self.bar_of(true, holds, text);
    }

    /// Adds a bar. If there are too few agents or changes, the bar is listed as not judged.
    fn bar_of(&mut self, is_enough: bool, holds: bool, text: String) {
        if !is_enough {
            self.not_judged.push(text);
            return;
        }
        if !holds {
            self.missed.push(text.clone());
        }
        self.notes.push(text);
    }
}

impl bench::Report for Report {
    fn table(&self) -> String {
        let head = [
            "phase", "count", "s", "per s", "p50 ms", "p90", "p99", "max", "CPU s", "plane's", "MiB", "peak",
        ];
        let mut table = Table::new(&head, 1);
        self.rows
            .iter()
            .flat_map(Row::lines)
            .for_each(|cells| table.line(cells));
        let notes = self.notes.iter().map(|note| format!("{note}\n"));
        let too_few = self
            .not_judged
            .iter()
            .map(|what| format!("not judged, of too few: {what}\n"));
        std::iter::once(table.to_string()).chain(notes).chain(too_few).collect()
    }

    fn missed(&self) -> Option<String> {
        (!self.missed.is_empty()).then(|| self.missed.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Report as _;

    fn row(phase: &str, seconds: f64, load: f64, p99: f64, rss_mib: f64) -> Row {
        let memory = Memory {
            rss_mib,
            peak_mib: rss_mib,
        };
        Row {
            count: Some(CHANGES),
            seconds: Some(seconds),
            load_seconds: Some(load),
            percentiles: Some([1.0, 2.0, p99, 4.0]),
            bare: Some([1.0; 4]),
            ..Row::new(phase, None, memory)
        }
    }

    fn attack(phase: &str, change: f64, renewal: f64, strangers: usize) -> Row {
        Row {
            renewals: Some([1.0, 2.0, renewal, 4.0]),
            renewed: Some(RENEWALS),
            strangers: Some(strangers),
            ..row(phase, 1.0, 1.0, change, 100.0)
        }
    }

    fn crowded(bind: f64, queued: f64) -> Row {
        Row {
            queued: Some(queued),
            ..row("bind crowded", 1.0, 1.0, bind, 100.0)
        }
    }

    fn rows([mib, p99, all, restart, renewal, delay, bind]: [f64; 7]) -> Vec<Row> {
        vec![
            row("no contract", 0.0, 0.0, 0.0, 10.0),
            row("connect", 1.0, 1.0, 0.0, 100.0),
            row("connected", 0.0, 0.0, 0.0, 100.0),
            row("change", 1.0, 1.0, p99, 100.0),
            row("change all", all, 1.0, 0.0, 100.0),
            attack("calm", 1.0, 1.0, 0),
            attack("attacked", delay, renewal, 8192),
            row("restart", restart, 1.0, 0.0, 100.0),
            row("restarted", 0.0, 0.0, 0.0, mib),
            row("bind idle", 1.0, 1.0, 1.0, 100.0),
            crowded(bind, f64::from(CROWD)),
        ]
    }

    fn settled(streams: usize, writes: usize, leases: usize) -> Settled {
        let counted = |writes| Counted {
            writes,
            leases,
            ..Counted::default()
        };
        Settled {
            streams,
            at_rest: counted(0),
            after: counted(writes),
        }
    }

    #[track_caller]
    fn only(report: &Report, word: &str) {
        let missed = report.missed().expect("a miss");
        assert!(report.missed.len() == 1 && missed.contains(word), "{missed}");
    }

    const GOOD: [f64; 7] = [400.0, 3.0, 1.3, 3.0, 2.0, 2.0, 2.0];

    const fn sizes(agents: u32, strangers: u8) -> Sizes {
        Sizes {
            agents,
            strangers,
            crowd: CROWD,
        }
    }

    fn report(agents: u32, rows: Vec<Row>, settled: &Settled) -> Report {
        Report::new(serde_json::Value::Null, sizes(agents, STRANGERS), rows, settled)
    }

    #[test]
    fn each_bar_is_judged() {
        let good = settled(5000, 0, 1);
        assert_eq!(report(5000, rows(GOOD), &good).missed(), None);
        only(&report(5000, rows(GOOD), &settled(4999, 0, 1)), "streams");
        only(&report(5000, rows(GOOD), &settled(5000, 1, 1)), "writes nothing");
        only(&report(5000, rows(GOOD), &settled(5000, 0, 0)), "writes nothing");
        let bars = [
            ("MiB", Some("restarted")),
            ("bare watch", Some("change")),
            ("all changed", Some("change all")),
            ("restart", Some("restart")),
            ("a renewal takes", None),
            ("a change arrives after", None),
            ("another tenant", Some("bind crowded")),
        ];
        for (index, (word, phase)) in bars.into_iter().enumerate() {
            let mut bad = GOOD;
            bad[index] += 0.1;
            only(&report(5000, rows(bad), &good), word);
            if let Some(phase) = phase {
                let mut missing = rows(GOOD);
                missing.retain(|row| row.phase != phase);
                only(&report(5000, missing, &good), word);
            }
        }
    }

    #[test]
    fn an_attack_is_judged_only_if_there_was_one() {
        let good = settled(5000, 0, 1);
        for other in [None, Some(attack("attacked", 1.0, 1.0, 0))] {
            let mut no_attack = rows(GOOD);
            no_attack.retain(|row| row.phase != "attacked");
            no_attack.extend(other);
            assert_eq!(report(5000, no_attack, &good).missed.len(), 2);
        }
        let few = Report::new(serde_json::Value::Null, sizes(5000, STRANGERS - 1), rows(GOOD), &good);
        assert_eq!((few.missed.len(), few.not_judged.len()), (0, 2));
    }

    #[test]
    fn a_crowd_that_is_gone_before_the_end_proves_nothing() {
        let mut rows = rows(GOOD);
        *rows.last_mut().expect("a row") = crowded(1.0, 1.0);
        only(&report(5000, rows, &settled(5000, 0, 1)), "another tenant");
    }

    #[test]
    fn too_little_is_not_judged() {
        let [mib, change, all, restart, renewal, delay, bind] = GOOD;
        let bad = [mib + 1.0, change + 1.0, all + 1.0, restart + 1.0, renewal, delay, bind];
        let report = report(200, rows(bad), &settled(200, 0, 1));
        assert_eq!(
            report.missed(),
            Some("a change arrives within 4.00 times the time of a bare watch (p99); 3 are wanted".to_owned())
        );
        assert_eq!(report.not_judged.len(), 3);
    }
}
