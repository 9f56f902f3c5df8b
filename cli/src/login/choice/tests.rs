use bindery_proto::v1alpha2::{AuthenticationMethod, ServiceAccountAuthentication};

use super::*;

const SERVER: &str = "https://bind.example.com";
const LOGIN: &str = "https://login.example.com";
const EVIL: &str = "https://login.example.com.evil.example";

fn oidc(issuer: &str, client_id: &str) -> OidcAuthentication {
    OidcAuthentication {
        issuer: issuer.to_owned(),
        client_id: client_id.to_owned(),
        scopes: vec!["openid".to_owned(), "groups".to_owned()],
        flows: Vec::new(),
    }
}

fn provider(issuers: Vec<OidcAuthentication>) -> Provider {
    let accounts = Method::ServiceAccount(ServiceAccountAuthentication::default());
    let methods = issuers.into_iter().map(Method::Oidc).chain([accounts]);
    Provider {
        authentication_methods: methods
            .map(|method| AuthenticationMethod { method: Some(method) })
            .collect(),
        ..Provider::default()
    }
}

fn known(issuer: &str, client_id: &str) -> KnownServer {
    KnownServer {
        address: SERVER.to_owned(),
        issuer: IssuerPin {
            url: issuer.to_owned(),
            client_id: client_id.to_owned(),
            certificate_authority: Some("/login-ca.crt".into()),
        },
        certificate_authority: None,
        client_certificate: None,
        client_key: None,
        allow_plaintext: false,
    }
}

#[track_caller]
fn check(offered: &[(&str, &str)], pinned: Option<(&str, &str)>, named: Option<&str>, expect: Result<&str, &str>) {
    let provider = provider(offered.iter().map(|(issuer, client)| oidc(issuer, client)).collect());
    let known = pinned.map(|(issuer, client)| known(issuer, client));
    let chosen = issuer(SERVER, &provider, known.as_ref(), (named, None));
    match (&chosen, expect) {
        (Ok(offer), Ok(expect)) => assert_eq!(offer.pin.url, expect),
        (Err(error), Err(expect)) => assert!(error.to_string().contains(expect), "{error}"),
        _ => panic!("{chosen:?}, not {expect:?}"),
    }
}

#[test]
fn the_first_login_is_at_the_issuer_that_the_server_names() {
    check(&[], None, None, Err("offers no login"));
    check(&[(LOGIN, "bindery")], None, None, Ok(LOGIN));
    check(
        &[(LOGIN, "bindery"), (EVIL, "x")],
        None,
        None,
        Err("at several issuers"),
    );
    check(&[(LOGIN, "bindery"), (EVIL, "x")], None, Some(EVIL), Ok(EVIL));
    check(
        &[(LOGIN, "bindery")],
        None,
        Some(EVIL),
        Err("does not let you log in at"),
    );
    check(
        &[("http://login.example.com", "bindery")],
        None,
        None,
        Err("is not an https:// URL"),
    );
}

#[test]
fn a_server_that_names_another_issuer_later_is_refused_until_the_user_confirms_it() {
    let pin = Some((LOGIN, "bindery"));
    check(&[(LOGIN, "bindery")], pin, None, Ok(LOGIN));
    check(
        &[(EVIL, "bindery")],
        pin,
        None,
        Err("but you first logged in at https://login.example.com:"),
    );
    check(&[(EVIL, "x"), (LOGIN, "bindery")], pin, None, Ok(LOGIN));
    check(&[(EVIL, "bindery")], pin, Some(EVIL), Ok(EVIL));
    // A token for another client would open another program.
    check(
        &[(LOGIN, "kubernetes")],
        pin,
        None,
        Err("but you first logged in to client \"bindery\""),
    );
    check(&[(LOGIN, "kubernetes")], pin, Some(LOGIN), Ok(LOGIN));
    check(&[], pin, None, Err("offers no login"));
}

#[test]
fn the_mend_of_a_changed_issuer_can_be_pasted() {
    let provider = provider(vec![oidc(EVIL, "x")]);
    let error = issuer(SERVER, &provider, Some(&known(LOGIN, "bindery")), (None, None)).unwrap_err();
    let mend = error.mend().unwrap();
    assert!(
        mend.ends_with(&format!("kubectl bind login {SERVER} --issuer {EVIL}")),
        "{mend}"
    );
}

#[test]
fn the_ca_of_the_first_login_is_kept_for_its_issuer_alone() {
    let provider = provider(vec![oidc(LOGIN, "bindery"), oidc(EVIL, "x")]);
    let known = known(LOGIN, "bindery");
    let authority = |named, given| {
        issuer(SERVER, &provider, Some(&known), (named, given))
            .unwrap()
            .pin
            .certificate_authority
    };
    assert_eq!(authority(None, None).as_deref(), Some(Path::new("/login-ca.crt")));
    assert_eq!(
        authority(None, Some(Path::new("/new.crt"))).as_deref(),
        Some(Path::new("/new.crt"))
    );
    assert_eq!(authority(Some(EVIL), None), None);
}

#[test]
fn openid_is_asked_for_once() {
    let offer = issuer(SERVER, &provider(vec![oidc(LOGIN, "bindery")]), None, (None, None)).unwrap();
    assert_eq!(offer.scopes, ["groups"]);
}

#[track_caller]
fn check_flow(flows: &[OidcFlow], has_device: bool, flags: (bool, bool), display: bool, expect: Result<Flow, &str>) {
    let mut offered = oidc(LOGIN, "bindery");
    for flow in flows {
        offered.push_flows(*flow);
    }
    let offer = issuer(SERVER, &provider(vec![offered]), None, (None, None)).unwrap();
    let surroundings = Surroundings::new(true, |name| (display && name == "DISPLAY").then(|| ":0".into()));
    let chosen = flow(SERVER, &offer, has_device, flags, &surroundings);
    match (&chosen, expect) {
        (Ok(chosen), Ok(expect)) => assert_eq!(*chosen, expect),
        (Err(error), Err(expect)) => assert!(error.to_string().contains(expect), "{error}"),
        _ => panic!("{chosen:?}, not {expect:?}"),
    }
}

#[test]
fn a_browser_is_preferred_where_the_user_sees_it() {
    let (code, device) = (OidcFlow::AuthorizationCode, OidcFlow::DeviceCode);
    let (by_device, no_browser) = ((true, false), (false, true));
    for flows in [&[][..], &[code, device]] {
        check_flow(flows, true, (false, false), true, Ok(Flow::Code));
        check_flow(flows, true, (false, false), false, Ok(Flow::Device));
        check_flow(flows, false, (false, false), false, Ok(Flow::Code));
        check_flow(flows, true, by_device, true, Ok(Flow::Device));
        check_flow(flows, true, no_browser, false, Ok(Flow::Code));
        check_flow(flows, false, by_device, true, Err("has no login by device code"));
    }
    check_flow(&[code], true, (false, false), false, Ok(Flow::Code));
    check_flow(
        &[code],
        true,
        by_device,
        false,
        Err("does not offer a login by device code"),
    );
    check_flow(&[device], true, (false, false), true, Ok(Flow::Device));
    check_flow(
        &[device],
        true,
        no_browser,
        true,
        Err("does not offer a login by browser"),
    );
    check_flow(
        &[device],
        false,
        (false, false),
        true,
        Err("has no login by device code"),
    );
}
