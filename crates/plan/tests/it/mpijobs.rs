//! Folders of `testdata-mpijob/`: `input.yaml` is a MPIJob and its controller's settings, `decision.yaml` what its first pass
//! decides. Upstream's own behaviour is in the recordings (`e2e/golden/mpijob`).

use crate::render;
use api::object::Target;
use plan::mpijob::controller::MpiJobController;
use plan::mpijob::{MpiProfile, Settings};
use reconcile::Reconciler;
use reconcile::testing::Model;
use serde_json::Value;
use std::path::Path;

/// Members: `about` (what the case shows), `job`, `profile`, `image`.
fn decision(input: &Path) -> String {
    let text = std::fs::read_to_string(input).expect("the case can be read");
    let case: Value = serde_saphyr::from_str(&text).expect("the case is YAML");
    assert!(case["about"].is_string(), "{}: says nothing about itself", input.display());
    let profile: MpiProfile = serde_json::from_value(case["profile"].clone()).expect("a profile");
    let image = case["image"].as_str().map(str::to_owned);
    let controller = MpiJobController::new(Settings { profile, image, ..Settings::default() });
    let model = Model::of([case["job"].clone()]);
    let observed = controller.observe(&model, &Target::of(&case["job"])).expect("the MPIJob is there");
    let decision = render::decision(&controller.decide(&observed, model.now));
    serde_saphyr::to_string(&decision).expect("values can be written")
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the environment chooses what the test does")]
fn decisions_about_mpijobs_are_as_reviewed() {
    let update = std::env::var_os("UPDATE_GOLDENS").is_some();
    let root = format!("{}/testdata-mpijob", env!("CARGO_MANIFEST_DIR"));
    let mut wrong = Vec::new();
    let mut cases = 0;
    for entry in std::fs::read_dir(root).expect("testdata is there") {
        let folder = entry.expect("it can be listed").path();
        let (actual, golden) = (decision(&folder.join("input.yaml")), folder.join("decision.yaml"));
        if update {
            std::fs::write(&golden, &actual).expect("the decision can be written");
        } else if std::fs::read_to_string(&golden).unwrap_or_default() != actual {
            wrong.push(format!("{}: decides otherwise:\n{actual}", golden.display()));
        }
        cases += 1;
    }
    assert!(cases > 0, "no cases");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
