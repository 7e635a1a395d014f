//! Authorization of a user's request for a resource, for all parts of the server.

use crate::registry::Core;
use resource::admission::Objects;
use resource::status::Status;
use resource::{Ask, User};

/// The fields of [`Ask::Resource`].
#[derive(Clone, Copy, Default)]
pub(crate) struct ResourceAsk<'a> {
    pub verb: &'a str,
    pub group: &'a str,
    /// The plural name.
    pub resource: &'a str,
    pub subresource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
    /// The field selector of a list or watch.
    pub fields: &'a str,
}

/// # Errors
/// 403, in upstream's words.
pub(crate) fn may(core: &Core, user: &User, ask: &ResourceAsk<'_>) -> Result<(), Status> {
    let ResourceAsk { verb, group, resource, subresource, namespace, name, fields } = *ask;
    let joined;
    let resource = match subresource {
        "" => resource,
        sub => {
            joined = format!("{resource}/{sub}");
            &joined
        }
    };
    let request = Ask::Resource { verb, group, resource, namespace, name, fields };
    let list = |group: &str, plural: &str, namespace: &str| Objects::list(core, group, plural, namespace);
    if core.access.allows(user, &request, &list).is_some() {
        return Ok(());
    }
    let plural = resource.split('/').next().unwrap_or_default();
    let place = if namespace.is_empty() || (plural == "namespaces" && group.is_empty() && name.is_empty()) {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace \"{namespace}\"")
    };
    let why = format!("User \"{}\" cannot {verb} resource \"{resource}\" in API group \"{group}\" {place}", user.name);
    Err(Status::forbidden(group, plural, name, &why))
}
