//! Validated requests. Each request message becomes a type whose fields hold what they should; the handlers take that type
//! only. All wrong fields are reported at once, so that the caller can correct them together.

use std::{collections::BTreeSet, str::FromStr, time::Duration};

use bindery_api::{
    duration::DURATION_MAX,
    names::{
        BoundSchemaName, ClusterIdentity, CollectionName, ContractName, ExportName, InvalidName, NAME_LENGTH_MAX,
        NAMESPACE_LENGTH_MAX, RequestName, TemplateName, Uid, plain_text,
    },
    v1alpha2 as api,
};
use bindery_proto::v1alpha2::{self as proto, ErrorReason};
use prost_types::Duration as ProtoDuration;
use tonic_types::FieldViolation;

use crate::{
    contract::sharing,
    front::{Failure, Outcome, wire::selector::LabelSelector},
};

/// Longest text of no particular form, in bytes.
pub(in crate::front) const TEXT_LENGTH_MAX: usize = 1_024;
/// Longest token, in bytes.
pub(in crate::front) const TOKEN_LENGTH_MAX: usize = 2_048;
const WATCHED_NAMES_MAX: usize = 100;
/// Number of exports that one call unbinds by name.
const UNBOUND_NAMES_MAX: usize = 100;
/// Number of groups that one call names; more than a contract may have, so that a call can also remove all.
const GROUPS_MAX: usize = 64;

/// The page of a list that is requested.
#[derive(Clone, Debug)]
pub(crate) struct PageRequest {
    /// Number of entries; 0 for the default.
    pub size: usize,
    /// Token of the page; empty for the first one.
    pub token: String,
}

/// Collects the fields that are wrong. A method that finds one returns [`Invalid`].
#[derive(Debug, Default)]
struct Check {
    violations: Vec<FieldViolation>,
}

/// A field is wrong, as a violation of the [`Check`] says.
#[derive(Debug)]
struct Invalid;

/// The template of a request to bind. It is read before all else, for a caller without the right to bind it learns nothing of
/// the rest.
pub(crate) fn template_name(message: &proto::CreateBindableResourcesRequestRequest) -> Outcome<TemplateName> {
    let request = message.bindable_resources_request.as_ref();
    let spec = request.and_then(|request| request.spec.as_ref());
    let template = spec.and_then(|spec| spec.template_ref.as_ref());
    let mut check = Check::default();
    let name = template.map_or("", |template| &template.name);
    let name = check.name("bindable_resources_request.spec.template_ref.name", name);
    name.map_err(|Invalid| Failure::invalid(check.violations))
}

impl Check {
    fn wrong<T>(&mut self, field: &str, description: impl Into<String>) -> Result<T, Invalid> {
        self.violations.push(FieldViolation::new(field, description));
        Err(Invalid)
    }

    fn name<T: FromStr<Err = InvalidName>>(&mut self, field: &str, value: &str) -> Result<T, Invalid> {
        match value.parse() {
            Ok(name) => Ok(name),
            Err(invalid) => self.wrong(field, invalid.to_string()),
        }
    }

    fn optional_name<T: FromStr<Err = InvalidName>>(&mut self, field: &str, value: &str) -> Result<Option<T>, Invalid> {
        match value {
            "" => Ok(None),
            value => self.name(field, value).map(Some),
        }
    }

    fn text(&mut self, field: &str, value: String, length_max: usize) -> Result<String, Invalid> {
        match plain_text(&value, length_max) {
            Ok(()) => Ok(value),
            Err(invalid) => self.wrong(field, invalid.to_string()),
        }
    }

    fn page(&mut self, size: i32, token: String) -> Result<PageRequest, Invalid> {
        let size = match usize::try_from(size) {
            Ok(size) => Ok(size),
            Err(_) => self.wrong("page_size", "must not be negative; 0 is the default"),
        };
        let token = self.text("page_token", token, TOKEN_LENGTH_MAX)?;
        Ok(PageRequest { size: size?, token })
    }

    fn selector(&mut self, value: String) -> Result<LabelSelector, Invalid> {
        let text = self.text("label_selector", value, TEXT_LENGTH_MAX)?;
        match LabelSelector::parse(&text) {
            Ok(selector) => Ok(selector),
            Err(error) => self.wrong("label_selector", error.to_string()),
        }
    }

