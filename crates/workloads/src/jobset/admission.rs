//! What JobSet's webhooks do: defaults at creation, validation at creation and update. Spec A.1, A.3, A.4.
//!
//! Pure: the other objects that a rule looks at are looked up by the caller. Faults without a field are internal errors of
//! the object as a whole, as clients of upstream see them.

mod create;
mod defaults;
mod names;
#[cfg(test)]
mod tests;
mod update;

pub use create::validate_create;
pub use defaults::default;
pub use update::validate_update;

/// Name of the mutating webhook.
pub const MUTATOR: &str = "mjobset.kb.io";
/// Name of the validating webhook.
pub const VALIDATOR: &str = "vjobset.kb.io";
