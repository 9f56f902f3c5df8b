//! Where a template's objects are placed, and what that asks of its fields.

use bindery_api::v1alpha2::{
    APIServiceExport, APIServiceExportTemplate, APIServiceExportTemplateSpec, ConflictPolicy, Isolation, Retention,
    Scope,
};
use serde_json::{Value, json};

use super::{check, cowboys, offered, resource};
use crate::{
    settings::tests::settings,
    template::{ExportPlan, Refusal, assess},
};

/// What the consumer sees of a resource under an isolation, which the template says or the server.
#[track_caller]
fn check_placed(plural: &str, scope: Scope, isolation: Isolation, expect: Result<Scope, &str>) {
    let mut template = cowboys();
    template.spec.resources = vec![resource("wildwest.dev", plural)];
    template.spec.scope = scope;
    let mut by_server = settings();
    by_server.isolation = isolation;
    let of_server = assess(&template, &offered(), &by_server);
    template.spec.isolation = Some(isolation);
    let of_template = assess(&template, &offered(), &settings());
    assert_eq!(of_server, of_template);
    if let Ok(plan) = &of_template {
        assert_eq!(plan.export.isolation, isolation);
    }
    let seen = of_template.as_ref().map(|plan| plan.schemas[0].scope);
    assert_eq!(seen.map_err(Refusal::reason), expect, "{of_template:?}");
}

#[test]
fn cluster_scoped_objects_are_placed_by_every_isolation_that_can() {
    use Isolation::{Namespaced, None, Prefixed};
    for isolation in [Prefixed, None, Namespaced] {
        check_placed("cowboys", Scope::Namespaced, isolation, Ok(Scope::Namespaced));
        check_placed("sheriffs", Scope::Namespaced, isolation, Err("ScopeMismatch"));
    }
    for isolation in [Prefixed, None] {
        check_placed("sheriffs", Scope::Cluster, isolation, Ok(Scope::Cluster));
        check_placed("cowboys", Scope::Cluster, isolation, Err("ScopeMismatch"));
    }
    check_placed("cowboys", Scope::Cluster, Namespaced, Ok(Scope::Cluster));
    check_placed("sheriffs", Scope::Cluster, Namespaced, Err("ClusterScopedResource"));
}

fn sheriffs(spec: &mut APIServiceExportTemplateSpec) {
    spec.resources = vec![resource("wildwest.dev", "sheriffs")];
    spec.scope = Scope::Cluster;
}

#[test]
fn who_wins_is_asked_only_where_names_are_shared() {
    let wins = |isolation| {
        move |spec: &mut APIServiceExportTemplateSpec| {
            sheriffs(spec);
            spec.isolation = isolation;
            spec.conflict_policy = Some(ConflictPolicy::LastWins);
        }
    };
    check(wins(Some(Isolation::None)), Ok(()));
    check(wins(Some(Isolation::Prefixed)), Err("InvalidConflictPolicy"));
    // The server's own choice is Prefixed.
    check(wins(None), Err("InvalidConflictPolicy"));
    check(
        |spec| {
            spec.isolation = Some(Isolation::None);
            spec.conflict_policy = Some(ConflictPolicy::FirstWins);
        },
        Err("InvalidConflictPolicy"),
    );
}

#[test]
fn copies_are_retained_where_no_consumers_share_their_names() {
    let retained = |suspend: Value| {
        move |spec: &mut APIServiceExportTemplateSpec| {
            spec.retention = Some(Retention {
                duration: "72h".to_owned().into(),
                suspend: Some(suspend),
            });
        }
    };
    let stopped = || json!({"spec": {"replicas": 0}});
    check(retained(stopped()), Ok(()));
    check(
        retained(json!({"metadata": {"labels": {"a": "b"}}})),
        Err("InvalidRetention"),
    );
    check(retained(json!([1])), Err("InvalidRetention"));
    for (isolation, expect) in [
        (Isolation::Prefixed, Ok(())),
        (Isolation::None, Err("InvalidRetention")),
    ] {
        check(
            |spec| {
                sheriffs(spec);
                spec.isolation = Some(isolation);
                retained(stopped())(spec);
            },
            expect,
        );
    }
    check(
        |spec| {
            spec.isolation = Some(Isolation::None);
            retained(stopped())(spec);
        },
        Ok(()),
    );
}

#[test]
fn a_namespace_for_cluster_scoped_objects_is_one_of_converted_resources() {
    let within = |name: &str| {
        let name = name.to_owned();
        move |spec: &mut APIServiceExportTemplateSpec| {
            spec.scope = Scope::Cluster;
            spec.isolation = Some(Isolation::Namespaced);
            spec.cluster_scoped_namespace = Some(name);
        }
    };
    check(within("wild-west"), Ok(()));
    for wrong in ["", "Wild", "a.b", &"a".repeat(64)] {
        check(within(wrong), Err("InvalidNamespace"));
    }
    let unused = Err("InvalidClusterScopedNamespace");
    check(
        |spec| {
            within("wild-west")(spec);
            spec.scope = Scope::Namespaced;
        },
        unused,
    );
    for isolation in [Isolation::Prefixed, Isolation::None] {
        check(
            |spec| {
                within("wild-west")(spec);
                sheriffs(spec);
                spec.isolation = Some(isolation);
            },
            unused,
        );
    }
}

#[test]
fn objects_that_have_their_place_keep_it() {
    fn plan(template: &APIServiceExportTemplate) -> ExportPlan {
        assess(template, &offered(), &settings()).unwrap()
    }
    let mut template = cowboys();
    sheriffs(&mut template.spec);
    let export = APIServiceExport::new("sheriffs", plan(&template).export);
    assert_eq!(plan(&template).moves(&export), None);
    template.spec.isolation = Some(Isolation::None);
    assert_eq!(plan(&template).moves(&export), Some("isolation"));
    assert!(plan(&template).is_met_by(&export), "what is there stays as it is");
    let mut converted = cowboys();
    converted.spec.scope = Scope::Cluster;
    converted.spec.isolation = Some(Isolation::Namespaced);
    let export = APIServiceExport::new("cowboys", plan(&converted).export);
    converted.spec.cluster_scoped_namespace = Some("ranch".to_owned());
    assert_eq!(plan(&converted).moves(&export), Some("clusterScopedNamespace"));
    // Namespaced objects have one place under every isolation.
    let namespaced = plan(&cowboys());
    let mut export = APIServiceExport::new("cowboys", namespaced.export.clone());
    export.spec.isolation = Isolation::None;
    assert_eq!(namespaced.moves(&export), None);
}
