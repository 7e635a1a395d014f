//! The outside of the provider `kubernetes`: an API server that stores pods and runs commands in them.
//!
//! A pod is a folder of this machine. The scripts are the real ones, run by `sh`. The program that they bring to a pod and start there is a
//! copy of bash, which runs the scripts `node` and `relay`.

use crate::cases::{Outside, Trouble};
use crate::hosts::{Door, NODE, kill_agent};
use api::sky::{Candidate, providers};
use futures::{SinkExt, StreamExt};
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use infra::{Attention, Provider, kubernetes};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;
use tokio::runtime::Runtime;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

/// Reports that a port is open, and carries nothing.
const RELAY: &str = "echo trainyard-relay 40001\nexec cat >/dev/null\n";
const PROTOCOL: &str = "v5.channel.k8s.io";

type Body = BoxBody<Bytes, Infallible>;

#[derive(Default)]
struct State {
    pods: BTreeMap<String, Value>,
    made: usize,
    calls: usize,
    trouble: Option<(Trouble, usize)>,
    is_stuck: bool,
    is_cut: bool,
}

/// The API server.
struct Server {
    root: PathBuf,
    state: Mutex<State>,
}

pub struct Pods {
    root: tempfile::TempDir,
    server: Arc<Server>,
    runtime: Option<Runtime>,
}

/// The connection breaks without an answer.
#[derive(Debug)]
struct Broken;

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the connection breaks")
    }
}

impl std::error::Error for Broken {}

fn answer(code: u16, value: &Value) -> Response<Body> {
    let body = Full::new(Bytes::from(value.to_string())).boxed();
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response.headers_mut().insert("content-type", "application/json".parse().unwrap());
    response
}

fn refusal(code: u16, reason: &str, message: &str) -> Response<Body> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message});
    answer(code, &status)
}

fn list(items: &[&Value]) -> Value {
    json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items})
}

/// The values of a query's parameter.
fn query(request: &Request<Incoming>, name: &str) -> Vec<String> {
    let pairs = request.uri().query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    pairs.filter(|(key, _)| *key == name).map(|(_, value)| unescaped(value)).collect()
}

