//! What a login leaves on this machine: file `servers.yaml` with the servers and their issuers, and a file of tokens for each
//! server, in a folder that its owner alone can read.

mod files;
mod servers;
mod tokens;

use std::{
    env,
    path::{Path, PathBuf},
    time::Duration,
};

pub(crate) use servers::{IssuerPin, KnownServer, Servers};
pub(crate) use tokens::{StoredTokens, TokenFile};

/// The folder that keeps logins: `$BINDERY_CONFIG`, or else `bindery` in the configuration folder of the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Folder(Option<PathBuf>);

/// Why the files of logins cannot be read or written. No variant holds any of what they contain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StoreError {
    /// Neither `BINDERY_CONFIG` nor `XDG_CONFIG_HOME` nor `HOME` is set.
    #[error("there is no folder to keep logins in: none of BINDERY_CONFIG, XDG_CONFIG_HOME and HOME is set")]
    NoFolder,
    /// A file or folder cannot be read.
    #[error("cannot read {}: {fault}", path.display())]
    Read { path: PathBuf, fault: String },
    /// A file or folder cannot be written.
    #[error("cannot write {}: {fault}", path.display())]
    Write { path: PathBuf, fault: String },
    /// A file or folder belongs to another user.
    #[error("{} belongs to the user with ID {owner}, not to you, whose ID is {own}", path.display())]
    OtherOwner { path: PathBuf, owner: u32, own: u32 },
    /// Other users can read or change a file or folder. `mode` is its mode with its type.
    #[error("other users of this machine can read or change {}: its mode is {:04o}", path.display(), mode & 0o7777)]
    Exposed { path: PathBuf, mode: u32 },
    /// A file is not what a login wrote.
    #[error("{} is damaged: {fault}", path.display())]
    Damaged { path: PathBuf, fault: String },
    /// Another process holds the lock.
    #[error("another process has held {} for {} s", path.display(), waited.as_secs())]
    Locked { path: PathBuf, waited: Duration },
}

/// The bits of a mode that hold the type of a file, and their value for a folder.
const FILE_TYPE: u32 = 0o170_000;
const FOLDER: u32 = 0o040_000;

impl StoreError {
    /// What the user can do about the error.
    pub(crate) fn mend(&self) -> String {
        match self {
            Self::NoFolder => "Set BINDERY_CONFIG to a folder of yours.".to_owned(),
            Self::Read { .. } | Self::OtherOwner { .. } => {
                "Make the file yours, or set BINDERY_CONFIG to a folder of yours and log in again.".to_owned()
            }
            Self::Write { .. } => {
                "Make the file and its folder writable, or set BINDERY_CONFIG to another folder and log in again."
                    .to_owned()
            }
            Self::Exposed { path, mode } => {
                let look = if path.ends_with(servers::NAME) {
                    "Look whether it names the servers, issuers and CA files that you know"
                } else {
                    "If others may have read it, log in again"
                };
                let mode = if mode & FILE_TYPE == FOLDER { "700" } else { "600" };
                let name = path.to_string_lossy();
                // A path has no byte 0, the only one that cannot be quoted.
                let name = shlex::try_quote(&name).unwrap_or_default();
                format!("Run `chmod {mode} {name}`. {look}.")
            }
            Self::Damaged { path, .. } if path.ends_with(servers::NAME) => {
                "Mend the file, or delete it and log in again.".to_owned()
            }
            Self::Damaged { .. } => "Log in again, which replaces the file: kubectl bind login URL".to_owned(),
            Self::Locked { .. } => "End that process, or wait until it has ended, then run this again.".to_owned(),
        }
    }
}

impl Folder {
    /// This folder, for tests.
    #[cfg(test)]
    pub(crate) fn new(path: impl Into<PathBuf>) -> Self {
        Self(Some(path.into()))
    }

    /// The folder that the environment names.
    pub(crate) fn from_env() -> Self {
        Self(named(|name| env::var_os(name).map(PathBuf::from)))
    }

    /// The servers that the user has logged in to. A missing file means that there are none.
    pub(crate) fn servers(&self) -> Result<Servers, StoreError> {
        match &self.0 {
            Some(folder) => Servers::read(&folder.join(servers::NAME)),
            None => Ok(Servers::default()),
        }
    }

    /// Changes `servers.yaml` while no other process does.
    pub(crate) async fn change_servers(&self, change: impl FnOnce(&mut Servers)) -> Result<(), StoreError> {
        let folder = self.path()?;
        files::own_folder(folder)?;
        let path = folder.join(servers::NAME);
        let _lock = files::lock(&folder.join(servers::LOCK_NAME), files::LOCK_WAIT).await?;
        let mut servers = Servers::read(&path)?;
        change(&mut servers);
        servers.write(&path)
    }

    /// Keeps a login: its tokens, and its server with the issuer, which becomes the current one. Returns the login that it replaces,
    /// if that could be read.
    pub(crate) async fn keep(
        &self,
        server: KnownServer,
        file: &TokenFile,
        tokens: &StoredTokens,
    ) -> Result<Option<(KnownServer, StoredTokens)>, StoreError> {
        // Tokens and issuer are those of one login, also if two logins end at the same time.
        let _lock = file.lock().await?;
        let former = file.read().ok().flatten();
        file.write(tokens)?;
        let mut known = None;
        let change = |servers: &mut Servers| {
            known = servers.get(&server.address).cloned();
            servers.put(server);
        };
        self.change_servers(change).await?;
        Ok(known.zip(former))
    }

    /// The file of tokens for the server with this address.
    pub(crate) fn tokens(&self, address: &bindery_sdk::Address) -> Result<TokenFile, StoreError> {
        Ok(TokenFile::new(&self.path()?.join(tokens::FOLDER), address))
    }

    fn path(&self) -> Result<&Path, StoreError> {
        self.0.as_deref().ok_or(StoreError::NoFolder)
    }
}

/// The folder by the values of environment variables. Empty values and relative paths count as none, as XDG demands.
fn named(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let set = |name: &str| variable(name).filter(|path| !path.as_os_str().is_empty());
    set("BINDERY_CONFIG")
        .or_else(|| {
            Some(
                set("XDG_CONFIG_HOME")
                    .filter(|path| path.is_absolute())?
                    .join("bindery"),
            )
        })
        .or_else(|| Some(set("HOME")?.join(".config/bindery")))
}

#[cfg(test)]
mod tests;
