//! Runs one sequence against both API servers, step by step, until they differ.

use std::{
    fmt,
    time::{Duration, Instant},
};

use anyhow::Result;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    compare::{Symbols, first_difference},
    generate::step::{Call, Sequence, Step},
    sides::{
        Answer,
        memory::Memory,
        real::Real,
        wire::{Answers, Wire, wire},
    },
};

/// How long the real control plane may take to become what the in-memory one is.
const SETTLE_LIMIT: Duration = Duration::from_mins(1);

/// How long the real API server may take until it knows what a patient request asks for.
const PATIENCE: Duration = Duration::from_secs(20);

/// The longest part of a value that is printed.
const SHOWN: usize = 1500;

/// What became of a sequence.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) requests: usize,
    pub(crate) events: usize,
    pub(crate) settled: usize,
    /// Status and number of answers with it.
    pub(crate) statuses: std::collections::BTreeMap<u16, usize>,
    pub(crate) differences: Vec<Difference>,
    /// The state of the real control plane in the end, to see whether it stays so.
    pub(crate) last: Option<Value>,
}

#[derive(Debug)]
pub(crate) struct Difference {
    pub(crate) seed: u64,
    step: usize,
    what: String,
    path: String,
    memory: Value,
    real: Value,
    whole: (Value, Value),
}

/// Both API servers in the course of a sequence.
struct Run<'a> {
    sequence: &'a Sequence,
    memory: Memory,
    real: Real,
    /// Symbols and answers of each: first the in-memory one.
    symbols: [Symbols; 2],
    answers: [Answers; 2],
    /// The number of the last step that had controllers write.
    settled: usize,
    outcome: Outcome,
}

/// Runs a sequence until it has so many differences; the first may be the cause of the others. Fails only if it cannot be run.
pub(crate) async fn run(
    sequence: &Sequence,
    memory: Memory,
    real: Real,
    issuers: [&str; 2],
    limit: usize,
) -> Result<Outcome> {
    let mut run = Run {
        sequence,
        memory,
        real,
        symbols: issuers.map(Symbols::new),
        answers: [vec![None; sequence.steps.len()], vec![None; sequence.steps.len()]],
        settled: 0,
        outcome: Outcome::default(),
    };
    for (number, step) in sequence.steps.iter().enumerate() {
        let difference = match step {
            Step::Call(call) => run.call(number, call).await?,
            Step::Watch(call) => run.watch(number, call).await?,
            Step::Events { watch } => run.events(number, *watch).await?,
            Step::Settle => run.settle(number).await?,
            Step::Work => {
                run.memory.settle()?;
                None
            }
        };
        run.outcome.differences.extend(difference);
        if run.outcome.differences.len() >= limit {
            break;
        }
    }
    Ok(run.outcome)
}

/// The state of the real control plane as it is.
pub(crate) async fn state(sequence: &Sequence, real: &Real) -> Result<Value> {
    let mut state = serde_json::Map::new();
    for path in &sequence.state {
        let answer = real.call(&read(path)).await?;
        let mut body = answer.body;
        if let Some(metadata) = body.get_mut("metadata").filter(|_| answer.status == 200)
            && path.matches('/').count() != 0
            && metadata.get("name").is_none()
        {
            // The revision of a list grows with every write anywhere.
            *metadata = Value::Null;
        }
        state.insert(path.clone(), body);
    }
    Ok(state.into())
}

fn read(path: &str) -> Wire {
    wire(&Call::get(path), &Vec::new()).unwrap_or_else(|| unreachable!("a path without placeholders"))
}

