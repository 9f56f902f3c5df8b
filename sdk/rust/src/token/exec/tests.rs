use std::fs;
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use secrecy::ExposeSecret as _;

use super::*;

fn shell(script: &str) -> ExecToken {
    ExecToken::new("/bin/sh", ["-c", script])
}

async fn token(source: &ExecToken) -> Result<String, String> {
    let token = source.token().await.map_err(|error| {
        assert_eq!(error.reason(), "TokenSourceFailed");
        error.to_string()
    })?;
    Ok(token.expose_secret().to_owned())
}

/// A program that prints its run's number as a token that is valid for this number of seconds.
fn counting(counter: &Path, before: &str, seconds: i64) -> ExecToken {
    let expiry = Timestamp::now() + SignedDuration::from_secs(seconds);
    let count = counter.display();
    shell(&format!(
        "echo x >> {count}; {before}; echo '{{\"kind\":\"ExecCredential\",\"status\":\
         {{\"token\":\"'$(wc -l < {count})'\",\"expirationTimestamp\":\"{expiry}\"}}}}'"
    ))
}

fn runs(counter: &Path) -> usize {
    fs::read_to_string(counter).unwrap_or_default().lines().count()
}

#[tokio::test]
async fn tokens_are_plain_or_in_a_credential() {
    assert_eq!(token(&shell("echo one")).await, Ok("one".to_owned()));
    let credential = r#"{"kind": "ExecCredential", "status": {"token": "two"}}"#;
    let source = shell(&format!("echo '{credential}'"));
    assert_eq!(token(&source).await, Ok("two".to_owned()));
    for (script, expect) in [
        ("echo hunter2; exit 3", "exit status: 3"),
        (
            "echo '{\"kind\": \"ExecCredential\", \"status\": {}}'",
            "without status.token",
        ),
        ("echo '{\"kind\": \"ExecCredential\"}'", "without status.token"),
        (
            "echo '{\"status\": {\"token\": \"hunter2\"}}'",
            "its kind must be ExecCredential",
        ),
        (
            "echo '{\"kind\": \"Token\", \"status\": {\"token\": \"hunter2\"}}'",
            "its kind must be ExecCredential",
        ),
        ("echo '{hunter2'", "its kind must be ExecCredential"),
    ] {
        let error = token(&shell(script)).await.unwrap_err();
        assert!(error.contains(expect) && !error.contains("hunter2"), "{error}");
    }
    let error = token(&ExecToken::new("/nonexistent", [""; 0])).await.unwrap_err();
    assert!(error.contains("cannot run /nonexistent"), "{error}");
}

#[tokio::test]
async fn the_program_learns_what_to_print_and_has_no_input() {
    let token = token(&shell("cat; printf '%s' \"$KUBERNETES_EXEC_INFO\" | tr -d '{}'")).await;
    let info = EXEC_INFO.replace(['{', '}'], "");
    assert_eq!(token, Ok(info));
}

#[tokio::test]
async fn a_token_is_used_until_it_expires_or_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let counter = folder.path().join("count");
    let source = counting(&counter, ":", 3600);
    assert_eq!(token(&source).await, Ok("1".to_owned()));
    assert_eq!(token(&source).await, Ok("1".to_owned()), "it is valid for an hour");
    source.forget(&"0".into());
    assert_eq!(token(&source).await, Ok("1".to_owned()), "another token was refused");
    source.forget(&"1".into());
    assert_eq!(token(&source).await, Ok("2".to_owned()));
    source.forget(&"1".into());
    assert_eq!(
        token(&source).await,
        Ok("2".to_owned()),
        "a late refusal of the old token"
    );
    fs::remove_file(&counter).unwrap();
    let source = counting(&counter, ":", 20);
    assert_eq!(token(&source).await, Ok("1".to_owned()));
    assert_eq!(token(&source).await, Ok("2".to_owned()), "the margin has begun");
}

#[tokio::test]
async fn all_callers_share_one_run_that_outlives_them() {
    let folder = tempfile::tempdir().unwrap();
    let (counter, gate) = (folder.path().join("count"), folder.path().join("gate"));
    let wait = format!("while [ ! -e {} ]; do sleep 0.02; done", gate.display());
    let source = counting(&counter, &wait, 3600);
    let impatient = tokio::time::timeout(Duration::from_millis(200), token(&source)).await;
    assert!(impatient.is_err(), "the program waits");
    let callers = (0..20).map(|_| {
        let source = source.clone();
        tokio::spawn(async move { token(&source).await })
    });
    let callers: Vec<_> = callers.collect();
    fs::write(&gate, "").unwrap();
    for caller in callers {
        assert_eq!(caller.await.unwrap(), Ok("1".to_owned()));
    }
    assert_eq!(runs(&counter), 1);
}

#[tokio::test]
async fn a_run_that_began_before_a_refusal_does_not_bring_the_token_back() {
    let folder = tempfile::tempdir().unwrap();
    let (counter, gate) = (folder.path().join("count"), folder.path().join("gate"));
    let wait = format!("while [ ! -e {} ]; do sleep 0.02; done", gate.display());
    let source = counting(&counter, &wait, 3600);
    let caller = tokio::spawn({
        let source = source.clone();
        async move { token(&source).await }
    });
    while runs(&counter) == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    source.forget(&"1".into());
    fs::write(&gate, "").unwrap();
    assert_eq!(caller.await.unwrap(), Ok("2".to_owned()));
    assert_eq!(runs(&counter), 2);
}

#[tokio::test]
async fn a_program_that_prints_a_refused_token_again_is_not_run_without_end() {
    let folder = tempfile::tempdir().unwrap();
    let counter = folder.path().join("count");
    let source = shell(&format!("echo x >> {}; sleep 0.2; echo same", counter.display()));
    assert_eq!(token(&source).await, Ok("same".to_owned()));
    let callers = (0..40).map(|_| {
        let source = source.clone();
        tokio::spawn(async move {
            source.forget(&"same".into());
            token(&source).await
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        assert_eq!(caller.await.unwrap(), Ok("same".to_owned()));
    }
    assert_eq!(runs(&counter), 2);
}

#[tokio::test]
async fn a_program_that_takes_too_long_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("pid");
    // It ignores the signals by which programs are usually ended.
    let script = format!(
        "trap '' TERM INT HUP; echo $$ > {}; while :; do sleep 0.05; done",
        pid.display()
    );
    let source = ExecToken::with_run_timeout("/bin/sh", ["-c", &script], Duration::from_millis(500));
    let error = token(&source).await.unwrap_err();
    assert_eq!(error, "/bin/sh gave no token within 0.5 s, and was killed");
    let process = Path::new("/proc").join(fs::read_to_string(&pid).unwrap().trim());
    for _ in 0..500 {
        // A killed process is a zombie until it is reaped.
        let status = fs::read_to_string(process.join("status")).unwrap_or_default();
        if status.is_empty() || status.contains("State:\tZ") {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the program still runs");
}

#[test]
fn debug_shows_no_argument() {
    assert!(!format!("{:?}", shell("echo hunter2")).contains("hunter2"));
}
