//! The scale subresource: a view of three of an object's fields.

use super::Server;
use super::answer::{self, Body};
use super::handle::{Ask, not_allowed};
use crate::decode::{self, Format};
use crate::negotiate::{self, Accepted, Form, Offer};
use crate::query::WriteOptions;
use crate::registry::scale::{text, view};
use crate::registry::{
    Answer, Attempt, Call, Object, PatchKind, Pruned, Review, Target, Tracked, enforce_namespace, other_uid,
    same_revision,
};
use crate::table;
use api::field::{Error, Path};
use http::{Method, Response};
use merge::apply::{self, ApplyError, Ignored, Writer};
use merge::{json_patch, merge_patch, strategic};
use resource::admission::Operation;
use resource::jsonpath;
use resource::status::Status;
use serde_json::{Value, json};
use std::sync::Arc;

/// The answer to a request about a Scale, in the form that was asked for. `builtin`: of a built-in kind.
fn shown(
    scale: Value,
    builtin: bool,
    accepted: &Accepted,
    now: jiff::Timestamp,
    warnings: Vec<String>,
) -> Result<Response<Body>, Status> {
    let scale = match accepted.form {
        Form::Table => return Ok(table_of(&scale, builtin, accepted, now)),
        Form::MetadataList => {
            let package = if builtin { "autoscaling" } else { "v1" };
            let why = format!(
                "you requested PartialObjectMetadataList, but the requested object is not a list (*{package}.Scale)"
            );
            return Err(Status::new(406, "NotAcceptable", why));
        }
        Form::Metadata => table::metadata(&scale, accepted.form_version),
        Form::Object => scale,
    };
    let answer = Answer { code: 200, object: Object::Made(Arc::new(scale)), warnings };
    Ok(answer::object(&answer, false, accepted))
}

