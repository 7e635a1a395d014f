//! The admission chain: plugins and policies look at a request, and may change its object or refuse it.

use super::{Core, Target};
use crate::query::Manner;
use resource::User;
use resource::admission::{self, Operation};
use resource::status::Status;
use serde_json::Value;

/// What admission looks at beside the object: upstream's `admission.Attributes`.
#[derive(Clone, Copy)]
pub(crate) struct Review<'a> {
    pub target: &'a Target,
    pub operation: Operation,
    /// The object as it is; `None` of what is created.
    pub old: Option<&'a Value>,
    pub user: &'a User,
    pub manner: Manner<'a>,
}

impl<'a> Review<'a> {
    /// The request as a plugin sees it.
    fn request(&self, core: &'a Core, name: &'a str, object: Option<&'a Value>) -> admission::Request<'a> {
        let Review { target, operation, old, user, manner } = *self;
        let resource = &target.served.resource;
        admission::Request {
            operation,
            group: &resource.group,
            version: &resource.version,
            kind: &resource.kind,
            resource: &resource.plural,
            subresource: &target.subresource,
            namespace: &target.namespace,
            name,
            object,
            old_object: old,
            dry_run: manner.dry_run,
            user,
            objects: core,
        }
    }
}

impl Core {
    /// Runs the mutating halves of the plugins, and returns whether one of them may have changed the object.
    pub(crate) fn mutate(&self, review: &Review<'_>, object: &mut Value) -> Result<bool, Status> {
        let Target { served, subresource, .. } = review.target;
        let resource = &served.resource;
        let mut ran = false;
        for plugin in &self.plugins {
            if !plugin.handles(review.operation, &resource.group, &resource.plural, subresource) {
                continue;
            }
            // what others than plugins put into a new object gets its defaults along with what plugins do
            ran |= plugin.mutates() || review.operation == Operation::Create;
            let name = api::object::meta(object, "name").to_owned();
            plugin.admit(&review.request(self, &name, Some(object)))?;
            if !plugin.mutates() {
                continue;
            }
            let request = review.request(self, &name, None);
            plugin.mutate(&request, object).map_err(|status| admission::denied(plugin.mutator(), status))?;
        }
        Ok(ran)
    }

    /// Runs the validating halves of the plugins, then the policies. What they warn of joins `warnings`, also where one refuses.
    pub(crate) fn validate(
        &self,
        review: &Review<'_>,
        object: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Result<(), Status> {
        let Target { served, subresource, name, .. } = review.target;
        let resource = &served.resource;
        for plugin in &self.plugins {
            if plugin.handles(review.operation, &resource.group, &resource.plural, subresource) {
                let name = object.map_or(name.as_str(), |o| api::object::meta(o, "name"));
                let more = plugin.validate(&review.request(self, name, object));
                warnings.extend(more.map_err(|status| admission::denied(plugin.validator(), status))?);
            }
        }
        self.admit_policies(review, object, warnings)
    }
}
