//! The verbs of the API: carries out a checked request and makes its answer.

mod post;
mod read;

use super::Server;
use super::answer::{self, Body};
use super::handle::{Ask, PLAIN, not_allowed};
use super::upgrade;
use crate::audit::Answered;
use crate::authorize::{self, ResourceAsk};
use crate::decode::{self, Content, Format};
use crate::negotiate::{self, Accepted, Form, Offer};
use crate::query::{ListOptions, Query, WriteOptions};
use crate::registry::{
    Answer, Call, DeleteOptions, Object, PatchKind, Served, Target, Tracked, enforce_namespace, parse_revision,
};
use crate::table::{self, Include, Shown};
use crate::wire;
use http::{Method, Response};
pub(super) use read::include_for;
use resource::status::Status;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};

/// A body as it was read. The first attempt at a write takes it; where that loses a race, the next one reads it again.
struct Read(Mutex<Option<Value>>);

impl From<Value> for Read {
    fn from(body: Value) -> Self {
        Self(Mutex::new(Some(body)))
    }
}

impl Read {
    fn take(&self, read_again: impl FnOnce() -> Result<Value, Status>) -> Result<Value, Status> {
        let first = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        first.map_or_else(read_again, Ok)
    }
}

/// A body that is answered and never stored, as Go reads it: without what is empty, and of no namespace where its kind has none.
fn as_read(served: &Served, mut body: Value) -> Value {
    let status = body.get("status").cloned();
    served.normalize(&mut body);
    if let Some(members) = body.as_object_mut() {
        match status {
            Some(status) => members.insert("status".to_owned(), status),
            None => members.remove("status"),
        };
    }
    if !served.resource.namespaced
        && let Some(meta) = body.get_mut("metadata").and_then(Value::as_object_mut)
    {
        meta.remove("namespace");
    }
    body
}

impl Server {
    /// Refuses a body of a type that nobody can read.
    fn readable(ask: &Ask, served: &Served) -> Result<(), Status> {
        match ask.content_type().as_str() {
            "" | negotiate::JSON | negotiate::YAML => Ok(()),
            negotiate::PROTOBUF if served.custom.is_none() => Ok(()),
            // upstream says that it takes this, too, and then its handler panics
            negotiate::PROTOBUF => Err(negotiate::unsupported(&[negotiate::JSON, negotiate::YAML])),
            _ => Err(negotiate::unsupported(&[negotiate::JSON, negotiate::YAML, negotiate::PROTOBUF])),
        }
    }

    /// The object in the body of a write.
    fn body_object(&self, ask: &Ask, served: &Served, options: &WriteOptions) -> Result<(Value, Vec<String>), Status> {
        Self::readable(ask, served)?;
        match ask.content_type().as_str() {
            negotiate::YAML => decode::object(served, &ask.body, Format::Yaml, options.validation),
            negotiate::PROTOBUF => {
                let value = decode::protobuf(served, ask.body.text())?;
                decode::object(served, &Content::tree(Arc::new(value)), Format::Json, options.validation)
            }
            _ => decode::object(served, &ask.body, Format::Json, options.validation),
        }
    }

    /// Where a POST goes to a collection that is another name of a subresource (`/bindings`, the older way of
    /// `/pods/NAME/binding`): to the object that the body names.
    fn alias_target(&self, ask: &Ask, target: &Target) -> Result<Option<Target>, Status> {
        let Some((group, plural, subresource)) = target.served.resource.facts.alias_of else { return Ok(None) };
        let Some(served) = self.core.catalog().any(group, plural).cloned() else { return Ok(None) };
        let body = post::body(ask)?;
        Ok(Some(Target {
            served,
            name: api::object::meta(&body, "name").to_owned(),
            subresource: subresource.to_owned(),
            ..target.clone()
        }))
    }

    /// Whether what is asked may keep a thread busy.
    pub(super) fn may_take_long(&self, ask: &Ask, target: &Target) -> bool {
        self.core.may_take_long(target, ask.body.size()) || ask.body.may_grow(&ask.content_type())
    }

