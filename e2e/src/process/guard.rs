//! The guard of a child process: a shell that kills it, and its process group, when the pipe to its owner breaks.
//!
//! Death signals would need unsafe code, and a handler of our own runs neither on SIGKILL nor on abort. A pipe breaks
//! in every case.

use std::{
    os::unix::process::CommandExt,
    process::{Command, Stdio},
};

/// The shell becomes the program, so that the child's id is the program's. Before that it forks the guard, which ends
/// by a line from the owner and kills its process group by end of file.
const SCRIPT: &str = r#"
exec 3<&0
(read -r _ <&3 || kill -s KILL -- -$$) >/dev/null 2>&1 &
exec "$@" 3<&- </dev/null
"#;

/// `command` under guard, with the pipe as its piped standard input, in a process group of its own: Ctrl-C reaches the
/// owner alone, so that it is the owner who decides.
pub(super) fn guarded(command: &Command) -> Command {
    let mut guarded = Command::new("sh");
    guarded
        .args(["-c", SCRIPT, "sh"])
        .arg(command.get_program())
        .args(command.get_args())
        .stdin(Stdio::piped())
        .process_group(0);
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => guarded.env(name, value),
            None => guarded.env_remove(name),
        };
    }
    if let Some(dir) = command.get_current_dir() {
        guarded.current_dir(dir);
    }
    guarded
}
