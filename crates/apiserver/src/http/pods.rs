//! Logs of pods and shells in them: checks the requests, which the node agent then carries out.

use super::Server;
use super::answer::{Body, response};
use super::handle::Ask;
use super::{proxy, upgrade};
use crate::authorize::{self, ResourceAsk};
use crate::query::{Manner, Query};
use crate::registry::{Review, Target, internal};
use bytes::Bytes;
use futures::StreamExt;
use http::Response;
use resource::admission::{Objects, Operation};
use resource::status::Status;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use streams::{LogOptions, Socket, StreamKind, StreamOptions};

/// Protocols over WebSocket, best first.
const CHANNEL_PROTOCOLS: [&str; 2] = ["v5.channel.k8s.io", "v4.channel.k8s.io"];
const FORWARD_PROTOCOLS: [&str; 3] = ["SPDY/3.1+portforward.k8s.io", "v5.channel.k8s.io", "v4.channel.k8s.io"];
/// Protocols over SPDY, of which the client's order counts.
const SPDY_PROTOCOLS: [&str; 5] =
    ["v5.channel.k8s.io", "v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"];
const SPDY_FORWARD_PROTOCOLS: [&str; 1] = ["portforward.k8s.io"];

fn names<'a>(pod: &'a Value, list: &str) -> impl Iterator<Item = &'a str> {
    pod["spec"][list].as_array().into_iter().flatten().filter_map(|c| c["name"].as_str())
}

/// The container that a request means, or why that cannot be said.
fn container(pod: &Value, asked: &str) -> Result<String, Status> {
    let name = api::object::meta(pod, "name");
    let all = || names(pod, "initContainers").chain(names(pod, "containers")).chain(names(pod, "ephemeralContainers"));
    if !asked.is_empty() {
        return if all().any(|c| c == asked) {
            Ok(asked.to_owned())
        } else {
            Err(Status::bad_request(format!("container {asked} is not valid for pod {name}")))
        };
    }
    let main: Vec<&str> = names(pod, "containers").collect();
    match main.as_slice() {
        [only] => Ok((*only).to_owned()),
        [] => Err(Status::bad_request(format!("a container name must be specified for pod {name}"))),
        many => {
            if let Some(chosen) = api::object::annotation(pod, "kubectl.kubernetes.io/default-container")
                && all().any(|c| c == chosen)
            {
                return Ok(chosen.to_owned());
            }
            let init: Vec<&str> = names(pod, "initContainers").collect();
            let all = [init.as_slice(), many].concat();
            let why = format!("a container name must be specified for pod {name}, choose one of: [{}]", all.join(" "));
            Err(Status::bad_request(why))
        }
    }
}

/// The ports that a client wants forwarded.
fn ports(query: &Query) -> impl Iterator<Item = u16> + '_ {
    query.all("ports").flat_map(|ports| ports.split(',')).filter_map(|port| port.parse().ok())
}

impl Server {
    pub(crate) async fn pod_stream(self: &Arc<Self>, ask: &Ask, target: &Target) -> Result<Response<Body>, Status> {
        if target.subresource != "log" {
            self.may_connect(ask, target)?;
            self.admit_connection(ask, target)?;
        }
        let pod = self.core.get(&Target { subresource: String::new(), ..target.clone() })?.value();
        match target.subresource.as_str() {
            "log" => self.log(ask, &pod).await,
            "exec" => self.stream(ask, &pod, StreamKind::Exec).await,
            "attach" => self.stream(ask, &pod, StreamKind::Attach).await,
            _ => self.stream(ask, &pod, StreamKind::PortForward).await,
        }
    }

