//! Several descriptions of a machine: `any_of`, `ordered`, lists of accelerators, accelerators by their memory.

use placement::Catalogue;

use super::{Alternatives, Order, Resources};
use crate::error::TaskError;
use crate::infra::Infra;
use crate::quantity::{self, Suffixes};
use crate::schema::{self, Reader, Refusal};
use crate::shapes::shape;
use crate::value::{Map, Value, parse_float, parse_int, quote};

impl Alternatives {
    /// Reads `resources` of a task. `hooks` are those of `config.hooks`.
    ///
    /// # Errors
    /// For what is no description of machines.
    pub fn read(
        mut config: Map,
        hooks: Option<Value>,
        reader: Reader,
        catalogue: &Catalogue,
    ) -> Result<Self, TaskError> {
        rename_gpus(&mut config)?;
        for key in ["any_of", "ordered"] {
            if let Some(Value::List(list)) = config.get(key).cloned() {
                let renamed = list.into_iter().map(|item| match item {
                    Value::Map(mut map) => rename_gpus(&mut map).map(|()| Value::Map(map)),
                    other => Ok(other),
                });
                config.insert(key, Value::List(renamed.collect::<Result<_, _>>()?));
            }
        }
        Self::read_checked(config, hooks.as_ref(), reader, catalogue)
    }

    fn read_checked(
        config: Map,
        hooks: Option<&Value>,
        reader: Reader,
        catalogue: &Catalogue,
    ) -> Result<Self, TaskError> {
        let infra = config.get("infra").and_then(Value::as_str).map(str::to_owned);
        let refused = |refusal: Refusal| {
            let hint = (refusal.path == "$.infra").then(|| Infra::hint(infra.as_deref().unwrap_or_default()));
            TaskError::refused(refusal, "Invalid resources YAML: ", "$.resources").with_hint(hint)
        };
        schema::check_given(&config, shape("resources"), reader).map_err(refused)?;
        let written = config.clone();
        let read = Self::read_given(config, hooks, reader, catalogue)?;
        schema::check_nulls(&written, shape("resources"), reader).map_err(refused)?;
        Ok(read)
    }

    fn read_given(
        mut config: Map,
        hooks: Option<&Value>,
        reader: Reader,
        catalogue: &Catalogue,
    ) -> Result<Self, TaskError> {
        let (any_of, ordered) = (config.take("any_of"), config.take("ordered"));
        if any_of.is_some() && ordered.is_some() {
            return Err(
                TaskError::value("Cannot specify both \"any_of\" and \"ordered\" in resources.").at("$.resources")
            );
        }
        let names = accelerator_names(config.given("accelerators"), catalogue)?;
        let preferred = matches!(config.given("accelerators"), Some(Value::List(_)));
        let (any_of, ordered) = (any_of.filter(Value::is_truthy), ordered.filter(Value::is_truthy));
        if names.len() > 1 && ordered.is_some() {
            return Err(TaskError::value("Cannot specify multiple \"accelerators\" with \"ordered\" in resources.")
                .at("$.resources.accelerators"));
        }
        if names.len() > 1 && preferred && any_of.is_some() {
            let message = "Cannot specify multiple \"accelerators\" with preferred order (i.e., list of accelerators) with \"any_of\" in resources.";
            return Err(TaskError::value(message).at("$.resources.accelerators"));
        }
        let order = if ordered.is_some() || (any_of.is_none() && preferred) { Order::Preferred } else { Order::Any };
        if let Some(Value::List(overriding)) = any_of.or(ordered) {
            let mut list = Vec::new();
            for other in overriding {
                let Value::Map(other) = other else { continue };
                list.extend(Self::read_checked(overridden(&config, other), hooks, reader, catalogue)?.list);
            }
            return Ok(Self { order, list });
        }
        // not where no accelerator has the memory that is asked for: that is nobody's name, and passes
        let names_none = config.given("accelerators").is_some_and(|field| !field.is_truthy());
        if names.is_empty() && names_none {
            // what else is wrong with it is told first
            config.remove("accelerators");
            Resources::read(config, hooks, reader)?;
            return Err(TaskError::value("accelerators is empty: name one, or leave the field out.")
                .at("$.resources.accelerators"));
        }
        if names.is_empty() {
            return Ok(Self { order: Order::Any, list: vec![Resources::read(config, hooks, reader)?] });
        }
        let each = names.into_iter().map(|(name, named)| {
            let mut config = config.clone();
            config.insert("accelerators", name);
            if !named {
                config.insert("_no_missing_accel_warnings", true);
            }
            Resources::read(config, hooks, reader)
        });
        Ok(Self { order, list: each.collect::<Result<_, _>>()? })
    }
}

/// `gpus` is another name of `accelerators`.
fn rename_gpus(config: &mut Map) -> Result<(), TaskError> {
    if !config.contains("gpus") {
        return Ok(());
    }
    if config.contains("accelerators") {
        return Err(TaskError::shape("Cannot specify both gpus and accelerators in config.").at("$.resources.gpus"));
    }
    if let Some(gpus) = config.remove("gpus") {
        config.insert("accelerators", gpus);
    }
    Ok(())
}

/// A description with the fields of another put over it; labels are merged.
fn overridden(base: &Map, mut other: Map) -> Map {
    let labels = other.take("labels");
    let mut config = base.clone();
    config.extend(other);
    let merged = match (config.take("labels"), labels) {
        (Some(Value::Map(mut all)), Some(Value::Map(own))) => {
            all.extend(own);
            Some(Value::Map(all))
        }
        (all, own) => own.or(all),
    };
    config.insert_some("labels", merged);
    config
}

