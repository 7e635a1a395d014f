//! The resource name (`jobs`, `networkpolicies`) of a kind, which messages and quotas speak in.

use api::object::Gvk;
use reconcile::World;

fn definitions() -> Gvk {
    Gvk::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
}

/// What its definition says, for a custom kind; for a built-in one, the kind in lower case and in the plural.
pub fn resource(world: &dyn World, gvk: &Gvk) -> String {
    let definition = world.list(&definitions(), None).into_iter().find(|definition| {
        definition["spec"]["group"] == gvk.group.as_str() && definition["spec"]["names"]["kind"] == gvk.kind.as_str()
    });
    let plural = definition.and_then(|definition| definition["spec"]["names"]["plural"].as_str().map(str::to_owned));
    plural.unwrap_or_else(|| plural_of(&gvk.kind.to_lowercase()))
}

fn plural_of(word: &str) -> String {
    let ends = |end: &str| word.ends_with(end);
    match word.strip_suffix('y') {
        _ if ends("endpoints") => word.to_owned(),
        Some(stem) if !ends("ay") && !ends("ey") && !ends("oy") => format!("{stem}ies"),
        _ if ends("s") || ends("x") || ends("ch") || ends("sh") => format!("{word}es"),
        _ => format!("{word}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reconcile::testing::Model;
    use serde_json::json;

    #[test]
    fn of_built_in_and_custom_kinds() {
        let world = Model::of([json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "gpus.example"},
            "spec": {"group": "example", "names": {"kind": "Gpu", "plural": "graphics"}}
        })]);
        for (group, kind, want) in [
            ("", "Pod", "pods"),
            ("", "Endpoints", "endpoints"),
            ("networking.k8s.io", "NetworkPolicy", "networkpolicies"),
            ("scheduling.k8s.io", "PriorityClass", "priorityclasses"),
            ("batch", "Job", "jobs"),
            ("example", "Gpu", "graphics"),
            ("other", "Gpu", "gpus"),
        ] {
            assert_eq!(resource(&world, &Gvk::new(group, "v1", kind)), want);
        }
    }
}