    /// A WebSocket begins with a GET, but what it can do to a pod is more than reading.
    ///
    /// Source: `pkg/registry/core/pod/rest/authorize.go` of Kubernetes 1.36.
    ///
    /// # Errors
    /// 403 where the user may not create the subresource.
    fn may_connect(&self, ask: &Ask, target: &Target) -> Result<(), Status> {
        let Target { namespace, name, subresource, .. } = target;
        let created =
            ResourceAsk { verb: "create", resource: "pods", subresource, namespace, name, ..ResourceAsk::default() };
        authorize::may(&self.core, &ask.user, &created).map_err(|_| Status::forbidden("", "pods", name, ""))
    }

    /// Lets policies judge a connection to a pod, by its options as an object; whether there is such a pod is looked at later.
    ///
    /// # Errors
    /// The refusal of a policy.
    pub(super) fn admit_connection(&self, ask: &Ask, target: &Target) -> Result<(), Status> {
        let own = target.served.subresource(&target.subresource);
        let kind = own.map_or("", |own| own.kind.as_str());
        let mut options = json!({"kind": kind, "apiVersion": "v1"});
        match target.subresource.as_str() {
            "portforward" => {
                let ports: Vec<u16> = ports(&ask.query).collect();
                if !ports.is_empty() {
                    options["ports"] = ports.into();
                }
            }
            "proxy" => options["path"] = format!("/{}", proxy::rest(ask)).into(),
            _ => {
                for flag in ["stdin", "stdout", "stderr", "tty"].into_iter().filter(|flag| ask.query.flag(flag)) {
                    options[flag] = true.into();
                }
                if !ask.query.text("container").is_empty() {
                    options["container"] = ask.query.text("container").into();
                }
                if target.subresource == "exec" {
                    options["command"] = ask.query.all("command").collect();
                }
            }
        }
        let manner = Manner { dry_run: false, given: None };
        let review = Review { target, operation: Operation::Connect, old: None, user: &ask.user, manner };
        self.core.admit_body(&review, &options, &mut Vec::new())
    }

    /// The pod's node must exist. Where it does not, upstream says that a *pod* of the node's name is not found.
    fn check_node(&self, pod: &Value) -> Result<(), Status> {
        let node = api::object::text(&pod["spec"], "nodeName");
        match Objects::get(&*self.core, "", "nodes", "", node) {
            Some(_) => Ok(()),
            None => Err(Status::not_found("", "pods", node)),
        }
    }

    async fn log(&self, ask: &Ask, pod: &Arc<Value>) -> Result<Response<Body>, Status> {
        let options = log_options(ask, pod, self.core.world.now())?;
        let container = container(pod, &options.container)?;
        if api::object::text(&pod["spec"], "nodeName").is_empty() {
            // Nothing has run yet: an empty log, as upstream.
            let mut answer = response(204, "text/plain", Bytes::new());
            answer.headers_mut().remove(http::header::CONTENT_TYPE);
            return Ok(answer);
        }
        self.check_node(pod)?;
        let streams = self.streams.as_ref().ok_or_else(|| no_agent(pod))?;
        let stream = streams.logs(pod.clone(), LogOptions { container, ..options }).await?;
        let mut answer = response(200, "text/plain", Bytes::new());
        *answer.body_mut() = Body::from_stream(stream.map(Ok::<_, Infallible>));
        Ok(answer)
    }