/// The accelerators that a field names, each once, and whether it names them or asks for their memory.
fn accelerator_names(field: Option<&Value>, catalogue: &Catalogue) -> Result<Vec<(String, bool)>, TaskError> {
    let texts: Vec<String> = match field {
        None => return Ok(Vec::new()),
        Some(Value::Str(text)) => vec![text.clone()],
        Some(Value::List(list)) => list.iter().map(Value::text).collect(),
        Some(Value::Map(map)) => map
            .iter()
            .map(
                |(name, count)| if count.is_null() { name.text() } else { format!("{}:{}", name.text(), count.text()) },
            )
            .collect(),
        Some(other) => {
            return Err(TaskError::wrong_type("accelerators", other, "a name, a mapping or a list")
                .at("$.resources.accelerators"));
        }
    };
    let mut names: Vec<(String, bool)> = Vec::new();
    for text in texts {
        for (name, named) in
            by_name_or_memory(&text, catalogue).map_err(|error| error.at("$.resources.accelerators"))?
        {
            match names.iter_mut().find(|(known, _)| *known == name) {
                Some(known) => known.1 |= named,
                None => names.push((name, named)),
            }
        }
    }
    Ok(names)
}

/// Whether a text is an amount of memory: `80GB`, `80GB+`.
fn is_memory(text: &str) -> bool {
    let amount = text.strip_suffix('+').unwrap_or(text).to_ascii_lowercase();
    let digits = ["gb", "mb", "tb"].iter().find_map(|unit| amount.strip_suffix(unit));
    digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
}

/// `NAME[:COUNT]` as it is; `[MAKER:]MEMORY[:COUNT]` as the accelerators that have it.
fn by_name_or_memory(text: &str, catalogue: &Catalogue) -> Result<Vec<(String, bool)>, TaskError> {
    let count = |count: &str| {
        parse_int(count).ok_or_else(|| {
            TaskError::value(format!("The count in the \"accelerators\" field {} is no whole number.", quote(text)))
        })
    };
    let (maker, memory, count) = match text.split(':').collect::<Vec<_>>().as_slice() {
        [maker, memory, number] => {
            if !is_memory(memory) {
                return Err(TaskError::value("If specifying a GPU manufacturer, you must alsospecify the memory size"));
            }
            (Some(*maker), *memory, count(number)?)
        }
        [memory, number] if is_memory(memory) => (None, *memory, count(number)?),
        [maker, memory] if is_memory(memory) => (Some(*maker), *memory, 1),
        [memory] if is_memory(memory) => (None, *memory, 1),
        _ => return Ok(vec![(text.to_owned(), true)]),
    };
    let gib = quantity::whole_gib(memory, "accelerators", Suffixes { plus: true, times: false })?;
    let at_least = gib.ends_with('+');
    let found =
        catalogue.accelerators_by_memory(parse_float(gib.trim_end_matches('+')).unwrap_or(0.0), at_least, maker);
    Ok(found.into_iter().map(|name| (format!("{name}:{count}"), false)).collect())
}

#[cfg(test)]
mod tests {
    use crate::schema::Reader;
    use crate::{File, Given};
    use placement::Catalogue;

    fn refusal(text: &str) -> String {
        let catalogue = Catalogue::default();
        File::read(text, &Given::default(), Reader::Client, &catalogue)
            .map_or_else(|error| error.message, |_| String::new())
    }

    #[test]
    fn what_else_is_wrong_is_told_before_accelerators_that_are_none() {
        for (resources, says) in [
            ("{accelerators: []}", "accelerators is empty"),
            ("{accelerators: {}, memory: 3xx}", "\"memory\" field should be"),
            ("{accelerators: [], memory: 3xx, any_of: [{}]}", "\"memory\" field should be"),
            ("{accelerators: [], any_of: [{accelerators: V100}, {}]}", "accelerators is empty"),
            ("{accelerators: [], any_of: [{accelerators: V100}]}", ""),
            ("{accelerators: 1000GB, any_of: []}", ""),
        ] {
            let told = refusal(&format!("resources: {resources}"));
            assert!(told.starts_with(says) && told.is_empty() == says.is_empty(), "{resources}: {told}");
        }
    }

    #[test]
    fn alternatives_that_are_no_list_are_refused() {
        for key in ["any_of", "ordered"] {
            for (value, quoted) in
                [("90", "90"), ("x", "'x'"), ("{}", "{}"), ("{cpus: 2}", "{'cpus': 2}"), ("''", "''")]
            {
                let says = format!(
                    "Invalid resources YAML: {quoted} is not of type 'array'. Check problematic field(s): $.{key}"
                );
                assert_eq!(refusal(&format!("resources: {{{key}: {value}}}")), says);
            }
            assert_eq!(refusal(&format!("resources: {{{key}: }}")), "");
        }
    }

    #[test]
    fn unknown_keys_without_a_value_are_told_behind_all_else() {
        for (text, says) in [
            ("rnu:\nresources: {infra: ''}", "Invalid resources YAML: '' does not match"),
            ("rnu:\nresources: 0", "Invalid task YAML: 0 is not of type 'dict'"),
            ("rnu:\npool: {}", "One of workers"),
            ("rnu:\nrun: x", "Invalid task YAML: Instead of 'rnu', did you mean 'run'?"),
            ("resources: {cpu: , cpus: x}", "The \"cpus\" field should be"),
            ("resources: {cpu: }", "Invalid resources YAML: Instead of 'cpu', did you mean 'cpus'?"),
        ] {
            assert!(refusal(text).starts_with(says), "{text}: {}", refusal(text));
        }
        // as in SkyPilot
        assert_eq!(refusal("service: {readiness_probe: /, replica: , replicas: 1}"), "");
    }
}
