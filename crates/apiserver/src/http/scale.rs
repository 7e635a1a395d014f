//! The scale subresource: a view of three of an object's fields.

use super::Server;
use super::answer::{self, Body};
use super::handle::{Ask, not_allowed};
use crate::decode;
use crate::negotiate::{Accepted, Form, Offer};
use crate::query::WriteOptions;
use crate::registry::{Answer, Attempt, Call, Object, PatchKind, Served, Target, internal, same_revision};
use crate::table;
use api::field::{Error, Path};
use http::{Method, Response};
use merge::{json_patch, merge_patch};
use resource::jsonpath;
use resource::status::Status;
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
    // none is what an absent number means
    let spec = if replicas == 0 { json!({}) } else { json!({"replicas": replicas}) };
    Ok(json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": meta, "spec": spec, "status": status}))
}

/// The Scale, or its metadata where the client wants no more.
fn partial(scale: Value, accepted: &Accepted) -> Value {
    match accepted.form {
        Form::Metadata => {
            let version = format!("meta.k8s.io/{}", accepted.form_version);
            json!({"kind": "PartialObjectMetadata", "apiVersion": version, "metadata": scale["metadata"]})
        }
        _ => scale,
    }
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
        scale["spec"].get("replicas").cloned().unwrap_or_else(|| 0.into()),
        scale["status"]["replicas"].clone(),
        age.into(),
    ];
    let row = table::Row::of(cells, scale, accepted.form_version);
    let meta = json!({"resourceVersion": api::object::resource_version(scale)});
    let shaped = table::table(Some(columns), [|out: &mut Vec<u8>| row.write(out)], &meta, accepted.form_version);
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
    /// Upstream cannot apply to the scale of a custom resource: it has no form in which both have the same fields.
    fn applied_scale(&self, target: &Target) -> Status {
        let Some(entry) = self.core.entry(target) else { return crate::registry::not_found(target) };
        let paths = target.served.scale().unwrap_or_default();
        let mut field =
            text(&paths, "specReplicasPath").trim_start_matches('.').split('.').map(|part| format!("f:{part}"));
        let live = entry.value();
        let managers = live["metadata"]["managedFields"].as_array().map_or(&[][..], Vec::as_slice);
        let field: Vec<String> = field.by_ref().collect();
        let is_managed = managers
            .iter()
            .any(|manager| field.iter().try_fold(&manager["fieldsV1"], |at, part| at.get(part)).is_some());
        let to = "request to convert CR to an invalid group/version: autoscaling/v1";
        let place = if is_managed {
            format!("failed to convert new object ({}/{}", target.namespace, target.name)
        } else {
            "failed to create manager for existing fields: failed to convert live object (/".to_owned()
        };
        Status::new(500, "", format!("{place}; autoscaling/v1, Kind=Scale) to proper version: {to}"))
    }

    pub(crate) async fn scale(self: &Arc<Self>, ask: &Ask, target: &Target) -> Result<Response<Body>, Status> {
        let paths = &target.served.scale().ok_or_else(not_allowed)?;
        let builtin = target.served.custom.is_none();
        let accepted = crate::negotiate::accept(
            ask.header(http::header::ACCEPT),
            Offer { protobuf: builtin, forms: true, watch: false },
        )?;
        if ask.method == Method::GET {
            let scale = view(&target.served, &self.core.get(target)?.value(), paths, false)?;
            if accepted.form == Form::Table {
                return Ok(table_of(&scale, &accepted, self.core.world.now()));
            }
            let answer =
                Answer { code: 200, object: Object::Made(Arc::new(partial(scale, &accepted))), warnings: Vec::new() };
            return Ok(answer::object(&answer, false, &accepted));
        }
        let agent = ask.header(http::header::USER_AGENT).unwrap_or_default();
        let kind =
            PatchKind::of(&crate::negotiate::media_type(ask.header(http::header::CONTENT_TYPE).unwrap_or_default()));
        let apply = kind == Some(PatchKind::Apply);
        let options_kind = if ask.method == Method::PATCH { "PatchOptions" } else { "UpdateOptions" };
        let options = WriteOptions::parse(&ask.query, options_kind, agent, apply)?;
        if ask.method == Method::PATCH {
            match kind {
                None => {
                    let mut status = Status::new(415, "UnsupportedMediaType", "415: Unsupported Media Type");
                    status.details = Some(json!({}));
                    return Err(status);
                }
                Some(PatchKind::Strategic) if !builtin => return Err(super::verbs::custom_patches()),
                Some(PatchKind::Apply) if !builtin => return Err(self.applied_scale(target)),
                Some(_) => {}
            }
        }
        let body = if apply {
            decode::yaml(&ask.body).map_err(Status::bad_request)?.0
        } else {
            decode::json(&ask.body).map_err(Status::bad_request)?.0
        };
        let other_name = |scale: &Value| {
            let named = api::object::meta(scale, "name");
            let why = format!("the name of the object ({named}) does not match the name on the URL ({})", target.name);
            (!named.is_empty() && named != target.name).then(|| Status::bad_request(why))
        };
        if ask.method == Method::PUT
            && let Some(refusal) = other_name(&body)
        {
            return Err(refusal);
        }
        let attempt = || -> Result<Attempt, Status> {
            let entry = self.core.entry(target).ok_or_else(|| crate::registry::not_found(target))?;
            let old = target.served.present_value(&entry);
            let scale = view(&target.served, &old, paths, true)?;
            let wanted = match (&ask.method, kind) {
                (&Method::PATCH, Some(PatchKind::Json)) => {
                    json_patch::apply(&scale, &body).map_err(|e| Status::bad_request(e.to_string()))?
                }
                (&Method::PATCH, _) => merge_patch::apply(&scale, &body),
                _ => body.clone(),
            };
            let mut wanted = wanted;
            if let Err(why) = merge::builtin::decode("io.k8s.api.autoscaling.v1.Scale", &mut wanted) {
                if ask.method != Method::PATCH {
                    let why = format!("Scale in version \"v1\" cannot be handled as a Scale: {why}");
                    return Err(Status::bad_request(why));
                }
                let error = Error::invalid(&Path::new("patch"), wanted.to_string(), why);
                return Err(Status::invalid("", "", "", &vec![error]));
            }
            if let Some(refusal) = other_name(&wanted) {
                return Err(refusal);
            }
            same_revision(target, &wanted, &entry)?;
            let replicas = wanted["spec"].get("replicas").and_then(Value::as_i64).unwrap_or(0);
            if builtin && replicas < 0 {
                // a custom resource's own rules say so of their field
                let path = Path::new("spec").child("replicas");
                let error = Error::invalid(&path, replicas, "must be greater than or equal to 0");
                return Err(Status::invalid("autoscaling", "Scale", &target.name, &vec![error]));
            }
            let mut new = (*old).clone();
            set(&mut new, text(paths, "specReplicasPath"), replicas.into());
            // The fields of the object itself change, so its own rules apply; their manager is recorded as one of `scale`.
            let call = Call { target, options: &options, user: &ask.user, warnings: &[] };
            self.core.replace(&call, new, &entry, false)
        };
        let mut answer = self.core.run(self.core.may_take_long(target, ask.body.len()), attempt).await?;
        answer.object = Object::Made(Arc::new(view(&target.served, &answer.object.value(), paths, true)?));
        Ok(answer::object(&answer, false, &accepted))
    }
}
