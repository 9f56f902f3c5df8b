//! What a request must look like. Every field that is wrong is found, so that the caller mends them all at once.

use std::time::Duration;

use bindery_api::names::{NAME_LENGTH_MAX, NAMESPACE_LENGTH_MAX, is_label, is_subdomain};
use bindery_proto::v1alpha2::{
    BindableResourcesRequest, BindableResourcesRequestSpec, Compatibility, CreateBindableResourcesRequestRequest,
    DeleteBindableResourcesRequestRequest, DeleteExportRequest, ErrorReason, GetBindableResourcesRequestRequest,
    GetBoundSchemaRequest, ListBindableResourcesRequestsRequest, ListCollectionsRequest, ListExportsRequest,
    ListTemplatesRequest, RevokeCredentialsRequest, WatchBindableResourcesRequestsRequest, WatchExportsRequest,
};
use prost_types::Duration as ProtoDuration;
use tonic_types::FieldViolation;

use super::{
    error::{Failure, Outcome},
    selector::LabelSelector,
};

const TEXT_LENGTH_MAX: usize = 1_024;
const TOKEN_LENGTH_MAX: usize = 2_048;
const WATCHED_NAMES_MAX: usize = 100;
/// Ten years. More is a mistake.
const DURATION_MAX: Duration = Duration::from_hours(24 * 3_653);

/// Collects what is wrong.
#[derive(Debug, Default)]
struct Check {
    violations: Vec<FieldViolation>,
}

/// A request that is checked before anything is done with it.
pub(super) trait Validate {
    /// All violations, as one failure.
    fn validate(&self) -> Outcome<()>;
}

/// The fields of a create that decide whether the caller is told anything else: checked before its rights are.
pub(super) fn template_name(request: &CreateBindableResourcesRequestRequest) -> Outcome<&str> {
    let spec = request
        .bindable_resources_request
        .as_ref()
        .and_then(|request| request.spec.as_ref());
    let name = spec
        .and_then(|spec| spec.template_ref.as_ref())
        .map_or("", |template| &template.name);
    object_name("bindable_resources_request.spec.template_ref.name", name)
}

/// A name that is asked about before anything else is done with it.
pub(super) fn object_name<'a>(field: &str, name: &'a str) -> Outcome<&'a str> {
    let mut check = Check::default();
    check.name(field, name);
    check.finish()?;
    Ok(name)
}

/// What kube-bind's own konnector would need is not served yet.
pub(super) fn compatibility(spec: &BindableResourcesRequestSpec) -> Outcome<()> {
    let asked = spec.compatibility();
    if asked == Compatibility::Unspecified {
        return Ok(());
    }
    let message = format!(
        "compatibility {} is not served; leave bindable_resources_request.spec.compatibility unset",
        asked.as_str_name()
    );
    Err(Failure::new(ErrorReason::FeatureOff, message))
}

/// Reads a duration that was validated, or `None` where it is unset.
pub(super) fn duration(value: Option<&ProtoDuration>) -> Option<Duration> {
    Duration::try_from(*value?).ok()
}

impl Check {
    fn wrong(&mut self, field: &str, description: impl Into<String>) {
        self.violations.push(FieldViolation::new(field, description));
    }

    fn finish(self) -> Outcome<()> {
        if self.violations.is_empty() {
            return Ok(());
        }
        Err(Failure::invalid(self.violations))
    }

    fn label(&mut self, field: &str, value: &str) {
        if value.is_empty() {
            self.wrong(field, "is required");
        } else if !is_label(value) {
            self.wrong(
                field,
                "must be a DNS label: lower-case letters, digits and dashes, 63 at most",
            );
        }
    }

    fn name(&mut self, field: &str, value: &str) {
        if value.is_empty() {
            self.wrong(field, "is required");
        } else if !is_subdomain(value) {
            self.wrong(
                field,
                "must be a DNS subdomain: lower-case letters, digits, dashes and dots, 253 at most",
            );
        }
    }

    fn optional_name(&mut self, field: &str, value: &str) {
        if !value.is_empty() {
            self.name(field, value);
        }
    }

    /// A text that has no form, such as an identity.
    fn text(&mut self, field: &str, value: &str, length_max: usize) {
        if value.len() > length_max {
            self.wrong(field, format!("must be at most {length_max} bytes long"));
        }
        if value.chars().any(char::is_control) {
            self.wrong(field, "must not hold control characters");
        }
    }

    fn identity(&mut self, field: &str, value: &str) {
        if value.is_empty() {
            self.wrong(
                field,
                "is required; the UID of the consumer's namespace kube-system serves well",
            );
        }
        self.text(field, value, NAME_LENGTH_MAX);
        if value.trim() != value {
            self.wrong(field, "must not begin or end with a space");
        }
    }

    fn page(&mut self, size: i32, token: &str) {
        if size < 0 {
            self.wrong("page_size", "must not be negative; 0 is the default");
        }
        self.text("page_token", token, TOKEN_LENGTH_MAX);
    }

    fn selector(&mut self, field: &str, value: &str) {
        self.text(field, value, TEXT_LENGTH_MAX);
        if let Err(error) = LabelSelector::parse(value) {
            self.wrong(field, error.to_string());
        }
    }

    /// A time to wait: none at all is fine.
    fn wait(&mut self, value: Option<&ProtoDuration>) {
        if value.is_some_and(|value| Duration::try_from(*value).is_err()) {
            self.wrong("wait", "must not be negative");
        }
    }

