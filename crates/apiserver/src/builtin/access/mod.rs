//! Who may do what: RBAC's evaluation, its four kinds, and the reviews that ask about it.

pub mod rbac;
mod reviews;
mod roles;

pub use reviews::{AccessReview, RulesReview, SelfReview, TokenReview};
pub use roles::{Binding, Role};
