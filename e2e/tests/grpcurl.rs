//! The calls of `docs/reference/grpc.md` with grpcurl: a client that knows nothing but what the server tells by reflection.

use std::{path::Path, process::Command, time::Duration};

use anyhow::{Context as _, Result, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bindery_e2e::{Consumer, Process, Provider, claiming, eventually_ok, lease, offer::Offer, process, run};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

const LIMIT: Duration = Duration::from_mins(2);
const PAGE: &str = include_str!("../../docs/reference/grpc.md");

static PROVIDER: OnceCell<Result<Provider, String>> = OnceCell::const_new();

/// Runs a test against the one provider, which lives as long as the process.
fn with_provider(test: impl AsyncFnOnce(&'static Provider) -> Result<()>) -> Result<()> {
    run(async {
        let started = async || {
            Provider::start_with("grpcurl", &lease::PATIENT)
                .await
                .map_err(|error| format!("{error:#}"))
        };
        let provider = PROVIDER
            .get_or_init(started)
            .await
            .as_ref()
            .map_err(anyhow::Error::msg)?;
        let log = || provider.servers.iter().map(Process::tail).collect::<String>();
        test(provider).await.with_context(log)
    })
}

/// Where and as whom grpcurl calls.
#[derive(Clone, Copy)]
struct Grpcurl<'a> {
    provider: &'a Provider,
    token: Option<&'a str>,
}

impl<'a> Grpcurl<'a> {
    fn new(provider: &'a Provider) -> Self {
        Self { provider, token: None }
    }

    fn with_token(self, token: &'a str) -> Self {
        Self {
            token: Some(token),
            ..self
        }
    }

    /// `grpcurl -cacert CA [-H authorization] [-d BODY] HOST WORDS`
    fn command(self, body: Option<&Value>, words: &[&str]) -> Command {
        let mut command = Command::new(self.provider.plane.grpcurl_path());
        command.arg("-cacert").arg(self.provider.ca_path());
        if let Some(token) = self.token {
            command.args(["-H", &format!("authorization: Bearer {token}")]);
        }
        if let Some(body) = body {
            command.args(["-d", &body.to_string()]);
        }
        command.arg(authority(self.provider)).args(words);
        command
    }

    async fn words(self, words: &[&str]) -> Result<String> {
        let output = process::run(self.command(None, words), LIMIT).await?;
        process::stdout(&output).with_context(|| format!("grpcurl {}", words.join(" ")))
    }

    async fn call(self, method: &str, body: &Value) -> Result<Value> {
        let method = format!("kubebind.v1alpha2.{method}");
        let output = process::run(self.command(Some(body), &[&method]), LIMIT).await?;
        let text = process::stdout(&output).with_context(|| format!("grpcurl {method}"))?;
        serde_json::from_str(&text).with_context(|| format!("{method}: {text}"))
    }

    /// What grpcurl prints of a call that must fail: it must say all of `says`, and know every detail's type.
    async fn refused(self, method: &str, body: &Value, says: &[&str]) -> Result<()> {
        let method = format!("kubebind.v1alpha2.{method}");
        let output = process::run(self.command(Some(body), &[&method]), LIMIT).await?;
        let text = String::from_utf8_lossy(&output.stderr);
        ensure!(
            !output.status.success() && output.stdout.is_empty(),
            "{method}: {output:?}"
        );
        let always = [
            "google.rpc.ErrorInfo",
            r#""domain": "kube-bind.io""#,
            "google.rpc.RequestInfo",
        ];
        for part in always.iter().chain(says) {
            ensure!(text.contains(part), "{method} does not say {part:?}: {text}");
        }
        // What it writes of a type that reflection does not have.
        ensure!(!text.contains("@value") && !text.contains("@error"), "{text}");
        Ok(())
    }
}

fn authority(provider: &Provider) -> String {
    provider.address().trim_start_matches("https://").to_owned()
}

async fn principal(provider: &Provider, name: &str, templates: &[&str]) -> Result<String> {
    Ok(std::fs::read_to_string(provider.principal(name, templates).await?)?)
}

fn wish(name: &str, template: &str, identity: &str) -> Value {
    json!({"bindableResourcesRequest": {
        "metadata": {"name": name},
        "spec": {"templateRef": {"name": template}, "clusterIdentity": {"identity": identity}},
    }})
}

/// A text at a path of an answer.
fn text<'a>(answer: &'a Value, pointer: &str) -> Result<&'a str> {
    let found = answer.pointer(pointer).and_then(Value::as_str);
    found.with_context(|| format!("no text at {pointer}: {answer}"))
}

