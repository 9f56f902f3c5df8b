use std::os::unix::fs::PermissionsExt;

use super::*;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn files_of_others_are_refused() {
    let path = Path::new("tokens.json");
    let check = |owner, mode, expect: &str| {
        let judged = judge(path, (owner, mode), 1_000, OF_OTHERS).map_err(|error| error.to_string());
        match judged {
            Ok(()) => assert_eq!(expect, "", "{owner} {mode:o}"),
            Err(error) => assert!(
                !expect.is_empty() && error.contains(expect),
                "{owner} {mode:o}: {error}"
            ),
        }
    };
    check(1_000, 0o100_600, "");
    check(1_000, 0o100_400, "");
    check(1_000, 0o100_640, "its mode is 0640");
    check(1_000, 0o100_604, "its mode is 0604");
    check(
        0,
        0o100_600,
        "belongs to the user with ID 0, not to you, whose ID is 1000",
    );
}

#[test]
fn what_is_written_only_the_owner_can_read() {
    let folder = tempfile::tempdir().unwrap();
    let secrets = folder.path().join("a/b");
    secret_folder(&secrets).unwrap();
    assert_eq!((mode(&secrets), mode(&folder.path().join("a"))), (0o700, 0o700));
    let path = secrets.join("c.json");
    for content in ["one", "two"] {
        replace(&path, content.as_bytes()).unwrap();
        assert_eq!(read_secret(&path).unwrap().as_deref(), Some(content));
        assert_eq!(mode(&path), 0o600);
    }
    check_replaceable(&path).unwrap();
    let names: Vec<_> = fs::read_dir(&secrets)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, ["c.json"], "something was left");
}

#[test]
fn what_a_killed_process_left_goes_with_the_next_write_or_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("c.json");
    let names = || {
        let names = fs::read_dir(folder.path()).unwrap();
        let mut names: Vec<_> = names
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    let leave = || {
        for name in [
            "c.json.0123456789abcdef",
            "c.json.bak",
            "c.json.01234567",
            "d.json.0123456789abcdef",
        ] {
            fs::write(folder.path().join(name), "secret").unwrap();
        }
    };
    let others = ["c.json.01234567", "c.json.bak", "d.json.0123456789abcdef"];
    leave();
    replace(&path, b"one").unwrap();
    assert_eq!(names(), [&["c.json"][..], &others].concat());
    leave();
    assert_eq!(delete(&path), Ok(true));
    assert_eq!(names(), others);
    leave();
    assert_eq!(delete(&path), Ok(false));
    assert_eq!(names(), others);
}

#[test]
fn what_others_can_read_is_refused_with_a_mend_that_can_be_pasted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("my tokens.json");
    replace(&path, b"secret").unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
    let error = read_secret(&path).unwrap_err();
    let mend = error.mend();
    assert!(mend.contains(&format!("chmod 600 '{}'", path.display())), "{mend}");
    fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let error = secret_folder(folder.path()).unwrap_err();
    assert!(error.to_string().ends_with("its mode is 0755"), "{error}");
    assert!(error.mend().contains("chmod 700"), "{}", error.mend());
    assert!(own_folder(folder.path()).is_ok());
    fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
    assert!(own_folder(folder.path()).is_err());
}

#[test]
fn what_is_missing_is_none_and_what_is_no_text_is_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.json");
    assert_eq!(read_secret(&path), Ok(None));
    assert_eq!(delete(&path), Ok(false));
    for content in [vec![0xff, 0xfe], vec![b'x'; 1024 * 1024 + 1]] {
        replace(&path, &content).unwrap();
        assert!(matches!(read_secret(&path), Err(StoreError::Damaged { .. })));
    }
    assert!(matches!(read_own(folder.path()), Err(StoreError::Read { .. })));
    let below = path.join("b.json");
    assert!(matches!(replace(&below, b""), Err(StoreError::Write { .. })));
    assert!(matches!(check_replaceable(&below), Err(StoreError::Write { .. })));
    assert_eq!(delete(&path), Ok(true));
}

#[tokio::test]
async fn a_lock_is_waited_for_and_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.lock");
    let held = lock(&path, Duration::ZERO).await.unwrap();
    let error = lock(&path, Duration::from_millis(60)).await.unwrap_err();
    assert!(error.to_string().contains("a.lock"), "{error}");
    let waiting = lock(&path, Duration::from_mins(1));
    let release = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        drop(held);
    };
    let (taken, ()) = tokio::join!(waiting, release);
    taken.unwrap();
}