    fn lifetime(&mut self, field: &str, value: Option<&ProtoDuration>) {
        let Some(value) = value else {
            return;
        };
        match Duration::try_from(*value) {
            Ok(duration) if !duration.is_zero() && duration <= DURATION_MAX => {}
            _ => self.wrong(field, "must be more than 0 and at most 10 years"),
        }
    }

    fn bind_request(&mut self, request: &BindableResourcesRequest) {
        let at = |field: &str| format!("bindable_resources_request.{field}");
        let name = request.metadata.as_ref().map_or("", |metadata| &metadata.name);
        self.label(&at("metadata.name"), name);
        let Some(spec) = &request.spec else {
            self.wrong(&at("spec"), "is required");
            return;
        };
        let template = spec.template_ref.as_ref().map_or("", |template| &template.name);
        self.name(&at("spec.template_ref.name"), template);
        let cluster = spec.cluster_identity.clone().unwrap_or_default();
        self.identity(&at("spec.cluster_identity.identity"), &cluster.identity);
        self.text(
            &at("spec.cluster_identity.pretty_name"),
            &cluster.pretty_name,
            NAME_LENGTH_MAX,
        );
        self.lifetime(&at("spec.ttl_after_finished"), spec.ttl_after_finished.as_ref());
        if Compatibility::try_from(spec.compatibility).is_err() {
            self.wrong(&at("spec.compatibility"), "is no value that this server knows");
        }
    }
}

/// A validator per request, each a list of its fields.
macro_rules! validate {
    ($($request:ty: |$this:ident, $check:ident| $body:block)+) => {$(
        impl Validate for $request {
            fn validate(&self) -> Outcome<()> {
                let ($this, mut $check) = (self, Check::default());
                $body
                $check.finish()
            }
        }
    )+};
}

validate! {
    ListTemplatesRequest: |this, check| {
        check.page(this.page_size, &this.page_token);
        check.selector("label_selector", &this.label_selector);
        check.optional_name("collection", &this.collection);
    }
    ListCollectionsRequest: |this, check| {
        check.page(this.page_size, &this.page_token);
        check.selector("label_selector", &this.label_selector);
    }
    CreateBindableResourcesRequestRequest: |this, check| {
        match &this.bindable_resources_request {
            Some(request) => check.bind_request(request),
            None => check.wrong("bindable_resources_request", "is required"),
        }
        check.wait(this.wait.as_ref());
    }
    GetBindableResourcesRequestRequest: |this, check| {
        check.label("name", &this.name);
        check.identity("cluster_identity", &this.cluster_identity);
    }
    ListBindableResourcesRequestsRequest: |this, check| {
        check.page(this.page_size, &this.page_token);
        check.text("cluster_identity", &this.cluster_identity, NAME_LENGTH_MAX);
    }
    WatchBindableResourcesRequestsRequest: |this, check| {
        check.text("cluster_identity", &this.cluster_identity, NAME_LENGTH_MAX);
        if this.names.len() > WATCHED_NAMES_MAX {
            check.wrong("names", format!("must be at most {WATCHED_NAMES_MAX}; leave it empty to watch all"));
        }
        for (index, name) in this.names.iter().enumerate().take(WATCHED_NAMES_MAX) {
            check.label(&format!("names[{index}]"), name);
        }
        check.text("resume_token", &this.resume_token, TOKEN_LENGTH_MAX);
    }
    DeleteBindableResourcesRequestRequest: |this, check| {
        check.label("name", &this.name);
        check.identity("cluster_identity", &this.cluster_identity);
        check.text("uid", &this.uid, NAMESPACE_LENGTH_MAX);
        check.text("resource_version", &this.resource_version, NAMESPACE_LENGTH_MAX);
    }
    ListExportsRequest: |this, check| {
        check.page(this.page_size, &this.page_token);
        check.optional_name("contract", &this.contract);
        check.selector("label_selector", &this.label_selector);
    }
    bindery_proto::v1alpha2::GetExportRequest: |this, check| {
        check.optional_name("contract", &this.contract);
        check.name("name", &this.name);
    }
    WatchExportsRequest: |this, check| {
        check.optional_name("contract", &this.contract);
        check.selector("label_selector", &this.label_selector);
        check.text("resume_token", &this.resume_token, TOKEN_LENGTH_MAX);
    }
    GetBoundSchemaRequest: |this, check| {
        check.optional_name("contract", &this.contract);
        check.name("name", &this.name);
        check.text("known_hash", &this.known_hash, NAME_LENGTH_MAX);
    }
    DeleteExportRequest: |this, check| {
        check.optional_name("contract", &this.contract);
        check.name("name", &this.name);
        if this.uid.is_empty() {
            check.wrong("uid", "is required: GetExport tells it, and a later export of the same name is not hit");
        }
        check.text("uid", &this.uid, NAMESPACE_LENGTH_MAX);
        check.wait(this.wait.as_ref());
    }
    bindery_proto::v1alpha2::RenewKubeconfigRequest: |this, check| {
        check.optional_name("contract", &this.contract);
    }
    RevokeCredentialsRequest: |this, check| {
        check.name("contract", &this.contract);
        check.text("reason", &this.reason, TEXT_LENGTH_MAX);
    }
}

#[cfg(test)]
mod tests;
