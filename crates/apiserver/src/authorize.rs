//! Authorization of a user's request for a resource, for all parts of the server.

use crate::registry::Core;
use resource::admission::Objects;
use resource::status::Status;
use resource::{Ask, User};

/// `resource`: the plural name, with its subresource (`pods/log`).
///
/// `fields`: the field selector of a list or watch.
///
/// # Errors
/// 403, in upstream's words.
#[expect(clippy::too_many_arguments, reason = "the attributes of one request")]
pub(crate) fn may(
    core: &Core,
    user: &User,
    verb: &str,
    group: &str,
    resource: &str,
    namespace: &str,
    name: &str,
    fields: &str,
) -> Result<(), Status> {
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