    fn wait(&mut self, value: Option<ProtoDuration>) -> Result<Option<Duration>, Invalid> {
        match value.map(Duration::try_from).transpose() {
            Ok(wait) => Ok(wait),
            Err(_) => self.wrong("wait", "must not be negative"),
        }
    }

    fn lifetime(&mut self, field: &str, value: Option<ProtoDuration>) -> Result<Option<Duration>, Invalid> {
        match value.map(Duration::try_from).transpose() {
            Ok(lifetime) if lifetime.is_none_or(|time| !time.is_zero() && time <= DURATION_MAX) => Ok(lifetime),
            _ => self.wrong(field, "must be more than 0 and at most 10 years"),
        }
    }

    fn watched_names(&mut self, names: &[String]) -> Result<BTreeSet<RequestName>, Invalid> {
        self.names("names", names, WATCHED_NAMES_MAX, "leave it empty to watch all")
    }

    /// Names, of which there are at most `most`. `otherwise` says what a caller with more of them does.
    fn names<T: FromStr<Err = InvalidName> + Ord>(
        &mut self,
        field: &str,
        names: &[String],
        most: usize,
        otherwise: &str,
    ) -> Result<BTreeSet<T>, Invalid> {
        if names.len() > most {
            return self.wrong(field, format!("must be at most {most}; {otherwise}"));
        }
        let names = names.iter().enumerate();
        let names: Vec<_> = names
            .map(|(index, name)| self.name(&format!("{field}[{index}]"), name))
            .collect();
        names.into_iter().collect()
    }

    /// Groups that are to own a contract. Those to be removed may be anything that an admin can have written.
    fn groups(&mut self, field: &str, groups: Vec<String>, added: bool) -> Result<BTreeSet<String>, Invalid> {
        if groups.len() > GROUPS_MAX {
            return self.wrong(field, format!("must be at most {GROUPS_MAX}; make several calls"));
        }
        let mut valid = Ok(());
        for (index, group) in groups.iter().enumerate() {
            let at = format!("{field}[{index}]");
            valid = match sharing::check_group(group) {
                Err(invalid) if added => self.wrong(&at, invalid.to_string()),
                _ => self.text(&at, group.clone(), TEXT_LENGTH_MAX).map(drop),
            }
            .and(valid);
        }
        valid.map(|()| groups.into_iter().collect())
    }

    fn compatibility(&mut self, field: &str, value: i32) -> Result<Option<api::Compatibility>, Invalid> {
        match proto::Compatibility::try_from(value) {
            Ok(value) => Ok(value.as_crd_str().and_then(api::Compatibility::from_name)),
            Err(_) => self.wrong(field, "is no value that this server knows"),
        }
    }

    fn bind_request(&mut self, request: Option<proto::BindableResourcesRequest>) -> Result<BindRequest, Invalid> {
        let at = |field: &str| format!("bindable_resources_request.{field}");
        let Some(request) = request else {
            return self.wrong("bindable_resources_request", "is required");
        };
        let name = self.name(&at("metadata.name"), &request.metadata.unwrap_or_default().name);
        let Some(spec) = request.spec else {
            return self.wrong(&at("spec"), "is required");
        };
        let template = spec.template_ref.unwrap_or_default().name;
        let template = self.name(&at("spec.template_ref.name"), &template);
        let cluster = spec.cluster_identity.unwrap_or_default();
        let identity = self.name(&at("spec.cluster_identity.identity"), &cluster.identity);
        let pretty_name = at("spec.cluster_identity.pretty_name");
        let pretty_name = self.text(&pretty_name, cluster.pretty_name, NAME_LENGTH_MAX);
        let lifetime = self.lifetime(&at("spec.ttl_after_finished"), spec.ttl_after_finished);
        let compatibility = self.compatibility(&at("spec.compatibility"), spec.compatibility);
        Ok(BindRequest {
            name: name?,
            template: template?,
            identity: identity?,
            pretty_name: pretty_name?,
            ttl_after_finished: lifetime?,
            compatibility: compatibility?,
        })
    }
}

