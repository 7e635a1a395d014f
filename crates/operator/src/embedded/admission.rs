//! The operator's webhooks, plugged into the embedded API server.

use crate::controllers::admission::{Denial, Lookup, Operation, Review, Webhook};
use api::object::{Gvk, Target};
use resource::admission::{self, Admission, Objects, Request};
use resource::status::Status;
use serde_json::Value;
use std::sync::Arc;

/// A webhook in process.
pub struct Plugin(pub Webhook);

/// The server's objects by kind: the few that the rules look at have regular plurals.
struct ByKind<'a>(&'a dyn Objects);

impl Lookup for ByKind<'_> {
    fn get(&self, target: &Target) -> Option<Arc<Value>> {
        self.0.get(&target.gvk.group, &target.gvk.regular_plural(), &target.key.namespace, &target.key.name)
    }

    fn list(&self, gvk: &Gvk, namespace: &str) -> Vec<Arc<Value>> {
        self.0.list(&gvk.group, &gvk.regular_plural(), namespace)
    }
}

fn operation(operation: admission::Operation) -> Option<Operation> {
    match operation {
        admission::Operation::Create => Some(Operation::Create),
        admission::Operation::Update => Some(Operation::Update),
        admission::Operation::Delete | admission::Operation::Connect => None,
    }
}

impl Plugin {
    fn review<T>(
        &self,
        request: &Request<'_>,
        otherwise: T,
        work: impl FnOnce(&Review<'_>) -> Result<T, Denial>,
    ) -> Result<T, Status> {
        let Some(operation) = operation(request.operation) else { return Ok(otherwise) };
        let lookup = ByKind(request.objects);
        let review = Review {
            operation,
            namespace: request.namespace,
            old: request.old_object,
            lookup: &lookup,
            now: clock::now(),
        };
        work(&review).map_err(|denial| match denial {
            Denial::Invalid(errors) => Status::invalid(request.group, request.kind, request.name, &errors),
            Denial::Refused { code, reason, message, warnings } => {
                Status::new(code, reason, message).with_warnings(&warnings)
            }
        })
    }
}

impl Admission for Plugin {
    fn mutator(&self) -> &str {
        self.0.mutator()
    }

    fn validator(&self) -> &str {
        self.0.validator()
    }

    fn handles(&self, asked: admission::Operation, group: &str, resource: &str, subresource: &str) -> bool {
        subresource.is_empty() && operation(asked).is_some_and(|asked| self.0.handles(asked, group, resource))
    }

    fn mutate(&self, request: &Request<'_>, object: &mut Value) -> Result<(), Status> {
        self.review(request, (), |review| self.0.mutate(review, object))
    }

    fn validate(&self, request: &Request<'_>) -> Result<Vec<String>, Status> {
        let Some(object) = request.object else { return Ok(Vec::new()) };
        self.review(request, Vec::new(), |review| self.0.validate(review, object))
    }
}
