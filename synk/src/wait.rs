//! Waits until objects are healthy.
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

/// Pause between two reads of the objects.
const PAUSE: Duration = Duration::from_secs(1);
/// Least time that the API server gets to answer, even if the limit is near.
const ANSWER: Duration = Duration::from_secs(5);
/// Number of consecutive reads in which an object must have failed.
const CERTAIN: u32 = 3;
/// Greatest number of objects that an error names.
const NAMED: usize = 5;

/// Waits until all objects are healthy at once. `read` returns the live objects, in the requested order.
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
            Ok(Err(error)) if is_transient(&error) => wait.unread = Some((error.to_string(), error.is_unreachable())),
            Ok(Err(error)) => return Err(error),
            Err(_) => wait.unread = Some(("the API server does not answer".to_owned(), true)),
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(wait.timed_out(limit));
        }
        sleep(PAUSE.min(left)).await;
    }
}

/// Whether a failed read may succeed later. A missing object is no error here, so 404 and 409 are permanent, unlike in
/// an apply.
fn is_transient(error: &Failure) -> bool {
    matches!(error, Failure::Api { source, .. } if errors::is_transient(source))
}

/// The state of a wait.
struct Wait<'a> {
    all: &'a [ObjectRef],
    /// The objects to read next: all, or those that were not healthy in the last read.
    asked: Vec<ObjectRef>,
    sick: Vec<(ObjectRef, Health)>,
    /// Number of consecutive reads in which each object had failed.
    failed: BTreeMap<ObjectRef, u32>,
    /// The progress that was reported last.
    told: Option<(ObjectRef, String, usize)>,
    /// The error of the last read, if it failed, and whether the API server did not answer.
    unread: Option<(String, bool)>,
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

    /// Records a read. Returns true if all objects are healthy.
    fn heed(&mut self, live: &[Option<Value>], on: &Listener<'_>) -> Result<bool, Failure> {
        self.unread = None;
        let was_all = self.asked.len() == self.all.len();
        let live = live.iter().map(Option::as_ref).chain(std::iter::repeat(None));
        let seen = self.asked.drain(..).zip(live.map(Health::of));
        self.sick = seen.filter(|(_, health)| !health.is_healthy()).collect();
        if self.sick.is_empty() {
            // The others were healthy before. One read of all objects shows whether they still are.
            self.asked = self.all.to_vec();
            return Ok(was_all);
        }
        self.asked = self.sick.iter().map(|(object, _)| object.clone()).collect();
        self.judge()?;
        self.tell(on);
        Ok(false)
    }

    fn judge(&mut self) -> Result<(), Failure> {
        let failed = self
            .sick
            .iter()
            .filter(|(_, health)| matches!(health, Health::Failed(_)));
        let failed: Vec<_> = failed.map(reason_of).collect();
        let before = std::mem::take(&mut self.failed);
        for &(object, _) in &failed {
            let times = before.get(object).copied().unwrap_or(0) + 1;
            self.failed.insert(object.clone(), times);
        }
        if self.failed.values().all(|times| *times < CERTAIN) {
            return Ok(());
        }
        let (count, of) = (failed.len(), self.all.len());
        Err(Failure::Unhealthy(format!(
            "{count} of {of} objects failed: {}",
            named(failed.into_iter())
        )))
    }

    /// Reports what the wait is for, if that differs from the last report.
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
        if let Some((problem, unreachable)) = self.unread {
            let problem = format!("after {limit:?} the objects cannot be read: {problem}");
            return Failure::TimedOut { problem, unreachable };
        }
        let (count, of) = (self.sick.len(), self.all.len());
        let sick = named(self.sick.iter().map(reason_of));
        Failure::TimedOut {
            problem: format!("{count} of {of} objects are not healthy after {limit:?}: {sick}"),
            unreachable: false,
        }
    }
}

fn reason_of((object, health): &(ObjectRef, Health)) -> (&ObjectRef, &str) {
    (object, health.reason().unwrap_or_default())
}

/// Names the first few objects with their reasons, and says how many more there are.
pub(crate) fn named<'a>(objects: impl Iterator<Item = (&'a ObjectRef, &'a str)>) -> String {
    let name = |(object, reason): (&ObjectRef, &str)| format!("{object} ({reason})");
    let mut names: Vec<_> = objects.map(name).collect();
    let more = names.len().saturating_sub(NAMED);
    if more > 0 {
        names.truncate(NAMED);
        names.push(format!("and {more} more"));
    }
    names.join(", ")
}

#[cfg(test)]
mod tests;
