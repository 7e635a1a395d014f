//! What thinking costs: decisions about a TrainJob, and its admission, on one core and without any I/O.

use crate::{Figure, Setting, allocations};
use anyhow::{Context, Result};
use api::object::Target;
use plan::admission::{default_trainjob, validate_trainjob};
use plan::controller::TrainJobController;
use plan::plugins::View;
use reconcile::testing::Model;
use reconcile::{Reconciler, World};
use serde_json::{Value, json};
use std::hint::black_box;
use std::time::Instant;

const ROUNDS: usize = 20_000;
const RUNTIME: &str = include_str!("../../manifests/runtimes/torch-distributed.yaml");

/// Rate, and bytes allocated, of something that is done again and again.
struct Cost {
    per_second: f64,
    bytes: f64,
}

pub fn measure(setting: &Setting) -> Result<Vec<Figure>> {
    let rounds = ROUNDS / setting.shrink;
    let runtime: Value = serde_saphyr::from_str(RUNTIME).context("reading torch-distributed.yaml")?;
    let mut job = trainjob();
    let mut before = Model::of([runtime.clone()]);
    default_trainjob(&mut job, None, before.now).map_err(|denial| anyhow::anyhow!("{denial:?}"))?;
    let (job, controller) = (before.put(job), TrainJobController::default());
    let target = Target::of(&job);
    let mut settled = Model::of([runtime, (*job).clone()]);
    settled.run(&controller, &target);

    let decide = |model: &Model| {
        repeat(rounds, || {
            let observed = controller.observe(black_box(model), &target).context("the TrainJob is gone")?;
            black_box(controller.decide(&observed, model.now));
            Ok(())
        })
    };
    let (first, later) = (decide(&before)?, decide(&settled)?);
    let view = |target: &Target| before.get(&target.gvk, &target.key);
    let admitted = repeat(rounds, || {
        let verdict = validate_trainjob(black_box(&job), None, View(&view));
        verdict.map(|_| ()).map_err(|denial| anyhow::anyhow!("{denial:?}"))
    })?;
    let figure = |name, unit, ours| Figure { name, unit, ours, peer: None, against: "none", more_is_better: true };
    Ok(vec![
        figure("decisions on a new TrainJob", "decisions/s", first.per_second),
        figure("  allocated for each", "KB", first.bytes / 1024.0),
        figure("decisions with nothing to do", "decisions/s", later.per_second),
        figure("  allocated for each", "KB", later.bytes / 1024.0),
        figure("admissions of a TrainJob", "admissions/s", admitted.per_second),
        figure("  allocated for each", "KB", admitted.bytes / 1024.0),
    ])
}

fn repeat(rounds: usize, mut act: impl FnMut() -> Result<()>) -> Result<Cost> {
    // once, for what is made at the first use
    act()?;
    let start = Instant::now();
    for _ in 0..rounds {
        act()?;
    }
    let per_second = rounds as f64 / start.elapsed().as_secs_f64();
    let counted = rounds.min(100);
    let bytes = allocations::during(|| (0..counted).try_for_each(|_| act()))?;
    Ok(Cost { per_second, bytes: bytes as f64 / counted as f64 })
}

/// Two nodes, with a patch, as Kueue would have left it.
fn trainjob() -> Value {
    json!({
        "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
        "metadata": {"name": "train", "namespace": "default"},
        "spec": {
            "runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime", "name": "torch-distributed"},
            "trainer": {
                "numNodes": 2, "image": "mine:1", "command": ["torchrun", "train.py"],
                "env": [{"name": "EPOCHS", "value": "3"}],
                "resourcesPerNode": {"limits": {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1"}},
            },
            "runtimePatches": [{"manager": "kueue.x-k8s.io/manager", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [
                {"name": "node", "template": {"spec": {"template": {"spec": {"nodeSelector": {"pool": "a"}}}}}},
            ]}}}}],
        },
    })
}