fn kubeconfig(answer: &Value, pointer: &str) -> Result<Value> {
    let document = STANDARD.decode(text(answer, pointer)?)?;
    Ok(serde_saphyr::from_slice(&document)?)
}

#[test]
fn the_commands_of_the_reference_work_as_printed() -> Result<()> {
    with_provider(async |provider| {
        let token = principal(provider, "page", &["cowboys"]).await?;
        let folder = provider.plane.workdir().path().join("page");
        std::fs::create_dir(&folder)?;
        std::fs::write(folder.join("token"), token)?;
        std::fs::copy(provider.ca_path(), folder.join("ca.crt"))?;
        let (_, script) = PAGE.split_once("```sh\n").context("the page has no commands")?;
        let (script, _) = script.split_once("```").context("the commands do not end")?;
        ensure!(
            script.matches("grpcurl ").count() == 4,
            "the page has other commands: {script}"
        );

        let mut shell = Command::new("sh");
        let tools = provider.plane.grpcurl_path().parent().context("a folder")?;
        let path = std::env::join_paths([tools, Path::new("/usr/bin"), Path::new("/bin")])?;
        shell.env("PATH", path).current_dir(&folder);
        shell.args(["-ec", &script.replace("bind.example.com:443", &authority(provider))]);
        let printed = process::stdout(&process::run(shell, LIMIT).await?)?;
        for part in [
            "kubebind.v1alpha2.BindingService\n",
            "grpc.health.v1.Health\n",
            r#""prettyName": "Wild West""#,
            r#""description": "Cowboys for hire, in the namespaces of your choice""#,
            r#""phase": "PHASE_SUCCEEDED""#,
            r#""kubeconfig": ""#,
        ] {
            ensure!(
                printed.contains(part),
                "the page's commands print no {part:?}: {printed}"
            );
        }
        Ok(())
    })
}

#[test]
fn reflection_describes_every_service_and_message() -> Result<()> {
    with_provider(async |provider| {
        let grpcurl = Grpcurl::new(provider);
        let services = grpcurl.words(&["list"]).await?;
        let ours = ["Provider", "Catalog", "Binding", "Export", "Credential"];
        for service in ours.map(|name| format!("kubebind.v1alpha2.{name}Service")) {
            ensure!(
                services.lines().any(|line| line == service),
                "{service} is not listed: {services}"
            );
            let methods = grpcurl.words(&["list", &service]).await?;
            ensure!(
                methods.lines().all(|line| line.starts_with(&service)) && !methods.is_empty(),
                "{methods}"
            );
            let described = grpcurl.words(&["describe", &service]).await?;
            ensure!(described.contains(&format!("{service} is a service")), "{described}");
            for method in methods.lines() {
                ensure!(
                    described.contains(&format!("rpc {}", method.rsplit('.').next().unwrap_or(method))),
                    "{described}"
                );
            }
        }
        let message = grpcurl
            .words(&["describe", ".kubebind.v1alpha2.BindableResourcesRequestSpec"])
            .await?;
        for part in [
            "template_ref = 1",
            "google.api.field_behavior",
            "The template.",
            "ttl_after_finished",
        ] {
            ensure!(message.contains(part), "{part:?} is not described: {message}");
        }
        // What a health check of any platform sends, without a token.
        let check = grpcurl.words(&["grpc.health.v1.Health/Check"]).await?;
        ensure!(check.contains("SERVING"), "{check}");
        for service in ours.map(|name| json!({"service": format!("kubebind.v1alpha2.{name}Service")})) {
            let output = process::run(grpcurl.command(Some(&service), &["grpc.health.v1.Health/Check"]), LIMIT).await?;
            let answer: Value = serde_json::from_str(&process::stdout(&output)?)?;
            ensure!(answer == json!({"status": "SERVING"}), "{service}: {answer}");
        }
        Ok(())
    })
}

