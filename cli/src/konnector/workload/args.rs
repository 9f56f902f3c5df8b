//! Flags in the arguments of a container, in the forms `--flag`, `--flag=value` and `--flag value`.

use std::fmt;

/// A flag with its value, as the arguments that it was written as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Flag {
    written: Vec<String>,
}

/// Splits arguments into flags. An argument that belongs to no flag stands alone.
pub(super) fn flags(args: &[String]) -> Vec<Flag> {
    let mut flags: Vec<Flag> = Vec::new();
    for arg in args {
        match flags.last_mut().filter(|last| last.takes_next()) {
            Some(last) if !arg.starts_with('-') => last.written.push(arg.clone()),
            _ => flags.push(Flag {
                written: vec![arg.clone()],
            }),
        }
    }
    flags
}

/// The flags of a container that a manifest does not have.
pub(super) fn added(installed: &[String], manifest: &[String]) -> Vec<Flag> {
    let known = flags(manifest);
    let mut installed = flags(installed);
    installed.retain(|flag| known.iter().all(|known| known.name() != flag.name()));
    installed
}

/// The flags of a manifest that a container has with another value, each after the one that the container has.
pub(super) fn reset(installed: &[String], manifest: &[String]) -> Vec<(Flag, Flag)> {
    let installed = flags(installed);
    let reset = |flag: Flag| {
        let mut found = installed.iter();
        let before = found.find(|found| found.name() == flag.name() && found.value() != flag.value())?;
        Some((before.clone(), flag))
    };
    flags(manifest).into_iter().filter_map(reset).collect()
}

/// The arguments of these flags, with another one in place of those of that name: at the end if there was none.
pub(super) fn replaced(flags: &[Flag], name: &str, other: Option<String>) -> Vec<String> {
    let mut args: Vec<String> = Vec::new();
    let mut other = other;
    for flag in flags {
        if flag.name() == name {
            args.extend(other.take());
        } else {
            args.extend(flag.written.iter().cloned());
        }
    }
    args.extend(other);
    args
}

// === impl Flag ===

impl Flag {
    pub(super) fn name(&self) -> &str {
        let first = self.written.first().map_or("", String::as_str);
        first.split_once('=').map_or(first, |(name, _)| name)
    }

    pub(super) fn value(&self) -> Option<&str> {
        let first = self.written.first()?;
        let attached = first.split_once('=').map(|(_, value)| value);
        attached.or_else(|| self.written.get(1).map(String::as_str))
    }

    /// Whether the next argument may be the value.
    fn takes_next(&self) -> bool {
        matches!(&self.written[..], [only] if only.starts_with("--") && !only.contains('='))
    }
}

impl fmt::Display for Flag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[track_caller]
    fn check(installed: &str, adoption: Option<&str>, expect: &str) {
        let added = added(&words(installed), &words("--server-address=0.0.0.0:8090"));
        let args = replaced(&added, "--adoption", adoption.map(str::to_owned));
        assert_eq!(args, words(expect), "{installed}");
    }

    #[test]
    fn what_the_manifest_does_not_have_is_kept_in_its_order() {
        check("--server-address=0.0.0.0:8090", None, "");
        check("--server-address 0.0.0.0:1 --log debug", None, "--log debug");
        check("--only-own-bindings --log=a=b", None, "--only-own-bindings --log=a=b");
        check("--a -v --b x y", None, "--a -v --b x y");
        check(
            "--adoption=all --log x",
            Some("--adoption=opt-in"),
            "--adoption=opt-in --log x",
        );
        check("--adoption all --log x", None, "--log x");
        check("--log x", Some("--adoption=all"), "--log x --adoption=all");
    }

    #[test]
    fn another_value_of_the_manifests_flag_is_told() {
        let told = |installed: &str| {
            let reset = reset(&words(installed), &words("--server-address=0.0.0.0:8090 --own"));
            reset
                .iter()
                .map(|(before, after)| format!("{before} > {after}"))
                .collect::<Vec<_>>()
        };
        assert_eq!(told("--server-address 0.0.0.0:8090 --own --log=debug"), [""; 0]);
        assert_eq!(
            told("--server-address 0.0.0.0:1"),
            ["--server-address 0.0.0.0:1 > --server-address=0.0.0.0:8090"]
        );
    }

    #[test]
    fn a_value_is_attached_or_next() {
        let flags = flags(&words("--adoption all --log=info --own"));
        let values: Vec<_> = flags.iter().map(|flag| (flag.name(), flag.value())).collect();
        let expect = [("--adoption", Some("all")), ("--log", Some("info")), ("--own", None)];
        assert_eq!(values, expect);
    }
}
