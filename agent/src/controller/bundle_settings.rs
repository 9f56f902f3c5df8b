//! Settings of a bundle, read from its spec. Invalid values are reported and replaced by defaults.

use std::time::Duration;

use bindery_api::{
    label_evaluator,
    v1alpha2::{APIServiceBindingBundleSpec, APIServiceExport},
};
use kube::{
    ResourceExt as _,
    core::{Selector, SelectorExt as _},
};

use crate::session::polling::PollPolicy;

/// Default of `spec.maxRetries`.
const RETRIES: u32 = 3;
/// Default of `spec.backoffMultiplier`.
const MULTIPLIER: f64 = 2.0;
/// Greatest `spec.backoffMultiplier` in effect.
const MULTIPLIER_MAX: f64 = 10.0;
/// Least valid `spec.pollingInterval`.
const INTERVAL_MIN: Duration = Duration::from_secs(1);
/// Greatest valid `spec.pollingInterval`.
const INTERVAL_MAX: Duration = Duration::from_hours(24);

/// The effective settings of a bundle.
#[derive(Clone, Debug)]
pub struct BundleSettings {
    /// How often the provider is probed.
    pub polling: PollPolicy,
    /// After this many failed probes in a row the condition is an error.
    pub max_retries: u32,
    /// Which value of the spec is invalid, and what is used instead.
    pub complaint: Option<String>,
    selector: Result<Selector, String>,
}

impl BundleSettings {
    /// Reads a spec. `interval` is the polling interval of bundles that set none.
    pub fn of(spec: &APIServiceBindingBundleSpec, interval: Duration) -> Self {
        let said = spec.polling_interval.as_ref();
        let read = said.map(|text| {
            text.parse()
                .ok()
                .filter(|read| (INTERVAL_MIN..=INTERVAL_MAX).contains(read))
        });
        let complaint = said.filter(|_| read == Some(None)).map(|text| {
            format!(
                "spec.pollingInterval {:?} is not a duration between 1s and 24h, so {interval:?} is used; correct it",
                text.as_str()
            )
        });
        let multiplier = spec.backoff_multiplier.filter(|multiplier| multiplier.is_finite());
        let selector = spec
            .selector
            .as_ref()
            .map_or_else(|| Ok(Selector::default()), label_evaluator);
        Self {
            polling: PollPolicy::new(
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

    /// Why the selector is invalid, if it is.
    pub fn selector_problem(&self) -> Option<String> {
        let why = self.selector.as_ref().err()?;
        Some(format!(
            "spec.selector is invalid ({why}), so nothing is bound or unbound; correct it"
        ))
    }

    /// Whether the selector matches an export; `None` if the selector is invalid.
    pub fn selects(&self, export: &APIServiceExport) -> Option<bool> {
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

    fn settings(mut spec: Value) -> BundleSettings {
        spec["kubeconfigSecretRef"] = json!({"name": "x", "key": "kubeconfig", "namespace": "kube-bind"});
        let spec = serde_json::from_value(spec).unwrap();
        BundleSettings::of(&spec, DEFAULT)
    }

    #[track_caller]
    fn check(spec: Value, seconds: u64, multiplier: f64, retries: u32, complains: bool) {
        let settings = settings(spec);
        let interval = Duration::from_secs(seconds);
        assert_eq!(settings.polling, PollPolicy::new(interval, multiplier, DEFAULT));
        assert_eq!(settings.max_retries, retries);
        assert_eq!(settings.complaint.is_some(), complains, "{:?}", settings.complaint);
    }

    #[test]
    fn invalid_values_are_reported_and_replaced() {
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
    fn check_selects(selector: &Value, labels: &[(&str, &str)], expect: Option<bool>) {
        let mut export = APIServiceExport::new("cowboys", APIServiceExportSpec::default());
        export.labels_mut().extend(
            labels
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned())),
        );
        let settings = settings(json!({"selector": selector}));
        assert_eq!(settings.selects(&export), expect, "{selector}");
        assert_eq!(settings.selector_problem().is_some(), expect.is_none());
    }

    #[test]
    fn a_selector_matches_labels() {
        check_selects(&Value::Null, &[], Some(true));
        check_selects(&json!({}), &[], Some(true));
        let tier = json!({"matchLabels": {"tier": "frontend"}});
        check_selects(&tier, &[("tier", "frontend"), ("more", "x")], Some(true));
        check_selects(&tier, &[("tier", "backend")], Some(false));
        check_selects(&tier, &[], Some(false));
        let expression = |operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": "tier", "operator": operator, "values": values}]});
        check_selects(&expression("In", &["a", "b"]), &[("tier", "b")], Some(true));
        check_selects(&expression("NotIn", &["a"]), &[], Some(true));
        check_selects(&expression("Exists", &[]), &[], Some(false));
        check_selects(&expression("DoesNotExist", &[]), &[], Some(true));
        check_selects(&expression("Near", &["a"]), &[("tier", "a")], None);
        // An API server refuses it, and kube's own evaluator would select all with it.
        check_selects(&expression("NotIn", &[]), &[("tier", "a")], None);
    }
}