#[test]
fn an_api_is_bound_renewed_watched_and_unbound() -> Result<()> {
    with_provider(async |provider| {
        let token = principal(provider, "by-grpcurl", &["cowboys"]).await?;
        let grpcurl = Grpcurl::new(provider).with_token(&token);
        let contract = Provider::contract("by-grpcurl");
        let answer = Grpcurl::new(provider)
            .call("ProviderService/GetProvider", &json!({}))
            .await?;
        let audience = text(&answer, "/provider/authenticationMethods/0/serviceAccount/audience")?;
        ensure!(audience == provider.address(), "{answer}");
        let answer = grpcurl
            .call("CatalogService/ListTemplates", &json!({"pageSize": 10}))
            .await?;
        ensure!(text(&answer, "/templates/0/metadata/name")? == "cowboys", "{answer}");
        ensure!(
            text(&answer, "/templates/0/spec/scope")? == "SCOPE_NAMESPACED",
            "{answer}"
        );

        let wish = wish("cowboys", "cowboys", "by-grpcurl");
        let mut validate = wish.clone();
        validate["validateOnly"] = json!(true);
        let planned = grpcurl
            .call("BindingService/CreateBindableResourcesRequest", &validate)
            .await?;
        ensure!(
            planned.pointer("/response/kubeconfig").is_none(),
            "a kubeconfig in a plan"
        );
        let bound = grpcurl
            .call("BindingService/CreateBindableResourcesRequest", &wish)
            .await?;
        ensure!(
            text(&bound, "/bindableResourcesRequest/status/phase")? == "PHASE_SUCCEEDED",
            "{bound}"
        );
        ensure!(text(&bound, "/response/providerNamespace")? == contract, "{bound}");
        let document = kubeconfig(&bound, "/response/kubeconfig/kubeconfig")?;
        works_with_kubectl(provider, "bound", &document).await?;

        let name = json!({"name": "cowboys", "clusterIdentity": "by-grpcurl"});
        let got = grpcurl
            .call("BindingService/GetBindableResourcesRequest", &name)
            .await?;
        let listed = grpcurl
            .call("BindingService/ListBindableResourcesRequests", &json!({}))
            .await?;
        ensure!(
            text(&listed, "/bindableResourcesRequests/0/metadata/name")? == "cowboys",
            "{listed}"
        );
        for (what, answer) in [("Get", got.to_string()), ("List", listed.to_string())] {
            ensure!(!answer.contains("kubeconfig"), "{what} answers a kubeconfig: {answer}");
        }

        let backend = text(&document, "/clusters/0/cluster/extensions/0/extension/token")?;
        let binder = Grpcurl::new(provider).with_token(backend);
        let renewed = binder.call("CredentialService/RenewKubeconfig", &json!({})).await?;
        ensure!(text(&renewed, "/contract")? == contract, "{renewed}");
        works_with_kubectl(provider, "renewed", &kubeconfig(&renewed, "/kubeconfig/kubeconfig")?).await?;
        watch(binder).await?;
        let schema = json!({"name": "cowboys.wildwest.dev"});
        let schema = binder.call("ExportService/GetBoundSchema", &schema).await?;
        ensure!(text(&schema, "/boundSchema/spec/names/kind")? == "Cowboy", "{schema}");

        let export = binder
            .call("ExportService/GetExport", &json!({"name": "cowboys"}))
            .await?;
        let uid = text(&export, "/export/metadata/uid")?;
        let delete = json!({"contract": contract, "name": "cowboys", "uid": uid, "wait": "30s"});
        let deleted = binder.call("ExportService/DeleteExport", &delete).await?;
        ensure!(deleted.pointer("/export").is_none(), "the export is left: {deleted}");
        let gone = provider
            .plane
            .kubectl(&["get", "apiserviceexports", "-n", &contract, "-o", "name"])
            .await?;
        ensure!(gone.is_empty(), "{gone}");
        binder
            .refused(
                "ExportService/GetExport",
                &json!({"name": "cowboys"}),
                &["EXPORT_NOT_FOUND"],
            )
            .await
    })
}

