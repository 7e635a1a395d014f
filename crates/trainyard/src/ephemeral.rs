//! Refuses ephemeral containers where pods are processes of this machine: nothing would run them, and `kubectl debug` would
//! wait for ever.

use resource::admission::{Admission, Operation, Request};
use resource::status::Status;

/// The rule, as an admission plugin.
pub struct NoEphemeralContainers;

impl Admission for NoEphemeralContainers {
    fn handles(&self, operation: Operation, group: &str, resource: &str, subresource: &str) -> bool {
        operation == Operation::Update && group.is_empty() && resource == "pods" && subresource == "ephemeralcontainers"
    }

    fn validate(&self, request: &Request<'_>) -> Result<Vec<String>, Status> {
        let name = request.name;
        let why = format!(
            "pod {name} runs as processes of this machine, which has no ephemeral containers; for a shell in the pod: \
             kubectl exec -it {name} -- sh; for a copy of it: kubectl debug {name} --copy-to=NAME"
        );
        Err(Status::forbidden("", "pods", name, &why))
    }
}
