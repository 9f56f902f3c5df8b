//! Bindings and bundles as rows of tables.

use bindery_api::{
    Conditions as _, conditions,
    v1alpha2::{APIServiceBinding, APIServiceBindingBundle},
};
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::output::{Show, age, joined};

impl Show for APIServiceBinding {
    const HEADINGS: &'static [&'static str] = &[
        "NAME",
        "PROVIDER",
        "RESOURCES",
        "READY",
        "AGE",
        "CONTRACT",
        "SECRET",
        "MESSAGE",
    ];
    const PLAIN: usize = 5;

    fn cells(&self, now: Timestamp) -> Vec<String> {
        let known = self.status.as_ref();
        let ready = self.condition(conditions::READY);
        vec![
            self.name_any(),
            known
                .and_then(|known| known.provider_pretty_name.clone())
                .unwrap_or_else(|| "<unknown>".to_owned()),
            joined(known.iter().flat_map(|known| &known.bound_schemas)),
            ready.map_or("Unknown", |ready| ready.status.as_str()).to_owned(),
            age(self.creation_timestamp().map(|time| time.0), now),
            known
                .and_then(|known| known.provider_namespace.clone())
                .unwrap_or_else(|| "<unknown>".to_owned()),
            self.spec.kubeconfig_secret_ref.to_string(),
            ready.map(|ready| ready.message.clone()).unwrap_or_default(),
        ]
    }

    fn reference(&self) -> String {
        format!("apiservicebinding.kube-bind.io/{}", self.name_any())
    }
}

impl Show for APIServiceBindingBundle {
    const HEADINGS: &'static [&'static str] = &[
        "BUNDLE",
        "PROVIDER",
        "DISCOVERED",
        "BOUND",
        "READY",
        "AGE",
        "MESSAGE",
        "CONTRACT",
        "SECRET",
        "LAST SYNC",
    ];
    const PLAIN: usize = 7;

    fn cells(&self, now: Timestamp) -> Vec<String> {
        let known = self.status.clone().unwrap_or_default();
        let or_unknown = |text: Option<String>| text.unwrap_or_else(|| "<unknown>".to_owned());
        let count = |count: Option<i32>| or_unknown(count.map(|count| count.to_string()));
        let ready = self.condition(conditions::READY);
        let going = self.metadata.deletion_timestamp.is_some();
        vec![
            self.name_any(),
            or_unknown(known.provider_pretty_name),
            count(known.discovered_services),
            count(known.bound_services),
            ready.map_or("Unknown", |ready| ready.status.as_str()).to_owned(),
            age(self.creation_timestamp().map(|time| time.0), now),
            match ready {
                _ if going => "it is being deleted".to_owned(),
                None => "the konnector has not seen it yet".to_owned(),
                Some(ready) => ready.message.clone(),
            },
            or_unknown(known.provider_namespace),
            self.spec.kubeconfig_secret_ref.to_string(),
            age(known.last_sync_time.map(|time| time.0), now),
        ]
    }

    fn reference(&self) -> String {
        format!("apiservicebindingbundle.kube-bind.io/{}", self.name_any())
    }
}

#[cfg(test)]
mod tests;
