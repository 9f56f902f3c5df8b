//! Opens the user's browser, if there is a display that the user sees.

use std::{
    env,
    ffi::{OsStr, OsString},
    process::{Command, Stdio},
};

/// What the environment says of browser and display.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Surroundings {
    /// Value of `BROWSER`: programs that open a URL, separated by colons.
    browser: Option<OsString>,
    /// Whether a display is named, which only some systems do.
    display: bool,
    /// Whether a display is always there unless the session is remote.
    always_display: bool,
    /// Whether the session is one of SSH.
    remote: bool,
}

impl Surroundings {
    /// The surroundings of this process.
    pub(crate) fn of_process() -> Self {
        Self::new(cfg!(target_os = "linux"), |name| {
            env::var_os(name).filter(|value| !value.is_empty())
        })
    }

    /// The surroundings by the variables of an environment.
    pub(crate) fn new(is_linux: bool, variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let set = |name| variable(name).is_some();
        Self {
            browser: variable("BROWSER"),
            display: set("DISPLAY") || set("WAYLAND_DISPLAY"),
            always_display: !is_linux,
            remote: set("SSH_CONNECTION") || set("SSH_TTY"),
        }
    }

    /// Whether a browser that opens here is one that the user sees.
    pub(crate) fn has_display(&self) -> bool {
        self.browser.is_some() || (!self.remote && (self.display || self.always_display))
    }

    /// Starts a browser. Returns whether a program was started: whether it shows the page is not known.
    pub(crate) fn open(&self, url: &str) -> bool {
        let named = self.browser.iter().flat_map(|programs| programs_of(programs));
        let named = named.map(|program| {
            let mut command = Command::new(program);
            command.arg(url);
            command
        });
        let mut commands: Vec<_> = named.collect();
        if commands.is_empty() {
            commands = open::commands(url);
        }
        commands.into_iter().any(|mut command| {
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command.spawn().is_ok()
        })
    }
}

fn programs_of(programs: &OsStr) -> Vec<OsString> {
    env::split_paths(programs)
        .map(std::path::PathBuf::into_os_string)
        .filter(|program| !program.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_display_is_one_that_the_user_sees() {
        for (is_linux, set, expect) in [
            (true, &["DISPLAY"][..], true),
            (true, &["WAYLAND_DISPLAY"], true),
            (true, &[], false),
            (true, &["DISPLAY", "SSH_CONNECTION"], false),
            (true, &["SSH_CONNECTION", "BROWSER"], true),
            (false, &[], true),
            (false, &["SSH_CONNECTION"], false),
        ] {
            let surroundings = Surroundings::new(is_linux, |name| set.contains(&name).then(|| "x".into()));
            assert_eq!(surroundings.has_display(), expect, "{set:?}");
        }
    }

    #[test]
    fn a_browser_that_does_not_start_is_no_failure() {
        let with = |browser: &str| Surroundings {
            browser: Some(browser.into()),
            ..Surroundings::default()
        };
        assert!(!with("/nonexistent/browser").open("https://login.example.com"));
        assert!(with("/nonexistent/browser:true").open("https://login.example.com"));
    }
}
