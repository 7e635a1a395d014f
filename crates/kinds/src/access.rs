//! Access control: the rights of nodes' agents, RBAC's evaluation, its four kinds, and the access reviews.

mod node;
pub mod rbac;
pub mod restriction;
mod reviews;
mod roles;

pub(crate) use node::secrets;
pub use reviews::{AccessReview, RulesReview, SelfReview, TokenReview};
pub use roles::{Binding, Role};

use resource::{Access, Ask, User};

/// Why the user may do it; `None`: the user may not.
pub fn authorize(user: &User, ask: &Ask<'_>, list: rbac::List<'_>) -> Option<String> {
    node::authorize(user, ask, list).or_else(|| rbac::authorize(user, ask, list))
}

/// Who may do what, as upstream's `--authorization-mode=Node,RBAC` says.
pub struct Modes;

impl Access for Modes {
    fn allows(&self, user: &User, ask: &Ask<'_>, list: &resource::List<'_>) -> Option<String> {
        authorize(user, ask, list)
    }
}
