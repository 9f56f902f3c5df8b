//! The tokens of a login, in a file for each server.

use std::path::{Path, PathBuf};

use bindery_sdk::Address;
use jiff::Timestamp;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use super::{
    IssuerPin, StoreError,
    files::{self, LOCK_WAIT, Lock},
};

/// Name of the folder of the files.
pub(super) const FOLDER: &str = "tokens";

/// The tokens of a login, and where they are from. Debug output holds no token.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StoredTokens {
    /// Address of the server that the tokens are for. They are sent to no other.
    pub(crate) server: String,
    /// URL of the issuer.
    pub(crate) issuer: String,
    /// The public client that they were issued to.
    pub(crate) client_id: String,
    /// The issuer's name for the user, which never changes in a login.
    pub(crate) subject: String,
    /// When the ID token expires, by the clock of this machine.
    pub(crate) expires_at: Timestamp,
    /// When the ID token is to be refreshed: a while before it expires.
    pub(crate) refresh_at: Timestamp,
    /// The ID token.
    #[serde(with = "exposed")]
    pub(crate) id_token: SecretString,
    /// The refresh token, if the issuer gave one.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "exposed_option")]
    pub(crate) refresh_token: Option<SecretString>,
}

impl StoredTokens {
    /// Whether the tokens are of a login at this issuer with this client. Those of another one are of a login that `servers.yaml`
    /// knows nothing of.
    pub(crate) fn is_of(&self, pin: &IssuerPin) -> bool {
        self.issuer == pin.url && self.client_id == pin.client_id
    }
}

/// The file of tokens for one server.
#[derive(Clone, Debug)]
pub(crate) struct TokenFile {
    folder: PathBuf,
    path: PathBuf,
    lock: PathBuf,
    server: String,
}

impl TokenFile {
    pub(super) fn new(folder: &Path, address: &Address) -> Self {
        // The port follows the last underscore before a plus sign, which no address has, so that no two addresses share a name.
        let prefix = address.prefix().replace('/', "+");
        let scheme = address.scheme().as_str();
        let name = format!("{scheme}_{}_{}{prefix}", address.host(), address.port());
        Self {
            folder: folder.to_owned(),
            path: folder.join(format!("{name}.json")),
            lock: folder.join(format!("{name}.lock")),
            server: address.to_string(),
        }
    }

    /// Address of the server that the tokens are for.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// The file itself.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the tokens; none if there is no file.
    pub(crate) fn read(&self) -> Result<Option<StoredTokens>, StoreError> {
        let Some(text) = files::read_secret(&self.path)? else {
            return Ok(None);
        };
        // The parser's own message could quote a token.
        let tokens: StoredTokens = serde_json::from_str(&text).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            self.damaged(format!("line {line}, column {column} is not what a login writes"))
        })?;
        if tokens.server != self.server {
            return Err(self.damaged("its tokens are for another server".to_owned()));
        }
        Ok(Some(tokens))
    }

    /// Takes the lock under which tokens are read again, refreshed and written.
    pub(crate) async fn lock(&self) -> Result<Lock, StoreError> {
        files::secret_folder(&self.folder)?;
        files::lock(&self.lock, LOCK_WAIT).await
    }

    /// Whether the tokens could be written now. It is asked before a refresh, which can make the stored refresh token void.
    pub(crate) fn check_writable(&self) -> Result<(), StoreError> {
        files::secret_folder(&self.folder)?;
        files::check_replaceable(&self.path)
    }

    /// Replaces the tokens.
    pub(crate) fn write(&self, tokens: &StoredTokens) -> Result<(), StoreError> {
        files::secret_folder(&self.folder)?;
        let text = serde_json::to_vec_pretty(tokens).map_err(|_| StoreError::Write {
            path: self.path.clone(),
            fault: "its content cannot be made".to_owned(),
        })?;
        files::replace(&self.path, &text)
    }

    /// Deletes the tokens. Returns whether there were any.
    pub(crate) fn delete(&self) -> Result<bool, StoreError> {
        files::delete(&self.path)
    }

    fn damaged(&self, fault: String) -> StoreError {
        StoreError::Damaged {
            path: self.path.clone(),
            fault,
        }
    }
}

/// Serde of a secret for its file.
mod exposed {
    use secrecy::{ExposeSecret as _, SecretString};
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(secret: &SecretString, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(secret.expose_secret())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SecretString, D::Error> {
        String::deserialize(deserializer).map(SecretString::from)
    }
}

/// Serde of an optional secret for its file.
mod exposed_option {
    use secrecy::{ExposeSecret, SecretString};
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    #[expect(clippy::ref_option, reason = "serde passes the field")]
    pub(super) fn serialize<S: Serializer>(secret: &Option<SecretString>, serializer: S) -> Result<S::Ok, S::Error> {
        secret.as_ref().map(ExposeSecret::expose_secret).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SecretString>, D::Error> {
        Ok(Option::<String>::deserialize(deserializer)?.map(SecretString::from))
    }
}
