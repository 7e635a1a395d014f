//! Secrets with key material that is made once: what MPI and Flux share.

use super::Build;
use crate::job::Job;
use api::object::{Gvk, Target};
use reconcile::{Generator, Op};
use serde_json::Value;

/// The Secret of a TrainJob with this suffix.
pub(super) fn secret(job: &Job, suffix: &str) -> Target {
    job.sibling("v1", "Secret", &format!("{}{suffix}", job.name))
}

/// Kinds of children of plugins that have such a Secret, and a ConfigMap beside it.
pub(super) fn watches() -> Vec<Gvk> {
    vec![Gvk::new("", "v1", "ConfigMap"), Gvk::new("", "v1", "Secret")]
}

/// Makes the Secret, with what `fill` puts in, unless it is there: an existing one keeps its keys, which running pods know.
pub(super) fn generate(
    cx: &Build<'_>,
    suffix: &str,
    generator: Generator,
    fill: impl FnOnce(&mut Value),
) -> Option<Op> {
    let target = secret(cx.job, suffix);
    if cx.view.get(&target).is_some() {
        return None;
    }
    let mut object = cx.job.child("v1", "Secret", &target.key.name);
    fill(&mut object);
    Some(Op::CreateGenerated { object, generator })
}
