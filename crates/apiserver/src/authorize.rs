//! Whether a user may do something to a resource, whichever part of the server asks.

use crate::admission::Objects;
use crate::auth::User;
use crate::builtin::rbac::{self, Ask};
use crate::registry::Core;
use crate::status::Status;

/// `resource`: the plural name, with its subresource (`pods/log`).
///
/// # Errors
/// 403, in upstream's words.
pub(crate) fn may(
    core: &Core,
    user: &User,
    verb: &str,
    group: &str,
    resource: &str,
    namespace: &str,
    name: &str,
) -> Result<(), Status> {
    let request = Ask::Resource { verb, group, resource, namespace, name };
    let list = |group: &str, plural: &str, namespace: &str| Objects::list(core, group, plural, namespace);
    if rbac::authorize(user, &request, &list).is_some() {
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
