//! Runs one sequence against both API servers, step by step, until they differ.

use std::{
    collections::BTreeMap,
    fmt, mem,
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

/// How long is waited at the end of a sequence for events that are not expected.
const AT_END: Duration = Duration::from_millis(500);

/// The longest part of a value that is printed.
const SHOWN: usize = 1500;

/// What became of a sequence.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) requests: usize,
    /// By subject, the requests that were sent, and those that both sides lacked a value of an earlier answer for.
    pub(crate) by_subject: BTreeMap<&'static str, Requests>,
    pub(crate) events: usize,
    pub(crate) settled: usize,
    /// Status and number of answers with it.
    pub(crate) statuses: BTreeMap<u16, usize>,
    pub(crate) differences: Vec<Difference>,
    /// The state of the real control plane in the end, to see whether it stays so.
    pub(crate) last: Option<Value>,
}

/// How many requests were sent, and how many were not.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Requests {
    pub(crate) sent: usize,
    pub(crate) skipped: usize,
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
    /// Counts the changes between times at which only requests write, which are even, and times at which controllers may write too.
    phase: usize,
    /// Events of the in-memory watches that were not compared yet, each with its phase, by the number of the watch.
    events: BTreeMap<usize, Vec<(usize, Value)>>,
    /// The highest revision of a list of what is there now, on each side.
    listed: [u64; 2],
    outcome: Outcome,
}

/// Runs a sequence until it has `limit` differences; the first may be the cause of the others. Fails only if it cannot be run.
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
        phase: 0,
        events: BTreeMap::new(),
        listed: [0; 2],
        outcome: Outcome::default(),
    };
    for (number, step) in sequence.steps.iter().enumerate() {
        let difference = match step {
            Step::Call(call) => run.call(number, call).await?,
            Step::Watch(call) => run.watch(number, call).await?,
            Step::Events { watch } => run.events(number, *watch).await?,
            Step::Ended { watch } => run.ended(number, *watch).await?,
            Step::Settle => run.settle(number).await?,
            Step::Work => {
                run.memory.settle()?;
                None
            }
        };
        run.collect()?;
        run.outcome.differences.extend(difference);
        if run.outcome.differences.len() >= limit {
            return Ok(run.outcome);
        }
    }
    let watches = run.memory.watches();
    if !watches.is_empty() {
        sleep(AT_END).await;
    }
    for watch in watches {
        let difference = run.events(sequence.steps.len(), watch).await?;
        run.outcome.differences.extend(difference);
    }
    Ok(run.outcome)
}

/// The state of the real control plane as it is.
pub(crate) async fn state(sequence: &Sequence, real: &Real) -> Result<Value> {
    let mut state = serde_json::Map::new();
    for path in &sequence.state {
        let body = stripped(real.call(&read(path)).await?);
        state.insert(path.clone(), body);
    }
    Ok(state.into())
}

/// The body of an answer without the metadata of a list, whose revision grows with every write anywhere.
fn stripped(answer: Answer) -> Value {
    let mut body = answer.body;
    if let Some(metadata) = body.get_mut("metadata").filter(|_| answer.status == 200)
        && metadata.get("name").is_none()
    {
        *metadata = Value::Null;
    }
    body
}

fn read(path: &str) -> Wire {
    wire(&Call::get(path), &Vec::new()).unwrap_or_else(|| unreachable!("a path without placeholders"))
}

