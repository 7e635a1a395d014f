//! Folders of `testdata/`: `input.yaml` is a TrainJob and the objects around it, `decision.yaml` what is decided.
//!
//! `UPDATE_GOLDENS=1 cargo test -p plan` writes the decisions anew; review the difference against the specification.

use crate::{lint, render};
use api::object::Target;
use plan::controller::TrainJobController;
use plan::plugins::{CaSource, Settings, StatusServer};
use reconcile::Reconciler;
use reconcile::testing::Model;
use serde_json::Value;
use std::path::Path;

/// A case as it stands in its file.
pub struct Case {
    pub job: Value,
    pub model: Model,
    pub controller: TrainJobController,
}

impl Case {
    /// Members: `about` (what the case shows), `job`, `others` (objects that exist), `now`, `statusServer` (whether there
    /// is one).
    pub fn read(input: &Path) -> Self {
        let text = std::fs::read_to_string(input).expect("the case can be read");
        let case: Value = serde_saphyr::from_str(&text).expect("the case is YAML");
        assert!(case["about"].is_string(), "{}: says nothing about itself", input.display());
        let mut model = Model::default();
        if let Some(now) = case["now"].as_str() {
            model.now = now.parse().expect("a time");
        }
        for other in case["others"].as_array().into_iter().flatten() {
            model.put(other.clone());
        }
        model.put(case["job"].clone());
        let status_server = case["statusServer"].as_bool().unwrap_or(false).then(|| StatusServer {
            base_url: "https://trainer.example:10443".into(),
            ca: CaSource::Inline("CA".into()),
        });
        Self { job: case["job"].clone(), model, controller: TrainJobController::new(Settings { status_server }) }
    }

    pub fn target(&self) -> Target {
        Target::of(&self.job)
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the environment chooses what the test does")]
fn decisions_are_as_reviewed() {
    let root = std::env::var("PLAN_TESTDATA").unwrap_or_else(|_| format!("{}/testdata", env!("CARGO_MANIFEST_DIR")));
    let update = std::env::var_os("UPDATE_GOLDENS").is_some();
    let mut folders: Vec<_> = std::fs::read_dir(&root)
        .expect("testdata is there")
        .map(|entry| entry.expect("it can be listed").path())
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    let mut wrong = Vec::new();
    for folder in &folders {
        let case = Case::read(&folder.join("input.yaml"));
        let observed = case.controller.observe(&case.model, &case.target()).expect("the TrainJob is there");
        let decision = case.controller.decide(&observed, case.model.now);
        for fault in lint::faults(&case.job, &decision) {
            wrong.push(format!("{}: {fault}", folder.display()));
        }
        let actual = serde_saphyr::to_string(&render::decision(&decision)).expect("values can be written");
        let golden = folder.join("decision.yaml");
        if update {
            std::fs::write(&golden, &actual).expect("the decision can be written");
        } else if std::fs::read_to_string(&golden).unwrap_or_default() != actual {
            wrong.push(format!("{}: decides otherwise:\n{actual}", golden.display()));
        }
    }
    assert!(!folders.is_empty(), "no cases");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
