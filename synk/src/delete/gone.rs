//! Waits until deleted versions and their objects no longer exist, and reports what it waits for.

use std::{collections::BTreeSet, time::Duration};

use bindery_runtime::{backoff::Backoff, errors};
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use super::Job;
use crate::{
    discovery::discover,
    errors::Failure,
    kinds::Kinds,
    live,
    object::{ObjectRef, owner_references},
    report::Event,
    sets,
    versions::{Known, Versions},
    wait::named,
    wire::SetName,
};

/// Delays between two reads of the versions.
const PAUSE: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));
/// Interval of the reads of all objects that are left. The first is made after this time, since most sets are gone sooner.
const OBJECTS: Duration = Duration::from_secs(3);
/// Least timeout of a request, even if less time is left.
const ANSWER: Duration = Duration::from_secs(5);
const SILENT: &str = "the API server does not answer";

/// What still exists, as far as it is known.
struct Wait<'a> {
    job: &'a Job<'a>,
    set: &'a SetName,
    deleted: &'a [Known],
    deadline: Instant,
    kinds: Option<Kinds>,
    /// The versions that still exist.
    versions: Vec<&'a Known>,
    /// Objects of the versions that still exist, each with the reason; `None` if they were not read, or may not be.
    objects: Option<Vec<(ObjectRef, String)>>,
    /// The error of the last read, if it failed, and whether the API server did not answer.
    unread: Option<(String, bool)>,
}

/// Waits until versions and the objects that they own no longer exist. It looks at the objects too: the garbage collector
/// removes a ResourceSet after the objects that it knows of, and may not know those that were applied a moment ago.
pub(super) async fn until_gone(job: &Job<'_>, set: &SetName, deleted: &[Known]) -> Result<(), Failure> {
    let mut wait = Wait {
        job,
        set,
        deleted,
        deadline: Instant::now() + job.deletion.timeout,
        kinds: None,
        versions: deleted.iter().collect(),
        objects: None,
        unread: None,
    };
    let mut objects_at = Instant::now() + OBJECTS;
    let mut attempt = 0;
    loop {
        wait.read_versions().await?;
        let now = Instant::now();
        if wait.versions.is_empty() || now >= objects_at || now >= wait.deadline {
            wait.read_objects().await;
            objects_at = now + OBJECTS;
        }
        let is_read = wait.unread.is_none();
        if is_read && wait.versions.is_empty() && wait.objects.as_ref().is_none_or(Vec::is_empty) {
            return Ok(());
        }
        if now >= wait.deadline {
            return Err(wait.timed_out());
        }
        sleep(PAUSE.delay(attempt)).await;
        attempt += 1;
    }
}

// === impl Wait ===

impl Wait<'_> {
    /// Reads which versions still exist.
    async fn read_versions(&mut self) -> Result<(), Failure> {
        let read = sets::list(self.job.rest, Some(self.set));
        match timeout(self.patience(), read).await {
            Ok(Ok(sets)) => {
                let there = Versions::of(self.set, sets);
                self.versions = self.deleted.iter().filter(|known| there.has_uid(&known.uid)).collect();
                self.unread = None;
            }
            Ok(Err(Failure::Api { source, .. })) if errors::is_transient(&source) => {
                self.unread = Some((errors::explain(&source), errors::is_unreachable(&source)));
            }
            Ok(Err(failure)) => return Err(failure),
            Err(_) => self.unread = Some((SILENT.to_owned(), true)),
        }
        Ok(())
    }

    /// Reads which objects still exist, as far as the user may read them, and reports them.
    async fn read_objects(&mut self) {
        if self.unread.is_some() {
            return;
        }
        let read = async {
            if self.kinds.is_none() {
                self.kinds = Some(discover(self.job.rest).await?);
            }
            let Some(kinds) = &self.kinds else {
                return Ok(Vec::new());
            };
            let listed = self.deleted.iter().flat_map(|known| &known.objects);
            let listed: BTreeSet<_> = listed.filter(|object| !object.gvk.is_crd()).cloned().collect();
            let listed: Vec<_> = listed.into_iter().collect();
            let live = live::objects(self.job.rest, kinds, &listed).await?;
            let owners: Vec<&str> = self.deleted.iter().map(|known| known.uid.as_str()).collect();
            Ok(left(listed, &live, &owners))
        };
        let read = timeout(ANSWER, read).await;
        self.objects = None;
        match read {
            Ok(Ok(left)) => self.objects = Some(left),
            // A user who may not read the objects must rely on the garbage collector.
            Ok(Err(Failure::Api { source, .. })) if errors::is_forbidden(&source) => {}
            Ok(Err(Failure::Api { source, .. })) => {
                self.unread = Some((errors::explain(&source), errors::is_unreachable(&source)));
            }
            Ok(Err(failure)) => self.unread = Some((failure.to_string(), false)),
            Err(_) => self.unread = Some((SILENT.to_owned(), true)),
        }
        if let Some([(object, reason), ..]) = self.objects.as_deref() {
            let count = self.objects.as_ref().map_or(0, Vec::len);
            (self.job.on)(Event::Waiting { object, reason, count });
        }
    }

    /// Timeout of a request.
    fn patience(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now()).max(ANSWER)
    }

    fn timed_out(&self) -> Failure {
        let after = self.job.deletion.timeout;
        let version = self
            .versions
            .last()
            .copied()
            .or_else(|| self.deleted.last())
            .map(|known| known.version.to_string());
        let version = version.unwrap_or_default();
        let problem = match (&self.unread, self.objects.as_deref()) {
            (Some((problem, _)), _) => {
                format!("after {after:?} it cannot be read what is left of {version}: {problem}")
            }
            (None, None) => {
                format!("after {after:?} something that {version} owns is not gone, see the finalizers of its objects")
            }
            (None, Some([])) => format!(
                "after {after:?} {version} is not gone, though nothing that it lists is left: see the finalizers of \
                 the ResourceSet, and of what its objects own"
            ),
            (None, Some(left)) => format!(
                "after {after:?} {} of what {version} owns {} left: {}",
                left.len(),
                if left.len() == 1 { "is" } else { "are" },
                named(left.iter().map(reason_of))
            ),
        };
        let unreachable = self.unread.as_ref().is_some_and(|(_, unreachable)| *unreachable);
        Failure::TimedOut { problem, unreachable }
    }
}

