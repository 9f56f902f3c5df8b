//! What the fuzz targets of `fuzz/` call. It exists only with `--cfg fuzzing`, as no program needs it: tokens and requests as the
//! services read them, without a server.

use std::time::Duration;

use bindery_api::{names, v1alpha2 as api};
use bindery_proto::v1alpha2::{self as proto, ErrorReason};
use prost::Message;
use tonic::Status;
use tonic_types::StatusExt as _;

use crate::{
    contract::sharing,
    front::{
        Failure,
        streams::{
            hub::Cursor,
            token::{self, Filter},
        },
        wire::{
            convert::request,
            error, page,
            selector::LabelSelector,
            validate::{
                self, CreateRequest, DeleteExport, DeleteRequest, GetBoundSchema, GetCollection, GetContract,
                GetExport, GetRequest, GetTemplate, ListCollections, ListContracts, ListExports, ListRequests,
                ListTemplates, PageRequest, RenewKubeconfig, RevokeContract, RevokeCredentials, ShareContract,
                UnbindContract, WatchContracts, WatchExports, WatchRequests,
            },
        },
    },
};

/// A call was refused, as its client learns of it.
#[derive(Debug)]
pub struct Refusal {
    /// The reason, which clients can rely on.
    pub reason: ErrorReason,
    /// The fields that are wrong, each with what is wrong with it.
    pub violations: Vec<(String, String)>,
    /// Size of the status in HTTP headers: names and values.
    pub header_bytes: usize,
}

/// What a validated request holds.
#[derive(Debug, PartialEq, Eq)]
pub enum Held {
    /// A DNS label.
    Label(String),
    /// A DNS subdomain.
    Subdomain(String),
    /// The identity of a cluster.
    Identity(String),
    /// A text of at most this number of bytes.
    Text(String, usize),
    /// A lifetime of an object.
    Lifetime(Duration),
}

/// A validated request.
#[derive(Debug, PartialEq, Eq)]
pub struct Valid {
    /// What the request holds.
    pub held: Vec<Held>,
    /// Debug output of the request.
    pub shown: String,
}

/// Returns the token of the page after `key`, of a list with these arguments.
pub fn write_page_token(key: &str, arguments: &[&str]) -> String {
    page::encode(key, page::digest(arguments))
}

/// Reads a page token as a list with these arguments does. It returns the key after which the page begins; `None` for the first
/// page.
pub fn read_page_token(token: &str, arguments: &[&str]) -> Result<Option<String>, Refusal> {
    let token = token.to_owned();
    let page = page::Page::read(&PageRequest { size: 0, token }, arguments)?;
    Ok(page.after)
}

/// Returns the resume token of a stream with this filter: instance, sequence, two versions and two checksums.
pub fn write_resume_token(filter: &[&str], [instance, sequence, a, b, c, d]: [u64; 6]) -> String {
    let cursor = Cursor {
        instance,
        sequence,
        versions: [a, b],
        checksums: [c, d],
    };
    token::write(Filter::of(filter), &cursor)
}

/// Reads a resume token as a stream with this filter does; `None` for the token of another filter.
pub fn read_resume_token(filter: &[&str], token: &str) -> Result<Option<[u64; 6]>, Refusal> {
    let cursor = token::read(Filter::of(filter), token)?;
    Ok(cursor.map(|cursor| {
        let ([a, b], [c, d]) = (cursor.versions, cursor.checksums);
        [cursor.instance, cursor.sequence, a, b, c, d]
    }))
}

