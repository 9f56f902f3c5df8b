//! A Prometheus that scrapes programs on loopback, with the rules that the project ships.

use std::{
    collections::BTreeSet,
    fmt, fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use kube::{Client, Config};
use serde_json::{Value, json};

use crate::{
    Process, binaries, eventually_ok, free_port,
    observe::{self, Program, Target},
};

/// How often it scrapes, and evaluates its rules.
const INTERVAL: &str = "1s";
const START_TIMEOUT: Duration = Duration::from_mins(1);

/// A Prometheus that runs.
pub struct Prometheus {
    port: u16,
    client: Client,
    folder: PathBuf,
    _process: Process,
}

impl Prometheus {
    /// Starts a Prometheus whose files are in `folder`, with the rules of both programs for `target`. It scrapes nothing yet.
    pub async fn start(folder: &Path, target: &Target) -> Result<Self> {
        let port = free_port()?;
        let url = format!("http://127.0.0.1:{port}");
        let mut config = Config::new(url.parse()?);
        config.default_retry = false;
        let mut files = Vec::new();
        let mut jobs = Vec::new();
        for program in Program::ALL {
            let name = program.name();
            fs::write(folder.join(rules_of(program)), observe::rules(program, target))?;
            files.push(rules_of(program));
            let discovery = json!([{"files": [targets_of(program)], "refresh_interval": INTERVAL}]);
            jobs.push(json!({"job_name": name, "file_sd_configs": discovery}));
        }
        let settings = json!({
            "global": {"scrape_interval": INTERVAL, "scrape_timeout": INTERVAL, "evaluation_interval": INTERVAL},
            "rule_files": files,
            "scrape_configs": jobs,
        });
        // JSON is YAML.
        let path = folder.join("prometheus.yaml");
        fs::write(&path, settings.to_string())?;
        let mut command = Command::new(binaries::prometheus()?.join("usr/bin/prometheus"));
        command.arg("--config.file").arg(path);
        command.arg("--storage.tsdb.path").arg(folder.join("prometheus"));
        command.args(["--web.listen-address", &format!("127.0.0.1:{port}")]);
        let prometheus = Self {
            port,
            client: Client::try_from(config)?,
            folder: folder.to_owned(),
            _process: Process::spawn("prometheus", &command)?,
        };
        for program in Program::ALL {
            prometheus.scrape(program, &[])?;
        }
        eventually_ok("Prometheus to be ready", START_TIMEOUT, async || {
            prometheus.get("/-/ready").await
        })
        .await?;
        Ok(prometheus)
    }

    /// The URL of its page.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Sets the ports at which a program's processes serve their metrics.
    pub fn scrape(&self, program: Program, ports: &[u16]) -> Result<()> {
        let targets: Vec<_> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let path = self.folder.join(targets_of(program));
        // It must not read half a file.
        let unfinished = path.with_extension("unfinished");
        fs::write(&unfinished, json!([{"targets": targets}]).to_string())?;
        fs::rename(unfinished, path).context("cannot write the targets")
    }

    /// The names of the alerts that fire now.
    pub async fn firing(&self) -> Result<BTreeSet<String>> {
        let answer = self.ask("/api/v1/alerts").await?;
        let alerts = answer["alerts"].as_array().context("no list of alerts")?;
        let firing = alerts.iter().filter(|alert| alert["state"] == "firing");
        let names = firing.filter_map(|alert| alert["labels"]["alertname"].as_str());
        Ok(names.map(str::to_owned).collect())
    }

    /// How many samples an expression has now.
    pub async fn samples(&self, expression: &str) -> Result<usize> {
        let query: String = form_urlencoded::byte_serialize(expression.as_bytes()).collect();
        let answer = self.ask(&format!("/api/v1/query?query={query}")).await?;
        let samples = answer["result"].as_array().context("no list of samples")?;
        // A quantile of nothing is no number.
        Ok(samples.iter().filter(|sample| sample["value"][1] != "NaN").count())
    }

    async fn ask(&self, path: &str) -> Result<Value> {
        let answer: Value = serde_json::from_str(&self.get(path).await?)?;
        ensure!(answer["status"] == "success", "{path}: {answer}");
        Ok(answer["data"].clone())
    }

    async fn get(&self, path: &str) -> Result<String> {
        let request = http::Request::get(path).body(Vec::new())?;
        Ok(self.client.request_text(request).await?)
    }
}

impl fmt::Debug for Prometheus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prometheus")
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

fn rules_of(program: Program) -> String {
    format!("{}.rules.yaml", program.name())
}

fn targets_of(program: Program) -> String {
    format!("{}.targets.json", program.name())
}