impl Run<'_> {
    async fn call(&mut self, number: usize, call: &Call) -> Result<Option<Difference>> {
        let (to_memory, to_real) = match self.wires(number, call) {
            Ok(wires) => wires,
            Err(difference) => return Ok(difference.map(|difference| *difference)),
        };
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
            let difference = difference.or_else(|| self.disorder(number, call, [&answer, &real]));
            self.answers[0][number] = Some(answer.body);
            self.answers[1][number] = Some(real.body);
            return Ok(difference);
        }
    }

    async fn watch(&mut self, number: usize, call: &Call) -> Result<Option<Difference>> {
        let (to_memory, to_real) = match self.wires(number, call) {
            Ok(wires) => wires,
            Err(difference) => return Ok(difference.map(|difference| *difference)),
        };
        let memory = self.memory.watch(number, &to_memory)?;
        let real = self.real.watch(number, &to_real).await?;
        Ok(self.compare(number, &to_memory, &memory, &real))
    }

    /// The request for each side. It is skipped if both sides lack a value of an earlier answer; if only one does, they differ.
    fn wires(&mut self, number: usize, call: &Call) -> Result<(Wire, Wire), Option<Box<Difference>>> {
        let [memory, real] = [0, 1].map(|side| wire(call, &self.answers[side]));
        let subject = self.sequence.subject(number);
        let counts = self.outcome.by_subject.entry(subject).or_default();
        match (memory, real) {
            (Some(memory), Some(real)) => {
                counts.sent += 1;
                self.outcome.requests += 1;
                Ok((memory, real))
            }
            (None, None) => {
                counts.skipped += 1;
                Err(None)
            }
            (memory, real) => {
                let what = format!("{} {}: a value of an earlier answer", call.method, call.path);
                let told = |wire: Option<Wire>| Value::from(if wire.is_some() { "there" } else { "absent" });
                Err(self.difference(number, what, told(memory), told(real)).map(Box::new))
            }
        }
    }

    /// The revision of a list is no lower than those of its items, and of lists before it. Anything else is a difference, on either side.
    fn disorder(&mut self, number: usize, call: &Call, answers: [&Answer; 2]) -> Option<Difference> {
        if call.method != http::Method::GET {
            return None;
        }
        let is_of_now = !call
            .query
            .iter()
            .any(|(name, _)| matches!(name.as_str(), "resourceVersion" | "continue"));
        let mut found = [Value::Null, Value::Null];
        for ((answer, found), listed) in answers.into_iter().zip(&mut found).zip(&mut self.listed) {
            let Some(items) = answer.body["items"].as_array().filter(|_| answer.status == 200) else {
                continue;
            };
            let own = revision(&answer.body);
            let highest = items.iter().map(revision).max().unwrap_or_default();
            if own < highest {
                *found = format!("the list is of {own}, an item of {highest}").into();
            } else if is_of_now && own < *listed {
                *found = format!("the list is of {own}, one before it of {listed}").into();
            }
            if is_of_now {
                *listed = own.max(*listed);
            }
        }
        let [memory, real] = found;
        if memory.is_null() && real.is_null() {
            return None;
        }
        Some(Difference {
            seed: self.sequence.seed,
            step: number,
            what: format!("revisions of {} {:?}", call.path, call.query),
            path: "/body/metadata/resourceVersion".to_owned(),
            whole: (memory.clone(), real.clone()),
            memory,
            real,
        })
    }

    /// Takes the events of the in-memory watches. While controllers have work, the real ones write beside the requests that follow.
    fn collect(&mut self) -> Result<()> {
        if self.memory.is_at_work() && self.phase.is_multiple_of(2) {
            self.phase += 1;
        }
        let phase = self.phase;
        for watch in self.memory.watches() {
            let events = self.memory.events(watch)?.into_iter().map(|event| (phase, event));
            self.events.entry(watch).or_default().extend(events);
        }
        Ok(())
    }

    async fn events(&mut self, number: usize, watch: usize) -> Result<Option<Difference>> {
        let memory = self.events.remove(&watch).unwrap_or_default();
        let real = self.real.events(watch, memory.len()).await;
        self.outcome.events += memory.len();
        let [memory, real] = ordered(memory, real).map(Value::from);
        let memory = self.symbols[0].normal(&memory);
        let real = self.symbols[1].normal(&real);
        let what = format!("events of watch {watch}: {}", self.describe(watch));
        Ok(self.difference(number, what, memory, real))
    }

    /// The last events of a watch, and its end.
    async fn ended(&mut self, number: usize, watch: usize) -> Result<Option<Difference>> {
        let end = self.real.end(watch).await;
        if let Some(difference) = self.events(number, watch).await? {
            return Ok(Some(difference));
        }
        let what = format!("end of watch {watch}: {}", self.describe(watch));
        let memory = self.memory.end(watch);
        Ok(self.difference(number, what, memory.into(), end.into()))
    }

    /// The state is read by both in the same way, until it is the same.
    async fn settle(&mut self, number: usize) -> Result<Option<Difference>> {
        self.memory.settle()?;
        self.collect()?;
        // The real controllers have done their work too once the states are equal.
        self.phase = self.phase.next_multiple_of(2);
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
            let body = stripped(self.memory.call(&read(path), Timestamp::now())?);
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

/// The events of both sides in orders that can be compared: in that of the watch as far as only requests wrote, and grouped by object
/// where controllers wrote too, since they write several objects in an order of their own.
fn ordered(mut memory: Vec<(usize, Value)>, mut real: Vec<Value>) -> [Vec<Value>; 2] {
    memory.retain(|(_, event)| !is_progress(event));
    real.retain(|event| !is_progress(event));
    let mut sides = [Vec::new(), Vec::new()];
    for part in memory.chunk_by(|(one, _), (other, _)| one == other) {
        let rest = real.split_off(part.len().min(real.len()));
        let of_real = mem::replace(&mut real, rest);
        let of_memory = part.iter().map(|(_, event)| event.clone()).collect();
        let is_strict = part.first().is_some_and(|(phase, _)| phase.is_multiple_of(2));
        for (side, events) in sides.iter_mut().zip([of_memory, of_real]) {
            side.extend(if is_strict { events } else { grouped(events) });
        }
    }
    // More than is expected.
    sides[1].extend(real);
    sides
}

/// If an event reports the progress of the namespace controller, which does so in steps of its own.
fn is_progress(event: &Value) -> bool {
    let object = &event["object"];
    let is_ending = object["kind"] == "Namespace" && object["metadata"]["deletionTimestamp"].is_string();
    is_ending && event["type"] != "DELETED"
}

/// The revision of an object or a list, 0 if it has none.
fn revision(object: &Value) -> u64 {
    let revision = object["metadata"]["resourceVersion"].as_str();
    revision.and_then(|revision| revision.parse().ok()).unwrap_or_default()
}

/// The events by object, those of one object in their order.
fn grouped(mut events: Vec<Value>) -> Vec<Value> {
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