#[test]
fn a_template_with_claims_is_installed_from_the_response_alone() -> Result<()> {
    with_provider(async |provider| {
        let offer = Offer::new("claiming");
        claiming::publish(provider, offer).await?;
        let consumer = Consumer::start_with("grpcurl-c", &lease::PATIENT).await?;
        let identity = consumer.identity().await?;
        let token = principal(provider, "claiming", &[offer.name]).await?;
        let create = "BindingService/CreateBindableResourcesRequest";
        let grpcurl = Grpcurl::new(provider).with_token(&token);
        let answer = grpcurl.call(create, &wish(offer.name, offer.name, &identity)).await?;
        let document = kubeconfig(&answer, "/response/kubeconfig/kubeconfig")?.to_string();
        let rules = &answer["response"]["consumerRules"];
        claiming::install(&consumer, offer.name, &document, rules).await?;
        let contract = Provider::contract(&identity);
        let synced = claiming::is_synced(provider, &consumer, &contract, offer).await;
        synced.with_context(|| consumer.konnectors.iter().map(Process::tail).collect::<String>())
    })
}

/// The kubeconfig opens its contract, and nothing else.
async fn works_with_kubectl(provider: &Provider, name: &str, kubeconfig: &Value) -> Result<()> {
    let file = provider
        .plane
        .workdir()
        .write(&format!("{name}.kubeconfig"), kubeconfig.to_string())?;
    let kubectl = async |args: &[&str]| {
        let mut command = provider.plane.kubectl_command(&file);
        command.args(args);
        process::run(command, LIMIT).await
    };
    let exports = process::stdout(&kubectl(&["get", "apiserviceexports", "-o", "name"]).await?)?;
    ensure!(exports.trim() == "apiserviceexport.kube-bind.io/cowboys", "{exports}");
    for forbidden in [
        &["get", "secrets"][..],
        &["get", "namespaces"],
        &["get", "apiserviceexports", "-A"],
    ] {
        let output = kubectl(forbidden).await?;
        let refused = String::from_utf8_lossy(&output.stderr).contains("forbidden");
        ensure!(!output.status.success() && refused, "{forbidden:?}: {output:?}");
    }
    Ok(())
}

/// A watch begins with a snapshot, and goes on.
async fn watch(grpcurl: Grpcurl<'_>) -> Result<()> {
    let method = "kubebind.v1alpha2.ExportService/WatchExports";
    let mut watch = Process::spawn("grpcurl-watch", &grpcurl.command(Some(&json!({})), &[method]))?;
    for event in [
        "snapshotBegin",
        "applied",
        r#""name": "cowboys""#,
        "snapshotComplete",
        "resumeToken",
    ] {
        watch.wait_for_line(event, LIMIT).await?;
    }
    ensure!(watch.is_running(), "the stream ended: {}", watch.tail());
    watch.kill9()
}

