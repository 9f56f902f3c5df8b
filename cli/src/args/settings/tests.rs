use super::*;

fn settings(line: &str) -> Result<Settings, Failure> {
    let words = line.split_whitespace().map(Into::into).collect();
    let args = crate::args::parse(words).unwrap();
    Settings::new(args.cluster, args.provider, &args.display)
}

#[track_caller]
fn check_usage(line: &str, expect: &str) {
    let Err(Failure::Usage(message)) = settings(line).and_then(|settings| settings.backend().map(|_| ())) else {
        panic!("{line:?} is a usage error");
    };
    assert!(message.contains(expect), "{message}");
}

#[test]
fn a_backend_needs_an_address_and_a_token() {
    check_usage("kubectl-bind --token x templates", "--server");
    check_usage(
        "kubectl-bind --server https://b.example.com:443/ templates",
        "--audience https://b.example.com`",
    );
    check_usage("kubectl-bind --server https://b/api --token x templates", "a path");
}

#[test]
fn a_token_is_preferred_to_a_file() {
    let settings = settings("kubectl-bind --server b --token-file f --token x templates").unwrap();
    assert!(matches!(settings.backend().unwrap().login, Login::Token(_)));
}

#[test]
fn commands_without_a_provider_need_none() {
    assert!(settings("kubectl-bind status").unwrap().any_backend().is_none());
}