/// Declares [`validate`] for these messages, with what the validated type of each holds.
macro_rules! messages {
    ($($message:ident => $valid:ident: |$request:ident| $held:expr;)+) => {
        /// The names of the messages that [`validate`] takes.
        pub const MESSAGES: &[&str] = &[$(stringify!($message),)+];

        /// Decodes bytes as the message of this name and validates it, as its method does; `None` if the bytes are no such message.
        pub fn validate(message: &str, bytes: &[u8]) -> Option<Result<Valid, Refusal>> {
            match message {
                $(stringify!($message) => {
                    let sent = proto::$message::decode(bytes).ok()?;
                    Some($valid::try_from(sent).map_err(Refusal::from).map(|$request| {
                        let shown = format!("{:?}", $request);
                        Valid { held: $held.into_iter().flatten().collect(), shown }
                    }))
                })+
                _ => None,
            }
        }
    };
}

messages! {
    ListTemplatesRequest => ListTemplates: |request| {
        let collection = request.collection.as_deref().map(subdomain);
        [vec![page(&request.page), selector(&request.selector)], collection.into_iter().collect()]
    };
    GetTemplateRequest => GetTemplate: |request| [[subdomain(&request.name)]];
    ListCollectionsRequest => ListCollections: |request| [[page(&request.page), selector(&request.selector)]];
    GetCollectionRequest => GetCollection: |request| [[subdomain(&request.name)]];
    CreateBindableResourcesRequestRequest => CreateRequest: |create| {
        let request = create.request;
        let names = vec![label(&request.name), subdomain(&request.template), identity(&request.identity)];
        let text = text(&request.pretty_name, names::NAME_LENGTH_MAX);
        let lifetime = request.ttl_after_finished.map(Held::Lifetime);
        [names, vec![text], lifetime.into_iter().collect()]
    };
    GetBindableResourcesRequestRequest => GetRequest: |request| [[label(&request.name), identity(&request.identity)]];
    ListBindableResourcesRequestsRequest => ListRequests: |request| {
        [[page(&request.page), text(&request.identity, names::NAME_LENGTH_MAX)]]
    };
    WatchBindableResourcesRequestsRequest => WatchRequests: |request| {
        let texts = vec![
            text(&request.identity, names::NAME_LENGTH_MAX),
            text(&request.resume_token, validate::TOKEN_LENGTH_MAX),
        ];
        [texts, request.names.iter().map(|name| label(name)).collect()]
    };
    DeleteBindableResourcesRequestRequest => DeleteRequest: |request| {
        let names = vec![label(&request.name), identity(&request.identity)];
        let uid = request.uid.as_deref().map(uid);
        [names, vec![text(&request.resource_version, names::NAMESPACE_LENGTH_MAX)], uid.into_iter().collect()]
    };
    ListExportsRequest => ListExports: |request| {
        let contract = request.contract.as_deref().map(subdomain);
        [vec![page(&request.page), selector(&request.selector)], contract.into_iter().collect()]
    };
    GetExportRequest => GetExport: |request| {
        let contract = request.contract.as_deref().map(subdomain);
        [vec![subdomain(&request.name)], contract.into_iter().collect()]
    };
    WatchExportsRequest => WatchExports: |request| {
        let contract = request.contract.as_deref().map(subdomain);
        let token = text(&request.resume_token, validate::TOKEN_LENGTH_MAX);
        [vec![selector(&request.selector), token], contract.into_iter().collect()]
    };
    GetBoundSchemaRequest => GetBoundSchema: |request| {
        let contract = request.contract.as_deref().map(subdomain);
        let hash = text(&request.known_hash, names::NAME_LENGTH_MAX);
        [vec![subdomain(&request.name), hash], contract.into_iter().collect()]
    };
    DeleteExportRequest => DeleteExport: |request| {
        let contract = request.contract.as_deref().map(subdomain);
        [vec![subdomain(&request.name), uid(&request.uid)], contract.into_iter().collect()]
    };
    RenewKubeconfigRequest => RenewKubeconfig: |request| {
        let contract = request.contract.as_deref().map(subdomain);
        let holder = text(&request.holder, validate::TEXT_LENGTH_MAX);
        [vec![holder], contract.into_iter().collect()]
    };
    RevokeCredentialsRequest => RevokeCredentials: |request| {
        [[subdomain(&request.contract), text(&request.reason, validate::TEXT_LENGTH_MAX)]]
    };
    ListContractsRequest => ListContracts: |request| {
        [[page(&request.page), text(&request.identity, names::NAME_LENGTH_MAX)]]
    };
    GetContractRequest => GetContract: |request| [[subdomain(&request.contract)]];
    WatchContractsRequest => WatchContracts: |request| {
        [[text(&request.resume_token, validate::TOKEN_LENGTH_MAX)]]
    };
    ShareContractRequest => ShareContract: |request| {
        let group = |length_max| move |group: &String| text(group, length_max);
        let added = request.add.iter().map(group(sharing::GROUP_LENGTH_MAX));
        let groups = added.chain(request.remove.iter().map(group(validate::TEXT_LENGTH_MAX)));
        [contract(&request.contract, request.uid.as_deref()), groups.collect()]
    };
    RevokeContractRequest => RevokeContract: |request| {
        let reason = text(&request.reason, validate::TEXT_LENGTH_MAX);
        [contract(&request.contract, request.uid.as_deref()), vec![reason]]
    };
    UnbindContractRequest => UnbindContract: |request| {
        let exports = request.exports.iter().map(|name| subdomain(name));
        [contract(&request.contract, request.uid.as_deref()), exports.collect()]
    };
}

