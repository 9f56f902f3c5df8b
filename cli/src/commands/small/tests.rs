use std::{io::Write as _, process::Command};

use clap::ValueEnum as _;

use super::*;

#[test]
fn the_script_of_each_shell_names_each_command_and_flag() {
    let command = Args::command();
    let flags = command.get_subcommands().flat_map(clap::Command::get_arguments);
    let flags = flags.filter_map(clap::Arg::get_long);
    let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
    let words: Vec<_> = shown.map(clap::Command::get_name).chain(flags).collect();
    assert!(
        words.contains(&"undeploy") && words.contains(&"reject-claim"),
        "{words:?}"
    );
    for shell in Shell::value_variants() {
        let script = script(*shell);
        for word in &words {
            assert!(script.contains(word), "{shell} does not complete {word}");
        }
    }
}

#[test]
fn bash_completes_commands_and_flags() {
    let asks = r#"
spec=$(complete -p kubectl-bind); spec=${spec##*-F }
COMP_WORDS=(kubectl-bind un); COMP_CWORD=1
"${spec%% *}" kubectl-bind un kubectl-bind; echo "${COMPREPLY[@]}"
COMP_WORDS=(kubectl-bind deploy --konn); COMP_CWORD=2
"${spec%% *}" kubectl-bind --konn deploy; echo "${COMPREPLY[@]}"
"#;
    // By a file, for an argument has 128 KiB at most.
    let mut file = tempfile::NamedTempFile::new().unwrap();
    write!(file, "{}{asks}", script(Shell::Bash)).unwrap();
    let output = Command::new("bash").arg("--norc").arg(file.path()).output().unwrap();
    let answers = String::from_utf8(output.stdout).unwrap();
    assert_eq!(answers, "unbind undeploy\n--konnector-image\n");
}
