//! Reading one object or a list of them, in the form that was asked for.

use super::*;
use crate::http::node_life::NodeLife;

impl Server {
    pub(in crate::http) fn offer(served: &Served) -> Offer {
        let builtin = served.custom.is_none();
        // what is only answered, such as a review, has no table
        let tables = served.resource.verbs.contains(&"get");
        Offer { protobuf: builtin, routed: builtin, forms: true, tables, watch: false }
    }

    pub(in crate::http) fn get(&self, ask: &Ask, target: &Target) -> Result<Response<Body>, Status> {
        let accepted = ask.negotiate(Self::offer(&target.served))?;
        let cached = target.served.resource.facts.cached;
        let wanted = parse_revision(ask.query.text("resourceVersion")).map_err(|why| match cached {
            // as upstream answers
            true => Status::new(500, "", why.to_string()),
            false => Status::bad_request(format!("invalid resource version: {why}")),
        })?;
        let current = self.core.store.revision();
        if wanted > current {
            return Err(crate::registry::too_large(wanted, current, cached.then_some(1)));
        }
        let object = self.core.get(target)?;
        self.one(ask, target, &Answer { code: 200, object, warnings: Vec::new() }, &accepted)
    }

    /// One object in the form that was asked for.
    pub(in crate::http) fn one(
        &self,
        ask: &Ask,
        target: &Target,
        answer: &Answer,
        accepted: &Accepted,
    ) -> Result<Response<Body>, Status> {
        let custom = target.served.resource.custom;
        let is_status = match &answer.object {
            Object::Stored(_) => target.served.resource.kind == "Status",
            Object::Made(value) => api::object::text(value, "kind") == "Status",
        };
        let mut response = match accepted.form {
            _ if is_status => answer::object(answer, false, accepted),
            Form::Object if ask.hands => answer::handed(answer, custom),
            Form::Object => answer::object(answer, custom, accepted),
            Form::MetadataList => {
                if custom {
                    return Err(Status::new(500, "", "content is not a list"));
                }
                let name = match target.served.subresource(&target.subresource) {
                    Some(body) => internal_name(&body.group, &body.kind),
                    None => go_name(&target.served, &target.served.resource.kind),
                };
                return Err(Status::new(
                    406,
                    "NotAcceptable",
                    format!("you requested PartialObjectMetadataList, but the requested object is not a list ({name})"),
                ));
            }
            Form::Metadata => {
                let shaped = table::metadata(&answer.object.value(), accepted.form_version);
                answer::encode(answer.code, wire::to_vec(&shaped, false), accepted)
            }
            Form::Table => {
                let include = include(&ask.query)?;
                let now = self.core.world.now();
                let value = answer.object.value();
                let text = answer.object.text();
                let shown = Shown { tree: &value, text: text.as_deref() };
                let row = table::row(&target.served, shown, include, accepted.form_version, now);
                // what was made for a trial has no version
                let meta = match api::object::resource_version(&value) {
                    "" => json!({}),
                    version => json!({"resourceVersion": version}),
                };
                let rows = [|out: &mut Vec<u8>| row.write(out)];
                let shaped = table::table(Some(table::columns(&target.served)), rows, &meta, accepted.form_version);
                answer::encode(answer.code, shaped, accepted)
            }
        };
        if accepted.form != Form::Object {
            answer::warn(&mut response, &answer.warnings);
        }
        let name = match &answer.object {
            Object::Stored(entry) => entry.key.name.clone(),
            Object::Made(value) => api::object::meta(value, "name").to_owned(),
        };
        response.extensions_mut().insert(Answered(name));
        Ok(response)
    }

    pub(in crate::http) fn list(
        self: &Arc<Self>,
        ask: Ask,
        mut target: Target,
        old_watch: bool,
    ) -> Result<Response<Body>, Status> {
        let accepted = ask.negotiate(Offer { watch: true, ..Self::offer(&target.served) })?;
        let mut options = ListOptions::parse(&ask.query)?;
        options.watch |= old_watch;
        if !options.watch {
            target.served.check_fields(&options.fields)?;
        }
        let include = include_for(&ask, &accepted)?;
        if old_watch && !target.name.is_empty() {
            let name = std::mem::take(&mut target.name);
            options.fields.0.push(crate::field_selector::FieldTerm {
                field: "metadata.name".to_owned(),
                value: name,
                equal: true,
            });
        }
        if options.watch && accepted.encoding == negotiate::Encoding::Yaml {
            target.served.check_fields(&options.fields)?;
            // upstream starts the watch before it looks how its events are to be written
            parse_revision(&options.resource_version).map_err(|why| Status::new(500, "", why.to_string()))?;
        }
        if options.watch {
            accepted.streams()?;
            if upgrade::wanted(&ask, "websocket") {
                return self.watch_websocket(&ask, target, options, accepted, include);
            }
            let life = NodeLife::of(&self.core, &ask.user);
            return self.watch(target, options, accepted, include, life);
        }
        let page = self.core.list(&target, &options)?;
        let served = &target.served;
        let mut meta = json!({"resourceVersion": page.revision.to_string()});
        if !page.continue_token.is_empty() {
            meta["continue"] = page.continue_token.into();
        }
        if let Some(remaining) = page.remaining {
            meta["remainingItemCount"] = remaining.into();
        }
        self.many(served, &page.items, meta, &accepted, include)
    }

