//! Admission of TrainJobs and runtimes before they are stored: defaults, faults and warnings.
//!
//! Pure functions over untyped objects. The caller turns a [`Denial`] into the answer of the webhook that upstream
//! has in its place: that webhook's name ([`TRAINJOB_DEFAULTER`] and the others) is part of the text.
//! Source: upstream's `pkg/webhooks`.

mod decode;
mod runtimes;
mod trainjobs;

pub use decode::decode_trainjob;
pub use runtimes::validate_runtime;
pub use trainjobs::{default_trainjob, validate_trainjob};

use crate::runtime::RuntimeKind;
use api::field::{Error, ErrorList, Path, aggregate};
use api::names::subdomain_faults;

/// Name of the webhook that decodes and defaults TrainJobs.
pub const TRAINJOB_DEFAULTER: &str = "defaulter.trainjob.trainer.kubeflow.org";
/// Name of the webhook that validates TrainJobs.
pub const TRAINJOB_VALIDATOR: &str = "validator.trainjob.trainer.kubeflow.org";
/// Name of the webhook that validates TrainingRuntimes.
pub const TRAININGRUNTIME_VALIDATOR: &str = "validator.trainingruntime.trainer.kubeflow.org";
/// Name of the webhook that validates ClusterTrainingRuntimes.
pub const CLUSTERTRAININGRUNTIME_VALIDATOR: &str = "validator.clustertrainingruntime.trainer.kubeflow.org";

/// Why an object is not let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denial {
    /// It cannot be read as what it says it is: 400, with no reason.
    Undecodable(String),
    /// A rule is broken: 403 `Forbidden`. The warnings that were found before go with it.
    Forbidden { message: String, warnings: Vec<String> },
}

impl Denial {
    /// The text that the client sees after the webhook's name.
    pub fn message(&self) -> &str {
        let (Self::Undecodable(message) | Self::Forbidden { message, .. }) = self;
        message
    }

    /// Warnings for the client, refused as it is.
    pub fn warnings(&self) -> &[String] {
        match self {
            Self::Undecodable(_) => &[],
            Self::Forbidden { warnings, .. } => warnings,
        }
    }

    /// The HTTP status.
    pub fn code(&self) -> u16 {
        match self {
            Self::Undecodable(_) => 400,
            Self::Forbidden { .. } => 403,
        }
    }

    /// The `reason` of the answer; empty where upstream gives none.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Undecodable(_) => "",
            Self::Forbidden { .. } => "Forbidden",
        }
    }
}

/// All faults as one denial, if there are any; the warnings either way.
fn verdict(errors: &ErrorList, warnings: Vec<String>) -> Result<Vec<String>, Denial> {
    if errors.is_empty() { Ok(warnings) } else { Err(Denial::Forbidden { message: aggregate(errors), warnings }) }
}

/// A denial for one reason, before anything was warned of.
fn forbidden(why: impl ToString) -> Denial {
    Denial::Forbidden { message: why.to_string(), warnings: Vec::new() }
}

/// The API server's words for a runtime that is not there.
pub fn not_found(kind: RuntimeKind, name: &str) -> String {
    format!("{}.{} {name:?} not found", kind.as_str(), crate::names::GROUP)
}

/// Faults of a patch's manager: a path with a domain in front (`acme.io/foo`).
pub fn manager_faults(manager: &str, field: &Path) -> ErrorList {
    const PATH: &str = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+";
    if manager.is_empty() {
        return vec![Error::required(field, "")];
    }
    let Some((domain, path)) = manager.split_once('/').filter(|(d, p)| !d.is_empty() && !p.is_empty()) else {
        return vec![Error::invalid(field, manager, "must be a domain-prefixed path (such as \"acme.io/foo\")")];
    };
    let faults = subdomain_faults(domain, false);
    let mut errors: ErrorList = faults.into_iter().map(|fault| Error::invalid(field, domain, fault)).collect();
    let allowed = |c: char| c.is_ascii_alphanumeric() || "/-._~%!$&'()*+,;=:".contains(c);
    if !path.chars().all(allowed) {
        errors.push(Error::invalid(field, path, format!("Invalid path (regex used for validation is '{PATH}')")));
    }
    errors
}

/// The sentence that warns of a deprecated runtime, after its beginning.
fn deprecation(subject: &str, name: &str) -> String {
    format!(
        "{subject} {name:?} is deprecated and will be removed in a future release of Kubeflow Trainer. See runtime \
         deprecation policy: {}",
        crate::names::RUNTIME_DEPRECATION_POLICY_URL
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn managers_are_paths_with_a_domain() {
        let field = Path::new("spec").child("runtimePatches").child("manager");
        for fine in ["acme.io/foo", "kueue.x-k8s.io/manager", "a.io/b/c"] {
            assert!(manager_faults(fine, &field).is_empty(), "{fine}");
        }
        for (bad, count) in [("", 1), ("kueue", 1), ("/x", 1), ("acme.io/", 1), ("Acme.io/x", 1), ("A/a b", 2)] {
            assert_eq!(manager_faults(bad, &field).len(), count, "{bad}");
        }
        assert_eq!(
            manager_faults("acme.io/a b", &field)[0].to_string(),
            r#"spec.runtimePatches.manager: Invalid value: "a b": Invalid path (regex used for validation is '[A-Za-z0-9/\-._~%!$&'()*+,;=:]+')"#
        );
    }
}
