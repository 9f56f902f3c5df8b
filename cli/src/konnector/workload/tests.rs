use super::*;

fn seen(change: impl FnOnce(&mut Value)) -> Deployment {
    let mut deployment = template().unwrap();
    change(&mut deployment);
    serde_json::from_value(deployment).unwrap()
}

#[track_caller]
fn check_image(asked: Option<&str>, seen_image: &str, expect: &str) {
    let seen = seen(|deployment| deployment["spec"]["template"]["spec"]["containers"][0]["image"] = json!(seen_image));
    let asked = Asked {
        image: asked.map(str::to_owned),
        ..Asked::default()
    };
    let (konnector, _) = choose(&asked, Some(&seen)).unwrap();
    let manifest = manifest(&konnector).unwrap();
    assert_eq!(
        manifest["spec"]["template"]["spec"]["containers"][0]["image"], expect,
        "{seen_image}"
    );
}

#[test]
fn an_own_image_is_upgraded_and_a_chosen_one_stays() {
    let release = release().unwrap();
    check_image(None, "bindery-konnector:0.0.1", &release);
    check_image(None, "bindery-konnector", &release);
    check_image(
        None,
        "registry.example.com:5000/konnector:1",
        "registry.example.com:5000/konnector:1",
    );
    check_image(Some("mine:2"), "other:1", "mine:2");
}

#[test]
fn a_repository_is_an_image_without_tag_and_digest() {
    for (image, expect) in [
        ("a", "a"),
        ("a:1", "a"),
        ("r:5000/a", "r:5000/a"),
        ("r:5000/a:1", "r:5000/a"),
        ("r:5000/a:1@sha256:00", "r:5000/a"),
    ] {
        assert_eq!(repository(image), expect);
    }
}

fn args_of(deployment: &Value) -> Value {
    deployment["spec"]["template"]["spec"]["containers"][0]["args"].clone()
}

#[track_caller]
fn check_adoption(asked: Option<Adoption>, args: &[&str], expect: Adoption) {
    let seen = seen(|deployment| deployment["spec"]["template"]["spec"]["containers"][0]["args"] = json!(args));
    let asked = Asked {
        adoption: asked,
        ..Asked::default()
    };
    let (konnector, kept) = choose(&asked, Some(&seen)).unwrap();
    assert_eq!(konnector.adoption, expect, "{args:?}");
    let told = kept.iter().any(|kept| kept.contains("--adoption off ends it"));
    assert_eq!(told, asked.adoption.is_none() && expect != Adoption::Off, "{kept:?}");
    let manifest = manifest(&konnector).unwrap();
    let flags = args::flags(&serde_json::from_value::<Vec<String>>(args_of(&manifest)).unwrap());
    assert_eq!(
        flags.iter().any(|flag| flag.name() == ADOPTION_FLAG),
        expect != Adoption::Off
    );
}

#[test]
fn adoption_stays_as_it_is_until_somebody_says_otherwise() {
    check_adoption(None, &[], Adoption::Off);
    check_adoption(None, &["--adoption=all"], Adoption::All);
    check_adoption(None, &["--adoption", "opt-in"], Adoption::OptIn);
    check_adoption(None, &["--adoptions=all"], Adoption::Off);
    check_adoption(Some(Adoption::Off), &["--adoption=all"], Adoption::Off);
    check_adoption(Some(Adoption::All), &[], Adoption::All);
}

#[test]
fn flags_that_somebody_added_stay() {
    let args = json!([
        "--server-address=0.0.0.0:8090",
        "--heartbeat-interval=1m",
        "--log",
        "debug"
    ]);
    let added = seen(|deployment| deployment["spec"]["template"]["spec"]["containers"][0]["args"] = args.clone());
    let (konnector, kept) = choose(&Asked::default(), Some(&added)).unwrap();
    let deployment = manifest(&konnector).unwrap();
    let shipped = json!([
        "--server-address=0.0.0.0:8090",
        "--account-policies=kube-bind-konnector",
        "--heartbeat-interval=1m",
        "--log",
        "debug"
    ]);
    assert_eq!(args_of(&deployment), shipped);
    let kept = kept.join("\n");
    assert!(
        kept.contains("keeps --heartbeat-interval=1m") && kept.contains("keeps --log debug"),
        "{kept}"
    );
}

#[test]
fn a_deployment_tells_the_release_of_helm_that_it_belongs_to() {
    let mark = json!({ "meta.helm.sh/release-name": "konnector", "meta.helm.sh/release-namespace": "kube-bind" });
    let marked = seen(|deployment| deployment["metadata"]["annotations"] = mark);
    let release = ("kube-bind".to_owned(), "konnector".to_owned());
    assert_eq!(release_of_helm(&marked), Some(release));
    assert_eq!(release_of_helm(&seen(|_| ())), None);
}

#[test]
fn replicas_stay_too() {
    let two = seen(|deployment| deployment["spec"]["replicas"] = json!(2));
    let replicas = |asked: Option<u32>| {
        let asked = Asked {
            replicas: asked,
            ..Asked::default()
        };
        let (konnector, _) = choose(&asked, Some(&two)).unwrap();
        manifest(&konnector).unwrap()["spec"]["replicas"].clone()
    };
    assert_eq!((replicas(None), replicas(Some(3))), (json!(2), json!(3)));
}
