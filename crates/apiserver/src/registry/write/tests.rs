//! The stages of a write, held against upstream's.

use super::*;

/// Upstream's functions in the order in which they see an object that is created: the handler of creates, its admission, then
/// `Store.create` and `rest.BeforeCreate` of Kubernetes 1.36.
const CREATE: [&str; 12] = [
    "Default",
    "EnsureObjectNamespaceMatchesRequestNamespace",
    "FieldManager.Update",
    "NamespaceLifecycle",
    "Admit",
    "FillObjectMetaSystemFields",
    "GenerateName",
    "PrepareForCreate",
    "Validate",
    "WarningsOnCreate",
    "Canonicalize",
    "ValidatingAdmission",
];

/// As [`CREATE`]: the transformers of `UpdatedObject`, then `Store.Update` and `rest.BeforeUpdate`.
const UPDATE: [&str; 9] = [
    "Default",
    "FieldManager.Update",
    "Admit",
    "BeginUpdate",
    "PrepareForUpdate",
    "ValidateUpdate",
    "WarningsOnUpdate",
    "Canonicalize",
    "ValidatingAdmission",
];

/// Stages that come earlier here than upstream, and why.
const EARLIER: [(&str, &str); 5] = [
    (
        "EnsureObjectNamespaceMatchesRequestNamespace",
        "a namespace that does not fit is refused before defaults are made",
    ),
    ("NamespaceLifecycle", "a namespace that is not there is refused before defaults are made"),
    ("FillObjectMetaSystemFields", "plugins see the uid that will be stored"),
    ("PrepareForUpdate", "the hooks of kinds judge what would be stored"),
    ("Canonicalize", "warnings are about an object whose scale was changed as it will be read, with its defaults"),
];

fn names(stages: &[Stage<'_>]) -> Vec<&'static str> {
    stages.iter().map(|(name, _)| *name).collect()
}

/// Our stages are upstream's, in upstream's order but for those that are known to come earlier.
fn check(ours: &[&'static str], upstream: &[&'static str], earlier: &[&str]) {
    println!("{}", ours.join("\n"));
    let place = |list: &[&str], stage: &str| list.iter().position(|name| *name == stage);
    let others =
        |list: &[&'static str]| -> Vec<&str> { list.iter().copied().filter(|name| !earlier.contains(name)).collect() };
    assert_eq!(others(ours), others(upstream));
    assert_eq!(ours.len(), upstream.len());
    for stage in earlier {
        assert!(EARLIER.iter().any(|(name, _)| name == stage), "{stage}: no reason is given");
        let (here, there) = (place(ours, stage).expect(stage), place(upstream, stage).expect(stage));
        assert_ne!(ours.get(..here), upstream.get(..there), "{stage} comes where upstream's does");
    }
}

#[test]
fn stages_of_a_create_are_upstreams() {
    let earlier = ["EnsureObjectNamespaceMatchesRequestNamespace", "NamespaceLifecycle", "FillObjectMetaSystemFields"];
    check(&names(&Write::CREATE), &CREATE, &earlier);
}

#[test]
fn stages_of_an_update_are_upstreams() {
    check(&names(&Write::UPDATE), &UPDATE, &["PrepareForUpdate", "Canonicalize"]);
}
