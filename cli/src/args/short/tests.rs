use proptest::prelude::*;

use super::*;

fn words(line: &str) -> Vec<OsString> {
    std::iter::once("kubectl-bind")
        .chain(line.split_whitespace())
        .map(Into::into)
        .collect()
}

#[track_caller]
fn check_binds(line: &str, template: &str, name: Option<&str>) {
    let args = parse(words(line)).unwrap();
    let Command::Apiservice(bind) = args.command else {
        panic!("{line:?} binds nothing: {:?}", args.command);
    };
    assert_eq!(
        (bind.template.as_str(), bind.name.as_deref()),
        (template, name),
        "{line:?}"
    );
}

#[track_caller]
fn check_refused(line: &str, kind: ErrorKind) {
    let error = parse(words(line)).expect_err(line);
    assert_eq!(error.kind(), kind, "{line:?}: {error}");
    if kind != ErrorKind::DisplayHelp {
        assert_eq!(error.exit_code(), 2);
    }
}

#[test]
fn a_word_that_is_no_command_is_a_template() {
    check_binds("cowboys", "cowboys", None);
    check_binds("apiservice cowboys", "cowboys", None);
    check_binds("cowboys --name west", "cowboys", Some("west"));
    check_binds(
        "--server https://x -o json cowboys --name west --quiet",
        "cowboys",
        Some("west"),
    );
    // The value of a flag is not the first word, though it is named like a template.
    check_binds("--context cowboys sheriffs", "sheriffs", None);
}

#[test]
fn a_template_named_like_a_command_needs_the_long_form() {
    assert!(matches!(parse(words("status")).unwrap().command, Command::Status(_)));
    check_binds("apiservice status", "status", None);
    check_binds("apiservice apiservice", "apiservice", None);
}

#[test]
fn flags_before_and_after_the_word_count_alike() {
    for line in ["--timeout 5s cowboys --dry-run", "cowboys --dry-run --timeout 5s"] {
        let args = parse(words(line)).unwrap();
        assert_eq!(args.display.timeout, Some(std::time::Duration::from_secs(5)));
        assert!(matches!(args.command, Command::Apiservice(bind) if bind.dry_run));
    }
}

#[test]
fn claims_are_answered_by_flags() {
    for line in [
        "cowboys --reject-claim secrets --reject-claim a.example.com --yes",
        "-y cowboys",
        "cowboys --accept-claims",
    ] {
        let Ok(args) = parse(words(line)) else {
            // A flag of the bind does not stand before the word that makes it one.
            assert!(line.starts_with('-'), "{line:?}");
            continue;
        };
        assert!(
            matches!(args.command, Command::Apiservice(bind) if bind.answers.accept_claims),
            "{line:?}"
        );
    }
    check_refused("cowboys --reject-claim Secrets", ErrorKind::ValueValidation);
}

#[test]
fn an_object_is_named_in_one_word_or_two() {
    for (line, expect) in [
        ("why cowboy/billy -n west", &["cowboy/billy"][..]),
        ("why cowboy billy", &["cowboy", "billy"]),
    ] {
        let Command::Why(why) = parse(words(line)).unwrap().command else {
            panic!("{line:?} asks why");
        };
        assert_eq!(why.object, expect, "{line:?}");
    }
    check_refused("why", ErrorKind::MissingRequiredArgument);
    check_refused("why a b c", ErrorKind::TooManyValues);
}

#[test]
fn slips_bind_nothing() {
    for line in [
        "template",
        "statsu",
        "stats",
        "unbnd cowboys",
        "apiservices cowboys",
        "hepl",
    ] {
        check_refused(line, ErrorKind::InvalidSubcommand);
    }
}

#[test]
fn nonsense_is_a_usage_error() {
    check_refused("cowboys sheriffs", ErrorKind::UnknownArgument);
    check_refused("cowboys --no-such-flag", ErrorKind::UnknownArgument);
    check_refused("cowboys -o xml", ErrorKind::InvalidValue);
    check_refused("cowboys --show-secrets", ErrorKind::MissingRequiredArgument);
    check_refused("templates cowboys -l a=b", ErrorKind::ArgumentConflict);
    check_refused("--help", ErrorKind::DisplayHelp);
}

#[test]
fn without_a_word_the_command_says_what_to_do_next() {
    assert!(matches!(parse(words("")).unwrap().command, Command::Next));
    check_refused("--quiet", ErrorKind::MissingSubcommand);
}

#[test]
fn wait_is_on_unless_switched_off() {
    for (line, expect) in [
        ("unbind x", true),
        ("unbind x --wait", true),
        ("unbind x --wait=false", false),
    ] {
        let Command::Unbind(unbind) = parse(words(line)).unwrap().command else {
            panic!("{line:?} is an unbind");
        };
        assert_eq!(unbind.wait, expect, "{line:?}");
    }
}

proptest! {
    #[test]
    fn nearness_is_mutual(one in "[ab]{0,5}", other in "[ab]{0,5}") {
        prop_assert_eq!(is_near(&one, &other), is_near(&other, &one));
        prop_assert!(is_near(&one, &one));
    }

    #[test]
    fn one_slip_is_near_and_no_more(word in "[a-z]{3,9}", at in 0_usize..3) {
        let without: String = word.char_indices().filter(|(index, _)| *index != at).map(|(_, char)| char).collect();
        prop_assert!(is_near(&word, &without));
        let farther = format!("{word}--");
        prop_assert!(!is_near(&word, &farther));
    }
}
