//! `provider transfer`: gives a contract to another owner, in place of all others, and ends all its credentials, on the provider's
//! cluster.

use std::io::Write;

use bindery_api::annotations;
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{Context, revoke};
use crate::{
    args::TransferArgs,
    commands::consent,
    contracts::shown,
    errors::Failure,
    render::output::{Format, joined, printable},
};

/// A contract that was given to another owner, or would be.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Transferred {
    contract: String,
    /// The only owner.
    owner: String,
    /// Owners and owner groups from before.
    before: Vec<String>,
    /// Number of deleted anchors, Secrets that tokens are bound to. Absent for a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    anchors: Option<usize>,
}

/// `kubectl bind provider transfer CONTRACT --to PRINCIPAL`
pub(super) async fn run<W: Write>(context: &mut Context<W>, args: &TransferArgs) -> Result<(), Failure> {
    revoke::check_reason(args.reason.as_deref())?;
    let cluster = args.provider.cluster(&context.settings.cluster).ok_or_else(|| {
        Failure::Usage(
            "contracts are transferred on the provider's cluster: add --provider-context NAME or --provider-kubeconfig FILE"
                .to_owned(),
        )
    })?;
    let mut contract = revoke::admin::Contract::open(cluster, &args.contract, None).await?;
    let shown = shown::of_objects(contract.namespace(), None, &[]);
    let groups = shown.owner_groups.iter().map(|group| format!("group {group}"));
    let before: Vec<_> = shown.owners.iter().cloned().chain(groups).collect();
    let steps = &mut context.steps;
    steps.note(&format!(
        "{} owned contract {} and may use it no longer",
        if before.is_empty() {
            "nobody".to_owned()
        } else {
            joined(&before)
        },
        args.contract
    ));
    steps.note("every konnector loses its access to the contract, until the new owner binds again");
    let anchors = if args.dry_run {
        None
    } else {
        let what = format!("contract {} with all its credentials", args.contract);
        consent::confirm(&what, &format!("Give it to {} alone", args.to), args.yes)?;
        // First the owners: else one of them could bind again, and end the revocation.
        contract.change(&patch(contract.namespace(), args)).await?;
        steps.done(&format!(
            "made {} the only owner of contract {}",
            args.to, args.contract
        ));
        let reason = args
            .reason
            .as_deref()
            .unwrap_or("the contract was given to another owner");
        let (_, anchors) = contract.revoke(&args.server_namespace, Some(reason), steps).await?;
        steps.done(&format!("revoked the credentials of contract {}", args.contract));
        Some(anchors)
    };
    let transferred = Transferred {
        contract: args.contract.clone(),
        owner: args.to.clone(),
        before,
        anchors,
    };
    let printer = &mut context.printer;
    match printer.format() {
        Format::Json | Format::Yaml => printer.document(&transferred),
        Format::Name => printer.text(&format!("{}\n", printable(&transferred.contract))),
        Format::Table | Format::Wide => printer.text(&format!("{}\n", printable(&text(&transferred)))),
    }
}

/// The patch that makes a principal the only owner of a contract, as it was read.
fn patch(namespace: &Namespace, args: &TransferArgs) -> Value {
    let fields = [("uid", &args.uid), ("issuer", &args.issuer), ("subject", &args.subject)];
    let mut owner = Map::from_iter([("username".to_owned(), json!(args.to))]);
    let known = fields
        .into_iter()
        .filter_map(|(field, value)| Some((field.to_owned(), json!(value.as_ref()?))));
    owner.extend(known);
    json!({ "metadata": {
        "uid": namespace.uid(),
        "resourceVersion": namespace.resource_version(),
        "annotations": {
            annotations::OWNERS: json!([owner]).to_string(),
            annotations::OWNER_GROUPS: null,
            annotations::AUTHOR: args.to,
        },
    } })
}

fn text(transferred: &Transferred) -> String {
    let Transferred { contract, owner, .. } = transferred;
    match transferred.anchors {
        None => format!("contract {contract} would be {owner}'s alone, and its credentials revoked (dry run)"),
        Some(_) => format!(
            "contract {contract} is {owner}'s alone, and its credentials are revoked; {owner} goes on by `kubectl bind TEMPLATE`, or by \
             `kubectl bind renew NAME` where the binding exists"
        ),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    /// A parser of the flags alone.
    #[derive(clap::Parser)]
    struct Flags {
        #[command(flatten)]
        transfer: TransferArgs,
    }

    fn args(more: &[&str]) -> TransferArgs {
        let args = ["transfer", "kube-bind-a", "--to", "jane"];
        Flags::try_parse_from(args.iter().chain(more)).unwrap().transfer
    }

    /// The contract of a squatter, and of a group that he shared it with.
    fn squatted() -> Namespace {
        serde_json::from_value(json!({"metadata": {
            "name": "kube-bind-a", "uid": "u", "resourceVersion": "7",
            "annotations": {
                annotations::OWNERS: r#"[{"username":"squatter"}]"#,
                annotations::OWNER_GROUPS: r#"["bandits"]"#,
                annotations::AUTHOR: "squatter",
                annotations::IDENTITY: "cluster-a",
            },
        }}))
        .unwrap()
    }

    #[track_caller]
    fn check(more: &[&str], owners: &str) {
        let patch = patch(&squatted(), &args(more));
        let metadata = &patch["metadata"];
        assert_eq!(
            (&metadata["uid"], &metadata["resourceVersion"]),
            (&json!("u"), &json!("7"))
        );
        let annotations = metadata["annotations"].as_object().unwrap();
        assert_eq!(annotations[annotations::OWNERS], owners, "{more:?}");
        assert!(annotations[annotations::OWNER_GROUPS].is_null());
        assert_eq!(annotations[annotations::AUTHOR], "jane");
        assert!(
            !annotations.contains_key(annotations::IDENTITY),
            "it is the same cluster's"
        );
        assert!(!patch.to_string().contains("squatter"), "{patch}");
    }

    #[test]
    fn the_new_owner_replaces_all_others() {
        check(&[], r#"[{"username":"jane"}]"#);
        check(&["--uid", "7"], r#"[{"uid":"7","username":"jane"}]"#);
        let person = ["--issuer", "https://login.example.com", "--subject", "8"];
        check(
            &person,
            r#"[{"issuer":"https://login.example.com","subject":"8","username":"jane"}]"#,
        );
    }

    #[test]
    fn a_name_with_half_an_identity_is_refused() {
        for wrong in [
            &["--issuer", "https://login.example.com"][..],
            &["--subject", "8"],
            &["--to", ""],
        ] {
            let args = ["transfer", "kube-bind-a", "--to", "jane"];
            assert!(Flags::try_parse_from(args.iter().chain(wrong)).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_result_says_who_owns_the_contract_now() {
        let mut transferred = Transferred {
            contract: "kube-bind-a".to_owned(),
            owner: "jane".to_owned(),
            before: vec!["squatter".to_owned()],
            anchors: None,
        };
        assert!(text(&transferred).contains("would be jane's alone"));
        transferred.anchors = Some(1);
        assert!(text(&transferred).contains("`kubectl bind renew NAME`"));
    }
}
