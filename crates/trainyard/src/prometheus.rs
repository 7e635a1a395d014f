//! `trainyard prometheus-config`: a configuration by which a Prometheus on this machine scrapes the control plane.

use crate::pki::{self, PkiError};
use crate::up::UpError;
use client::ClientError;
use client::home::Home;
use grammar::{Global, PrometheusConfigArgs};
use kube::Client;
use serde_json::{Value, json};
use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// The account whose token Prometheus shows, and where it is.
const ACCOUNT: &str = "trainyard-prometheus";
const NAMESPACE: &str = "kube-system";
/// Of the role and its binding.
const ROLE: &str = "trainyard-metrics-reader";

/// Prints the configuration. The account and its right are made where they are missing.
///
/// # Errors
/// No control plane runs, it refuses, or the folder cannot be written.
pub async fn config(args: &PrometheusConfigArgs, global: &Global) -> Result<u8, UpError> {
    let home = Home::find(global.home.as_deref())?;
    let Some(running) = home.running() else {
        return Err(ClientError::NotRunning { home: home.root().to_owned() }.into());
    };
    let folder = args.dir.clone().unwrap_or_else(|| home.root().join("prometheus"));
    let io = |source| PkiError::Io { path: folder.clone(), source };
    fs::create_dir_all(&folder).map_err(io)?;
    // Prometheus looks for relative paths below its own configuration file
    let folder = folder.canonicalize().map_err(io)?;
    let client = crate::agent::client(&home.kubeconfig()).await.map_err(UpError::Agent)?;
    let token = token(&client, args.days).await.map_err(|error| UpError::Agent(io::Error::other(error)))?;
    let (token_file, authority_file) = (folder.join("token"), folder.join("ca.crt"));
    pki::write_private(&token_file, &token)?;
    pki::write_private(&authority_file, &pki::authority_certificate(home.root())?)?;
    let text = text(&running.server, &authority_file, &token_file);
    io::stdout().write_all(text.as_bytes()).map_err(UpError::Print)?;
    Ok(cli::exit::OK)
}

/// A token of the account, which may read `/metrics` and nothing else.
async fn token(client: &Client, days: u16) -> Result<String, kube::Error> {
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": ROLE},
        "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": ROLE},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ROLE},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}]});
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": NAMESPACE}});
    let accounts = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts");
    for (collection, name, object) in [
        ("/apis/rbac.authorization.k8s.io/v1/clusterroles", ROLE, role),
        ("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", ROLE, binding),
        (&accounts, ACCOUNT, account),
    ] {
        let path = format!("{collection}/{name}?fieldManager=trainyard&force=true");
        let request = http::Request::patch(path).header(http::header::CONTENT_TYPE, "application/apply-patch+yaml");
        let _: Value =
            client.request(request.body(object.to_string().into_bytes()).map_err(kube::Error::HttpError)?).await?;
    }
    let seconds = i64::from(days).saturating_mul(24 * 60 * 60);
    let ask = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": seconds}});
    let request = http::Request::post(format!("{accounts}/{ACCOUNT}/token"))
        .header(http::header::CONTENT_TYPE, "application/json");
    let answer: Value =
        client.request(request.body(ask.to_string().into_bytes()).map_err(kube::Error::HttpError)?).await?;
    Ok(answer["status"]["token"].as_str().unwrap_or_default().to_owned())
}

/// The configuration, as YAML.
fn text(server: &str, authority: &Path, token: &Path) -> String {
    let target = server.trim_start_matches("https://");
    // a JSON text is a YAML text
    let quoted = |path: &Path| Value::from(path.to_string_lossy()).to_string();
    format!(
        "global:\n  scrape_interval: 15s\n  evaluation_interval: 15s\nscrape_configs:\n  - job_name: trainyard\n    \
         # the labels of a job's series name the job's namespace, not that of the program\n    honor_labels: true\n    \
         scheme: https\n    tls_config:\n      ca_file: {}\n    authorization:\n      credentials_file: {}\n    \
         static_configs:\n      - targets: [{}]\n",
        quoted(authority),
        quoted(token),
        Value::from(target),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_with_blanks_and_quotes_stay_whole() {
        let text = text("https://127.0.0.1:6443", Path::new("/a b/\"c\": d/ca.crt"), Path::new("/a b/token"));
        let config: Value = serde_saphyr::from_str(&text).unwrap();
        let scrape = &config["scrape_configs"][0];
        assert_eq!(scrape["tls_config"]["ca_file"], "/a b/\"c\": d/ca.crt");
        assert_eq!(scrape["authorization"]["credentials_file"], "/a b/token");
        assert_eq!(scrape["static_configs"][0]["targets"], json!(["127.0.0.1:6443"]));
    }
}