fn unescaped(value: &str) -> String {
    let bytes = value.replace('+', " ").into_bytes();
    let (mut text, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        if bytes[at] == b'%' {
            let digits = std::str::from_utf8(&bytes[at + 1..at + 3]).unwrap();
            text.push(u8::from_str_radix(digits, 16).unwrap());
            at += 3;
        } else {
            text.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8(text).unwrap()
}

impl Server {
    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.state.lock().unwrap())
    }

    fn folder(&self, pod: &str) -> PathBuf {
        self.root.join("pods").join(pod)
    }

    /// Answers a request, with the planned trouble.
    async fn handle(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<Body>, Broken> {
        let (is_cut, met) = self.with(|state| {
            state.calls += 1;
            let met = state.trouble.filter(|(_, at)| *at == state.calls).map(|(trouble, _)| trouble);
            (state.is_cut, met)
        });
        let stuck = || async {
            self.with(|state| state.is_stuck = true);
            std::future::pending::<()>().await;
        };
        match met {
            _ if is_cut => return Err(Broken),
            Some(Trouble::Fails) => return Err(Broken),
            Some(Trouble::KilledBefore) => stuck().await,
            _ => {}
        }
        if request.uri().path().ends_with("/exec") {
            return Ok(self.exec(request, met));
        }
        let response = self.act(request).await;
        match met {
            Some(Trouble::KilledAfter) => stuck().await,
            Some(Trouble::LosesAnswer) => return Err(Broken),
            _ => {}
        }
        Ok(response)
    }

    async fn act(self: &Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        let path = request.uri().path().to_owned();
        let parts: Vec<&str> = path.trim_start_matches("/api/v1/").split('/').collect();
        match (request.method().clone(), parts.as_slice()) {
            (Method::GET, ["namespaces", _, "pods"]) if query(&request, "watch") == ["true"] => Self::watch(),
            (Method::GET, ["namespaces", _, "pods"]) => {
                let (labels, fields) = (query(&request, "labelSelector"), query(&request, "fieldSelector"));
                let is_meant = |pod: &&Value| {
                    let label = |text: &String| {
                        text.split_once('=').is_none_or(|(name, value)| pod["metadata"]["labels"][name] == value)
                    };
                    let field =
                        |text: &String| text.split_once('=').is_none_or(|(_, value)| pod["metadata"]["name"] == value);
                    labels.iter().all(label) && fields.iter().all(field)
                };
                self.with(|state| answer(200, &list(&state.pods.values().filter(is_meant).collect::<Vec<_>>())))
            }
            (Method::GET, ["namespaces", _, "pods", name]) => match self.with(|state| state.pods.get(*name).cloned()) {
                Some(pod) => answer(200, &pod),
                None => refusal(404, "NotFound", &format!("pods \"{name}\" not found")),
            },
            (Method::POST, ["namespaces", _, "pods"]) => {
                let body = request.into_body().collect().await.unwrap().to_bytes();
                self.create(serde_json::from_slice(&body).unwrap())
            }
            (Method::DELETE, ["namespaces", _, "pods", name]) => {
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let options: Value = serde_json::from_slice(&body).unwrap_or_default();
                let uid = options["preconditions"]["uid"].clone();
                match self.with(|state| state.pods.get(*name).cloned()) {
                    None => refusal(404, "NotFound", &format!("pods \"{name}\" not found")),
                    Some(pod) if !uid.is_null() && pod["metadata"]["uid"] != uid => {
                        refusal(409, "Conflict", "the uid is another")
                    }
                    Some(pod) => {
                        self.end(name);
                        answer(200, &pod)
                    }
                }
            }
            (Method::GET, ["namespaces", _, "events"] | ["nodes"] | ["pods"]) => answer(200, &list(&[])),
            (method, _) => panic!("{method} {path}: the provider has no reason to send this"),
        }
    }

    fn create(&self, mut pod: Value) -> Response<Body> {
        let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
        self.with(|state| {
            if state.pods.contains_key(&name) {
                return refusal(409, "AlreadyExists", &format!("pods \"{name}\" already exists"));
            }
            state.made += 1;
            pod["metadata"]["uid"] = format!("uid-{}", state.made).into();
            pod["metadata"]["namespace"] = "default".into();
            pod["metadata"]["resourceVersion"] = "1".into();
            pod["spec"]["nodeName"] = "n".into();
            let container = json!({"name": "machine", "state": {"running": {}}, "ready": true});
            pod["status"] = json!({"phase": "Running", "podIP": "127.0.0.1", "containerStatuses": [container]});
            std::fs::create_dir_all(self.folder(&name)).unwrap();
            state.pods.insert(name.clone(), pod.clone());
            answer(201, &pod)
        })
    }

    /// Ends a pod and all processes in it.
    fn end(&self, name: &str) {
        self.with(|state| state.pods.remove(name));
        let machines = std::fs::read_dir(self.folder(name).join(".trainyard-machine")).into_iter().flatten().flatten();
        machines.for_each(|machine| kill_agent(&machine.path()));
        let _ = std::fs::remove_dir_all(self.folder(name)); // it may be gone
    }

    /// A watch without changes: a pod runs from its first moment on.
    fn watch() -> Response<Body> {
        let silence = futures::stream::pending::<Result<Frame<Bytes>, Infallible>>();
        Response::new(BodyExt::boxed(StreamBody::new(silence)))
    }

    fn pod_of(request: &Request<Incoming>) -> String {
        let parts: Vec<&str> = request.uri().path().split('/').collect();
        parts[parts.len() - 2].to_owned()
    }

    /// Runs a command in a pod. `None` if the pod does not exist.
    fn command(&self, request: &Request<Incoming>) -> Option<Command> {
        let (pod, words) = (Self::pod_of(request), query(request, "command"));
        let home = self.folder(&pod);
        home.is_dir().then(|| {
            let path = format!("{}:{}", self.root.join("bin").display(), std::env::var("PATH").unwrap());
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]).current_dir(&home).env("HOME", &home).env("PATH", path);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            command
        })
    }

    /// Runs a command. With a trouble, its output is lost, but it has its effect.
    fn exec(self: &Arc<Self>, request: Request<Incoming>, met: Option<Trouble>) -> Response<Body> {
        let Some(command) = self.command(&request) else {
            return refusal(404, "NotFound", "there is no such pod");
        };
        let key = derive_accept_key(request.headers()["sec-websocket-key"].as_bytes());
        let is_relay = query(&request, "command").iter().any(|word| word == "relay");
        let server = self.clone();
        tokio::spawn(async move {
            let upgraded = hyper::upgrade::on(request).await.unwrap();
            let socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, None).await;
            let ends = match met {
                None => Ends::WithItsStatus,
                // a relay has its effect once it reports so, and ends with its connection
                Some(_) if is_relay => Ends::AtTheFirstWord,
                Some(_) => Ends::InSilence,
            };
            let after = async {
                if met == Some(Trouble::KilledAfter) {
                    server.with(|state| state.is_stuck = true);
                    std::future::pending::<()>().await;
                }
            };
            talk(socket, command, ends, after).await;
        });
        let response = Response::builder().status(101).header("connection", "Upgrade").header("upgrade", "websocket");
        let response = response.header("sec-websocket-accept", key).header("sec-websocket-protocol", PROTOCOL);
        response.body(Full::new(Bytes::new()).boxed()).unwrap()
    }
}

/// How the conversation with a command ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    WithItsStatus,
    InSilence,
    AtTheFirstWord,
}

