//! The configuration of issuers, as a file of Kubernetes' kind AuthenticationConfiguration has it.
//!
//! The rules are those of the API server. What this server cannot evaluate is refused when the file is read, with the field's path,
//! so that no token is ever mapped otherwise than the file says.

use std::{fmt, sync::Arc};

use http::Uri;
use rustls::RootCertStore;
use rustls_pki_types::CertificateDer;

use super::{
    discovery,
    keys::{KeySet, KeySetError},
    mapping::Mapping,
};
use crate::tls::read_certificates;

mod file;
mod mappings;
mod report;

pub(super) use file::{AuthenticationFile, ClaimMappings, IssuerFields, JwtAuthenticator, PrefixedSource};
pub use report::ConfigError;
use report::{Path, Report};

/// Most issuers, as in the API server.
const ISSUERS_MAX: usize = 64;

/// The issuers that are trusted, in the order of the file.
#[derive(Debug, Default)]
pub struct Configuration {
    pub(super) issuers: Vec<IssuerConfig>,
}

/// An issuer that is trusted.
#[derive(Debug)]
pub(super) struct IssuerConfig {
    /// Its URL, which the claim `iss` of its tokens is exactly.
    pub(super) url: String,
    /// A token must be for one of these.
    pub(super) audiences: Vec<String>,
    pub(super) mapping: Mapping,
    pub(super) keys: KeySource,
}

/// Where the keys of an issuer come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeySource {
    pub(super) issuer: String,
    discovery_url: Option<String>,
    /// The CAs that sign the issuer's certificate; none for those of the system.
    pub(super) authorities: Vec<CertificateDer<'static>>,
    /// The keys themselves, where the issuer is not asked.
    pub(super) inline: Option<InlineKeys>,
}

/// Keys that the configuration holds.
#[derive(Clone)]
pub struct InlineKeys {
    text: Arc<[u8]>,
    pub(super) keys: Arc<KeySet>,
}

/// What the server adds to a configuration file.
#[derive(Debug, Default)]
pub struct Surroundings {
    /// Keys of issuers, by URL.
    pub keys: Vec<(String, InlineKeys)>,
    /// The issuer of the provider's own ServiceAccounts, whose tokens are checked by TokenReviews.
    pub own_issuer: Option<String>,
}

impl Configuration {
    /// Reads a file of kind AuthenticationConfiguration, YAML or JSON.
    pub fn parse(text: &str, surroundings: &Surroundings) -> Result<Self, ConfigError> {
        Self::check(&file::parse(text)?, surroundings)
    }

    /// Checks what was read.
    pub(super) fn check(file: &AuthenticationFile, surroundings: &Surroundings) -> Result<Self, ConfigError> {
        let mut report = Report::default();
        file.check_kind(&mut report);
        if file.jwt.len() > ISSUERS_MAX {
            report.add(&Path::root("jwt"), format!("has more than {ISSUERS_MAX} issuers"));
            return Err(report.into_error());
        }
        let checked = file.jwt.iter().enumerate().map(|(index, jwt)| {
            let path = Path::root("jwt").index(index);
            issuer(jwt, &path, surroundings, &mut report)
        });
        let issuers: Vec<_> = checked.collect();
        check_duplicates(&file.jwt, &mut report);
        for (url, _) in &surroundings.keys {
            if !file.jwt.iter().any(|jwt| jwt.issuer.url == *url) {
                report.add(
                    &Path::root("--issuer-keys"),
                    format!("names issuer {url}, which is not configured"),
                );
            }
        }
        // An issuer is missing only if the report says why.
        match issuers.into_iter().collect::<Option<Vec<_>>>() {
            Some(issuers) if report.is_empty() => Ok(Self { issuers }),
            _ => Err(report.into_error()),
        }
    }

    /// The URLs of the issuers.
    pub fn urls(&self) -> impl Iterator<Item = &str> {
        self.issuers.iter().map(|issuer| issuer.url.as_str())
    }
}

