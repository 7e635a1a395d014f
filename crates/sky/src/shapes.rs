//! The shapes of a task file and its parts: `shapes.yaml`, read once.

use std::sync::LazyLock;

use crate::value::Value;
use crate::yaml;

static SHAPES: LazyLock<Value> = LazyLock::new(|| {
    let read = yaml::documents(include_str!("shapes.yaml")).ok().and_then(|mut all| all.pop());
    read.and_then(|document| document.value).unwrap_or(Value::Null)
});

/// The shape of that name: `task`, `config`, `resources`, `storage` or `service`.
pub fn shape(name: &str) -> &'static Value {
    static NONE: Value = Value::Null;
    LazyLock::force(&SHAPES).as_map().and_then(|shapes| shapes.get(name)).unwrap_or(&NONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_is_there() {
        for name in ["task", "config", "resources", "storage", "service"] {
            assert!(shape(name).as_map().is_some_and(|shape| shape.contains("properties")), "{name}");
        }
    }
}
