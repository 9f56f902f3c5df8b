//! The reference of conditions and reasons, made of a table that a test compares with the code.

mod table;

use std::fmt::Write as _;

use self::table::{EVENTS, KINDS, Reason};
use super::markdown::cell;

const HEAD: &str = "\
# Conditions and reasons

<!-- Written by `cargo xtask gen` from xtask/src/generate/conditions/table.rs, which a test compares with the code. -->

What the objects of `kube-bind.io` say in `status.conditions`, kind by kind, and the reasons of events on synced objects. A condition
that does not hold has a severity: `Error`, somebody must act; `Warning`, it works, but not as it should; `Info`, it is on its way.
`Ready` repeats the worst of the other conditions, with its reason and message. The message names the object, and what mends it.

`kubectl bind status` shows the conditions of bindings and bundles, and `kubectl bind why KIND/NAME` what a single object waits for.
[Troubleshoot](../troubleshoot.md) begins with what you see.
";

/// The page.
pub(super) fn page() -> String {
    let mut page = HEAD.to_owned();
    for kind in KINDS {
        let _ = writeln!(page, "\n## {}\n\n{}", kind.name, kind.about);
        for condition in kind.conditions {
            let _ = writeln!(page, "\n### {} of {}\n\n{}", condition.name, kind.name, condition.says);
            add_reasons(&mut page, condition.reasons);
        }
    }
    page.push_str("\n## Events on synced objects\n\n");
    page.push_str("The konnector records these on an object of a bound or claimed resource that it cannot sync.\n");
    add_reasons(&mut page, EVENTS);
    page
}

/// Whether the page explains conditions of a kind, below a heading with its name.
pub(super) fn explains(kind: &str) -> bool {
    KINDS.iter().any(|explained| explained.name == kind)
}