/// Carries a command's input and output over a socket, until one of them ends.
async fn talk(
    socket: WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>,
    mut command: Command,
    ends: Ends,
    after: impl Future<Output = ()>,
) {
    let mut child = command.kill_on_drop(true).spawn().unwrap();
    let (mut stdin, mut stdout, mut stderr) =
        (child.stdin.take(), child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let (mut sends, mut receives) = socket.split();
    let input = async {
        while let Some(Ok(message)) = receives.next().await {
            let bytes = message.into_data();
            match bytes.split_first() {
                Some((0, data)) => {
                    if let Some(stdin) = &mut stdin
                        && stdin.write_all(data).await.is_err()
                    {
                        break;
                    }
                }
                Some((255, [0])) => drop(stdin.take()),
                _ => {}
            }
        }
        // the receiver is gone
        drop(stdin.take());
    };
    let output = async {
        let (mut out, mut err) = ([0; 1 << 14], [0; 1 << 12]);
        let (mut has_out, mut has_err) = (true, true);
        while has_out || has_err {
            let (channel, data) = tokio::select! {
                read = stdout.read(&mut out), if has_out => (1_u8, out[..read.unwrap_or(0)].to_vec()),
                read = stderr.read(&mut err), if has_err => (2_u8, err[..read.unwrap_or(0)].to_vec()),
            };
            if data.is_empty() {
                *(if channel == 1 { &mut has_out } else { &mut has_err }) = false;
                continue;
            }
            if ends == Ends::AtTheFirstWord {
                return;
            }
            let message = [vec![channel], data].concat();
            if ends == Ends::WithItsStatus && sends.send(Message::Binary(message.into())).await.is_err() {
                return;
            }
        }
        let code = child.wait().await.unwrap().code().unwrap_or(137);
        let status = match code {
            0 => json!({"status": "Success"}),
            code => {
                let causes = [json!({"reason": "ExitCode", "message": code.to_string()})];
                json!({"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}})
            }
        };
        if ends == Ends::InSilence {
            return;
        }
        let _ = sends.send(Message::Binary([vec![3], status.to_string().into_bytes()].concat().into())).await;
        let _ = sends.close().await; // the other end may be gone
    };
    tokio::select! {
        () = output => {}
        () = input => {}
    }
    // the connection stays open until then
    after.await;
}

impl Pods {
    pub fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        std::fs::create_dir_all(at("bin")).unwrap();
        std::fs::create_dir_all(at("pods")).unwrap();
        std::fs::copy("/bin/bash", at("program")).unwrap();
        std::fs::write(at("bin/node"), NODE).unwrap();
        std::fs::write(at("bin/relay"), RELAY).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{address}")}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "default"}}],
        });
        std::fs::write(at("kubeconfig"), kubeconfig.to_string()).unwrap();
        let state = Mutex::default();
        let server = Arc::new(Server { root: root.path().to_owned(), state });
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let serving = server.clone();
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((socket, _)) = listener.accept().await {
                let server = serving.clone();
                tokio::spawn(async move {
                    let service = service_fn(move |request| server.clone().handle(request));
                    let builder = Builder::new(TokioExecutor::new());
                    // the client handles how it ends
                    let _ = builder.serve_connection_with_upgrades(TokioIo::new(socket), service).await;
                });
            }
        });
        Self { root, server, runtime: Some(runtime) }
    }
}

impl Drop for Pods {
    fn drop(&mut self) {
        let names: Vec<String> = self.server.with(|state| state.pods.keys().cloned().collect());
        names.iter().for_each(|name| self.server.end(name));
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Outside for Pods {
    fn provider(&self) -> Arc<dyn Provider> {
        let root = self.root.path();
        let settings = kubernetes::Settings {
            folder: root.join("records"),
            kubeconfig: Some(root.join("kubeconfig")),
            owner: "me".into(),
            program: root.join("program"),
            attention: Attention::default(),
        };
        Arc::new(kubernetes::Machines::new(settings, Arc::new(Door)))
    }

    fn candidate(&self) -> Candidate {
        Candidate { provider: providers::KUBERNETES.into(), region: "c".into(), ..Candidate::default() }
    }

    fn machines(&self) -> usize {
        self.server.with(|state| state.pods.len())
    }

    fn trouble(&self, trouble: Option<(Trouble, usize)>) {
        self.server.with(|state| (state.calls, state.trouble, state.is_stuck) = (0, trouble, false));
    }

    fn is_stuck(&self) -> bool {
        self.server.with(|state| state.is_stuck)
    }

    fn end(&self) -> &'static str {
        let names: Vec<String> = self.server.with(|state| state.pods.keys().cloned().collect());
        names.iter().for_each(|name| self.server.end(name));
        "was deleted from outside"
    }

    fn keeps_disk(&self) -> bool {
        false
    }

    fn cut(&self, is_cut: bool) -> bool {
        self.server.with(|state| state.is_cut = is_cut);
        true
    }
}
