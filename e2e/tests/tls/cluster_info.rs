//! A server that reaches the Kubernetes API as pods do: the URL for consumers is found in the cluster, or asked for.

use anyhow::{Result, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bindery_e2e::{Consumer, Provider, bound::Bound, eventually_ok, lease, run, wildwest::SOON};
use serde_json::json;

#[test]
fn the_url_for_consumers_is_found_in_cluster_info() -> Result<()> {
    run(async {
        let (provider, consumer) = tokio::try_join!(
            Provider::start_managed("info-p", &lease::PATIENT),
            Consumer::start_with("info-c", &lease::PATIENT)
        )?;
        let mut bound = Bound::between(provider, consumer).await?;
        let provider = &mut bound.provider;
        // What a kubelet tells a pod: here the server's own URL is the Service's.
        provider.with_env("KUBERNETES_SERVICE_HOST", "127.0.0.1");
        let says = provider.refused_server().await?;
        let own = provider.plane.server_url();
        for word in [
            &own,
            "kube-public/cluster-info does not exist",
            "--external-address URL",
            "--external-ca-file",
        ] {
            ensure!(says.contains(word), "{says}");
        }

        let public = own.replace("127.0.0.1", "localhost");
        let data = STANDARD.encode(provider.plane.ca_pem());
        let kubeconfig = format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: \"\"\n  cluster:\n    server: {public}\n    \
             certificate-authority-data: {data}\n"
        );
        let config_map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "cluster-info", "namespace": "kube-public"},
            "data": {"kubeconfig": kubeconfig},
        });
        provider.plane.apply(&config_map.to_string()).await?;
        provider.servers[0].terminate(SOON).await?;
        provider.restart_server().await?;
        bound.bind(&["cowboys"]).await?;
        eventually_ok("a kubeconfig with the public URL", SOON, async || {
            let found = bound.kubeconfigs().await?;
            let texts = found
                .iter()
                .filter_map(|secret| secret.data.as_ref()?.get("kubeconfig"));
            let mut texts = texts.map(|text| String::from_utf8_lossy(&text.0).into_owned());
            ensure!(texts.any(|text| text.contains(&public) && text.contains(&data)));
            Ok(())
        })
        .await?;
        bound.create(["billy".to_owned()]).await?;
        bound.converged().await
    })
}
