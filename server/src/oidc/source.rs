//! Where the configuration of issuers is read from: a file, or flags for one issuer.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::config::{
    AuthenticationFile, ClaimMappings, ConfigError, Configuration, InlineKeys, IssuerFields, JwtAuthenticator,
    PrefixedSource, Surroundings,
};

/// Largest file of keys or CAs, in bytes.
const BYTES_MAX: u64 = 1024 * 1024;

/// Where the configuration is read from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigSource {
    /// The issuers.
    pub issuers: IssuerSource,
    /// Files with the keys of issuers that are not asked, by their URL.
    pub keys: Vec<(String, PathBuf)>,
}

/// Where the issuers are read from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum IssuerSource {
    /// There is none.
    #[default]
    None,
    /// A file of kind AuthenticationConfiguration.
    File(PathBuf),
    /// Flags for one issuer.
    Flags(IssuerFlags),
}

/// Flags for one issuer, with the meaning that they have for the API server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IssuerFlags {
    /// `--oidc-issuer-url`.
    pub url: String,
    /// `--oidc-client-id`.
    pub client_id: String,
    /// `--oidc-username-claim`.
    pub username_claim: String,
    /// `--oidc-username-prefix`.
    pub username_prefix: Option<String>,
    /// `--oidc-groups-claim`.
    pub groups_claim: Option<String>,
    /// `--oidc-groups-prefix`.
    pub groups_prefix: String,
    /// `--oidc-ca-file`.
    pub ca_file: Option<PathBuf>,
}

/// Why the configuration cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// A file cannot be read.
    #[error("{flag}: cannot read {}: {source}", path.display())]
    Read {
        /// The flag that names the file.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is wrong.
    #[error("--authentication-config: {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: ConfigError,
    },
    /// The flags are wrong.
    #[error("{0}")]
    Flags(ConfigError),
    /// A file of keys is wrong.
    #[error("--issuer-keys: {} {reason}", path.display())]
    Keys {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

impl ConfigSource {
    /// Whether there is nothing to read.
    pub fn is_empty(&self) -> bool {
        self.issuers == IssuerSource::None && self.keys.is_empty()
    }

    /// The files that the configuration is read from.
    pub fn files(&self) -> Vec<PathBuf> {
        let of_issuers = match &self.issuers {
            IssuerSource::None => None,
            IssuerSource::File(path) => Some(path),
            IssuerSource::Flags(flags) => flags.ca_file.as_ref(),
        };
        let of_keys = self.keys.iter().map(|(_, path)| path);
        of_issuers.into_iter().chain(of_keys).cloned().collect()
    }

    /// Reads the files and checks what they say. `own_issuer` is that of the provider's own ServiceAccounts.
    pub fn load(&self, own_issuer: Option<&str>) -> Result<Configuration, SourceError> {
        let keys = self.keys.iter().map(|(url, path)| Ok((url.clone(), read_keys(path)?)));
        let surroundings = Surroundings {
            keys: keys.collect::<Result<_, SourceError>>()?,
            own_issuer: own_issuer.map(ToOwned::to_owned),
        };
        match &self.issuers {
            IssuerSource::None => {
                Configuration::check(&AuthenticationFile::of(Vec::new()), &surroundings).map_err(SourceError::Flags)
            }
            IssuerSource::File(path) => {
                let text = read("--authentication-config", path)?;
                let parsed = Configuration::parse(&String::from_utf8_lossy(&text), &surroundings);
                parsed.map_err(|source| SourceError::File {
                    path: path.clone(),
                    source,
                })
            }
            IssuerSource::Flags(flags) => {
                let checked = Configuration::check(&flags.to_file()?, &surroundings);
                checked.map_err(|error| SourceError::Flags(error.renamed(name_of_flag)))
            }
        }
    }
}

impl IssuerFlags {
    fn to_file(&self) -> Result<AuthenticationFile, SourceError> {
        let ca = self
            .ca_file
            .as_ref()
            .map(|path| read("--oidc-ca-file", path))
            .transpose()?;
        let groups = self.groups_claim.as_ref().map(|claim| PrefixedSource {
            claim: claim.clone(),
            prefix: Some(self.groups_prefix.clone()),
            ..PrefixedSource::default()
        });
        Ok(AuthenticationFile::of(vec![JwtAuthenticator {
            issuer: IssuerFields {
                url: self.url.clone(),
                audiences: vec![self.client_id.clone()],
                certificate_authority: String::from_utf8_lossy(&ca.unwrap_or_default()).into_owned(),
                ..IssuerFields::default()
            },
            claim_mappings: ClaimMappings {
                username: PrefixedSource {
                    claim: self.username_claim.clone(),
                    prefix: Some(self.prefix()),
                    ..PrefixedSource::default()
                },
                groups: groups.unwrap_or_default(),
                ..ClaimMappings::default()
            },
            ..JwtAuthenticator::default()
        }]))
    }

    /// The API server's rule: names of claims other than an address get the issuer before them, so that they are nobody else's.
    fn prefix(&self) -> String {
        match self.username_prefix.as_deref() {
            Some("-") => String::new(),
            Some(prefix) if !prefix.is_empty() => prefix.to_owned(),
            _ if self.username_claim == "email" => String::new(),
            _ => format!("{}#", self.url),
        }
    }
}

/// The flag that a field of the file is for.
fn name_of_flag(path: &str) -> String {
    let flags = [
        ("jwt[0].issuer.url", "--oidc-issuer-url"),
        ("jwt[0].issuer.audiences", "--oidc-client-id"),
        ("jwt[0].issuer.certificateAuthority", "--oidc-ca-file"),
        ("jwt[0].claimMappings.username", "--oidc-username-claim"),
        ("jwt[0].claimMappings.groups", "--oidc-groups-claim"),
    ];
    let flag = flags.into_iter().find(|(field, _)| path.starts_with(field));
    flag.map_or_else(|| path.to_owned(), |(_, flag)| flag.to_owned())
}

fn read_keys(path: &Path) -> Result<InlineKeys, SourceError> {
    let text = read("--issuer-keys", path)?;
    InlineKeys::parse(text).map_err(|reason| SourceError::Keys {
        path: path.to_owned(),
        reason,
    })
}

fn read(flag: &'static str, path: &Path) -> Result<Vec<u8>, SourceError> {
    let read = || {
        if fs::metadata(path)?.len() > BYTES_MAX {
            return Err(io::Error::other(format!("it is larger than {BYTES_MAX} bytes")));
        }
        fs::read(path)
    };
    read().map_err(|source| SourceError::Read {
        flag,
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests;