impl Run<'_> {
    async fn call(&mut self, number: usize, call: &Call) -> Result<Option<Difference>> {
        let [Some(to_memory), Some(to_real)] = [0, 1].map(|side| wire(call, &self.answers[side])) else {
            return Ok(None);
        };
        self.outcome.requests += 1;
        let (sent, start) = (Timestamp::now(), Instant::now());
        let mut real = self.real.call(&to_real).await?;
        let answer = self.memory.call(&to_memory, time_of(&real, sent))?;
        *self.outcome.statuses.entry(answer.status).or_default() += 1;
        loop {
            let kept = self.symbols.clone();
            let difference = self.compare(number, &to_memory, &answer, &real);
            if difference.is_some() && call.is_patient && start.elapsed() < PATIENCE {
                self.symbols = kept;
                sleep(Duration::from_millis(50)).await;
                real = self.real.call(&to_real).await?;
                continue;
            }
            self.answers[0][number] = Some(answer.body);
            self.answers[1][number] = Some(real.body);
            return Ok(difference);
        }
    }

    async fn watch(&mut self, number: usize, call: &Call) -> Result<Option<Difference>> {
        let [Some(to_memory), Some(to_real)] = [0, 1].map(|side| wire(call, &self.answers[side])) else {
            return Ok(None);
        };
        self.outcome.requests += 1;
        let memory = self.memory.watch(number, &to_memory)?;
        let real = self.real.watch(number, &to_real).await?;
        Ok(self.compare(number, &to_memory, &memory, &real))
    }

    async fn events(&mut self, number: usize, watch: usize) -> Result<Option<Difference>> {
        let memory = self.memory.events(watch)?;
        let real = self.real.events(watch, memory.len()).await;
        self.outcome.events += memory.len();
        let by_object = self.settled > watch;
        let pair = [memory, real].map(|events| if by_object { grouped(events) } else { events });
        let [memory, real] = pair.map(Value::from);
        let memory = self.symbols[0].normal(&memory);
        let real = self.symbols[1].normal(&real);
        let what = format!("events of watch {watch}: {}", self.describe(watch));
        Ok(self.difference(number, what, memory, real))
    }

    /// The state is read by both in the same way, until it is the same.
    async fn settle(&mut self, number: usize) -> Result<Option<Difference>> {
        self.memory.settle()?;
        self.settled = number;
        self.outcome.settled += 1;
        let start = Instant::now();
        let mut pause = Duration::from_millis(20);
        let memory = self.memory_state()?;
        loop {
            let last = state(self.sequence, &self.real).await?;
            let mut symbols = self.symbols.clone();
            let expected = symbols[0].normal(&memory);
            let found = symbols[1].normal(&last);
            let is_late = start.elapsed() > SETTLE_LIMIT;
            if expected == found || is_late {
                self.symbols = symbols;
                self.outcome.last = Some(last);
                return Ok(self.difference(number, "state after the controllers' work".to_owned(), expected, found));
            }
            sleep(pause).await;
            pause = (pause * 3 / 2).min(Duration::from_millis(400));
        }
    }

    fn memory_state(&mut self) -> Result<Value> {
        let mut state = serde_json::Map::new();
        for path in &self.sequence.state {
            let answer = self.memory.call(&read(path), Timestamp::now())?;
            let mut body = answer.body;
            if let Some(metadata) = body.get_mut("metadata").filter(|_| answer.status == 200)
                && metadata.get("name").is_none()
            {
                *metadata = Value::Null;
            }
            state.insert(path.clone(), body);
        }
        Ok(state.into())
    }

    fn compare(&mut self, number: usize, wire: &Wire, memory: &Answer, real: &Answer) -> Option<Difference> {
        let memory = self.symbols[0].normal(&memory.value());
        let real = self.symbols[1].normal(&real.value());
        let body = wire.body.as_deref().unwrap_or_default();
        let what = format!(
            "{:?} {} {} [{}] {}",
            wire.user,
            wire.method,
            wire.uri,
            wire.content_type,
            cut(body)
        );
        self.difference(number, what, memory, real)
    }

    fn difference(&self, step: usize, what: String, memory: Value, real: Value) -> Option<Difference> {
        let (path, at_memory, at_real) = first_difference(&memory, &real)?;
        Some(Difference {
            seed: self.sequence.seed,
            step,
            what,
            path,
            memory: at_memory,
            real: at_real,
            whole: (memory, real),
        })
    }

    fn describe(&self, step: usize) -> String {
        match &self.sequence.steps[step] {
            Step::Watch(call) | Step::Call(call) => format!("{} {:?}", call.path, call.query),
            _ => String::new(),
        }
    }
}

/// When the real API server handled a request, as far as objects tell: the latest time since it was sent that the answer
/// states, else when it was sent. The in-memory one must handle it in the same second, for whether a write changes anything
/// may depend on whether a second has passed since the last one.
fn time_of(answer: &Answer, sent: Timestamp) -> Timestamp {
    latest(&answer.body, sent, Timestamp::now()).unwrap_or(sent)
}

/// The latest time in a value that is between both.
fn latest(value: &Value, from: Timestamp, to: Timestamp) -> Option<Timestamp> {
    match value {
        Value::String(text) => text.parse().ok().filter(|time| (from..=to).contains(time)),
        Value::Array(items) => items.iter().filter_map(|item| latest(item, from, to)).max(),
        Value::Object(fields) => fields.values().filter_map(|field| latest(field, from, to)).max(),
        _ => None,
    }
}

/// Controllers write several objects in an order of their own: events of one object stay in theirs.
fn grouped(mut events: Vec<Value>) -> Vec<Value> {
    // The namespace controller reports its progress in steps of its own.
    events.retain(|event| {
        let object = &event["object"];
        let is_progress = object["kind"] == "Namespace" && object["metadata"]["deletionTimestamp"].is_string();
        !is_progress || event["type"] == "DELETED"
    });
    let key = |event: &Value| {
        let metadata = &event["object"]["metadata"];
        json!([metadata["namespace"], metadata["name"]]).to_string()
    };
    events.sort_by_cached_key(key);
    events
}

impl Difference {
    /// Where it is.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Where it is and what is there: equal for what probably has one cause.
    pub(crate) fn sort(&self) -> (String, String, String) {
        (self.path.clone(), self.memory.to_string(), self.real.to_string())
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}, step {}: {}", self.seed, self.step, self.what)?;
        writeln!(f, "  differ at {}", self.path)?;
        writeln!(f, "    in memory: {}", cut(&self.memory.to_string()))?;
        writeln!(f, "    real:      {}", cut(&self.real.to_string()))?;
        writeln!(f, "  in memory: {}", cut(&self.whole.0.to_string()))?;
        write!(f, "  real:      {}", cut(&self.whole.1.to_string()))
    }
}

fn cut(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}