fn issuer(jwt: &JwtAuthenticator, path: &Path, around: &Surroundings, report: &mut Report) -> Option<IssuerConfig> {
    let fields = &jwt.issuer;
    let path_of = |field| path.child("issuer").child(field);
    check_url(&fields.url, &path_of("url"), report);
    if around.own_issuer.as_deref() == Some(&*fields.url) {
        report.add(
            &path_of("url"),
            "is the issuer of the provider's own ServiceAccounts, whose tokens this server takes anyway; leave it out, or give \
             the other cluster an issuer of its own (kube-apiserver --service-account-issuer)",
        );
    }
    let discovery_url = Some(fields.discovery_url.clone()).filter(|url| !url.is_empty());
    if let Some(url) = &discovery_url {
        check_url(url, &path_of("discoveryURL"), report);
        if url.trim_end_matches('/') == fields.url.trim_end_matches('/') {
            report.add(&path_of("discoveryURL"), "must differ from url");
        }
    }
    check_audiences(fields, &path.child("issuer"), report);
    if !fields.egress_selector_type.is_empty() {
        report.add(
            &path_of("egressSelectorType"),
            "is not supported: this server has no egress selectors; leave it out",
        );
    }
    let authorities = authorities(&fields.certificate_authority, &path_of("certificateAuthority"), report);
    let inline = around.keys.iter().find(|(url, _)| *url == fields.url);
    let mapping = mappings::mapping(jwt, path, report);
    Some(IssuerConfig {
        url: fields.url.clone(),
        audiences: fields.audiences.clone(),
        mapping: mapping?,
        keys: KeySource {
            issuer: fields.url.clone(),
            discovery_url,
            authorities,
            inline: inline.map(|(_, keys)| keys.clone()),
        },
    })
}

fn check_url(url: &str, path: &Path, report: &mut Report) {
    let Ok(parsed) = url.parse::<Uri>() else {
        report.add(path, "must be a URL, such as https://accounts.example.com");
        return;
    };
    if parsed.scheme_str() != Some("https") || parsed.host().is_none_or(str::is_empty) {
        report.add(path, "must begin with https:// and a host");
    }
    if parsed
        .authority()
        .is_some_and(|authority| authority.as_str().contains('@'))
    {
        report.add(path, "must not contain a user or a password");
    }
    if url.contains(['?', '#']) {
        report.add(path, "must not contain a query or a fragment");
    }
}

fn check_audiences(fields: &IssuerFields, path: &Path, report: &mut Report) {
    let audiences = &fields.audiences;
    if audiences.is_empty() {
        report.add(
            &path.child("audiences"),
            "must hold the client id of this server, or its URL",
        );
    }
    for (index, audience) in audiences.iter().enumerate() {
        let path = path.child("audiences").index(index);
        if audience.is_empty() {
            report.add(&path, "must not be empty");
        }
        if audiences.iter().take(index).any(|other| other == audience) {
            report.add(&path, "is there twice");
        }
    }
    match fields.audience_match_policy.as_str() {
        "MatchAny" => {}
        "" if audiences.len() < 2 => {}
        _ => report.add(
            &path.child("audienceMatchPolicy"),
            "must be MatchAny, or left out where there is one audience",
        ),
    }
}

fn check_duplicates(all: &[JwtAuthenticator], report: &mut Report) {
    for (index, jwt) in all.iter().enumerate() {
        let path = Path::root("jwt").index(index).child("issuer");
        let mut before = all.iter().take(index).map(|other| &other.issuer);
        if before.clone().any(|other| other.url == jwt.issuer.url) {
            report.add(&path.child("url"), "is there twice");
        }
        let discovery_url = &jwt.issuer.discovery_url;
        if !discovery_url.is_empty() && before.any(|other| other.discovery_url == *discovery_url) {
            report.add(&path.child("discoveryURL"), "is there twice");
        }
    }
}

fn authorities(pem: &str, path: &Path, report: &mut Report) -> Vec<CertificateDer<'static>> {
    if pem.is_empty() {
        return Vec::new();
    }
    let Ok(certificates) = read_certificates(pem.as_bytes()) else {
        report.add(path, "must hold certificates in PEM");
        return Vec::new();
    };
    let mut roots = RootCertStore::empty();
    for (index, certificate) in certificates.iter().enumerate() {
        if let Err(error) = roots.add(certificate.clone()) {
            report.add(
                path,
                format!("certificate {} cannot be used as a CA: {error}", index + 1),
            );
        }
    }
    certificates
}

impl KeySource {
    /// Where the discovery document is.
    pub(super) fn discovery_url(&self) -> Result<Uri, String> {
        let url = match &self.discovery_url {
            Some(url) => url.clone(),
            None => discovery::url(&self.issuer),
        };
        url.parse().map_err(|_| format!("{url} is no URL"))
    }
}

impl InlineKeys {
    /// Reads a JWK set.
    pub fn parse(text: Vec<u8>) -> Result<Self, String> {
        let keys = KeySet::parse(&text).map_err(|error: KeySetError| error.to_string())?;
        Ok(Self {
            text: text.into(),
            keys: Arc::new(keys),
        })
    }
}

impl PartialEq for InlineKeys {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for InlineKeys {}

impl fmt::Debug for InlineKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InlineKeys")
            .field("keys", &self.keys.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
