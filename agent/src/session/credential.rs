//! The credential of a session: one cell that all its requests read, so that a newer one takes effect at once.

use std::{collections::VecDeque, sync::Arc};

use bindery_runtime::client::SharedToken;
use futures::future::ready;
use jiff::Timestamp;
use parking_lot::Mutex;
use secrecy::SecretString;
use tokio::{sync::watch, time::Instant};

use super::{backend, renewal::Schedule};
use bindery_runtime::kubeconfig::{Fingerprint, ProviderAccess};

/// How many kubeconfigs are remembered: more than bindings of one contract have, and than renewals are on their way.
const RECENT_MAX: usize = 64;

/// The credential of a session. Clones are the same cell.
#[derive(Clone, Debug)]
pub struct Credential {
    cell: Arc<Cell>,
}

struct Cell {
    token: Option<SharedToken>,
    held: watch::Sender<Held>,
    client: Mutex<Option<(String, Option<String>, bindery_sdk::Client)>>,
    /// What was held so far.
    taken: Mutex<Recent>,
    /// What the provider refused, also over another connection.
    refused: Arc<Mutex<Recent>>,
}

/// The latest kubeconfigs of which something is true.
#[derive(Default)]
struct Recent(VecDeque<Fingerprint>);

/// What is held, and what became of it.
#[derive(Clone, Debug)]
pub struct Held {
    /// The kubeconfig.
    pub access: Arc<ProviderAccess>,
    /// When it is to be renewed.
    pub schedule: Schedule,
    /// The API server answered 401: it is of no use any more.
    pub refused: bool,
    /// How its renewal goes.
    pub renewal: Renewal,
}

/// How the renewal of a credential goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Renewal {
    /// Nothing is wrong.
    #[default]
    Well,
    /// It failed and is tried again.
    Failing {
        /// Why.
        message: String,
        /// How often in a row.
        count: u32,
    },
    /// The backend will not renew it.
    Denied {
        /// Why.
        message: String,
    },
}

// === impl Recent ===

impl Recent {
    fn note(&mut self, fingerprint: &Fingerprint) {
        if self.has(fingerprint) {
            return;
        }
        if self.0.len() == RECENT_MAX {
            self.0.pop_front();
        }
        self.0.push_back(fingerprint.clone());
    }

    fn has(&self, fingerprint: &Fingerprint) -> bool {
        self.0.contains(fingerprint)
    }

    fn forget(&mut self, fingerprint: &Fingerprint) {
        self.0.retain(|known| known != fingerprint);
    }
}

// === impl Credential ===

impl std::fmt::Debug for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cell")
            .field("held", &*self.held.borrow())
            .finish_non_exhaustive()
    }
}

impl Credential {
    /// A cell that holds this credential; `token` is the one that the clients read.
    pub fn new(access: Arc<ProviderAccess>, schedule: Schedule, token: Option<SharedToken>) -> Self {
        Self::start(access, schedule, token, Arc::default())
    }

    /// The same for another connection to the same contract: what was refused is not taken here either.
    #[must_use]
    pub fn succeed(&self, access: Arc<ProviderAccess>, schedule: Schedule, token: Option<SharedToken>) -> Self {
        Self::start(access, schedule, token, Arc::clone(&self.cell.refused))
    }

    fn start(
        access: Arc<ProviderAccess>,
        schedule: Schedule,
        token: Option<SharedToken>,
        refused: Arc<Mutex<Recent>>,
    ) -> Self {
        let mut first = Recent::default();
        first.note(&access.fingerprint);
        let held = Held {
            access,
            schedule,
            refused: false,
            renewal: Renewal::Well,
        };
        Self {
            cell: Arc::new(Cell {
                token,
                held: watch::Sender::new(held),
                client: Mutex::new(None),
                taken: Mutex::new(first),
                refused,
            }),
        }
    }

    /// What is held now.
    pub fn held(&self) -> Held {
        self.cell.held.borrow().clone()
    }

    /// Tells of every change.
    pub fn changes(&self) -> watch::Receiver<Held> {
        self.cell.held.subscribe()
    }

