//! The table of cases.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

use crate::script::ServerScript;

/// One case: what the server does, what the client is asked to do, and what must come of it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Case {
    /// Unique name, in lower case with dashes.
    pub name: String,
    /// What the case shows.
    #[serde(default)]
    pub shows: String,
    /// The server.
    #[serde(default)]
    pub server: ServerScript,
    /// Settings of the client, over [`Case::CLIENT`].
    #[serde(default)]
    pub client: Value,
    /// The client's token, if it is not static.
    #[serde(default)]
    pub token: Token,
    /// What the client does.
    pub action: Value,
    /// When the client cancels, after the action began.
    pub cancel_after_ms: Option<u64>,
    /// How many times the action is done at the same moment on one client. Each result must be the expected one.
    pub concurrent: Option<usize>,
    /// What must come of it.
    #[serde(default)]
    pub expect: Expect,
}

/// The client's token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Token {
    /// [`Case::TOKEN`], given as it is.
    #[default]
    Default,
    /// No token.
    None,
    /// A token, given as it is.
    Static(String),
    /// A file with this content, which the server may change.
    File(String),
    /// A file that does not exist.
    FileMissing,
    /// A shell script that prints the token.
    Exec(String),
    /// As [`Token::Exec`], with another time limit for the script.
    ExecLimited {
        /// The script.
        script: String,
        /// The limit in milliseconds.
        timeout_ms: u64,
    },
    /// A function of the user: `slow` never returns, `throws` fails with a text that has a token, `static-value` returns a token.
    Function(String),
}

/// What must come of a case.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Expect {
    /// What the client returns.
    pub ok: Option<Value>,
    /// The error that ends the action: the given fields, where null means that the field is absent.
    pub error: Option<Value>,
    /// Several errors, one of which ends the action, where a library cannot tell more.
    pub any_error: Vec<Value>,
    /// The error that ends the action in some languages, by language, where their libraries cannot tell more.
    pub error_in: BTreeMap<String, Value>,
    /// What a client without gRPC-Web says, which is that of Python: the error that ends a call, or a stream of a watch. The server
    /// sees none of its calls, and nothing else is expected of it.
    pub without_web: Option<Value>,
    /// Why `any_error` or `error_in` are needed.
    pub why: String,
    /// A text that the message of the error contains, without regard to case.
    pub message: Option<String>,
    /// Texts that neither the error nor any text of the client contains.
    pub hides: Vec<String>,
    /// Number of calls that the server saw: least and most.
    pub calls: Option<(usize, usize)>,
    /// What the server saw of each call.
    pub seen: Vec<SeenExpect>,
    /// Number of connections that the server saw: least and most.
    pub connections: Option<(usize, usize)>,
    /// The events of a watch. In an event, the given fields are compared.
    pub events: Option<Vec<Value>>,
    /// The resume token of a watch at its end.
    pub resume_token: Option<String>,
    /// How often progress was reported.
    pub progress: Option<u64>,
    /// How long the action took, in milliseconds: least and most.
    pub took_ms: Option<(u64, u64)>,
    /// Bounds of the random delays between the attempts of one call, in milliseconds. For `concurrent` calls.
    pub delays_ms: Vec<u64>,
    /// Number of PING frames of the client at least, not counting those within ten seconds after the server sent something: libraries
    /// measure the bandwidth with these.
    pub pings: usize,
}

/// What the server saw of one call.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SeenExpect {
    /// The name of the method.
    pub method: Option<String>,
    /// Values of headers.
    pub headers: BTreeMap<String, String>,
    /// What the values of headers begin with.
    pub header_prefixes: BTreeMap<String, String>,
    /// Headers that are absent.
    pub absent: Vec<String>,
    /// The request, as proto JSON.
    pub request: Option<Value>,
    /// Milliseconds since the call before: least and most.
    pub after_ms: Option<(u64, u64)>,
    /// The deadline in milliseconds: least and most.
    pub deadline_ms: Option<(u64, u64)>,
    /// How the client ended the call: one of these.
    pub reset: Vec<String>,
}

impl Case {
    /// A case of this name that does nothing.
    pub(crate) fn named(name: String) -> Self {
        Self {
            name,
            shows: String::new(),
            server: ServerScript::default(),
            client: Value::Null,
            token: Token::default(),
            action: Value::Null,
            cancel_after_ms: None,
            concurrent: None,
            expect: Expect::default(),
        }
    }

    /// Whether the case sets or judges a time: a client's time limit, a cancellation, a delay. Its outcome depends on when the client's
    /// program gets a core.
    pub(crate) fn is_timed(&self) -> bool {
        let limits = ["timeoutMs", "attemptTimeoutMs"];
        let judges = |seen: &SeenExpect| seen.after_ms.is_some() || seen.deadline_ms.is_some();
        self.cancel_after_ms.is_some()
            || limits.iter().any(|limit| self.client.get(limit).is_some())
            || self.expect.took_ms.is_some()
            || !self.expect.delays_ms.is_empty()
            || self.expect.seen.iter().any(judges)
    }

    /// Settings of the client that a case does not give: short delays, so that retries do not take long.
    pub const CLIENT: &str = r#"{
        "timeoutMs": 8000, "retry": { "attempts": 5, "baseMs": 20, "capMs": 100 }, "reconnect": { "baseMs": 20, "capMs": 100 }
    }"#;

    /// The token that a client has unless the case says otherwise. No text of a client may contain it.
    pub const TOKEN: &str = "hunter2.is-a-secret.of-the-contract";

    /// What each token of the cases begins with.
    pub const TOKEN_PREFIX: &str = "hunter2";
}

/// Reads all cases of a folder, in the order of the files' names.
pub fn read(folder: &Path) -> Result<Vec<Case>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut paths: Vec<_> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    paths.sort();
    let mut cases: Vec<Case> = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path)?;
        let more: Vec<Case> =
            serde_saphyr::from_str(&text).with_context(|| format!("cannot read {}", path.display()))?;
        cases.extend(more);
    }
    let mut names: Vec<_> = cases.iter().map(|case| &case.name).collect();
    names.sort();
    let twice = names.windows(2).find(|pair| pair[0] == pair[1]);
    ensure!(twice.is_none(), "two cases are named {twice:?}");
    for case in &cases {
        ensure!(
            case.expect.any_error.len() < 2 && case.expect.error_in.is_empty() || !case.expect.why.is_empty(),
            "case {} allows several errors and does not say why",
            case.name
        );
    }
    Ok(cases)
}
