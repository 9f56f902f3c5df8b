//! ProviderService: the name, the features and the limits of the provider, and who the caller is to it.

use std::sync::Arc;

use bindery_proto::v1alpha2::{
    AuthenticationMethod, Caller, GetCallerRequest, GetCallerResponse, GetProviderRequest, GetProviderResponse, Limits,
    OidcAuthentication, OidcFlow, Provider, ServiceAccountAuthentication, authentication_method::Method,
    provider_service_server::ProviderService,
};
use jiff::Timestamp;
use tonic::{Request, Response, Status};

use crate::{
    front::{
        Front, auth,
        limits::{REQUEST_BYTES_MAX, WAIT_MAX},
        transport::interceptor::Call,
        wire::{
            convert::{enums, meta},
            page,
        },
    },
    oidc::{Issuers, Login},
    settings::Settings,
};

/// The features that this server supports, by name.
const FEATURES: [&str; 6] = [
    "contracts",
    "get-caller",
    "renewal",
    "validate-only",
    "watch-exports",
    "watch-requests",
];

#[derive(Debug)]
pub(crate) struct Service(pub(crate) Arc<Front>);

#[tonic::async_trait]
impl ProviderService for Service {
    async fn get_provider(&self, _: Request<GetProviderRequest>) -> Result<Response<GetProviderResponse>, Status> {
        let settings = &self.0.state.settings;
        let number = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
        let provider = Provider {
            pretty_name: settings.pretty_name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            api_versions: vec![bindery_api::v1alpha2::VERSION.to_owned()],
            isolation: enums::isolation(settings.isolation),
            informer_scope: enums::informer_scope(settings.informer_scope),
            authentication_methods: authentication_methods(settings, &self.0.issuers),
            features: FEATURES.map(ToOwned::to_owned).to_vec(),
            limits: Some(Limits {
                max_page_size: number(page::SIZE_MAX),
                max_message_bytes: number(REQUEST_BYTES_MAX),
                max_wait: Some(meta::duration(WAIT_MAX)),
                kubeconfig_lifetime: Some(meta::duration(settings.token_lifetime)),
            }),
        };
        Ok(Response::new(GetProviderResponse {
            provider: Some(provider),
        }))
    }

    async fn get_caller(&self, request: Request<GetCallerRequest>) -> Result<Response<GetCallerResponse>, Status> {
        let call = Call::of(&request)?;
        let caller = caller(&call.caller()?.identity, Timestamp::now());
        Ok(Response::new(GetCallerResponse { caller: Some(caller) }))
    }
}

/// The message of a verified caller. What its token says of it beside that stays on the server.
fn caller(identity: &auth::Identity, now: Timestamp) -> Caller {
    let left = identity.expires_at.map(|expires_at| expires_at.duration_since(now));
    Caller {
        username: identity.username.clone(),
        groups: identity.groups.clone(),
        expires_in: left.map(|left| meta::duration(left.try_into().unwrap_or_default())),
    }
}

/// How to log in: people with an issuer, programs with the token of a ServiceAccount.
fn authentication_methods(settings: &Settings, issuers: &Issuers) -> Vec<AuthenticationMethod> {
    let own = settings.grpc.audiences();
    let logins = issuers.logins(&own).into_iter();
    let people = logins.map(|login| Method::Oidc(of_login(login, &settings.login_scopes)));
    let accounts = Method::ServiceAccount(ServiceAccountAuthentication {
        audience: settings.grpc.address.clone(),
        issuers: issuers.of_service_accounts(&own),
    });
    let methods = people.chain(std::iter::once(accounts));
    methods
        .map(|method| AuthenticationMethod { method: Some(method) })
        .collect()
}

fn of_login(login: Login, scopes: &[String]) -> OidcAuthentication {
    let flows = [
        (login.authorization_code, OidcFlow::AuthorizationCode),
        (login.device_code, OidcFlow::DeviceCode),
    ];
    OidcAuthentication {
        issuer: login.issuer,
        client_id: login.client_id,
        scopes: scopes.to_vec(),
        flows: flows
            .into_iter()
            .filter_map(|(served, flow)| served.then_some(flow.into()))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::{
        oidc::{Configuration, OidcMetrics, Surroundings, tests_support::FakeIssuer},
        settings::tests::settings,
    };

    #[tokio::test]
    async fn people_log_in_with_issuers_and_programs_with_accounts() {
        let issuers = Issuers::new(
            Arc::new(|_| Arc::new(FakeIssuer::default())),
            OidcMetrics::default(),
            None,
        );
        let settings = settings();
        let accounts = |issuers: &[&str]| ServiceAccountAuthentication {
            audience: settings.grpc.address.clone(),
            issuers: issuers.iter().map(|issuer| (*issuer).to_owned()).collect(),
        };
        let methods = |issuers: &Issuers| {
            let methods = authentication_methods(&settings, issuers).into_iter();
            methods.filter_map(|method| method.method).collect::<Vec<_>>()
        };
        assert_eq!(methods(&issuers), [Method::ServiceAccount(accounts(&[]))]);

        let jwt = |url: &str, audience: &str| {
            json!({
                "issuer": {"url": url, "audiences": [audience]},
                "claimMappings": {"username": {"claim": "sub", "prefix": ""}},
            })
        };
        let (people, consumer) = ("https://accounts.example.com", "https://consumer.example.com");
        let file = json!({
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
            "jwt": [jwt(people, "bindery"), jwt(consumer, &settings.grpc.address)],
        });
        let configuration = Configuration::parse(&file.to_string(), &Surroundings::default());
        issuers.replace(configuration.expect("a configuration"));
        let login = OidcAuthentication {
            issuer: people.to_owned(),
            client_id: "bindery".to_owned(),
            scopes: settings.login_scopes.clone(),
            flows: vec![OidcFlow::AuthorizationCode.into(), OidcFlow::DeviceCode.into()],
        };
        let expect = [Method::Oidc(login), Method::ServiceAccount(accounts(&[consumer]))];
        assert_eq!(methods(&issuers), expect);
    }

    #[test]
    fn a_caller_is_told_how_long_its_token_is_valid() {
        let now = Timestamp::from_second(1_000).unwrap();
        let check = |expires_at: Option<i64>, expect: Option<u64>| {
            let identity = auth::Identity {
                username: "alice".to_owned(),
                groups: vec!["team-a".to_owned()],
                expires_at: expires_at.map(|second| Timestamp::from_second(second).unwrap()),
                ..auth::Identity::default()
            };
            let caller = caller(&identity, now);
            assert_eq!((caller.username.as_str(), caller.groups.len()), ("alice", 1));
            assert_eq!(
                caller.expires_in,
                expect.map(|seconds| meta::duration(Duration::from_secs(seconds)))
            );
        };
        check(None, None);
        check(Some(1_090), Some(90));
        // A stream outlives its token until the next check.
        check(Some(990), Some(0));
    }
}
