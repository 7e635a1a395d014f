//! Authorizes each HTTP request before it is carried out.

use super::Server;
use super::handle::Ask as Incoming;
use crate::authorize::{self, ResourceAsk};
use crate::field_selector::FieldSelector;
use crate::route::Path;
use resource::admission::Objects;
use resource::status::Status;
use resource::{Ask, User};

/// The name that a field selector asks for; empty where it asks for none. The selector is parsed as it is for the answer: a comma
/// may be escaped, and a term that is a part of another one's value is none.
fn selected_name(selector: &str) -> String {
    let parsed = FieldSelector::parse(selector).unwrap_or_default();
    parsed.pinned("metadata.name").unwrap_or_default().to_owned()
}

impl Server {
    /// # Errors
    /// 403 where the user may not do this to a resource.
    pub(crate) fn authorize(&self, ask: &Incoming, path: &Path, verb: &str) -> Result<(), Status> {
        let Path { group, plural, subresource, namespace, name, .. } = path;
        // The namespace is its own place.
        let namespace = if plural == "namespaces" && group.is_empty() { name } else { namespace };
        // Who lists or watches one object by name asks about that object; upstream lets nobody delete by a selected name.
        let selects = name.is_empty() && matches!(verb, "list" | "watch");
        let fields = if selects { ask.query.text("fieldSelector") } else { "" };
        let selected = if name.is_empty() { selected_name(fields) } else { String::new() };
        let name = if name.is_empty() { &selected } else { name };
        let ask_for = ResourceAsk { verb, group, resource: plural, subresource, namespace, name, fields };
        authorize::may(&self.core, &ask.user, &ask_for)
    }

    /// # Errors
    /// 403 where the user may not read a path that is no resource.
    pub(crate) fn authorize_path(&self, ask: &Incoming) -> Result<(), Status> {
        let verb = ask.method.as_str().to_lowercase();
        if self.allows_path(&ask.user, &verb, &ask.path) {
            return Ok(());
        }
        let message = format!("forbidden: User \"{}\" cannot {verb} path \"{}\"", ask.user.name, ask.path);
        let mut status = Status::new(403, "Forbidden", message);
        status.details = Some(serde_json::json!({}));
        Err(status)
    }

    /// Whether somebody may do this with a path that is no resource.
    pub(super) fn allows_path(&self, user: &User, verb: &str, path: &str) -> bool {
        let list = |group: &str, plural: &str, namespace: &str| Objects::list(&*self.core, group, plural, namespace);
        self.core.access.allows(user, &Ask::Path { verb, path }, &list).is_some()
    }
}
