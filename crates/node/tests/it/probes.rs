//! Probes by HTTP, HTTPS, TCP and gRPC, and lifecycle hooks: what a container is asked, and what follows.

use super::Node;
use super::cluster::script;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// A server on this machine that stands for one in a pod: pods' addresses are this machine's, too.
#[derive(Clone)]
struct Server {
    port: u16,
    healthy: Arc<AtomicBool>,
    /// The heads of the requests that came.
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    async fn start(tls: bool) -> Self {
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = Self { port, healthy: Arc::new(AtomicBool::new(true)), asked: Arc::default() };
        let acceptor = tls.then(acceptor);
        let (serving, task) = (server.clone(), server.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let task = task.clone();
                match &acceptor {
                    None => drop(tokio::spawn(task.answer(stream))),
                    Some(acceptor) => {
                        let stream = acceptor.accept(stream);
                        drop(tokio::spawn(async move {
                            if let Ok(stream) = stream.await {
                                task.answer(stream).await;
                            }
                        }));
                    }
                }
            }
        });
        serving
    }

    async fn answer(self, mut stream: impl AsyncRead + AsyncWrite + Unpin) {
        let mut head = Vec::new();
        let mut chunk = [0; 1024];
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read(&mut chunk).await {
                Ok(n) if n > 0 => head.extend_from_slice(&chunk[..n]),
                Ok(_) | Err(_) => return,
            }
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let status = match (self.healthy.load(Ordering::SeqCst), head.starts_with("GET /moved ")) {
            (true, true) => "302 Found\r\nlocation: /healthz",
            (true, false) => "200 OK",
            (false, _) => "503 Service Unavailable",
        };
        self.asked.lock().unwrap().push(head);
        let _ = stream.write_all(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").as_bytes()).await;
    }

    /// Whether a request came whose head has this in it.
    fn was_asked(&self, text: &str) -> bool {
        self.asked.lock().unwrap().iter().any(|head| head.contains(text))
    }
}

fn acceptor() -> TlsAcceptor {
    let made = rcgen::generate_simple_self_signed(["nobody.example".to_owned()]).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap();
    TlsAcceptor::from(Arc::new(config))
}

/// A pod that runs until it is stopped, with a port named `web` and these members of its container.
fn serving(port: u16, members: Value) -> Value {
    let mut spec = script("trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done");
    let container = &mut spec["containers"][0];
    container["ports"] = json!([{"name": "web", "containerPort": port}]);
    for (name, value) in members.as_object().unwrap() {
        container[name] = value.clone();
    }
    spec
}

fn is_ready(pod: &Value, ready: bool) -> bool {
    pod["status"]["containerStatuses"][0]["ready"] == ready
}

