//! POST to a subresource: the kind says what comes of it.

use super::*;
use crate::registry::{Attempt, Old, Review, not_found};
use api::object::Gvk;
use resource::Outcome;
use resource::admission::Operation;
use std::sync::MutexGuard;
use store::Entry;

/// A POST to a subresource, which has been read.
struct Posting<'a> {
    server: &'a Server,
    ask: &'a Ask,
    target: &'a Target,
    /// What admission takes the target for.
    asked: &'a Target,
    options: WriteOptions,
    body: Value,
    /// What policies warned of at the last try.
    warned: Mutex<Vec<String>>,
    /// How the parent is to be deleted once the objects beside it are written, and what is answered then.
    left: Mutex<Option<(Value, Value)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The body of a POST to a subresource, decoded against nothing.
pub(super) fn body(ask: &Ask) -> Result<Value, Status> {
    Ok(match ask.content_type().as_str() {
        negotiate::PROTOBUF => {
            crate::protobuf::decode(ask.body.text()).map_err(|why| Status::bad_request(why.to_string()))?
        }
        negotiate::YAML => ask.body.yaml().map_err(|why| Status::bad_request(why.to_string()))?.0,
        _ => ask.body.json().map_err(|why| Status::bad_request(why.to_string()))?.0,
    })
}

impl Server {
    /// Carries out a POST to a subresource. `asked`: what admission takes the target for.
    pub(super) async fn post_subresource(
        self: &Arc<Self>,
        ask: &Ask,
        target: &Target,
        asked: &Target,
    ) -> Result<Response<Body>, Status> {
        let accepted = ask.negotiate(Offer { forms: true, ..PLAIN })?;
        let options = WriteOptions::parse(&ask.query, "CreateOptions", ask.agent(), false)?;
        let mut body = body(ask)?;
        let Target { served, subresource, .. } = target;
        let warnings = decode::subresource(served, subresource, &mut body, &ask.body, options.validation)?;
        if let Some(sub) = served.subresource(subresource).filter(|_| body.is_object()) {
            body["apiVersion"] = Gvk::new(&sub.group, &sub.version, &sub.kind).api_version().into();
            body["kind"] = sub.kind.clone().into();
            if body["metadata"].is_null() {
                body["metadata"] = json!({});
            }
        }
        let (warned, left) = (Mutex::default(), Mutex::default());
        let posting = Posting { server: self, ask, target, asked, options, body, warned, left };
        let long = self.may_take_long(ask, target);
        let mut answer = self.core.run(long, || posting.attempt()).await?;
        let left = lock(&posting.left).take();
        if let Some((options, reply)) = left {
            answer = self.core.run(long, || posting.delete_parent(&options, &reply)).await?;
        }
        if matches!(&answer.object, Object::Made(made) if made["kind"] != "Status") {
            answer.warnings.extend(warnings);
        }
        answer.warnings.append(&mut lock(&posting.warned));
        self.one(ask, target, &answer, &accepted)
    }
}

impl Posting<'_> {
    /// One try.
    fn attempt(&self) -> Result<Attempt, Status> {
        let Self { ask, target, asked, .. } = *self;
        let core = &self.server.core;
        let strategy = &target.served.resource.strategy;
        let mut body = self.body.clone();
        if body["metadata"].is_object() {
            enforce_namespace(&mut body, target)?;
        }
        if asked.served.resource.namespaced {
            core.check_namespace(asked, &asked.name)?;
        }
        let operation = Operation::Create;
        let manner = self.options.manner(operation);
        let review = Review { target: asked, operation, old: None, user: &ask.user, manner };
        let given = body["metadata"].clone();
        core.mutate_body(&review, &mut body)?;
        strategy.posted(&target.subresource, &target.name, &body)?;
        let entry = core.entry(target).ok_or_else(|| not_found(target))?;
        let parent = target.served.present_value(&entry);
        let mut told = Vec::new();
        core.admit_body(&review, &body, &mut told)?;
        *lock(&self.warned) = told;
        let outcome = core.with_context(&ask.user, target, self.options.dry_run, |cx| {
            strategy.post(cx, &target.subresource, &parent, &body)
        });
        self.carry_out(outcome.ok_or_else(not_allowed)??, given, &entry, &parent)
    }

    /// What a POST came to. `given`: the metadata that the client sent.
    fn carry_out(&self, outcome: Outcome, given: Value, entry: &Arc<Entry>, parent: &Value) -> Result<Attempt, Status> {
        let (core, target) = (&self.server.core, self.target);
        match outcome {
            Outcome::Reply(reply) => Ok(Attempt::made(201, reply)),
            Outcome::Made { mut sent, mut reply } => {
                // fields that a policy has set get no manager
                sent["metadata"] = given;
                reply["metadata"]["managedFields"] = core.managed_by(target, &self.options, sent);
                Ok(Attempt::made(201, reply))
            }
            Outcome::Update { parent: new, reply } => {
                core.write_parent(target, Old { entry, value: parent }, new, reply, self.options.dry_run)
            }
            Outcome::Delete { options, reply, beside } if beside.is_empty() => self.delete_parent(&options, &reply),
            Outcome::Delete { options, reply, beside } => {
                let attempt = core.write_beside(target, beside)?;
                *lock(&self.left) = Some((options, reply));
                Ok(attempt)
            }
        }
    }

    /// Deletes the parent, whose deletion admission has allowed by allowing the POST.
    fn delete_parent(&self, options: &Value, reply: &Value) -> Result<Attempt, Status> {
        let mut options = DeleteOptions::parse(Some(options), &Query::default())?;
        options.dry_run |= self.options.dry_run;
        options.admitted = true;
        let main = Target { subresource: String::new(), ..self.target.clone() };
        Ok(self.server.core.delete(&main, &options, &self.ask.user)?.replying(201, reply.clone()))
    }
}
