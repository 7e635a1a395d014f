//! The scale subresource: a view of three of an object's fields.

use super::Server;
use super::answer::{self, Body};
use super::handle::{Ask, not_allowed};
use crate::decode;
use crate::jsonpath;
use crate::negotiate::{Accepted, Form, Offer};
use crate::query::WriteOptions;
use crate::registry::{Answer, Attempt, Call, Object, PatchKind, Served, Target, internal};
use crate::status::Status;
use crate::table;
use api::field::{Error, Path};
use http::{Method, Response};
use merge::{json_patch, merge_patch};
use serde_json::{Value, json};
use std::sync::Arc;

fn text<'a>(scale: &'a Value, field: &str) -> &'a str {
    scale.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// The Scale of an object.
fn view(served: &Served, object: &Value, paths: &Value, writing: bool) -> Result<Value, Status> {
    let number = |field: &str| jsonpath::simple(object, text(paths, field)).and_then(Value::as_i64);
    // A write may be what sets them.
    let Some(replicas) = number("specReplicasPath").or(writing.then_some(0)) else {
        let path = text(paths, "specReplicasPath");
        return Err(internal(format!("the spec replicas field \"{path}\" does not exist")));
    };
    let mut meta = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object["metadata"].get(field) {
            meta[field] = value.clone();
        }
    }
    let mut status = json!({"replicas": number("statusReplicasPath").unwrap_or(0)});
    if let Some(selector) = paths.get("labelSelectorPath").and_then(Value::as_str)
        && let Some(Value::String(found)) = jsonpath::simple(object, selector)
        && !found.is_empty()
    {
        status["selector"] = found.clone().into();
    }
    let scaled = served.resource.strategy.scaled_pods(object);
    if !scaled.is_empty() {
        status["selector"] = scaled.into();
    }
    Ok(json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": meta,
        "spec": {"replicas": replicas}, "status": status,
    }))
}

/// A Scale as kubectl's table.
fn table_of(scale: &Value, accepted: &Accepted, now: jiff::Timestamp) -> Response<Body> {
    let column = |name: &str, kind: &str, format: &str, description: &str| json!({"name": name, "type": kind, "format": format, "description": description, "priority": 0});
    let columns = json!([
        column("Name", "string", "name", "Name of the scaled object."),
        column("Desired", "integer", "", "Number of replicas that are wanted."),
        column("Available", "integer", "", "Number of replicas that were last counted."),
        column("Age", "date", "", "Time since the object was made."),
    ]);
    let created = api::object::meta(scale, "creationTimestamp").parse();
    let age = created.map_or_else(|_| "<unknown>".to_owned(), |then| table::age(then, now));
    let cells = vec![
        api::object::meta(scale, "name").into(),
        scale["spec"]["replicas"].clone(),
        scale["status"]["replicas"].clone(),
        age.into(),
    ];
    let row = table::Row::of(cells, scale, accepted.form_version);
    let meta = json!({"resourceVersion": api::object::resource_version(scale)});
    let shaped = table::table(Some(columns), [row], &meta, accepted.form_version);
    answer::encode(200, shaped, accepted)
}

/// Sets a field by a path of plain members.
fn set(object: &mut Value, path: &str, value: Value) {
    let mut at = object;
    for member in path.trim_start_matches('.').split('.') {
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[member];
    }
    *at = value;
}

impl Server {
    pub(crate) async fn scale(self: &Arc<Self>, ask: &Ask, target: &Target) -> Result<Response<Body>, Status> {
        let paths = &target.served.scale().ok_or_else(not_allowed)?;
        let builtin = target.served.custom.is_none();
        let accepted = crate::negotiate::accept(
            ask.header(http::header::ACCEPT),
            Offer { protobuf: builtin, forms: true, watch: false },
        )?;
        if ask.method == Method::GET {
            let scale = view(&target.served, self.core.get(target)?.value(), paths, false)?;
            if accepted.form == Form::Table {
                return Ok(table_of(&scale, &accepted, self.core.world.now()));
            }
            let answer = Answer { code: 200, object: Object::Made(Arc::new(scale)), warnings: Vec::new() };
            return Ok(answer::object(&answer, false, &accepted));
        }
        let agent = ask.header(http::header::USER_AGENT).unwrap_or_default();
        let kind =
            PatchKind::of(&crate::negotiate::media_type(ask.header(http::header::CONTENT_TYPE).unwrap_or_default()));
        let apply = kind == Some(PatchKind::Apply);
        let options_kind = if ask.method == Method::PATCH { "PatchOptions" } else { "UpdateOptions" };
        let options = WriteOptions::parse(&ask.query, options_kind, agent, apply)?;
        let body = if apply {
            decode::yaml(&ask.body).map_err(Status::bad_request)?.0
        } else {
            decode::json(&ask.body).map_err(Status::bad_request)?.0
        };
        let attempt = || -> Result<Attempt, Status> {
            let entry = self.core.entry(target).ok_or_else(|| crate::registry::not_found(target))?;
            let old = target.served.present_value(&entry);
            let scale = view(&target.served, &old, paths, true)?;
            let wanted = match (&ask.method, kind) {
                (&Method::PATCH, Some(PatchKind::Json)) => {
                    json_patch::apply(&scale, &body).map_err(|e| Status::bad_request(e.to_string()))?
                }
                (&Method::PATCH, Some(_)) => merge_patch::apply(&scale, &body),
                (&Method::PATCH, None) => {
                    return Err(Status::new(415, "UnsupportedMediaType", "415: Unsupported Media Type"));
                }
                _ => body.clone(),
            };
            let version = api::object::resource_version(&wanted);
            if !version.is_empty() && version != entry.revision.to_string() {
                let r = &target.served.resource;
                return Err(Status::conflict(
                    &r.group,
                    &r.plural,
                    &target.name,
                    "the object has been modified; please apply your changes to the latest version and try again",
                ));
            }
            let replicas = wanted["spec"].get("replicas").and_then(Value::as_i64).unwrap_or(0);
            if replicas < 0 {
                let r = &target.served.resource;
                if builtin {
                    let path = Path::new("spec").child("replicas");
                    let error = Error::invalid(&path, replicas, "must be greater than or equal to 0");
                    return Err(Status::invalid("autoscaling", "Scale", &target.name, &vec![error]));
                }
                let path = Path::new(text(paths, "specReplicasPath"));
                let error = Error::invalid(&path, replicas, "should be a non-negative integer");
                return Err(Status::invalid(&r.group, &r.kind, &target.name, &vec![error]));
            }
            let mut new = (*old).clone();
            set(&mut new, text(paths, "specReplicasPath"), replicas.into());
            // The fields of the object itself change, so its own rules apply; who changed them did so through `scale`.
            let call = Call { target, options: &options, user: &ask.user, warnings: &[] };
            self.core.replace(&call, new, &entry, false)
        };
        let mut answer = self.core.run(self.core.may_take_long(target, ask.body.len()), attempt).await?;
        answer.object = Object::Made(Arc::new(view(&target.served, answer.object.value(), paths, true)?));
        Ok(answer::object(&answer, false, &accepted))
    }
}