    /// A list in the form that was asked for.
    pub(in crate::http) fn many(
        &self,
        served: &Served,
        items: &[Object],
        meta: Value,
        accepted: &Accepted,
        include: Include,
    ) -> Result<Response<Body>, Status> {
        let bytes = match accepted.form {
            Form::Object => list_bytes(served, items, &meta),
            Form::Metadata => {
                let name = go_name(served, &served.resource.list_kind);
                return Err(Status::new(
                    406,
                    "NotAcceptable",
                    format!("you requested PartialObjectMetadata, but the requested object is a list ({name})"),
                ));
            }
            Form::MetadataList => {
                let version = accepted.form_version;
                // an empty list is none to Go
                let listed = (!items.is_empty()).then(|| {
                    items.iter().map(|object| {
                        move |out: &mut Vec<u8>| match object.text() {
                            Some(text) => Shown { tree: &Value::Null, text: Some(&text) }.write_metadata(version, out),
                            None => Shown { tree: &object.glance(), text: None }.write_metadata(version, out),
                        }
                    })
                });
                let head = json!({
                    "kind": "PartialObjectMetadataList",
                    "apiVersion": format!("meta.k8s.io/{version}"),
                    "metadata": meta,
                });
                table::with_list(&head, "items", listed)
            }
            Form::Table => {
                let (now, version) = (self.core.world.now(), accepted.form_version);
                let lean = table::is_lean(served);
                let rows = items.iter().map(|object| {
                    move |out: &mut Vec<u8>| {
                        let tree = if lean { object.lean() } else { object.glance() };
                        let text = object.text();
                        let shown = Shown { tree: &tree, text: text.as_deref() };
                        table::row(served, shown, include, version, now).write(out);
                    }
                });
                table::table(Some(table::columns(served)), rows, &meta, version)
            }
        };
        Ok(answer::encode(200, bytes, accepted))
    }
}

/// What rows carry where a table is asked for.
pub(in crate::http) fn include_for(ask: &Ask, accepted: &Accepted) -> Result<Include, Status> {
    if accepted.form == Form::Table { include(&ask.query) } else { Ok(Include::None) }
}

fn include(query: &Query) -> Result<Include, Status> {
    let text = query.text("includeObject");
    Include::parse(text).ok_or_else(|| {
        Status::bad_request(format!(
            "Unable to convert to Table as requested: includeObject: Invalid value: {text:?}: must be 'Metadata', 'Object', 'None', or empty"
        ))
    })
}

/// The Go type that upstream's messages name.
fn go_name(served: &Served, kind: &str) -> String {
    match &served.custom {
        Some(_) if kind == served.resource.list_kind => "*unstructured.UnstructuredList".to_owned(),
        Some(_) => "*unstructured.Unstructured".to_owned(),
        None => internal_name(&served.resource.group, kind),
    }
}

/// The internal Go type of a built-in kind.
fn internal_name(group: &str, kind: &str) -> String {
    match group.split('.').next().unwrap_or_default() {
        // the internal type of events is that of the core group
        "" | "events" => format!("*core.{kind}"),
        group => format!("*{group}.{kind}"),
    }
}

/// A list's bytes, put together from those of its items.
fn list_bytes(served: &Served, items: &[Object], meta: &Value) -> Vec<u8> {
    let resource = &served.resource;
    let custom = resource.custom;
    let version = served.api_version();
    let mut out = Vec::with_capacity(256 + items.len() * 1024);
    let quoted = |text: &str| Value::from(text).to_string();
    if custom {
        out.extend(format!("{{\"apiVersion\":{},\"items\":[", quoted(&version)).bytes());
    } else {
        out.extend(
            format!(
                "{{\"kind\":{},\"apiVersion\":{},\"metadata\":{meta},\"items\":[",
                quoted(&resource.list_kind),
                quoted(&version)
            )
            .bytes(),
        );
    }
    // Items of built-in lists do not repeat their kind.
    let lead = format!("{{\"kind\":{},\"apiVersion\":{},", quoted(&resource.kind), quoted(&version));
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        let bytes = match item {
            Object::Stored(entry) => entry.bytes(),
            Object::Made(value) => wire::to_vec(value, custom).into(),
        };
        match bytes.strip_prefix(lead.as_bytes()) {
            Some(rest) if !custom => {
                out.push(b'{');
                out.extend_from_slice(rest);
            }
            _ => out.extend_from_slice(&bytes),
        }
    }
    if custom {
        out.extend(format!("],\"kind\":{},\"metadata\":{meta}}}", quoted(&resource.list_kind)).bytes());
    } else {
        out.extend_from_slice(b"]}");
    }
    out
}