fn add_reasons(page: &mut String, reasons: &[Reason]) {
    if reasons.is_empty() {
        return;
    }
    page.push_str("\n| reason | what it says | what mends it |\n|---|---|---|\n");
    for [reason, says, mend] in reasons {
        let _ = writeln!(page, "| `{reason}` | {} | {} |", cell(says), cell(mend));
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        fs,
        path::{Path, PathBuf},
    };

    use super::*;
    use crate::cargo::root;

    /// Where the reasons of conditions and events are made.
    const SOURCES: [&str; 14] = [
        "agent/src/binding",
        "agent/src/bound/plan",
        "agent/src/bundle",
        "agent/src/claims",
        "agent/src/controller",
        "agent/src/engine",
        "agent/src/holder",
        "server/src/contract.rs",
        "server/src/controllers",
        "server/src/policy",
        "server/src/request",
        "server/src/template",
        "sdk/api/src/crd",
        "sdk/api/src/crd.rs",
    ];
    /// Constants of the API that name reasons.
    const CONSTANTS: [&str; 9] = [
        "ClaimNotAccepted",
        "Contested",
        "ContractUnverified",
        "ExportNotSelected",
        "ExportRemoved",
        "InvalidNames",
        "ProviderLimitExceeded",
        "RightsMissing",
        "Unfenced",
    ];
    /// What else is written in such a way there: types of conditions, kinds, and words of other APIs.
    const NO_REASONS: &[&str] = &[
        "AuthorVerifier",
        "BindableResourcesRequest",
        "BindingResourceResponse",
        "Claims",
        "ClusterRole",
        "Cluster",
        "ClusterBinding",
        "ConfigMap",
        "Connected",
        "ConsumerInSync",
        "CredentialRenewable",
        "CustomResourceDefinition",
        "DeleteOptions",
        "Established",
        "ExportsReady",
        "False",
        "Forbidden",
        "Healthy",
        "Installing",
        "NamesAccepted",
        "Namespaced",
        "NamespaceFinalizersRemaining",
        "None",
        "Opaque",
        "PermissionClaim",
        "PolicyInForce",
        "ProviderInSync",
        "QueueLength",
        "Ready",
        "Role",
        "RoleBinding",
        "Secret",
        "ServiceAccount",
        "SchemaInSync",
        "Synced",
        "Tally",
        "TemplateInSync",
        "True",
        "Unknown",
        "Webhook",
    ];

    /// The words of a source that stand where reasons do: what a match answers with, a field `reason`, an argument on a line of its own
    /// or after the severity, or the first argument of what refuses.
    fn words(source: &str) -> BTreeSet<String> {
        let code = source.split("#[cfg(test)]").next().unwrap_or_default();
        let lines = code.lines().map(str::trim).filter(|line| !line.starts_with("//"));
        let code = lines.collect::<Vec<_>>().join("\n");
        let parts: Vec<_> = code.split('"').collect();
        let pairs = parts.windows(3).enumerate().filter(|(number, _)| number % 2 == 0);
        let found = pairs.filter_map(|(_, window)| match window {
            [before, word, after] => (is_word(word) && is_place(before, after)).then(|| (*word).to_owned()),
            _ => None,
        });
        found.collect()
    }

    fn is_word(word: &str) -> bool {
        word.len() > 3
            && word.starts_with(|first: char| first.is_ascii_uppercase())
            && word.chars().all(char::is_alphabetic)
    }

    /// Whether a word between these texts is an answer, a field or an argument.
    fn is_place(before: &str, after: &str) -> bool {
        let before = before.trim_end();
        let ends = ["=>", "||", "reason:", "(", ",", "="]
            .iter()
            .any(|end| before.ends_with(end));
        let is_derived = before.ends_with("name =") || before.ends_with("rename =") || before.ends_with("==");
        let after = after.trim_start();
        let after = after.strip_prefix(".to_owned()").unwrap_or(after);
        ends && !is_derived && after.trim_start().starts_with([',', ')', ';', '}'])
    }

    fn sources(path: &Path, found: &mut Vec<PathBuf>) {
        if path.is_dir() {
            for entry in fs::read_dir(path).unwrap() {
                sources(&entry.unwrap().path(), found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("tests.rs") {
            found.push(path.to_owned());
        }
    }

    fn told() -> BTreeSet<String> {
        let conditions = KINDS.iter().flat_map(|kind| kind.conditions);
        let reasons = conditions.flat_map(|condition| condition.reasons).chain(EVENTS);
        reasons.map(|[reason, ..]| (*reason).to_owned()).collect()
    }

    #[test]
    fn every_reason_of_the_code_has_a_row_and_no_other() {
        let mut files = Vec::new();
        for path in SOURCES {
            sources(&root().join(path), &mut files);
        }
        files.retain(|path| !path.components().any(|part| part.as_os_str() == "tests"));
        let mut known: BTreeSet<_> = CONSTANTS.map(str::to_owned).into();
        for path in files {
            known.extend(words(&fs::read_to_string(path).unwrap()));
        }
        let told = told();
        let missing: Vec<_> = known
            .iter()
            .filter(|word| !told.contains(*word) && !NO_REASONS.contains(&word.as_str()))
            .collect();
        assert!(
            missing.is_empty(),
            "add rows to the table, or words to NO_REASONS: {missing:?}"
        );
        let unknown: Vec<_> = told.difference(&known).collect();
        assert!(unknown.is_empty(), "the code has no such reasons any more: {unknown:?}");
    }

    #[test]
    fn every_condition_of_the_api_has_a_heading() {
        let source = fs::read_to_string(root().join("sdk/api/src/conditions.rs")).unwrap();
        let page = page();
        let types = source
            .split("/// Type of ")
            .skip(1)
            .filter_map(|rest| rest.split('"').nth(1));
        let types: Vec<_> = types.filter(|name| *name != "DeletionsSynced").collect();
        assert!(types.len() > 10, "{types:?}");
        for name in types {
            assert!(page.contains(&format!("\n### {name} of ")), "{name}");
        }
    }

    #[test]
    fn reasons_are_told_from_other_words() {
        let source = "/// \"NotThis\"\nmatch x { A => \"First\", B => f(\"Second\", 1) }\nreason: \"Third\",\ntext == \"Fourth\";\n\"a Sentence\",\n";
        assert_eq!(
            words(source).into_iter().collect::<Vec<_>>(),
            ["First", "Second", "Third"]
        );
    }
}
