use clap::CommandFactory as _;

use super::*;

#[test]
fn flags_do_not_contradict_each_other() {
    Args::command().debug_assert();
}

#[test]
fn resources_are_named_as_crds_are() {
    assert_eq!(resource("secrets"), Ok(GroupResource::new("", "secrets")));
    assert_eq!(
        resource("a.b.example.com"),
        Ok(GroupResource::new("b.example.com", "a"))
    );
    for nonsense in ["", ".", "Secrets", "secrets/x", "*", "a.B", "*.example.com"] {
        assert!(resource(nonsense).is_err(), "{nonsense:?}");
    }
}

#[test]
fn a_token_is_not_shown() {
    let args = parse(
        ["kubectl-bind", "--token", "hunter2", "templates"]
            .map(Into::into)
            .to_vec(),
    )
    .unwrap();
    assert!(!format!("{args:?}").contains("hunter2"));
}

#[test]
fn flags_of_a_browser_choose_the_login_with_one() {
    for (flags, expect) in [
        ("", false),
        ("--device", false),
        ("--no-browser", true),
        ("--prompt select_account", true),
        ("--redirect-url http://localhost:8000", true),
    ] {
        let line = format!("kubectl-bind login https://b {flags}");
        let args = parse(line.split_whitespace().map(Into::into).collect()).unwrap();
        let Command::Login(login) = args.command else {
            panic!("{line} is a login");
        };
        assert_eq!(login.need_browser(), expect, "{line}");
    }
}

#[test]
fn the_reference_names_each_flag_of_a_login_and_none_that_does_not_exist() {
    let page = include_str!("../../../docs/reference/kubectl-bind.md");
    let section = page
        .split("\n## ")
        .find(|section| section.starts_with("login, "))
        .unwrap();
    let command = Args::command();
    let sub = |name: &str| command.find_subcommand(name).unwrap();
    let of_logins: Vec<_> = ["login", "logout", "whoami", "token"].map(sub).to_vec();
    for name in of_logins
        .iter()
        .copied()
        .chain(sub("server").get_subcommands())
        .map(clap::Command::get_name)
    {
        assert!(section.contains(&format!(" {name}")), "{name} is missing");
    }
    let flags = of_logins.iter().flat_map(|command| command.get_arguments());
    let own: Vec<_> = flags.filter_map(clap::Arg::get_long).collect();
    for flag in &own {
        assert!(section.contains(&format!("--{flag}")), "--{flag} is missing");
    }
    let global: Vec<_> = command.get_arguments().filter_map(clap::Arg::get_long).collect();
    for word in section.split("--").skip(1) {
        let word: String = word
            .chars()
            .take_while(|char| char.is_ascii_lowercase() || *char == '-')
            .collect();
        let known = own.contains(&word.as_str()) || global.contains(&word.as_str());
        assert!(
            known || word.starts_with('-') || word.is_empty(),
            "--{word} does not exist"
        );
    }
}

#[test]
fn a_login_names_its_server_and_uses_no_token_that_was_typed() {
    let words = [
        "kubectl-bind",
        "--server",
        "https://a",
        "--token",
        "t",
        "login",
        "https://b",
    ];
    let args = parse(words.map(Into::into).to_vec()).unwrap();
    let provider = args.command.provider(args.provider);
    assert_eq!(provider.server.as_deref(), Some("https://b"));
    assert!(provider.token.is_none() && provider.token_file.is_none());
    let words = [
        "kubectl-bind",
        "--server",
        "https://a",
        "login",
        "--redirect-url",
        "http://localhost:8000",
    ];
    let args = parse(words.map(Into::into).to_vec()).unwrap();
    assert_eq!(
        args.command.provider(args.provider).server.as_deref(),
        Some("https://a")
    );
    for refused in [
        &["login", "--device", "--no-browser"][..],
        &["login", "--redirect-url", "https://login.example.com"],
        &["server", "use"],
    ] {
        let words = ["kubectl-bind"].iter().chain(refused).map(Into::into).collect();
        assert!(parse(words).is_err(), "{refused:?}");
    }
}

/// Commands that print no list: one object, a text, or nothing.
const PRINT_NO_LIST: &[&str] = &[
    "why",
    "renew",
    "revoke",
    "share",
    "provider get",
    "provider grant",
    "provider take",
    "provider revoke",
    "unbind",
    "version",
    "cluster-identity",
    "completion",
    "login",
    "logout",
    "token",
    "server use",
    "server remove",
];

/// The path of each command without subcommands, such as `provider get`. Hidden commands are left out.
fn leaves(command: &clap::Command, path: &str) -> Vec<String> {
    let is_own = |sub: &&clap::Command| !sub.is_hide_set() && sub.get_name() != "help";
    command
        .get_subcommands()
        .filter(is_own)
        .flat_map(|sub| {
            let path = format!("{path} {}", sub.get_name()).trim().to_owned();
            if sub.has_subcommands() {
                leaves(sub, &path)
            } else {
                vec![path]
            }
        })
        .collect()
}

/// Words with which a command parses.
fn typed(command: &clap::Command, path: &str) -> Vec<String> {
    let leaf = path.split(' ').fold(command, |command, word| {
        command.find_subcommand(word).expect("a command of the walk")
    });
    let required = leaf.get_arguments().filter(|arg| arg.is_required_set());
    let values = required.flat_map(|arg| {
        let flag = arg.get_long().map(|long| format!("--{long}"));
        let value = arg.get_action().takes_values().then(|| "x".to_owned());
        flag.into_iter().chain(value)
    });
    path.split(' ').map(str::to_owned).chain(values).collect()
}

#[test]
fn each_command_that_prints_a_list_has_every_format_and_is_in_the_reference() {
    let page = include_str!("../../../docs/reference/kubectl-bind.md");
    let section = page
        .split("\n## ")
        .find(|section| section.starts_with("Output\n"))
        .unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let documented: Vec<_> = rows
        .filter_map(|row| row.split('|').nth(1))
        .flat_map(|cell| cell.split(','))
        .map(|name| name.trim().trim_matches('`').to_owned())
        .collect();
    let mut command = Args::command();
    command.build();
    let all = leaves(&command, "");
    for path in PRINT_NO_LIST {
        assert!(all.iter().any(|leaf| leaf == path), "there is no command {path}");
    }
    let lists: Vec<_> = all
        .iter()
        .filter(|leaf| !PRINT_NO_LIST.contains(&leaf.as_str()))
        .collect();
    assert!(lists.len() > 8, "{lists:?}");
    for path in lists {
        assert!(documented.contains(path), "the section Output has no row for {path}");
        for (name, format) in [
            ("table", Format::Table),
            ("wide", Format::Wide),
            ("json", Format::Json),
            ("yaml", Format::Yaml),
            ("name", Format::Name),
        ] {
            let words = ["kubectl-bind".to_owned()]
                .into_iter()
                .chain(typed(&command, path))
                .chain(["-o".to_owned(), name.to_owned()]);
            let args =
                parse(words.map(Into::into).collect()).unwrap_or_else(|error| panic!("{path} -o {name}: {error}"));
            assert_eq!(args.display.output, format, "{path}");
        }
    }
}
