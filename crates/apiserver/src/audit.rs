//! The audit log: each request's user, verb, object, time and source address, and its answer.
//!
//! Records have the shape of `audit.k8s.io/v1` Event at level Metadata: no body of a request or an answer is in them, nor a
//! header that could be a credential, nor an error's message, which may quote what was sent. Requests of this process's own
//! controllers are not recorded: nobody asked for them.

mod log;

pub use log::{Bounds, Log};

use crate::query::Query;
use crate::route::{self, Path, Route};
use http::request::Parts;
use http::{Method, StatusCode, header};
use jiff::Timestamp;
use resource::User;
use serde::Deserialize;
use serde_json::{Value, json};
use std::net::IpAddr;

/// Bytes of a path or an agent's name that are written; the rest is cut off.
const TEXT_MAX: usize = 4096;

/// The name of the object that an answer is about, where the request did not know it.
#[derive(Clone)]
pub(crate) struct Answered(pub(crate) String);

/// A request that is being answered.
pub(crate) struct Record {
    id: String,
    received: Timestamp,
    method: Method,
    uri: String,
    path: String,
    query: Query,
    agent: String,
    source: Option<IpAddr>,
    /// Who asks, once it is known; and as whom.
    pub(crate) user: Option<User>,
    pub(crate) acts_as: Option<User>,
    /// What the body is called.
    named: Named,
}

#[derive(Default, Deserialize)]
struct Body {
    #[serde(default)]
    metadata: Named,
}

#[derive(Default, Deserialize)]
struct Named {
    #[serde(default)]
    name: String,
}

fn cut(text: &str) -> String {
    let end = text.floor_char_boundary(TEXT_MAX);
    text.get(..end).unwrap_or_default().to_owned()
}

impl Record {
    pub(crate) fn begin(parts: &Parts, source: Option<IpAddr>, id: String, now: Timestamp) -> Self {
        let agent = parts.headers.get(header::USER_AGENT).map(|agent| String::from_utf8_lossy(agent.as_bytes()));
        let uri = parts.uri.path_and_query().map_or(parts.uri.path(), |all| all.as_str());
        Self {
            id,
            received: now,
            method: parts.method.clone(),
            uri: cut(uri),
            path: parts.uri.path().to_owned(),
            query: Query::parse(parts.uri.query().unwrap_or_default()),
            agent: cut(&agent.unwrap_or_default()),
            source,
            user: None,
            acts_as: None,
            named: Named::default(),
        }
    }

    /// Looks for the name of what is created: it is not in the path.
    pub(crate) fn read(&mut self, body: &[u8]) {
        if self.method == Method::POST {
            // another encoding, or no object: then there is no name to tell
            self.named = serde_json::from_slice::<Body>(body).unwrap_or_default().metadata;
        }
    }

    pub(crate) fn finish(self, code: StatusCode, answered: Option<&Answered>, now: Timestamp) -> Value {
        let parsed = route::parse(&self.path);
        let (verb, object) = match &parsed {
            Route::Resource(path) => {
                let verb = crate::http::verb_of(&self.method, path, &self.query);
                let fallback = answered.map(|Answered(name)| name.as_str()).unwrap_or_default();
                let name = [path.name.as_str(), self.named.name.as_str(), fallback].into_iter().find(|n| !n.is_empty());
                (verb.to_owned(), Some(reference(path, name.unwrap_or_default())))
            }
            Route::Discovery(_) | Route::Other(_) => (self.method.as_str().to_lowercase(), None),
        };
        let streams = ["log", "exec", "attach", "portforward", "proxy"];
        let goes_on = code.is_informational()
            || verb == "watch"
            || matches!(&parsed, Route::Resource(path) if streams.contains(&path.subresource.as_str()));
        let mut event = json!({
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "level": "Metadata",
            "auditID": self.id,
            "stage": if goes_on && code.as_u16() < 400 { "ResponseStarted" } else { "ResponseComplete" },
            "requestURI": self.uri,
            "verb": verb,
            "user": self.user.as_ref().map_or_else(|| json!({}), info),
            "sourceIPs": self.source.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "userAgent": self.agent,
            "responseStatus": {"metadata": {}, "code": code.as_u16()},
            "requestReceivedTimestamp": format!("{:.6}", self.received),
            "stageTimestamp": format!("{now:.6}"),
        });
        if code.as_u16() >= 400 {
            event["responseStatus"]["status"] = "Failure".into();
        }
        if let Some(user) = &self.acts_as {
            event["impersonatedUser"] = info(user);
        }
        if let Some(object) = object {
            event["objectRef"] = object;
        }
        event
    }
}

fn info(user: &User) -> Value {
    let mut info = json!({"username": cut(&user.name), "groups": user.groups});
    if !user.uid.is_empty() {
        info["uid"] = user.uid.clone().into();
    }
    if !user.extra.is_empty() {
        info["extra"] = json!(user.extra);
    }
    info
}

fn reference(path: &Path, name: &str) -> Value {
    let mut object = json!({"resource": path.plural, "apiVersion": path.version});
    let members = [
        ("namespace", path.namespace.as_str()),
        ("name", name),
        ("apiGroup", path.group.as_str()),
        ("subresource", path.subresource.as_str()),
    ];
    for (member, text) in members {
        if !text.is_empty() {
            object[member] = cut(text).into();
        }
    }
    object
}
