use super::*;

/// Names of each sort, and where they were looked up.
fn lookup(names: Names, place: &Place) -> Vec<String> {
    let server = place.provider.server.as_deref().unwrap_or("nowhere");
    let context = place.cluster.context.as_deref().unwrap_or("here");
    let found: &[&str] = match names {
        Names::Templates => &["cowboys", "sheriffs"],
        Names::Collections => &["wildwest"],
        Names::Offers => &["cowboys", "status", "wildwest", "evil\nname"],
        Names::Bindings => &["west"],
        Names::Owners => &["west", "acme"],
        Names::Contracts => &["kube-bind-5xqjs2"],
        Names::Namespaces => &["wild-west", context],
        Names::Servers => &["https://bind.example.com", "https://other.example.com"],
        Names::Issuers => &["https://login.example.com"],
        Names::Contexts => &["kind-consumer", server],
    };
    found.iter().map(|name| (*name).to_owned()).collect()
}

fn words(line: &str) -> Vec<OsString> {
    // A line that ends with a space asks for a new word.
    line.split(' ').map(Into::into).collect()
}

/// The candidates without their descriptions, and the directive.
fn completed(line: &str) -> (Vec<String>, String) {
    let answer = answer(words(line), lookup);
    let mut lines: Vec<_> = answer.lines().collect();
    let directive = lines.pop().unwrap_or_default().to_owned();
    let value = |line: &str| line.split('\t').next().unwrap_or_default().to_owned();
    (lines.into_iter().map(value).collect(), directive)
}

#[track_caller]
fn check(line: &str, expect: &[&str]) {
    let (found, directive) = completed(line);
    assert_eq!(found, expect, "{line:?}");
    assert_eq!(directive, ":4", "{line:?}");
}

#[test]
fn names_are_completed_where_they_stand() {
    check("templates ", &["cowboys", "sheriffs"]);
    check("templates sh", &["sheriffs"]);
    check("templates --collection ", &["wildwest"]);
    check("templates --collection=w", &["wildwest"]);
    check("collections ", &["wildwest"]);
    check("apiservice c", &["cowboys"]);
    check("status ", &["west", "acme"]);
    check("unbind ", &["west"]);
    check("claims w", &["west"]);
    check("share west --contract ", &["kube-bind-5xqjs2"]);
    check("provider get ", &["kube-bind-5xqjs2"]);
    check("provider grant c", &["cowboys"]);
    check("why cowboy/billy -n wild", &["wild-west"]);
    check("check --konnector-namespace wild", &["wild-west"]);
    check("login https://bind", &["https://bind.example.com"]);
    check("login --issuer ", &["https://login.example.com"]);
    check("server use https://o", &["https://other.example.com"]);
    check("dev up --provider kind", &["kind-consumer"]);
    check("unbind west --no-such", &[]);
    check("--help unbind ", &["west"]);
}

#[test]
fn flags_say_where_names_are_found() {
    check("why x -n  --context there", &[]);
    check("--context there why x -n the", &["there"]);
    check("why x --context there -n the", &["there"]);
    check("status --server https://b --context https", &["https://b"]);
}

#[test]
fn the_first_word_is_a_command_a_template_or_a_collection() {
    let (found, _) = completed("");
    for name in ["templates", "status", "cowboys", "wildwest"] {
        assert_eq!(
            found.iter().filter(|found| *found == name).count(),
            1,
            "{name}: {found:?}"
        );
    }
    let hidden = |name: &String| name.starts_with("next") || name.contains("evil") || name.starts_with('-');
    assert!(!found.iter().any(hidden), "{found:?}");
    check("cow", &["cowboys"]);
    check("stat", &["status"]);
    // The value of a flag is no first word.
    check("--server https://o", &["https://other.example.com"]);
    check("--server https://o cow", &["cowboys"]);
    // kubectl gives no word at all only if it is wrong.
    assert!(answer(Vec::new(), lookup).contains("\n:4\n"));
}

#[test]
fn flags_and_values_of_a_short_form_are_those_of_a_bind() {
    check("cowboys --reject", &["--reject-claim"]);
    check("--quiet cowboys --kind ", &["template", "collection"]);
    check("cowboys --name west --dry", &["--dry-run"]);
    check("cowboys --kind=c", &["collection"]);
    check("status --output ", &["table", "wide", "json", "yaml", "name"]);
    check("status -o j", &["json"]);
}

#[test]
fn a_flag_for_a_file_shows_files_and_goes_on_in_a_folder() {
    let (mut found, directive) = completed("templates --token-file src/arg");
    found.sort();
    assert_eq!(found, ["src/args.rs", "src/args/"]);
    assert_eq!(directive, ":6");
}

#[test]
fn a_description_follows_after_a_tab() {
    let answer = answer(words("unb"), lookup);
    assert_eq!(answer, "unbind\tEnd a binding and its objects on this cluster\n:4\n");
}

#[test]
fn nothing_is_looked_up_that_cannot_stand_there() {
    let refuses = |names: Names, _: &Place| -> Vec<String> { panic!("{names:?} was looked up") };
    for line in [
        "--t",
        "unbind --",
        "completion ",
        "status -o ",
        "deploy --dry-run=",
        "version ",
    ] {
        answer(words(line), refuses);
    }
}

#[test]
fn only_the_word_of_the_script_asks_for_a_completion() {
    let typed = |line: &str| words(&format!("kubectl-bind {line}"));
    assert_eq!(asked(&typed("__complete status ")), Some(words("status ")));
    assert_eq!(asked(&typed("status __complete")), None);
    let script = include_str!("../../../kubectl_complete-bind");
    assert!(script.contains(COMPLETE) && !bindery_api::names::is_subdomain(COMPLETE));
}