#[tokio::test]
async fn http_probes_go_by_name_scheme_and_header() {
    let node = Node::new().await;
    for (name, tls) in [("plain", false), ("tls", true)] {
        let server = Server::start(tls).await;
        let scheme = if tls { "HTTPS" } else { "HTTP" };
        let get = json!({"port": "web", "path": "moved", "scheme": scheme,
            "httpHeaders": [{"name": "X-Probe", "value": "yes"}, {"name": "Host", "value": "named"}]});
        let probe = json!({"httpGet": get, "periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 20});
        node.cluster.create(name, serving(server.port, json!({"readinessProbe": probe})));
        node.cluster.until(name, |pod| is_ready(pod, true)).await;
        for text in ["GET /moved ", "GET /healthz ", "x-probe: yes\r\n", "host: named\r\n", "user-agent: kube-probe/"] {
            assert!(server.was_asked(text), "{text:?} in {:?}", server.asked.lock().unwrap());
        }
        server.healthy.store(false, Ordering::SeqCst);
        node.cluster.until(name, |pod| is_ready(pod, false)).await;
        let event =
            ("Unhealthy".to_owned(), "Readiness probe failed: HTTP probe failed with statuscode: 503".to_owned());
        node.cluster.until_event(name, |seen| *seen == event).await;
    }
}

#[tokio::test]
async fn a_startup_probe_comes_first_and_a_failed_one_has_a_grace_of_its_own() {
    let node = Node::new().await;
    let server = Server::start(false).await;
    server.healthy.store(false, Ordering::SeqCst);
    let get = json!({"port": "web"});
    let startup = json!({"httpGet": get, "periodSeconds": 1, "failureThreshold": 1000, "timeoutSeconds": 20});
    let liveness = json!({"httpGet": {"port": "web", "path": "/live"}, "periodSeconds": 1, "failureThreshold": 1,
        "timeoutSeconds": 20, "terminationGracePeriodSeconds": 1});
    let mut spec = serving(server.port, json!({"startupProbe": startup, "livenessProbe": liveness}));
    // SIGTERM does not end it, and the pod's own grace is longer than anybody would wait
    spec["containers"][0]["command"][2] = json!("trap '' TERM; echo up; while :; do sleep 0.05; done");
    spec["terminationGracePeriodSeconds"] = json!(3600);
    spec["restartPolicy"] = json!("OnFailure");
    node.cluster.create("p", spec);
    let is_started = |pod: &Value, started: bool| pod["status"]["containerStatuses"][0]["started"] == started;
    let told = |text: &'static str| move |seen: &(String, String)| seen.1 == text;
    node.cluster.until_event("p", told("Startup probe failed: HTTP probe failed with statuscode: 503")).await;
    node.cluster.until("p", |pod| is_started(pod, false) && is_ready(pod, false)).await;
    assert!(!server.was_asked("GET /live"), "liveness waits for the startup probe");
    server.healthy.store(true, Ordering::SeqCst);
    node.cluster.until("p", |pod| is_started(pod, true) && is_ready(pod, true)).await;
    server.healthy.store(false, Ordering::SeqCst);
    node.cluster.until_event("p", told("Container node failed liveness probe, will be restarted")).await;
    let restarted = |pod: &Value| pod["status"]["containerStatuses"][0]["restartCount"] == 1;
    let pod = node.cluster.until("p", restarted).await;
    assert_eq!(pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"], 137);
}

#[tokio::test]
async fn a_socket_is_enough_for_a_tcp_probe_and_a_port_must_exist() {
    let node = Node::new().await;
    let server = Server::start(false).await;
    let probe = |port: Value| json!({"readinessProbe": {"tcpSocket": {"port": port}, "periodSeconds": 1, "timeoutSeconds": 20}});
    node.cluster.create("p", serving(server.port, probe(json!("web"))));
    node.cluster.create("q", serving(server.port, probe(json!("other"))));
    node.cluster.until("p", |pod| is_ready(pod, true)).await;
    let why = "Readiness probe failed: invalid port \"other\": container \"node\" has no port of that name";
    node.cluster.until_event("q", |(_, text)| text == why).await;
}

#[tokio::test]
async fn what_a_command_prints_is_why_it_failed() {
    let node = Node::new().await;
    // what it leaves behind holds the pipe: nobody waits for that
    let command = json!(["sh", "-c", "sleep 98760 & echo not yet; echo never >&2; exit 1"]);
    let probe = json!({"exec": {"command": command}, "periodSeconds": 1, "timeoutSeconds": 20});
    node.cluster.create("p", serving(1, json!({"readinessProbe": probe})));
    node.cluster.until_event("p", |(_, text)| text == "Readiness probe failed: not yet\nnever\n").await;
}

#[tokio::test]
async fn hooks_ask_over_http() {
    let node = Node::new().await;
    let server = Server::start(true).await;
    server.healthy.store(false, Ordering::SeqCst); // any answer will do
    let get = |path: &str| json!({"httpGet": {"port": "web", "path": path, "scheme": "HTTPS"}});
    let lifecycle = json!({"postStart": get("/started"), "preStop": get("/stopping")});
    node.cluster.create("p", serving(server.port, json!({"lifecycle": lifecycle})));
    node.cluster.until_phase("p", "Running").await;
    node.log_has("p", "node", "up").await;
    node.cluster.delete("p", 60);
    node.cluster.until("p", Value::is_null).await;
    assert!(server.was_asked("GET /started "), "{:?}", server.asked.lock().unwrap());
    assert!(server.was_asked("GET /stopping "), "{:?}", server.asked.lock().unwrap());
    let events = node.cluster.events("p");
    assert!(!events.iter().any(|(reason, _)| reason.starts_with("Failed")), "{events:?}");
}

#[tokio::test]
async fn a_container_ends_with_its_failed_post_start_hook() {
    let node = Node::new().await;
    let unused = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let hooks = [
        ("http", json!({"httpGet": {"port": unused}})),
        ("tcp", json!({"tcpSocket": {"port": unused}})),
        ("exec", json!({"exec": {"command": ["false"]}})),
    ];
    for (name, hook) in hooks {
        node.cluster.create(name, serving(unused, json!({"lifecycle": {"postStart": hook}})));
        let failed = ("FailedPostStartHook".to_owned(), "PostStartHook failed".to_owned());
        node.cluster.until_event(name, |event| *event == failed).await;
        node.cluster.until(name, |pod| !pod["status"]["containerStatuses"][0]["state"]["terminated"].is_null()).await;
    }
}

#[tokio::test]
async fn a_failed_pre_stop_hook_is_told_and_the_container_asked_all_the_same() {
    let node = Node::new().await;
    let mut spec = serving(1, json!({"lifecycle": {"preStop": {"tcpSocket": {"port": 1}}}}));
    spec["containers"][0]["command"][2] = json!("trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.05; done");
    node.cluster.create("p", spec);
    node.log_has_once_running("p", "up").await;
    node.cluster.declare("p", json!({"phase": "Failed"})); // stops it, and leaves the object to look at
    let pod =
        node.cluster.until("p", |pod| !pod["status"]["containerStatuses"][0]["state"]["terminated"].is_null()).await;
    assert_eq!(pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 7);
    node.cluster.until_event("p", |(reason, _)| reason == "FailedPreStopHook").await;
}

#[tokio::test]
async fn later_containers_wait_for_a_post_start_hook() {
    let node = Node::new().await;
    let hook = json!({"postStart": {"exec": {"command": ["sh", "-c", "until [ -e /v/go ]; do sleep 0.02; done; echo hook >> /v/order"]}}});
    let mount = json!([{"name": "v", "mountPath": "/v"}]);
    let container =
        |name: &str, text: &str| json!({"name": name, "command": ["sh", "-c", text], "volumeMounts": mount});
    let mut first = container("a", "touch /v/go; until grep -q b /v/order; do sleep 0.02; done");
    first["lifecycle"] = hook;
    let spec = json!({"restartPolicy": "Never", "volumes": [{"name": "v", "emptyDir": {}}],
        "containers": [first, container("b", "echo b >> /v/order; cat /v/order")]});
    node.cluster.create("p", spec);
    node.cluster.until_phase("p", "Succeeded").await;
    assert_eq!(node.log("p", "b").await, "hook\nb\n");
}

#[tokio::test]
async fn a_sleep_after_the_start_holds_up_what_comes_later() {
    let node = Node::new().await;
    let container = |name: &str, text: &str| json!({"name": name, "command": ["sh", "-c", text]});
    let mut first = container("a", "until [ -e /v/go ]; do sleep 0.02; done");
    first["lifecycle"] = json!({"postStart": {"sleep": {"seconds": 1}}});
    let mut second = container("b", "touch /v/go");
    for container in [&mut first, &mut second] {
        container["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    }
    let volumes = json!([{"name": "v", "emptyDir": {}}]);
    node.cluster.create("p", json!({"restartPolicy": "Never", "volumes": volumes, "containers": [first, second]}));
    node.cluster.until_phase("p", "Succeeded").await;
    let records = node.dir("p").read_journal().unwrap();
    let started = |wanted: &str| {
        let mut running = records.iter().filter_map(|record| match &record.event {
            node::wire::Event::Running { container, .. } if container == wanted => Some(record.at),
            _ => None,
        });
        running.next().unwrap()
    };
    assert!(started("b").duration_since(started("a")).as_millis() >= 1000);
}
