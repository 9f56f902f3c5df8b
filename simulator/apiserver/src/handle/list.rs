//! Lists, whole and in pages.

use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::{Call, Reply, Result};
use crate::{
    ApiServer, ObjectKey,
    endpoint::Endpoint,
    present,
    selector::Selector,
    status::{Cause, StatusError},
    store::Stored,
};

/// Where the next page begins.
struct Continue {
    /// Revision of the first page; `None` for a list that goes on with what is there now.
    revision: Option<u64>,
    /// The last key of the page before, as `namespace/name`.
    after: String,
}

impl Continue {
    fn read(token: &str) -> Result<Self> {
        let refused =
            || StatusError::bad_request("invalid continue token: continue key is not valid: illegal base64 data");
        let bytes = URL_SAFE_NO_PAD
            .decode(token.trim_end_matches('='))
            .map_err(|_| refused())?;
        let json: Value = serde_json::from_slice(&bytes).map_err(|_| refused())?;
        let revision = json["rv"].as_i64().ok_or_else(refused)?;
        let after = json["start"].as_str().unwrap_or_default().trim_end_matches('\0');
        Ok(Self {
            revision: u64::try_from(revision).ok(),
            after: after.to_owned(),
        })
    }

    fn token(&self) -> String {
        let revision = self
            .revision
            .map_or(-1, |revision| i64::try_from(revision).unwrap_or(-1));
        let start = format!("{}\0", self.after);
        URL_SAFE_NO_PAD.encode(json!({"v": "meta.k8s.io/v1", "rv": revision, "start": start}).to_string())
    }
}

/// Which state of the store a list shows.
enum AsOf {
    Now,
    At(u64),
}

impl ApiServer {
    pub(super) fn list(&self, call: &Call, endpoint: &Arc<Endpoint>) -> Result<Reply> {
        let parameters = &call.parameters;
        let selector = Selector::read(&parameters.labels, &parameters.fields, endpoint)?;
        let page = match parameters.continues.as_str() {
            "" => None,
            token => Some(Continue::read(token)?),
        };
        let as_of = self.as_of(call, page.as_ref())?;
        let namespace = Some(call.info.namespace.as_str()).filter(|namespace| !namespace.is_empty());
        let (group, resource) = (&endpoint.storage_group, &endpoint.resource);
        // From memory, limits are not kept.
        let limit = if parameters.resource_version == "0" {
            0
        } else {
            parameters.limit
        };
        let past;
        let objects: Box<dyn Iterator<Item = (&ObjectKey, &Arc<Stored>)> + '_> = match as_of {
            AsOf::At(revision) if revision != self.store.revision() => {
                past = self.store.of_at(group, resource, namespace, revision);
                Box::new(skip(&past, page.as_ref(), endpoint))
            }
            AsOf::At(_) | AsOf::Now => match &page {
                None => Box::new(self.store.of(group, resource, namespace)),
                Some(page) => {
                    let after = key_after(page, endpoint);
                    Box::new(
                        self.store
                            .of(group, resource, namespace)
                            .filter(move |(key, _)| **key > after),
                    )
                }
            },
        };
        let revision = match as_of {
            AsOf::Now => self.store.revision(),
            AsOf::At(revision) => revision,
        };
        let mut objects = objects;
        let (mut items, mut last, mut count) = (String::new(), None, 0);
        while limit == 0 || count < limit {
            let is_selected = |(_, stored): &(&ObjectKey, &Arc<Stored>)| selector.matches(&stored.value, endpoint);
            let Some((key, stored)) = objects.find(is_selected) else {
                break;
            };
            if count > 0 {
                items.push(',');
            }
            present::item(&mut items, stored, endpoint, call.metadata_only);
            count += 1;
            last = Some(key);
        }
        // A page is followed by another one if there are more objects, whether they are selected or not.
        let remaining = if limit == 0 { 0 } else { objects.count() };
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if endpoint.custom.is_some() && !call.metadata_only {
            // Lists of custom resources always have the field.
            metadata["continue"] = "".into();
        }
        if let (Some(last), true) = (last, remaining > 0) {
            let is_consistent = page.as_ref().is_none_or(|page| page.revision.is_some());
            let next = Continue {
                revision: is_consistent.then_some(revision),
                after: if endpoint.namespaced {
                    format!("{}/{}", last.namespace, last.name)
                } else {
                    last.name.clone()
                },
            };
            metadata["continue"] = next.token().into();
            if selector.is_everything() {
                metadata["remainingItemCount"] = remaining.into();
            }
        }
        Ok(Reply::Text(
            200,
            super::JSON,
            list_text(call, endpoint, &metadata, &items),
        ))
    }

    fn as_of(&self, call: &Call, page: Option<&Continue>) -> Result<AsOf> {
        let parameters = &call.parameters;
        if let Some(page) = page {
            if !matches!(parameters.resource_version.as_str(), "" | "0") {
                let message = "specifying resource version is not allowed when using continue";
                return Err(StatusError::bad_request(message));
            }
            return match page.revision {
                Some(revision) if revision < self.store.compacted() => Err(too_old_page(page)),
                Some(revision) => {
                    // A restore may have taken the store back to before the first page.
                    self.check_not_ahead(&revision.to_string())?;
                    Ok(AsOf::At(revision))
                }
                None => Ok(AsOf::Now),
            };
        }
        let version = parameters.resource_version.as_str();
        let mode = parameters.resource_version_match.as_str();
        if !mode.is_empty() && version.is_empty() {
            let cause = Cause::forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            );
            return Err(crate::request::invalid_options("ListOptions", &[cause]));
        }
        if !matches!(mode, "" | "Exact" | "NotOlderThan") {
            let allowed = ["Exact", "NotOlderThan", ""].map(Value::from);
            let cause = Cause::not_supported("resourceVersionMatch", &mode.into(), &allowed);
            return Err(crate::request::invalid_options("ListOptions", &[cause]));
        }
        if mode == "Exact" && version == "0" {
            let detail = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            let cause = Cause::forbidden("resourceVersionMatch", detail);
            return Err(crate::request::invalid_options("ListOptions", &[cause]));
        }
        if version.is_empty() || version == "0" {
            return Ok(AsOf::Now);
        }
        self.check_not_ahead(version)?;
        let revision = parse(version)?;
        let is_exact = mode == "Exact" || mode.is_empty() && parameters.limit > 0;
        if !is_exact {
            return Ok(AsOf::Now);
        }
        if revision < self.store.compacted() {
            let message = "The resourceVersion for the provided list is too old.";
            return Err(StatusError::plain(410, "Expired", message));
        }
        Ok(AsOf::At(revision))
    }

    /// Refuses a resource version that the store has not reached.
    pub(super) fn check_not_ahead(&self, version: &str) -> Result<()> {
        if version.is_empty() {
            return Ok(());
        }
        let (wanted, current) = (parse(version)?, self.store.revision());
        if wanted <= current {
            return Ok(());
        }
        let message = format!("Timeout: Too large resource version: {wanted}, current: {current}");
        let cause = json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
        Err(StatusError {
            details: json!({"causes": [cause], "retryAfterSeconds": 1}),
            ..StatusError::plain(504, "Timeout", message)
        })
    }
}

