//! PlainML: node counts and the user's variables, for runtimes whose framework needs nothing else.
//! Source: upstream's `pkg/runtime/framework/plugins/plainml`.

use super::{BuildError, Plugin};
use crate::info::Info;
use crate::job::Job;
use crate::names::{Ancestor, NODE};
use crate::runtime::Framework;
use crate::upsert;

/// Active for every framework that does not do this itself: with no policy, XGBoost and Flux.
pub struct PlainMl;

impl Plugin for PlainMl {
    fn name(&self) -> &'static str {
        "PlainML"
    }

    fn enforce_ml_policy(&self, info: &mut Info, job: &Job) -> Result<(), BuildError> {
        match info.framework {
            Framework::Torch(_) | Framework::Mpi(_) | Framework::Jax => return Ok(()),
            Framework::Plain | Framework::XgBoost | Framework::Flux(_) => {}
        }
        let Some(set) = info.by_ancestor_mut(Ancestor::Trainer) else { return Ok(()) };
        if let Some(nodes) = job.num_nodes() {
            set.count = nodes;
        }
        if let (Some(trainer), Some(node)) = (&job.trainer, set.container_mut(NODE)) {
            upsert::env_all(&mut node.env, &trainer.env);
        }
        Ok(())
    }
}
