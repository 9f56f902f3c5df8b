//! What the spec of a bundle means. Nothing that stands there stops it: what cannot be used is said, and the default taken.

use std::time::Duration;

use bindery_api::v1alpha2::{APIServiceBindingBundleSpec, APIServiceExport};
use kube::{
    ResourceExt as _,
    core::{Selector, SelectorExt as _},
};

use crate::session::pace::Pace;

const RETRIES: u32 = 3;
const MULTIPLIER: f64 = 2.0;
const MULTIPLIER_MAX: f64 = 10.0;
const INTERVAL_MIN: Duration = Duration::from_secs(1);
const INTERVAL_MAX: Duration = Duration::from_hours(24);

/// A spec, understood.
#[derive(Clone, Debug)]
pub struct Terms {
    /// How often the provider is asked.
    pub pace: Pace,
    /// After how many failures in a row the condition is an error.
    pub max_retries: u32,
    /// What of the spec is not in effect, and what is instead.
    pub complaint: Option<String>,
    selector: Result<Selector, String>,
}

// === impl Terms ===

impl Terms {
    /// Reads a spec. `interval` is the one of bundles that say none.
    pub fn of(spec: &APIServiceBindingBundleSpec, interval: Duration) -> Self {
        let said = spec.polling_interval.as_ref();
        let read = said.map(|text| {
            text.parse()
                .ok()
                .filter(|read| (INTERVAL_MIN..=INTERVAL_MAX).contains(read))
        });
        let complaint = said.filter(|_| read == Some(None)).map(|text| {
            format!(
                "spec.pollingInterval {:?} is no duration from 1s to 24h, so {interval:?} is used",
                text.as_str()
            )
        });
        let multiplier = spec.backoff_multiplier.filter(|multiplier| multiplier.is_finite());
        let selector = spec
            .selector
            .clone()
            .map_or_else(|| Ok(Selector::default()), Selector::try_from);
        Self {
            pace: Pace::new(
                read.flatten().unwrap_or(interval),
                multiplier.unwrap_or(MULTIPLIER).clamp(1.0, MULTIPLIER_MAX),
                interval,
            ),
            max_retries: spec
                .max_retries
                .and_then(|retries| u32::try_from(retries).ok())
                .unwrap_or(RETRIES),
            complaint,
            selector: selector.map_err(|error| error.to_string()),
        }
    }

    /// Why the selector cannot be understood, if so.
    pub fn unusable(&self) -> Option<String> {
        let why = self.selector.as_ref().err()?;
        Some(format!(
            "spec.selector cannot be understood ({why}), so nothing is bound or unbound; correct it"
        ))
    }

    /// Whether an export is to be bound; `None` if that cannot be told.
    pub fn takes(&self, export: &APIServiceExport) -> Option<bool> {
        let selector = self.selector.as_ref().ok()?;
        Some(selector.matches(export.labels()))
    }
}

#[cfg(test)]
mod tests {
    use bindery_api::v1alpha2::APIServiceExportSpec;
    use serde_json::{Value, json};

    use super::*;

    const DEFAULT: Duration = Duration::from_secs(15);

    fn terms(mut spec: Value) -> Terms {
        spec["kubeconfigSecretRef"] = json!({"name": "x", "key": "kubeconfig", "namespace": "kube-bind"});
        let spec = serde_json::from_value(spec).unwrap();
        Terms::of(&spec, DEFAULT)
    }

    #[track_caller]
    fn check(spec: Value, seconds: u64, multiplier: f64, retries: u32, complains: bool) {
        let terms = terms(spec);
        let interval = Duration::from_secs(seconds);
        assert_eq!(terms.pace, Pace::new(interval, multiplier, DEFAULT));
        assert_eq!(terms.max_retries, retries);
        assert_eq!(terms.complaint.is_some(), complains, "{:?}", terms.complaint);
    }

    #[test]
    fn what_cannot_be_used_is_said_and_the_default_taken() {
        check(json!({}), 15, 2.0, 3, false);
        check(
            json!({"pollingInterval": "1m", "backoffMultiplier": 1, "maxRetries": 0}),
            60,
            1.0,
            0,
            false,
        );
        for nonsense in ["0s", "999ms", "soon", "25h", ""] {
            check(json!({"pollingInterval": nonsense}), 15, 2.0, 3, true);
        }
        check(json!({"backoffMultiplier": 0.1, "maxRetries": -1}), 15, 1.0, 3, false);
        check(json!({"backoffMultiplier": 1e300}), 15, 10.0, 3, false);
    }

    #[track_caller]
    fn check_takes(selector: &Value, labels: &[(&str, &str)], expect: Option<bool>) {
        let mut export = APIServiceExport::new("cowboys", APIServiceExportSpec::default());
        export.labels_mut().extend(
            labels
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned())),
        );
        let terms = terms(json!({"selector": selector}));
        assert_eq!(terms.takes(&export), expect, "{selector}");
        assert_eq!(terms.unusable().is_some(), expect.is_none());
    }

    #[test]
    fn a_selector_takes_by_labels() {
        check_takes(&Value::Null, &[], Some(true));
        check_takes(&json!({}), &[], Some(true));
        let tier = json!({"matchLabels": {"tier": "frontend"}});
        check_takes(&tier, &[("tier", "frontend"), ("more", "x")], Some(true));
        check_takes(&tier, &[("tier", "backend")], Some(false));
        check_takes(&tier, &[], Some(false));
        let expression = |operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": "tier", "operator": operator, "values": values}]});
        check_takes(&expression("In", &["a", "b"]), &[("tier", "b")], Some(true));
        check_takes(&expression("NotIn", &["a"]), &[], Some(true));
        check_takes(&expression("Exists", &[]), &[], Some(false));
        check_takes(&expression("DoesNotExist", &[]), &[], Some(true));
        check_takes(&expression("Near", &["a"]), &[("tier", "a")], None);
    }
}