/// Returns the live objects that one of these UIDs owns, each with the reason why it still exists. Objects that are kept by
/// finalizers come first.
fn left(listed: Vec<ObjectRef>, live: &[Option<Value>], owners: &[&str]) -> Vec<(ObjectRef, String)> {
    let is_owned = |live: &Value| {
        let mut references = owner_references(live).iter();
        references.any(|owner| owner["uid"].as_str().is_some_and(|uid| owners.contains(&uid)))
    };
    let there = listed.into_iter().zip(live).filter_map(|(object, live)| {
        let live = live.as_ref().filter(|live| is_owned(live))?;
        Some((object, live))
    });
    let mut left: Vec<_> = there.map(|(object, live)| (is_held(live), object, why(live))).collect();
    left.sort_by_key(|(held, ..)| !held);
    left.into_iter().map(|(_, object, why)| (object, why)).collect()
}

fn reason_of((object, reason): &(ObjectRef, String)) -> (&ObjectRef, &str) {
    (object, reason)
}

fn is_held(live: &Value) -> bool {
    !live["metadata"]["deletionTimestamp"].is_null() && !finalizers(live).is_empty()
}

fn why(live: &Value) -> String {
    if live["metadata"]["deletionTimestamp"].is_null() {
        return "its deletion has not begun".to_owned();
    }
    match &finalizers(live)[..] {
        [] => "it is being deleted".to_owned(),
        [one] => format!("finalizer {one}"),
        many => format!("finalizers {}", many.join(", ")),
    }
}

fn finalizers(live: &Value) -> Vec<&str> {
    let finalizers = live["metadata"]["finalizers"].as_array();
    finalizers.into_iter().flatten().filter_map(Value::as_str).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::object::Gvk;

    fn object(name: &str) -> ObjectRef {
        ObjectRef {
            gvk: Gvk::new("v1", "ConfigMap"),
            namespace: Some("shop".to_owned()),
            name: name.to_owned(),
        }
    }

    fn live(owner: &str, going: bool, finalizers: &[&str]) -> Value {
        json!({"metadata": {
            "ownerReferences": [{"uid": owner}], "finalizers": finalizers,
            "deletionTimestamp": going.then_some("2026-01-02T03:04:05Z"),
        }})
    }

    #[test]
    fn what_is_held_back_comes_first_and_what_is_not_owned_is_not_waited_for() {
        let listed = ["a", "b", "c", "d", "e"].map(object).to_vec();
        let live = [
            Some(live("1", false, &["x/early"])),
            None,
            Some(live("other", true, &["x/y"])),
            Some(live("2", true, &["x/y", "x/z"])),
            Some(live("1", true, &[])),
        ];
        let left = left(listed, &live, &["1", "2"]);
        assert_eq!(
            named(left.iter().map(reason_of)),
            "configmap/d in namespace shop (finalizers x/y, x/z), \
             configmap/a in namespace shop (its deletion has not begun), \
             configmap/e in namespace shop (it is being deleted)"
        );
    }

    #[test]
    fn of_many_a_few_are_named() {
        let left: Vec<_> = ["a", "b", "c", "d", "e", "f", "g"]
            .map(|name| (object(name), "why".to_owned()))
            .to_vec();
        let text = named(left.iter().map(reason_of));
        assert!(text.contains("configmap/e") && !text.contains("configmap/f"), "{text}");
        assert!(text.ends_with(", and 2 more"), "{text}");
    }
}