/// Takes the message of a valid CreateBindableResourcesRequest, and returns the message with the request as it is stored on the
/// provider and shown again; `None` for any other bytes.
pub fn stored(bytes: &[u8]) -> Option<Vec<u8>> {
    let sent = proto::CreateBindableResourcesRequestRequest::decode(bytes).ok()?;
    let (wait, validate_only) = (sent.wait, sent.validate_only);
    let valid = CreateRequest::try_from(sent).ok()?;
    let spec = request::spec_of(&valid.request, "fuzz".to_owned());
    let stored = serde_json::to_vec(&api::BindableResourcesRequest::new(&valid.request.name, spec));
    let stored = serde_json::from_slice(&stored.ok()?).ok()?;
    let shown = proto::CreateBindableResourcesRequestRequest {
        bindable_resources_request: Some(request::request(&stored)),
        wait,
        validate_only,
    };
    Some(shown.encode_to_vec())
}

fn selector(selector: &LabelSelector) -> Held {
    text(selector.as_str(), validate::TEXT_LENGTH_MAX)
}

fn page(page: &PageRequest) -> Held {
    text(&page.token, validate::TOKEN_LENGTH_MAX)
}

fn label(name: &str) -> Held {
    Held::Label(name.to_owned())
}

fn subdomain(name: &str) -> Held {
    Held::Subdomain(name.to_owned())
}

/// A contract and, if the request names it, its UID.
fn contract(name: &str, known: Option<&str>) -> Vec<Held> {
    std::iter::once(subdomain(name)).chain(known.map(uid)).collect()
}

fn identity(name: &str) -> Held {
    Held::Identity(name.to_owned())
}

fn uid(uid: &str) -> Held {
    text(uid, names::NAMESPACE_LENGTH_MAX)
}

fn text(text: &str, length_max: usize) -> Held {
    Held::Text(text.to_owned(), length_max)
}

// === impl Refusal ===

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        let reason = failure.reason();
        let status = error::complete(&Status::from(failure), "5f1c9d3e-0000-4000-8000-000000000001");
        let details = status.get_error_details();
        let violations = details.bad_request().map(|bad| bad.field_violations.clone());
        let violations = violations.unwrap_or_default().into_iter();
        let mut headers = http::HeaderMap::new();
        // A status that does not fit into headers at all counts as endless.
        let written = status.add_header(&mut headers);
        let bytes = headers
            .iter()
            .map(|(name, value)| name.as_str().len() + value.len())
            .sum();
        Self {
            reason,
            violations: violations
                .map(|violation| (violation.field, violation.description))
                .collect(),
            header_bytes: written.map_or(usize::MAX, |()| bytes),
        }
    }
}