/// What a caller wants bound: a template, for a cluster, under a name.
#[derive(Clone, Debug)]
pub(crate) struct BindRequest {
    pub name: RequestName,
    pub template: TemplateName,
    pub identity: ClusterIdentity,
    /// Name of the cluster for people; may be empty.
    pub pretty_name: String,
    pub ttl_after_finished: Option<Duration>,
    pub compatibility: Option<api::Compatibility>,
}

impl BindRequest {
    /// Refuses a compatibility that this server does not serve yet.
    pub(crate) fn require_served_compatibility(&self) -> Outcome<()> {
        let Some(compatibility) = self.compatibility else {
            return Ok(());
        };
        let message = format!(
            "compatibility {} is not served; leave bindable_resources_request.spec.compatibility unset",
            compatibility.as_str()
        );
        Err(Failure::new(ErrorReason::FeatureOff, message))
    }
}

/// Declares the validated type of each message, with the check that each field comes from.
macro_rules! validated {
    ($($name:ident from $message:ident: |$sent:ident, $check:ident| { $($field:ident: $type:ty = $value:expr,)+ })+) => {$(
        #[doc = concat!("A validated [`proto::", stringify!($message), "`].")]
        #[derive(Clone, Debug)]
        pub(crate) struct $name {
            $(pub $field: $type,)+
        }

        impl TryFrom<proto::$message> for $name {
            type Error = Failure;

            fn try_from($sent: proto::$message) -> Outcome<Self> {
                let mut check = Check::default();
                let $check = &mut check;
                $(let $field: Result<$type, Invalid> = $value;)+
                let ($(Ok($field),)+) = ($($field,)+) else {
                    return Err(Failure::invalid(check.violations));
                };
                Ok(Self { $($field,)+ })
            }
        }
    )+};
}