    async fn stream(&self, ask: &Ask, pod: &Arc<Value>, kind: StreamKind) -> Result<Response<Body>, Status> {
        let query = &ask.query;
        let mut options = StreamOptions {
            container: String::new(),
            command: query.all("command").map(str::to_owned).collect(),
            stdin: query.flag("stdin"),
            stdout: query.flag("stdout"),
            stderr: query.flag("stderr"),
            tty: query.flag("tty"),
            ports: ports(query).collect(),
            protocol: String::new(),
        };
        if kind != StreamKind::PortForward {
            if options.tty && options.stderr {
                options.stderr = false;
            }
            options.container = container(pod, query.text("container"))?;
        }
        if api::object::text(&pod["spec"], "nodeName").is_empty() {
            return Err(Status::bad_request(format!(
                "pod {} does not have a host assigned",
                api::object::meta(pod, "name")
            )));
        }
        self.check_node(pod)?;
        // what a node's agent would answer
        if kind != StreamKind::PortForward && !options.stdin && !options.stdout && !options.stderr {
            return Err(Status::bad_request("you must specify at least 1 of stdin, stdout, stderr"));
        }
        if kind == StreamKind::Exec && options.command.is_empty() {
            return Err(Status::bad_request("you must specify at least one command for the container"));
        }
        let agent = self.streams.clone().ok_or_else(|| no_agent(pod))?;
        agent.check(pod, kind, &options).await?;
        let forwards = kind == StreamKind::PortForward;
        let pod = pod.clone();
        if upgrade::wanted(ask, "SPDY/3.1") {
            let protocols: &[&str] = if forwards { &SPDY_FORWARD_PROTOCOLS } else { &SPDY_PROTOCOLS };
            return upgrade::to_spdy(ask, protocols, move |protocol, io| {
                options.protocol = protocol;
                Box::pin(::streams::speak(agent, pod, kind, options, Socket::Spdy(io)))
            });
        }
        if !upgrade::wanted(ask, "websocket") {
            return Err(Status::bad_request("Upgrade request required"));
        }
        let protocols: &[&str] = if forwards { &FORWARD_PROTOCOLS } else { &CHANNEL_PROTOCOLS };
        let offered = ask.header(http::header::SEC_WEBSOCKET_PROTOCOL).unwrap_or_default();
        let offered: Vec<&str> = offered.split(',').map(str::trim).collect();
        let protocol = protocols.iter().find(|p| offered.contains(p)).copied().unwrap_or_default();
        options.protocol = protocol.to_owned();
        upgrade::to_frames(ask, protocol, move |io| {
            Box::pin(::streams::speak(agent, pod, kind, options, Socket::WebSocket(io)))
        })
    }
}

fn no_agent(pod: &Value) -> Status {
    internal(format!("no node agent answers for the node {:?}", api::object::text(&pod["spec"], "nodeName")))
}

fn log_options(ask: &Ask, pod: &Value, now: jiff::Timestamp) -> Result<LogOptions, Status> {
    use api::field::{Error, ErrorList, Path};
    let query = &ask.query;
    let mut errors = ErrorList::new();
    let tail_lines = query.int("tailLines")?;
    let limit_bytes = query.int("limitBytes")?;
    let since_secs = query.int("sinceSeconds")?;
    let since_time = query.text("sinceTime");
    if let Some(lines) = tail_lines.filter(|n| *n < 0) {
        errors.push(Error::invalid(&Path::new("tailLines"), lines, "must be greater than or equal to 0"));
    }
    if let Some(bytes) = limit_bytes.filter(|n| *n < 1) {
        errors.push(Error::invalid(&Path::new("limitBytes"), bytes, "must be greater than 0"));
    }
    if since_secs.is_some() && !since_time.is_empty() {
        errors
            .push(Error::forbidden(&Path::new("[]"), "at most one of `sinceTime` or `sinceSeconds` may be specified"));
    } else if let Some(secs) = since_secs.filter(|n| *n < 1) {
        errors.push(Error::invalid(&Path::new("sinceSeconds"), secs, "must be greater than 0"));
    }
    let since = match (since_secs, since_time) {
        (Some(secs), _) => Some(api::time::earlier_secs(now, secs)),
        (None, "") => None,
        (None, text) => Some(text.parse().map_err(|error| Status::bad_request(format!("{error}")))?),
    };
    if !errors.is_empty() {
        return Err(Status::invalid("", "PodLogOptions", api::object::meta(pod, "name"), &errors));
    }
    Ok(LogOptions {
        container: query.text("container").to_owned(),
        follow: query.flag("follow"),
        previous: query.flag("previous"),
        timestamps: query.flag("timestamps"),
        since,
        tail_lines,
        limit_bytes,
    })
}
