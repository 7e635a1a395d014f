//! Writes that follow from a POST to a subresource.

use super::*;
use merge::apply::Ignored;
use resource::Beside;

impl Core {
    /// The managed fields of an object that was `sent` to a subresource, and is stored nowhere.
    pub(crate) fn managed_by(&self, target: &Target, options: &WriteOptions, mut sent: Value) -> Value {
        let (version, kind) =
            (api::object::text(&sent, "apiVersion").to_owned(), api::object::text(&sent, "kind").to_owned());
        let group = version.split_once('/').map_or("", |(group, _)| group);
        let Some(name) = merge::builtin::type_name(group, &kind) else { return Value::Null };
        let meta = meta_mut(&mut sent);
        meta.retain(|field, _| matches!(field.as_str(), "annotations" | "labels"));
        let ignored = Ignored::Nothing;
        let writer = Writer {
            manager: &options.manager,
            api_version: &version,
            kind: &kind,
            subresource: &target.subresource,
            ignored: &ignored,
        };
        apply::track_update(None, &mut sent, &writer, &*merge::builtin::schema(name), self.world.now());
        sent["metadata"]["managedFields"].take()
    }

    /// Stores what a subresource's POST made of its parent.
    pub(crate) fn write_parent(
        &self,
        target: &Target,
        old: Old<'_>,
        mut new: Value,
        reply: Option<Value>,
        dry_run: bool,
    ) -> Result<Attempt, Status> {
        let served = &target.served;
        let entry = old.entry;
        if new == *old.value || dry_run {
            let object = reply.map_or_else(|| served.present(entry), |reply| Object::Made(Arc::new(reply)));
            return Ok(Attempt::Done(Answer { code: 201, object, warnings: Vec::new() }));
        }
        served.to_storage(&mut new);
        let op = Op::Put {
            bucket: served.bucket.clone(),
            key: entry.key.clone(),
            value: new,
            expect: Expect::Revision(entry.revision),
        };
        Ok(Attempt::Write(Box::new(Pending {
            txn: Txn::one(op),
            code: 201,
            warnings: Vec::new(),
            reply,
            target: target.clone(),
        })))
    }

    /// Writes objects that change along with what was asked for, each at the version it was read at. What stays as it was is not written.
    pub(crate) fn write_beside(&self, target: &Target, objects: Vec<Beside>) -> Result<Attempt, Status> {
        let mut ops = Vec::new();
        for Beside { group, plural, object } in objects {
            let bucket = catalog::bucket(group, plural);
            let key = Key::new(api::object::meta(&object, "namespace"), api::object::meta(&object, "name"));
            let Some(entry) = self.store.get(&bucket, &key) else {
                return Err(Status::not_found(group, plural, &key.name));
            };
            if *entry.value() == object {
                continue;
            }
            // An object that has changed meanwhile makes the transaction fail, and the request is thought over again.
            let expect = match api::object::resource_version(&object).parse() {
                Ok(revision) => Expect::Revision(revision),
                Err(_) => Expect::Revision(entry.revision),
            };
            ops.push(Op::Put { bucket: bucket.into(), key, value: object, expect });
        }
        if ops.is_empty() {
            return Ok(Attempt::made(201, Value::Null));
        }
        Ok(Attempt::Write(Box::new(Pending {
            txn: Txn { ops, ..Txn::default() },
            code: 201,
            warnings: Vec::new(),
            reply: Some(Value::Null),
            target: target.clone(),
        })))
    }
}
