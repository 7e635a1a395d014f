//! The local record of each machine: the cluster that may have its pod, and the machine's goal.

use crate::kept::{Kept, Who};
use crate::provider::in_time;
use api::sky::Candidate;
use managed::provider::{Failure, Request, Seen, State};
use serde::{Deserialize, Serialize};

/// The goal of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Goal {
    Running,
    Stopped,
    Gone,
    /// Nothing of it is left: the record is removed.
    Over,
}

/// A machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    #[serde(flatten)]
    pub who: Who,
    pub candidate: Candidate,
    /// A context of the kubeconfig.
    pub context: String,
    pub namespace: String,
    pub goal: Goal,
    /// The Machine's generation at the last request to stop or start it.
    #[serde(default)]
    pub generation: i64,
}

impl Kept for Record {
    fn who(&self) -> &Who {
        &self.who
    }

    fn who_mut(&mut self) -> &mut Who {
        &mut self.who
    }

    fn is_over(&self) -> bool {
        self.goal == Goal::Over
    }
}

/// Digits of the token in a pod's name: the name is part of sockets' paths, which must stay short.
const ID_LENGTH: usize = 12;

/// The name of a machine's pod.
pub fn pod_name(token: &str) -> String {
    let digits: String = token.chars().filter(char::is_ascii_alphanumeric).take(ID_LENGTH).collect();
    format!("sky-{}", digits.to_ascii_lowercase())
}

/// `CONTEXT/NAMESPACE/POD`; contexts may have slashes in their names.
pub fn id(context: &str, namespace: &str, pod: &str) -> String {
    format!("{context}/{namespace}/{pod}")
}

/// Context, namespace and pod of an id.
pub fn parts(id: &str) -> Option<(&str, &str, &str)> {
    let (rest, pod) = id.rsplit_once('/')?;
    let (context, namespace) = rest.rsplit_once('/')?;
    Some((context, namespace, pod))
}

impl Record {
    pub fn of(request: &Request, context: String, namespace: String) -> Self {
        Self {
            who: Who::of(request),
            candidate: request.candidate.clone(),
            context,
            namespace,
            goal: Goal::Running,
            generation: 0,
        }
    }

    /// Records a request: a running machine must stop, or a stopped one must run. Returns whether the record has changed.
    ///
    /// # Errors
    /// The request is from a control plane that was killed: a later request came before it.
    pub fn wish(&mut self, to: Goal, generation: i64) -> Result<bool, Failure> {
        in_time(generation, self.generation)?;
        let before = (self.goal, self.generation);
        if matches!(self.goal, Goal::Running | Goal::Stopped) {
            (self.goal, self.generation) = (to, generation);
        }
        Ok(before != (self.goal, self.generation))
    }

    /// The request for the machine.
    pub fn request(&self) -> Request {
        let Who { token, node, labels, taints, .. } = self.who.clone();
        Request { token, node, candidate: self.candidate.clone(), labels, taints }
    }

    pub fn pod(&self) -> String {
        pod_name(&self.who.token)
    }

    pub fn id(&self) -> String {
        id(&self.context, &self.namespace, &self.pod())
    }

    pub fn seen(&self, state: State) -> Seen {
        self.who.seen(self.id(), state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_taken_apart_from_behind() {
        let context = "arn:aws:eks:us-east-1:1:cluster/example";
        assert_eq!(parts(&id(context, "ns", "sky-x")), Some((context, "ns", "sky-x")));
        assert_eq!(parts("x/y"), None);
        assert_eq!(pod_name("0d2f11AA-33bb-44cc"), "sky-0d2f11aa33bb");
    }
}