#[test]
fn a_group_sees_and_binds_the_templates_that_it_may_bind() -> Result<()> {
    with_provider(async |provider| {
        let token = principal(provider, "posse", &[]).await?;
        let grpcurl = Grpcurl::new(provider).with_token(&token);
        provider.plane.apply(&offered_to_the_posse().to_string()).await?;
        // Beside the one that the example of the documents has.
        let collections = eventually_ok("the collections to be listed", LIMIT, async || {
            let answer = grpcurl.call("CatalogService/ListCollections", &json!({})).await?;
            let shown = answer["collections"].as_array().into_iter().flatten();
            let names: Vec<_> = shown.map(|collection| &collection["metadata"]["name"]).collect();
            ensure!(names == ["west", "wildwest"], "{answer}");
            Ok(answer)
        });
        let spec = json!({"templates": [{"name": "cowboys"}]});
        let listed = collections.await?;
        ensure!(listed["collections"][0]["spec"] == spec, "{listed}");
        let got = grpcurl
            .call("CatalogService/GetCollection", &json!({"name": "west"}))
            .await?;
        ensure!(got["collection"]["spec"] == spec, "{got}");
        let says = ["NotFound", "COLLECTION_NOT_FOUND"];
        grpcurl
            .refused("CatalogService/GetCollection", &json!({"name": "east"}), &says)
            .await?;

        for (collection, expect) in [("west", &["cowboys"][..]), ("east", &[]), ("nowhere", &[])] {
            let answer = grpcurl
                .call("CatalogService/ListTemplates", &json!({"collection": collection}))
                .await?;
            let templates = answer["templates"].as_array().into_iter().flatten();
            let names: Vec<_> = templates.map(|template| &template["metadata"]["name"]).collect();
            ensure!(names == expect, "{collection}: {answer}");
        }
        let create = "BindingService/CreateBindableResourcesRequest";
        let bound = grpcurl.call(create, &wish("cowboys", "cowboys", "posse")).await?;
        ensure!(
            text(&bound, "/bindableResourcesRequest/status/phase")? == "PHASE_SUCCEEDED",
            "{bound}"
        );
        let says = ["PermissionDenied", "TEMPLATE_BIND_DENIED"];
        grpcurl
            .refused(create, &wish("outlaws", "outlaws", "posse"), &says)
            .await
    })
}

/// Two collections, and the right of a group to bind one template of theirs. Of the others, one is no group's to bind, and one
/// does not exist.
fn offered_to_the_posse() -> Value {
    let collection = |name: &str, templates: &[&str]| {
        let templates: Vec<_> = templates.iter().map(|name| json!({"name": name})).collect();
        json!({
            "apiVersion": "kube-bind.io/v1alpha2", "kind": "Collection", "metadata": {"name": name},
            "spec": {"templates": templates},
        })
    };
    let resource = json!({"group": "wildwest.dev", "resource": "cowboys", "versions": ["v1alpha1"]});
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": "kube-bind.io/v1alpha2", "kind": "APIServiceExportTemplate", "metadata": {"name": "outlaws"},
            "spec": {"scope": "Namespaced", "resources": [resource]},
        },
        collection("east", &["outlaws"]),
        {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "posse"},
            "rules": [{
                "apiGroups": ["kube-bind.io"], "resources": ["apiserviceexporttemplates"],
                "resourceNames": ["cowboys"], "verbs": ["bind"],
            }],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "posse"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "posse"},
            "subjects": [{
                "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:serviceaccounts:posse",
            }],
        },
        collection("west", &["cowboys", "ghost", "outlaws"]),
    ]})
}

#[test]
fn refusals_are_printed_with_their_reason() -> Result<()> {
    with_provider(async |provider| {
        let token = principal(provider, "refused", &["ghost"]).await?;
        let (nobody, grpcurl) = (Grpcurl::new(provider), Grpcurl::new(provider).with_token(&token));
        let list = "CatalogService/ListTemplates";
        nobody
            .refused(list, &json!({}), &["Unauthenticated", "TOKEN_MISSING"])
            .await?;
        nobody
            .with_token("a.b.c")
            .refused(list, &json!({}), &["Unauthenticated", "TOKEN_INVALID"])
            .await?;
        let create = "BindingService/CreateBindableResourcesRequest";
        let says = [
            "PermissionDenied",
            "TEMPLATE_BIND_DENIED",
            r#""template": "cowboys""#,
            "may not bind",
        ];
        grpcurl.refused(create, &wish("x", "cowboys", "refused"), &says).await?;
        let says = ["NotFound", "TEMPLATE_NOT_FOUND", r#""template": "ghost""#];
        grpcurl.refused(create, &wish("x", "ghost", "refused"), &says).await?;
        let says = [
            "InvalidArgument",
            "FIELD_INVALID",
            "google.rpc.BadRequest",
            r#""field": "bindable_resources_request.metadata.name""#,
            r#""field": "bindable_resources_request.spec.cluster_identity.identity""#,
        ];
        grpcurl.refused(create, &wish("Not A Name", "ghost", ""), &says).await
    })
}
