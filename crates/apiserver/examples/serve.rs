//! The API server alone, for development: no controllers, no node agent.
//!
//! `cargo run -p apiserver --example serve -- --listen 127.0.0.1:6443 --token T [--data DIR] [--crds DIR]`

use apiserver::auth::Authenticator;
use apiserver::{Options, Server, tls_config};
use clap::Parser;
use resource::User;
use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

#[derive(Parser)]
struct Args {
    #[arg(long, default_value = "127.0.0.1:6443")]
    listen: String,
    /// Keeps objects here; without it, in memory.
    #[arg(long)]
    data: Option<PathBuf>,
    /// The administrator's bearer token.
    #[arg(long)]
    token: String,
    /// Custom resource definitions (YAML or JSON) to create at start.
    #[arg(long)]
    crds: Vec<PathBuf>,
    /// No TLS.
    #[arg(long)]
    insecure: bool,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    tracing_subscriber::fmt().with_env_filter(tracing_subscriber::EnvFilter::from_default_env()).init();
    let database = match &args.data {
        Some(dir) => {
            std::fs::create_dir_all(dir)?;
            Some(dir.join("store.sqlite"))
        }
        None => None,
    };
    let authenticator = Authenticator::default().with_token(&args.token, User::admin());
    let started = std::time::Instant::now();
    let options = Options { database, authenticator, ..Options::new(kinds::built_in()) };
    let server = tokio::task::spawn_blocking(move || Server::new(options)).await??;
    eprintln!("started in {:?}", started.elapsed());
    tokio::spawn(server.clone().follow_definitions());
    tokio::spawn(furnish(server.clone()));
    for dir in &args.crds {
        create_all(&server, dir).await?;
    }
    let tls = if args.insecure {
        None
    } else {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
        let cert = rcgen::generate_simple_self_signed(names)?;
        Some(tls_config(&cert.cert.pem(), &cert.signing_key.serialize_pem(), None)?)
    };
    let listener = tokio::net::TcpListener::bind(&args.listen).await?;
    eprintln!("listening on {}", listener.local_addr()?);
    server.serve(listener, tls, async { drop(tokio::signal::ctrl_c().await) }).await;
    Ok(())
}

/// What a cluster's controllers do for namespaces, as far as recordings need it: the default service account and the CA's
/// config map come, and what is in a namespace goes with it.
async fn furnish(server: Arc<Server>) {
    use resource::admission::Objects;
    loop {
        for namespace in Objects::list(&*server.core, "", "namespaces", "") {
            let name = api::object::meta(&namespace, "name");
            if api::object::is_terminating(&namespace) {
                empty(&server, name).await;
                continue;
            }
            for (plural, kind, object) in
                [("serviceaccounts", "ServiceAccount", "default"), ("configmaps", "ConfigMap", "kube-root-ca.crt")]
            {
                if Objects::get(&*server.core, "", plural, name, object).is_none() {
                    let body = format!(r#"{{"apiVersion":"v1","kind":"{kind}","metadata":{{"name":"{object}"}}}}"#);
                    send(&server, "POST", &format!("/api/v1/namespaces/{name}/{plural}"), body).await;
                }
            }
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// Deletes what is in a namespace, and then its finalizer.
async fn empty(server: &Arc<Server>, namespace: &str) {
    let catalog = server.core.catalog();
    let mut left = 0;
    for served in catalog.kinds.values().filter(|s| s.resource.namespaced && s.resource.verbs.contains(&"delete")) {
        let snapshot = server.core.store.snapshot(&served.bucket);
        for entry in snapshot.iter(Some(namespace), None) {
            left += 1;
            if !api::object::is_terminating(&entry.value()) {
                let r = &served.resource;
                let group = if r.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", r.group) };
                let path = format!("{group}/{}/namespaces/{namespace}/{}/{}", r.version, r.plural, entry.key.name);
                send(server, "DELETE", &path, r#"{"gracePeriodSeconds":0}"#.to_owned()).await;
            }
        }
    }
    if left == 0 {
        let body =
            format!(r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"{namespace}"}},"spec":{{}}}}"#);
        send(server, "PUT", &format!("/api/v1/namespaces/{namespace}/finalize"), body).await;
    }
}

async fn send(server: &Arc<Server>, method: &str, path: &str, body: String) {
    use tower::Service as _;
    let body = http_body_util::Full::new(bytes::Bytes::from(body));
    if let Ok(request) =
        http::Request::builder().method(method).uri(path).header("content-type", "application/json").body(body)
    {
        let Ok(_) = server.service(User::admin()).call(request).await;
    }
}

/// POSTs every definition in a folder.
async fn create_all(server: &Arc<Server>, dir: &PathBuf) -> Result<(), Box<dyn Error>> {
    use http_body_util::BodyExt as _;
    use tower::Service as _;
    let mut service = server.service(User::admin());
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir)?.filter_map(|f| Some(f.ok()?.path())).collect();
    files.sort();
    for file in files {
        let text = std::fs::read_to_string(&file)?;
        for document in text.split("\n---") {
            if !document.contains("kind: CustomResourceDefinition")
                && !document.contains("\"CustomResourceDefinition\"")
            {
                continue;
            }
            let request = http::Request::post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
                .header("content-type", "application/yaml")
                .body(http_body_util::Full::new(bytes::Bytes::from(document.to_owned())))?;
            let response = service.call(request).await?;
            let code = response.status();
            let body = response.into_body().collect().await?.to_bytes();
            if !code.is_success() && code != 409 {
                eprintln!("{}: {code} {}", file.display(), String::from_utf8_lossy(&body));
            }
        }
    }
    Ok(())
}