/// A Scale as kubectl's table.
fn table_of(scale: &Value, builtin: bool, accepted: &Accepted, now: jiff::Timestamp) -> Response<Body> {
    let column = |name: &str, kind: &str, format: &str, description: &str| json!({"name": name, "type": kind, "format": format, "description": description, "priority": 0});
    // upstream prints those of custom kinds by a table of its own
    let (name, age) = if builtin { ("", "string") } else { ("name", "date") };
    let columns = json!([
        column("Name", "string", name, "Name of the scaled object."),
        column("Desired", "integer", "", "Number of replicas that are wanted."),
        column("Available", "integer", "", "Number of replicas that were last counted."),
        column("Age", age, "", "Time since the object was made."),
    ]);
    let created = api::object::meta(scale, "creationTimestamp").parse();
    let age = created.map_or_else(|_| "<unknown>".to_owned(), |then| table::age(then, now));
    let cells = vec![
        api::object::meta(scale, "name").into(),
        scale["spec"].get("replicas").cloned().unwrap_or_else(|| if builtin { 0.into() } else { Value::Null }),
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

/// Where upstream cannot read the scale of a custom kind, it does not know the type that it wanted either.
fn unreadable() -> Status {
    Status::bad_request("no kind is registered for the type v1.Scale in scheme \"pkg/runtime/scheme.go:111\"")
}

/// What upstream shows to the patch of a custom resource that has no number of replicas: the least of 32 bits.
const UNSET: i64 = i32::MIN as i64;

impl Server {
    /// Upstream cannot apply to the scale of a custom resource: it has no form in which both have the same fields. It
    /// finds that out after it has looked for conflicts.
    fn applied_scale(&self, target: &Target, applied: &Value, options: &WriteOptions) -> Status {
        let Some(entry) = self.core.entry(target) else { return crate::registry::not_found(target) };
        if let Err(error) = apply::check_kind(applied, "autoscaling/v1", "Scale") {
            return Status::bad_request(error.to_string());
        }
        let served = &target.served;
        let paths = served.scale().unwrap_or_default();
        let live = served.present_value(&entry);
        let to = "request to convert CR to an invalid group/version: autoscaling/v1";
        let failed =
            |place: &str| Status::new(500, "", format!("{place}; autoscaling/v1, Kind=Scale) to proper version: {to}"));
        let path = text(&paths, "specReplicasPath");
        let catalog = self.core.catalog();
        let writer = Writer {
            manager: &options.manager,
            api_version: "autoscaling/v1",
            kind: "Scale",
            subresource: &target.subresource,
            ignored: &Ignored::Nothing,
        };
        let others = apply::scale_managers(&live, &writer, path, |version| catalog.scales(served, version));
        let Some(conflicts) = others else {
            return failed("failed to create manager for existing fields: failed to convert live object (/");
        };
        let wanted = applied["spec"].get("replicas").and_then(Value::as_i64);
        let now = jsonpath::simple(&live, path).and_then(Value::as_i64);
        if !options.force && wanted.is_some() && wanted != now && !conflicts.is_empty() {
            return crate::registry::apply_refused(&ApplyError::Conflicts(conflicts));
        }
        failed(&format!("failed to convert new object ({}/{}", target.namespace, target.name))
    }

    /// Who else manages the replicas, of a built-in kind, where an apply would change them.
    fn scale_conflicts(
        &self,
        target: &Target,
        live: &Value,
        wanted: Option<i64>,
        options: &WriteOptions,
    ) -> Option<Status> {
        let served = &target.served;
        let (catalog, paths) = (self.core.catalog(), served.scale().unwrap_or_default());
        let path = text(&paths, "specReplicasPath");
        let writer = Writer {
            manager: &options.manager,
            api_version: "autoscaling/v1",
            kind: "Scale",
            subresource: &target.subresource,
            ignored: &Ignored::Nothing,
        };
        // a scale leaves out none, so that an apply of it, or of null, changes something
        let same =
            wanted.is_some_and(|wanted| wanted != 0) && jsonpath::simple(live, path).and_then(Value::as_i64) == wanted;
        if options.force || same {
            return None;
        }
        let others = apply::scale_managers(live, &writer, path, |version| catalog.scales(served, version))?;
        (!others.is_empty()).then(|| crate::registry::apply_refused(&ApplyError::Conflicts(others)))
    }

    /// The Scale in the body of an update.
    fn scale_body(ask: &Ask, builtin: bool) -> Result<Value, Status> {
        let read = match ask.content_type().as_str() {
            "" | negotiate::JSON => decode::scale(&ask.body, Format::Json),
            negotiate::YAML => decode::scale(&ask.body, Format::Yaml),
            negotiate::PROTOBUF if builtin => crate::protobuf::decode(ask.body.text())
                .map_err(|why| decode::unrecognized("Scale", &why.to_string(), ask.body.text()))
                .and_then(|value| decode::scale_of(value, &ask.body)),
            negotiate::PROTOBUF => return Err(unreadable()),
            _ => return Err(negotiate::unsupported(&[negotiate::JSON, negotiate::YAML, negotiate::PROTOBUF])),
        };
        read.map_err(|status| if builtin { status } else { unreadable() })
    }

    /// Carries out a request about a Scale.
    pub(crate) async fn scale(self: &Arc<Self>, ask: &Ask, target: &Target) -> Result<Response<Body>, Status> {
        let paths = &target.served.scale().ok_or_else(not_allowed)?;
        let builtin = target.served.custom.is_none();
        let accepted =
            ask.negotiate(Offer { protobuf: builtin, routed: builtin, forms: true, tables: true, watch: false })?;
        if ask.method == Method::GET {
            let scale = view(&target.served, &self.core.get(target)?.value(), paths, false)?;
            return shown(scale, builtin, &accepted, self.core.world.now(), Vec::new());
        }
        let rescale = self.rescale(ask, target, paths)?;
        let answer = self.core.run(self.may_take_long(ask, target), || rescale.attempt(ask)).await;
        let answer = answer.map_err(|status| status.with_warnings(&rescale.warnings))?;
        let scale = view(&target.served, &answer.object.value(), paths, true)?;
        shown(scale, builtin, &accepted, self.core.world.now(), answer.warnings)
    }

    /// Reads a request to change a Scale.
    ///
    /// # Errors
    /// What is wrong with it, whatever the object is.
    fn rescale<'a>(&'a self, ask: &Ask, target: &'a Target, paths: &'a Value) -> Result<Rescale<'a>, Status> {
        let builtin = target.served.custom.is_none();
        let agent = ask.header(http::header::USER_AGENT).unwrap_or_default();
        let kind = PatchKind::of(&ask.content_type());
        let apply = kind == Some(PatchKind::Apply);
        let options_kind = if ask.method == Method::PATCH { "PatchOptions" } else { "UpdateOptions" };
        let options = WriteOptions::parse(&ask.query, options_kind, agent, apply)?;
        let way = match (&ask.method, kind) {
            (&Method::PATCH, None) => {
                let mut status = Status::new(415, "UnsupportedMediaType", "415: Unsupported Media Type");
                status.details = Some(json!({}));
                return Err(status);
            }
            (&Method::PATCH, Some(PatchKind::Strategic)) if !builtin => return Err(super::verbs::custom_patches()),
            (&Method::PATCH, kind) => kind,
            _ => None,
        };
        let mut warnings = Vec::new();
        let body = if ask.method == Method::PUT {
            let mut body = Self::scale_body(ask, builtin)?;
            warnings = decode::unknown_of_scale(&mut body, options.validation).map_err(|why| match builtin {
                true => Status::bad_request(format!("Scale in version \"v1\" cannot be handled as a Scale: {why}")),
                false => unreadable(),
            })?;
            body
        } else if apply {
            ask.body.yaml().map_err(|why| Status::bad_request(why.to_string()))?.0
        } else {
            ask.body.json().map_err(|why| Status::bad_request(why.to_string()))?.0
        };
        if apply && !builtin {
            return Err(self.applied_scale(target, &body, &options));
        }
        if apply {
            self.check_applied(&body, &options)?;
        }
        if ask.method == Method::PUT {
            own_name(target, &body)?;
        }
        Ok(Rescale { server: self, target, paths, options, way, body, warnings })
    }

    /// What is applied is a Scale, whatever comes of it.
    fn check_applied(&self, body: &Value, options: &WriteOptions) -> Result<(), Status> {
        let writer = Writer {
            manager: &options.manager,
            api_version: "autoscaling/v1",
            kind: "Scale",
            subresource: "",
            ignored: &Ignored::Nothing,
        };
        let schema = merge::builtin::schema(decode::SCALE);
        let applied = apply::apply(None, body, &writer, true, &*schema, self.core.world.now());
        applied.map(drop).map_err(|error| crate::registry::apply_refused(&error))
    }
}