validated! {
    ListTemplates from ListTemplatesRequest: |sent, check| {
        page: PageRequest = check.page(sent.page_size, sent.page_token),
        selector: LabelSelector = check.selector(sent.label_selector),
        collection: Option<CollectionName> = check.optional_name("collection", &sent.collection),
    }
    GetTemplate from GetTemplateRequest: |sent, check| {
        name: TemplateName = check.name("name", &sent.name),
    }
    ListCollections from ListCollectionsRequest: |sent, check| {
        page: PageRequest = check.page(sent.page_size, sent.page_token),
        selector: LabelSelector = check.selector(sent.label_selector),
    }
    GetCollection from GetCollectionRequest: |sent, check| {
        name: CollectionName = check.name("name", &sent.name),
    }
    CreateRequest from CreateBindableResourcesRequestRequest: |sent, check| {
        request: BindRequest = check.bind_request(sent.bindable_resources_request),
        wait: Option<Duration> = check.wait(sent.wait),
        validate_only: bool = Ok(sent.validate_only),
    }
    GetRequest from GetBindableResourcesRequestRequest: |sent, check| {
        name: RequestName = check.name("name", &sent.name),
        identity: ClusterIdentity = check.name("cluster_identity", &sent.cluster_identity),
    }
    ListRequests from ListBindableResourcesRequestsRequest: |sent, check| {
        page: PageRequest = check.page(sent.page_size, sent.page_token),
        identity: String = check.text("cluster_identity", sent.cluster_identity, NAME_LENGTH_MAX),
    }
    WatchRequests from WatchBindableResourcesRequestsRequest: |sent, check| {
        identity: String = check.text("cluster_identity", sent.cluster_identity, NAME_LENGTH_MAX),
        names: BTreeSet<RequestName> = check.watched_names(&sent.names),
        resume_token: String = check.text("resume_token", sent.resume_token, TOKEN_LENGTH_MAX),
    }
    DeleteRequest from DeleteBindableResourcesRequestRequest: |sent, check| {
        name: RequestName = check.name("name", &sent.name),
        identity: ClusterIdentity = check.name("cluster_identity", &sent.cluster_identity),
        uid: Option<Uid> = check.optional_name("uid", &sent.uid),
        resource_version: String = check.text("resource_version", sent.resource_version, NAMESPACE_LENGTH_MAX),
        allow_missing: bool = Ok(sent.allow_missing),
    }
    ListExports from ListExportsRequest: |sent, check| {
        page: PageRequest = check.page(sent.page_size, sent.page_token),
        contract: Option<ContractName> = check.optional_name("contract", &sent.contract),
        selector: LabelSelector = check.selector(sent.label_selector),
    }
    GetExport from GetExportRequest: |sent, check| {
        contract: Option<ContractName> = check.optional_name("contract", &sent.contract),
        name: ExportName = check.name("name", &sent.name),
    }
    WatchExports from WatchExportsRequest: |sent, check| {
        contract: Option<ContractName> = check.optional_name("contract", &sent.contract),
        selector: LabelSelector = check.selector(sent.label_selector),
        resume_token: String = check.text("resume_token", sent.resume_token, TOKEN_LENGTH_MAX),
    }
    GetBoundSchema from GetBoundSchemaRequest: |sent, check| {
        contract: Option<ContractName> = check.optional_name("contract", &sent.contract),
        name: BoundSchemaName = check.name("name", &sent.name),
        known_hash: String = check.text("known_hash", sent.known_hash, NAME_LENGTH_MAX),
    }
    DeleteExport from DeleteExportRequest: |sent, check| {
        contract: Option<ContractName> = check.optional_name("contract", &sent.contract),
        name: ExportName = check.name("name", &sent.name),
        uid: Uid = match sent.uid.as_str() {
            "" => check.wrong("uid", "is required: GetExport tells it, and a later export of the same name is not hit"),
            uid => check.name("uid", uid),
        },
        wait: Option<Duration> = check.wait(sent.wait),
        force: bool = Ok(sent.force),
        validate_only: bool = Ok(sent.validate_only),
        allow_missing: bool = Ok(sent.allow_missing),
    }
    RenewKubeconfig from RenewKubeconfigRequest: |sent, check| {
        contract: Option<ContractName> = check.optional_name("contract", &sent.contract),
        holder: String = check.text("holder", sent.holder, TEXT_LENGTH_MAX),
    }
    ListContracts from ListContractsRequest: |sent, check| {
        page: PageRequest = check.page(sent.page_size, sent.page_token),
        owned: bool = Ok(sent.owned),
        identity: String = check.text("cluster_identity", sent.cluster_identity, NAME_LENGTH_MAX),
    }
    GetContract from GetContractRequest: |sent, check| {
        contract: ContractName = check.name("contract", &sent.contract),
    }
    WatchContracts from WatchContractsRequest: |sent, check| {
        owned: bool = Ok(sent.owned),
        resume_token: String = check.text("resume_token", sent.resume_token, TOKEN_LENGTH_MAX),
    }
    ShareContract from ShareContractRequest: |sent, check| {
        contract: ContractName = check.name("contract", &sent.contract),
        uid: Option<Uid> = check.optional_name("uid", &sent.uid),
        add: BTreeSet<String> = check.groups("add_groups", sent.add_groups, true),
        remove: BTreeSet<String> = check.groups("remove_groups", sent.remove_groups, false),
        validate_only: bool = Ok(sent.validate_only),
    }
    RevokeContract from RevokeContractRequest: |sent, check| {
        contract: ContractName = check.name("contract", &sent.contract),
        uid: Option<Uid> = check.optional_name("uid", &sent.uid),
        reason: String = check.text("reason", sent.reason, TEXT_LENGTH_MAX),
    }
    UnbindContract from UnbindContractRequest: |sent, check| {
        contract: ContractName = check.name("contract", &sent.contract),
        uid: Option<Uid> = check.optional_name("uid", &sent.uid),
        exports: BTreeSet<ExportName> =
            check.names("exports", &sent.exports, UNBOUND_NAMES_MAX, "leave it empty to unbind all"),
        force: bool = Ok(sent.force),
        validate_only: bool = Ok(sent.validate_only),
        wait: Option<Duration> = check.wait(sent.wait),
    }
    RevokeCredentials from RevokeCredentialsRequest: |sent, check| {
        contract: ContractName = check.name("contract", &sent.contract),
        reason: String = check.text("reason", sent.reason, TEXT_LENGTH_MAX),
    }
}

#[cfg(test)]
mod tests;