    /// Takes a credential of the same contract over the same connection if it is newer than the one held, or if that one
    /// is of no use, unless it was refused itself. True if it was taken.
    pub fn offer(&self, access: &Arc<ProviderAccess>, schedule: Schedule) -> bool {
        self.cell.held.send_if_modified(|held| {
            let same = held.access.fingerprint == access.fingerprint;
            let better = access.lifetime.is_newer_than(&held.access.lifetime) || held.refused;
            let usable = access.endpoint == held.access.endpoint && !self.was_refused(&access.fingerprint);
            if same || !better || !usable || !self.arm(access) {
                return false;
            }
            self.cell.taken.lock().note(&access.fingerprint);
            *held = Held {
                access: Arc::clone(access),
                schedule,
                refused: false,
                renewal: Renewal::Well,
            };
            true
        })
    }

    /// The token that the clients read.
    pub fn token(&self) -> Option<&SharedToken> {
        self.cell.token.as_ref()
    }

    /// Whether a kubeconfig is, or was lately, held.
    pub fn has_held(&self, fingerprint: &Fingerprint) -> bool {
        self.cell.taken.lock().has(fingerprint)
    }

    /// Whether a kubeconfig was refused lately.
    pub fn was_refused(&self, fingerprint: &Fingerprint) -> bool {
        self.cell.refused.lock().has(fingerprint)
    }

    /// The requests' token; false if it cannot be one.
    fn arm(&self, access: &ProviderAccess) -> bool {
        match (&self.cell.token, &access.token) {
            (Some(cell), Some(token)) => cell.set(token).is_ok(),
            (None, None) => true,
            _ => false,
        }
    }

    /// Waits until a request is refused for its token, which may have been replaced since. A client certificate is
    /// refused with the connection, which is seen elsewhere.
    pub async fn refusal(&self) {
        match &self.cell.token {
            Some(token) => token.refused().await,
            None => std::future::pending().await,
        }
    }

    /// The API server refused the credential with this fingerprint's token.
    pub fn refuse(&self, access: &ProviderAccess) {
        self.cell.refused.lock().note(&access.fingerprint);
        self.cell.held.send_if_modified(|held| {
            let meant = held.access.fingerprint == access.fingerprint;
            meant && !std::mem::replace(&mut held.refused, true)
        });
    }

    /// The API server takes it all the same, long after it refused it: it had just started then. What the backend says it has
    /// revoked stays refused.
    pub fn restore(&self, access: &ProviderAccess) {
        self.cell.held.send_if_modified(|held| {
            let meant = held.refused && held.access.fingerprint == access.fingerprint;
            if !meant || matches!(held.renewal, Renewal::Denied { .. }) {
                return false;
            }
            self.cell.refused.lock().forget(&access.fingerprint);
            held.refused = false;
            true
        });
    }

    /// Has everybody look again.
    pub fn touch(&self) {
        self.cell.held.send_modify(|_| {});
    }

    /// Notes how the renewal goes.
    pub fn note(&self, renewal: Renewal) {
        self.cell.held.send_if_modified(|held| {
            let changed = held.renewal != renewal;
            held.renewal = renewal;
            changed
        });
    }

    /// A client for the backend that sends the token held at the time of each call; `None` without a usable backend.
    pub fn backend(&self) -> Option<bindery_sdk::Client> {
        let backend = self.cell.held.borrow().access.backend.clone()?;
        let mut known = self.cell.client.lock();
        if let Some((address, authority, client)) = &*known
            && *address == backend.address
            && *authority == backend.ca_data
        {
            return Some(client.clone());
        }
        let held = self.changes();
        let tokens = bindery_sdk::token_fn(move || {
            let token = held
                .borrow()
                .access
                .backend
                .as_ref()
                .map(|backend| backend.token.clone());
            ready(Ok(SecretString::from(token.unwrap_or_default())))
        });
        match backend::client(&backend, tokens) {
            Ok(client) => {
                *known = Some((backend.address, backend.ca_data, client.clone()));
                Some(client)
            }
            Err(error) => {
                tracing::warn!(address = backend.address, %error, "the backend cannot be used");
                None
            }
        }
    }
}

// === impl Held ===

impl Held {
    /// Why the credential is of no use for good, and what mends that; `None` while it is, or may yet be, of use.
    pub fn expired(&self, now: Instant) -> Option<String> {
        let gone = self.refused || self.schedule.is_over(now);
        if !gone {
            return None;
        }
        match (&self.renewal, &self.access.backend) {
            (Renewal::Denied { message }, _) => Some(format!("the backend does not renew it: {message}")),
            (_, None) => Some("its provider has no backend that renews it".to_owned()),
            _ => None,
        }
    }
}