    pub(super) async fn create(self: &Arc<Self>, ask: &Ask, target: &Target) -> Result<Response<Body>, Status> {
        if let Some(meant) = self.alias_target(ask, target)? {
            if target.namespace.is_empty() {
                return Err(Status::bad_request("Namespace parameter required."));
            }
            let alias = Target { name: meant.name.clone(), ..target.clone() };
            return self.post_subresource(ask, &meant, &alias).await;
        }
        let accepted = ask.negotiate(Self::offer(&target.served))?;
        Self::readable(ask, &target.served)?;
        let options = WriteOptions::parse(&ask.query, "CreateOptions", ask.agent(), false)?;
        let long = self.may_take_long(ask, target);
        let (body, warnings) = self.core.apart(long, || self.body_object(ask, &target.served, &options)).await?;
        if !target.served.resource.verbs.contains(&"get")
            && let Some(parent) = self.parent_of(target, &body)
        {
            let Target { served, namespace, name, subresource } = &parent;
            let resource = &served.resource;
            let (group, resource) = (&resource.group, &resource.plural);
            let created = ResourceAsk { verb: "create", group, resource, subresource, namespace, name, fields: "" };
            authorize::may(&self.core, &ask.user, &created)?;
            return self.post_subresource(ask, &parent, &parent).await;
        }
        let strategy = &target.served.resource.strategy;
        let body = if target.served.resource.verbs.contains(&"get") {
            body
        } else {
            let mut body = as_read(&target.served, body);
            if target.served.resource.namespaced {
                enforce_namespace(&mut body, target)?;
            }
            body
        };
        let review = self.core.with_context(&ask.user, target, options.dry_run, |cx| strategy.review(cx, &body));
        if let Some(result) = review {
            let mut made = result?;
            // what is sent back as it came has a manager, as if it were stored
            if body.get("spec").is_some_and(|spec| made.get("spec") == Some(spec)) {
                let managed = self.core.managed_by(target, &options, body);
                if !managed.is_null() {
                    made["metadata"]["managedFields"] = managed;
                }
            }
            let answer = Answer { code: 201, object: Object::Made(Arc::new(made)), warnings };
            return self.one(ask, target, &answer, &accepted);
        }
        let call = Call { target, options: &options, user: &ask.user, warnings: &warnings };
        let body = Read::from(body);
        let read_again = || Ok(self.body_object(ask, &target.served, &options)?.0);
        let answer = self.core.run(long, || self.core.create(&call, body.take(read_again)?, Tracked::No)).await;
        let answer = answer.map_err(|status| status.with_warnings(&warnings))?;
        self.one(ask, target, &answer, &accepted)
    }

    pub(super) async fn update(self: &Arc<Self>, ask: &Ask, target: &Target) -> Result<Response<Body>, Status> {
        let accepted = ask.negotiate(Self::offer(&target.served))?;
        let options = WriteOptions::parse(&ask.query, "UpdateOptions", ask.agent(), false)?;
        let long = self.may_take_long(ask, target);
        let (body, warnings) = self.core.apart(long, || self.body_object(ask, &target.served, &options)).await?;
        let call = Call { target, options: &options, user: &ask.user, warnings: &warnings };
        let body = Read::from(body);
        let read_again = || Ok(self.body_object(ask, &target.served, &options)?.0);
        let answer = self.core.run(long, || self.core.update(&call, body.take(read_again)?)).await;
        let answer = answer.map_err(|status| status.with_warnings(&warnings))?;
        self.one(ask, target, &answer, &accepted)
    }

    pub(super) async fn patch(self: &Arc<Self>, ask: &Ask, target: &Target) -> Result<Response<Body>, Status> {
        let accepted = ask.negotiate(Self::offer(&target.served))?;
        let custom = target.served.custom.is_some();
        let kind = PatchKind::of(&ask.content_type());
        let kind = match kind {
            Some(PatchKind::Strategic) | None if custom => {
                return Err(custom_patches());
            }
            Some(kind) => kind,
            None => {
                let mut status = Status::new(415, "UnsupportedMediaType", "415: Unsupported Media Type");
                status.details = Some(json!({}));
                return Err(status);
            }
        };
        let apply = kind == PatchKind::Apply;
        let options = WriteOptions::parse(&ask.query, "PatchOptions", ask.agent(), apply)?;
        let long = self.may_take_long(ask, target);
        let read = || decode::patch(&target.served, &ask.body, kind, options.validation);
        // a patch that cannot be read is looked at only where there is something to patch
        let (patch, warnings) = self
            .core
            .apart(long, read)
            .await
            .map_err(|status| if apply { status } else { self.core.get(target).err().unwrap_or(status) })?;
        let call = Call { target, options: &options, user: &ask.user, warnings: &warnings };
        let answer = self.core.run(long, || self.core.patch(&call, kind, &patch)).await?;
        self.one(ask, target, &answer, &accepted)
    }

