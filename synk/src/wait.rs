//! Waiting until objects are healthy.
//!
//! An object that has failed ends the wait, as in `kubectl rollout status`: nothing that counts as failed mends itself. It
//! has to be seen failed several times, since right after an apply a status may still speak of what was before.

use std::{collections::BTreeMap, time::Duration};

use bindery_runtime::errors;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use crate::{
    errors::Failure,
    health::Health,
    object::ObjectRef,
    report::{Event, Listener},
};

/// How often the objects are looked at.
const PAUSE: Duration = Duration::from_secs(1);
/// How long an API server may take at least, however little time is left.
const ANSWER: Duration = Duration::from_secs(5);
/// How often in a row an object has to be seen failed.
const CERTAIN: u32 = 3;
/// How many objects an error names.
const NAMED: usize = 5;

/// Waits until all objects are healthy at once. `read` says what is there of objects, in the order in which it is asked.
pub async fn until_healthy<F>(
    read: impl Fn(Vec<ObjectRef>) -> F,
    objects: &[ObjectRef],
    limit: Duration,
    on: &Listener<'_>,
) -> Result<(), Failure>
where
    F: Future<Output = Result<Vec<Option<Value>>, Failure>>,
{
    let deadline = Instant::now() + limit;
    let mut wait = Wait::new(objects);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match timeout(left.max(ANSWER), read(wait.asked.clone())).await {
            Ok(Ok(live)) => {
                if wait.heed(&live, on)? {
                    return Ok(());
                }
            }
            Ok(Err(error)) if is_transient(&error) => wait.unread = Some(error.to_string()),
            Ok(Err(error)) => return Err(error),
            Err(_) => wait.unread = Some("the API server does not answer".to_owned()),
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(wait.timed_out(limit));
        }
        sleep(PAUSE.min(left)).await;
    }
}

/// Of a read. An object that is not there is no error here, so 404 and 409 mean what they say, unlike in an apply.
fn is_transient(error: &Failure) -> bool {
    matches!(error, Failure::Api { source, .. } if errors::is_transient(source))
}

/// What is known so far.
struct Wait<'a> {
    all: &'a [ObjectRef],
    /// What is to be looked at: all objects, or those that were not healthy when they were last looked at.
    asked: Vec<ObjectRef>,
    sick: Vec<(ObjectRef, Health)>,
    /// How often in a row each of them was seen failed.
    failed: BTreeMap<ObjectRef, u32>,
    /// What was last told.
    told: Option<(ObjectRef, String, usize)>,
    /// Why the objects could not be looked at the last time.
    unread: Option<String>,
}

// === impl Wait ===

impl<'a> Wait<'a> {
    fn new(all: &'a [ObjectRef]) -> Self {
        Self {
            all,
            asked: all.to_vec(),
            sick: Vec::new(),
            failed: BTreeMap::new(),
            told: None,
            unread: None,
        }
    }

    /// True when all is healthy.
    fn heed(&mut self, live: &[Option<Value>], on: &Listener<'_>) -> Result<bool, Failure> {
        self.unread = None;
        let was_all = self.asked.len() == self.all.len();
        let live = live.iter().map(Option::as_ref).chain(std::iter::repeat(None));
        let seen = self.asked.drain(..).zip(live.map(Health::of));
        self.sick = seen.filter(|(_, health)| !health.is_healthy()).collect();
        if self.sick.is_empty() {
            // The others were healthy before; whether they still are shows when all are seen at once.
            self.asked = self.all.to_vec();
            return Ok(was_all);
        }
        self.asked = self.sick.iter().map(|(object, _)| object.clone()).collect();
        self.judge()?;
        self.tell(on);
        Ok(false)
    }

    fn judge(&mut self) -> Result<(), Failure> {
        let is_failed = |health: &Health| matches!(health, Health::Failed(_));
        let before = std::mem::take(&mut self.failed);
        for (object, _) in self.sick.iter().filter(|(_, health)| is_failed(health)) {
            let times = before.get(object).copied().unwrap_or(0) + 1;
            self.failed.insert(object.clone(), times);
        }
        if self.failed.values().all(|times| *times < CERTAIN) {
            return Ok(());
        }
        let failed: Vec<_> = self.sick.iter().filter(|(_, health)| is_failed(health)).collect();
        let (count, of) = (failed.len(), self.all.len());
        Err(Failure::Unhealthy(format!(
            "{count} of {of} objects failed: {}",
            named(&failed)
        )))
    }

    /// Tells what is waited for, when that is not what was told before.
    fn tell(&mut self, on: &Listener<'_>) {
        let count = self.sick.len();
        let Some((object, health)) = self.sick.first() else {
            return;
        };
        let reason = health.reason().unwrap_or_default();
        let told = self.told.as_ref();
        if told.is_some_and(|told| (&told.0, told.1.as_str(), told.2) == (object, reason, count)) {
            return;
        }
        on(Event::Waiting { object, reason, count });
        self.told = Some((object.clone(), reason.to_owned(), count));
    }

    fn timed_out(self, limit: Duration) -> Failure {
        if let Some(problem) = self.unread {
            return Failure::TimedOut(format!("after {limit:?} the objects cannot be read: {problem}"));
        }
        let (count, of) = (self.sick.len(), self.all.len());
        let sick: Vec<_> = self.sick.iter().collect();
        Failure::TimedOut(format!(
            "{count} of {of} objects are not healthy after {limit:?}: {}",
            named(&sick)
        ))
    }
}

/// The first few, and how many more there are.
fn named(sick: &[&(ObjectRef, Health)]) -> String {
    let first = sick.iter().take(NAMED);
    let mut names: Vec<_> = first
        .map(|(object, health)| format!("{object} ({})", health.reason().unwrap_or_default()))
        .collect();
    if sick.len() > NAMED {
        names.push(format!("and {} more", sick.len() - NAMED));
    }
    names.join(", ")
}

#[cfg(test)]
mod tests;