/// When a credential that was read from a Secret is to be renewed.
pub fn schedule_of(access: &ProviderAccess, now: Timestamp) -> Schedule {
    Schedule::estimated(Instant::now(), access.lifetime.total(), access.lifetime.age(now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::testing;

    #[tokio::test]
    async fn the_newer_credential_wins_and_the_older_does_not_come_back() {
        let at = Timestamp::from_second(5000).unwrap();
        let offer =
            |credential: &Credential, access: &Arc<ProviderAccess>| credential.offer(access, schedule_of(access, at));
        let (old, new) = (testing::access("x", 1000, 3600), testing::access("x", 4000, 3600));
        let other = testing::access("x", 900, 3600);
        let token = SharedToken::new(old.token.as_ref().unwrap()).unwrap();
        let credential = Credential::new(Arc::clone(&old), schedule_of(&old, at), Some(token));
        assert!(offer(&credential, &new));
        assert!(!offer(&credential, &new), "the same again");
        assert!(!offer(&credential, &old));
        assert_eq!(credential.held().access.fingerprint, new.fingerprint);
        credential.refuse(&old);
        assert!(!credential.held().refused, "another one was refused");
        credential.refuse(&new);
        assert!(credential.held().refused);
        assert!(offer(&credential, &other), "any is better than one that is refused");
        assert!(!credential.held().refused);
        credential.refuse(&other);
        for refused in [&old, &new, &other] {
            assert!(!offer(&credential, refused), "it was refused before");
        }
        assert!(credential.has_held(&old.fingerprint) && credential.has_held(&other.fingerprint));
        let elsewhere = testing::access("y", 9000, 3600);
        assert!(
            !offer(&credential, &elsewhere),
            "another connection is another session's"
        );
        let successor = credential.succeed(Arc::clone(&elsewhere), schedule_of(&elsewhere, at), None);
        assert!(successor.was_refused(&old.fingerprint) && !successor.has_held(&old.fingerprint));
    }

    #[tokio::test]
    async fn what_is_taken_again_is_used_again_unless_it_was_revoked() {
        let at = Timestamp::from_second(1000).unwrap();
        let access = testing::access("x", 1000, 3600);
        let credential = Credential::new(Arc::clone(&access), schedule_of(&access, at), None);
        credential.refuse(&access);
        credential.restore(&testing::access("x", 2000, 3600));
        assert!(credential.held().refused, "another one was taken");
        credential.restore(&access);
        assert!(!credential.held().refused && !credential.was_refused(&access.fingerprint));
        credential.refuse(&access);
        credential.note(Renewal::Denied {
            message: "revoked".to_owned(),
        });
        credential.restore(&access);
        assert!(credential.held().refused && credential.was_refused(&access.fingerprint));
    }

    #[test]
    fn only_the_latest_are_remembered() {
        let fingerprint = |number: usize| Fingerprint::of([number.to_be_bytes().as_slice()]);
        let mut recent = Recent::default();
        for number in 0..=RECENT_MAX {
            recent.note(&fingerprint(number));
            recent.note(&fingerprint(number));
        }
        assert!(!recent.has(&fingerprint(0)) && recent.has(&fingerprint(1)));
        assert_eq!(recent.0.len(), RECENT_MAX);
    }

    #[tokio::test]
    async fn expired_for_good_only_when_nothing_can_renew() {
        let at = Timestamp::from_second(1000).unwrap();
        let access = testing::access("x", 1000, 3600);
        let credential = Credential::new(Arc::clone(&access), schedule_of(&access, at), None);
        let expired = |credential: &Credential| credential.held().expired(Instant::now()).is_some();
        assert!(!expired(&credential));
        credential.refuse(&access);
        assert!(!expired(&credential), "the backend may renew");
        credential.note(Renewal::Failing {
            message: "no route".to_owned(),
            count: 9,
        });
        assert!(!expired(&credential));
        credential.note(Renewal::Denied {
            message: "revoked".to_owned(),
        });
        assert!(expired(&credential));
    }
}