    fn delete_options(&self, ask: &Ask) -> Result<DeleteOptions, Status> {
        let body = if ask.body.is_empty() {
            None
        } else {
            let value = match ask.content_type().as_str() {
                "" | negotiate::JSON => decode::delete_options(&ask.body, Format::Json)?,
                negotiate::YAML => decode::delete_options(&ask.body, Format::Yaml)?,
                negotiate::PROTOBUF => {
                    crate::protobuf::decode(ask.body.text()).map_err(|why| Status::bad_request(why.to_string()))?
                }
                _ => return Err(negotiate::unsupported(&[negotiate::JSON, negotiate::YAML, negotiate::PROTOBUF])),
            };
            Some(value)
        };
        DeleteOptions::parse(body.as_ref(), &ask.query)
    }

    pub(super) async fn delete(self: &Arc<Self>, ask: &Ask, target: &Target) -> Result<Response<Body>, Status> {
        let accepted = ask.negotiate(Self::offer(&target.served))?;
        let options = self.delete_options(ask)?;
        let long = self.core.may_take_long(target, 0);
        let answer = self.core.run(long, || self.core.delete(target, &options, &ask.user)).await?;
        self.one(ask, target, &answer, &accepted)
    }

    pub(super) async fn delete_collection(
        self: &Arc<Self>,
        ask: &Ask,
        target: &Target,
    ) -> Result<Response<Body>, Status> {
        let accepted = ask.negotiate(Self::offer(&target.served))?;
        let include = include_for(ask, &accepted)?;
        let mut options = ListOptions::parse(&ask.query)?;
        options.watch = false;
        target.served.check_fields(&options.fields)?;
        let delete = DeleteOptions { nameless: true, ..self.delete_options(ask)? };
        let long = self.core.may_take_long(target, 0);
        let page = self.core.list(target, &options)?;
        if target.served.resource.namespaced && target.namespace.is_empty() && !page.items.is_empty() {
            // all namespaces are listed, and each object is then looked for in none
            let refused = Status::bad_request("Namespace parameter required.");
            return Err(refused.with_warnings(&delete.warnings(&target.served)));
        }
        let targets = page.items.iter().map(|object| Target {
            name: api::object::meta(&object.glance(), "name").to_owned(),
            namespace: api::object::meta(&object.glance(), "namespace").to_owned(),
            ..target.clone()
        });
        let (deleted, told) = self.core.delete_all(long, targets.collect(), &delete, &ask.user).await?;
        // The list shows what was deleted, as it was.
        let items: Vec<Object> =
            page.items.iter().zip(deleted).filter(|(_, gone)| *gone).map(|(o, _)| o.clone()).collect();
        let mut meta = json!({"resourceVersion": page.revision.to_string()});
        if !page.continue_token.is_empty() {
            meta["continue"] = page.continue_token.clone().into();
        }
        if let Some(remaining) = page.remaining {
            meta["remainingItemCount"] = remaining.into();
        }
        let mut response = self.many(&target.served, &items, meta, &accepted, include)?;
        let mut warnings = delete.warnings(&target.served);
        for warning in told {
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
        answer::warn(&mut response, &warnings);
        Ok(response)
    }

    /// Subresources that are not a view of the object itself. `None`: it is one.
    pub(super) async fn special(
        self: &Arc<Self>,
        ask: &Ask,
        target: &Target,
    ) -> Option<Result<Response<Body>, Status>> {
        match target.subresource.as_str() {
            "log" | "exec" | "attach" | "portforward" => Some(self.pod_stream(ask, target).await),
            "proxy" if target.served.custom.is_none() => Some(self.pod_proxy(ask, target).await),
            "scale" if target.served.scale().is_some() => Some(self.scale(ask, target).await),
            _ if ask.method == Method::POST => Some(self.post_subresource(ask, target, target).await),
            _ => None,
        }
    }

    /// A kind that is only posted and that is the body of another kind's subresource (`/bindings` and `pods/NAME/binding`)
    /// stands for that subresource.
    fn parent_of(&self, target: &Target, body: &Value) -> Option<Target> {
        let own = &target.served.resource;
        let catalog = self.core.catalog();
        let served = catalog.kinds.values().find(|served| {
            served.resource.group == own.group
                && served.subresource(&own.singular).is_some_and(|s| s.kind == own.kind && s.group == own.group)
        })?;
        Some(Target {
            served: served.clone(),
            namespace: target.namespace.clone(),
            name: api::object::meta(body, "name").to_owned(),
            subresource: own.singular.clone(),
        })
    }
}

/// The answer to a patch that custom kinds do not take.
pub(super) fn custom_patches() -> Status {
    negotiate::unsupported(&[
        "application/json-patch+json",
        "application/merge-patch+json",
        "application/apply-patch+yaml",
    ])
}