/// A Scale has the name in the path, or none.
fn own_name(target: &Target, scale: &Value) -> Result<(), Status> {
    let named = api::object::meta(scale, "name");
    if named.is_empty() || named == target.name {
        return Ok(());
    }
    let why = format!("the name of the object ({named}) does not match the name on the URL ({})", target.name);
    Err(Status::bad_request(why))
}

/// A change of a Scale, which has been read.
struct Rescale<'a> {
    server: &'a Server,
    target: &'a Target,
    paths: &'a Value,
    options: WriteOptions,
    /// How the body patches the Scale; `None`: it takes its place.
    way: Option<PatchKind>,
    body: Value,
    /// From decoding.
    warnings: Vec<String>,
}

impl Rescale<'_> {
    fn is_builtin(&self) -> bool {
        self.target.served.custom.is_none()
    }

    /// One try: what the request makes of the Scale is put into the object, which is then updated as any other.
    fn attempt(&self, ask: &Ask) -> Result<Attempt, Status> {
        let (target, options) = (self.target, &self.options);
        let core = &self.server.core;
        let entry = core.entry(target).ok_or_else(|| crate::registry::not_found(target))?;
        let old = target.served.present_value(&entry);
        let mut scale = view(&target.served, &old, self.paths, true)?;
        let has_number = jsonpath::simple(&old, text(self.paths, "specReplicasPath")).is_some();
        if !self.is_builtin() && !has_number {
            scale["spec"]["replicas"] = UNSET.into();
        }
        let mut warnings = self.warnings.clone();
        let mut wanted = match self.way {
            Some(kind) => self.patched(kind, &old, &scale, &mut warnings)?,
            None => self.body.clone(),
        };
        core.in_namespace(target)?;
        enforce_namespace(&mut wanted, target)?;
        let operation = Operation::Update;
        let manner = options.manner(operation);
        let review = Review { target, operation, old: Some(&scale), user: &ask.user, manner };
        core.mutate_body(&review, &mut wanted)?;
        own_name(target, &wanted)?;
        let (uid, there) = (api::object::uid(&wanted), api::object::uid(&old));
        if !uid.is_empty() && uid != there {
            return Err(other_uid(target, uid, there, options.dry_run));
        }
        let replicas = self.replicas(&wanted)?;
        same_revision(target, &wanted, &entry)?;
        let mut new = (*old).clone();
        set(&mut new, text(self.paths, "specReplicasPath"), replicas.into());
        // an apply that does not mention the replicas leaves them to whom they are
        let is_applied = self.way == Some(PatchKind::Apply) && self.body["spec"].get("replicas").is_some();
        let tracked = if is_applied { Tracked::Yes } else { Tracked::No };
        // The fields of the object itself change, so its own rules apply; their manager is recorded as one of `scale`.
        let call = Call { target, options, user: &ask.user, warnings: &warnings };
        core.replace(&call, new, &entry, tracked, Pruned::No)
    }

    /// What a patch makes of a Scale, of the object `old`.
    fn patched(
        &self,
        kind: PatchKind,
        old: &Value,
        scale: &Value,
        warnings: &mut Vec<String>,
    ) -> Result<Value, Status> {
        let body = &self.body;
        let made = match kind {
            PatchKind::Json => json_patch::apply(scale, body),
            PatchKind::Strategic => strategic::apply(scale, body, &merge::builtin::schema(decode::SCALE)),
            PatchKind::Merge | PatchKind::Apply => Ok(merge_patch::apply(scale, body)),
        };
        let mut patched = made.map_err(|error| crate::registry::refused(&error))?;
        // as of objects: a strategic patch is shown itself
        let (shown, read) = match kind {
            PatchKind::Apply => {
                // conflicts come before what cannot be converted
                if let Some(wanted) = body["spec"].get("replicas")
                    && let Some(conflict) =
                        self.server.scale_conflicts(self.target, old, wanted.as_i64(), &self.options)
                {
                    return Err(conflict);
                }
                merge::builtin::convert(decode::SCALE, &mut patched)
                    .map_err(|why| crate::registry::unconverted(&patched, body, &why.to_string()))?;
                return Ok(patched);
            }
            PatchKind::Strategic => (
                strategic::shown(scale, body, &merge::builtin::schema(decode::SCALE)),
                merge::builtin::convert(decode::SCALE, &mut patched),
            ),
            PatchKind::Json | PatchKind::Merge => {
                (patched.to_string(), merge::builtin::decode(decode::SCALE, &mut patched))
            }
        };
        let unfit =
            |why: String| Status::invalid("", "", "", &vec![Error::invalid(&Path::new("patch"), shown.as_str(), why)]);
        read.map_err(|why| unfit(why.to_string()))?;
        if self.is_builtin() {
            warnings.extend(
                decode::unknown_of_scale(&mut patched, self.options.validation)
                    .map_err(|why| unfit(why.to_string()))?,
            );
        }
        Ok(patched)
    }

    /// The number of replicas that a Scale asks for.
    fn replicas(&self, wanted: &Value) -> Result<i64, Status> {
        let replicas = wanted["spec"].get("replicas").and_then(Value::as_i64).unwrap_or(0);
        if !self.is_builtin() && replicas == UNSET {
            let path = text(self.paths, "specReplicasPath");
            return Err(Status::bad_request(format!("the spec replicas field {path:?} cannot be empty")));
        }
        if self.is_builtin() && replicas < 0 {
            // a custom resource's own rules say so of their field
            let path = Path::new("spec").child("replicas");
            let error = Error::invalid(&path, replicas, "must be greater than or equal to 0");
            return Err(Status::invalid("autoscaling", "Scale", &self.target.name, &vec![error]));
        }
        Ok(replicas)
    }
}