/// Reads a resource version.
fn parse(version: &str) -> Result<u64> {
    version.parse().map_err(|_| {
        StatusError::bad_request(format!(
            "invalid resource version: resourceVersion: Invalid value: {version:?}: strconv.ParseUint: parsing {version:?}: invalid syntax"
        ))
    })
}

fn key_after(page: &Continue, endpoint: &Endpoint) -> ObjectKey {
    let (namespace, name) = match page.after.split_once('/') {
        Some((namespace, name)) if endpoint.namespaced => (namespace, name),
        _ => ("", page.after.as_str()),
    };
    ObjectKey::new(&endpoint.storage_group, &endpoint.resource, namespace, name)
}

fn skip<'a>(
    objects: &'a BTreeMap<ObjectKey, Arc<Stored>>,
    page: Option<&Continue>,
    endpoint: &Endpoint,
) -> impl Iterator<Item = (&'a ObjectKey, &'a Arc<Stored>)> + use<'a> {
    let from = match page {
        Some(page) => Bound::Excluded(key_after(page, endpoint)),
        None => Bound::Unbounded,
    };
    objects.range((from, Bound::Unbounded))
}

fn too_old_page(page: &Continue) -> StatusError {
    let message = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the \
                   continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing \
                   with the provided token results in an inconsistent list - objects that were created, modified, or deleted between \
                   the time the first chunk was returned and now may show up in the list.";
    let token = Continue {
        revision: None,
        after: page.after.clone(),
    };
    StatusError {
        metadata: json!({"continue": token.token()}),
        ..StatusError::plain(410, "Expired", message)
    }
}

/// A list of items that are JSON already.
pub(super) fn list_text(call: &Call, endpoint: &Endpoint, metadata: &Value, items: &str) -> String {
    let (kind, version) = if call.metadata_only {
        ("PartialObjectMetadataList", "meta.k8s.io/v1".to_owned())
    } else {
        (endpoint.list_kind.as_str(), endpoint.info.api_version())
    };
    format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{version}\",\"metadata\":{metadata},\"items\":[{items}]}}")
}
