//! `~/.sky/config.yaml`, and `--config` over it.

use ::sky::value::{Map, Value};
use ::sky::yaml::documents;
use std::path::Path;

/// What of the configuration is read here.
const READ: [&str; 2] = ["kubernetes", "allowed_clouds"];

/// The settings of a home, with those of `--config` over them. Each is a file, or a setting as `kubernetes.provision_timeout=30`.
///
/// # Errors
/// For what of `--config` is no setting, or has no effect here.
pub(super) fn settings(home: &Path, given: &[String]) -> Result<Option<Map>, String> {
    let mut settings = read(&home.join(".sky/config.yaml")).ok().flatten();
    for one in given {
        let more = match one.split_once('=') {
            Some((path, value)) if !Path::new(one).is_file() => setting(path, value)?,
            None if !Path::new(one).exists() => {
                return Err(format!("--config {one}: there is no such file, and a setting is KEY.KEY=VALUE"));
            }
            _ => read(Path::new(one)).map_err(|why| format!("--config {one}: {why}"))?.unwrap_or_default(),
        };
        if let Some((key, _)) = more.iter().find(|(key, _)| !READ.contains(&&*key.text())) {
            let known = READ.join("`, `");
            return Err(format!("--config {one}: `{}` has no effect here; `{known}` have.", key.text()));
        }
        over(settings.get_or_insert_default(), more);
    }
    Ok(settings)
}

fn read(path: &Path) -> Result<Option<Map>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let all = documents(&text).map_err(|error| error.message)?;
    match all.into_iter().next().and_then(|document| document.value) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Map(map)) => Ok(Some(map)),
        Some(_) => Err("it is no mapping".to_owned()),
    }
}

/// `a.b=1` as a mapping.
fn setting(path: &str, value: &str) -> Result<Map, String> {
    let wrong = || format!("--config {path}={value}: a setting is KEY.KEY=VALUE");
    let read = documents(value).map_err(|_| wrong())?.into_iter().next().and_then(|document| document.value);
    let mut value = read.unwrap_or(Value::Null);
    let mut map = Map::new();
    for key in path.rsplit('.') {
        if key.is_empty() {
            return Err(wrong());
        }
        map = Map::from_iter([(key, value)]);
        value = Value::Map(map.clone());
    }
    Ok(map)
}

/// Lays settings over others: mappings go into each other, all else takes the place of what was there.
fn over(under: &mut Map, more: Map) {
    for (key, value) in more.iter() {
        let key = key.text();
        let merged = match (under.get(&key).and_then(Value::as_map), value.as_map()) {
            (Some(below), Some(above)) => {
                let mut below = below.clone();
                over(&mut below, above.clone());
                Value::Map(below)
            }
            _ => value.clone(),
        };
        under.insert(key, merged);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_lies_over_the_file() {
        let home = tempfile::tempdir().unwrap();
        let settings =
            |given: &[&str]| settings(home.path(), &given.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>());
        assert_eq!(settings(&[]), Ok(None));
        std::fs::create_dir(home.path().join(".sky")).unwrap();
        std::fs::write(
            home.path().join(".sky/config.yaml"),
            "kubernetes: {provision_timeout: 5, pod_config: {a: b}}\n",
        )
        .unwrap();
        let file = home.path().join("more.yaml");
        std::fs::write(&file, "kubernetes: {remote_identity: mine}\n").unwrap();
        let file = file.display().to_string();
        let read =
            settings(&["kubernetes.provision_timeout=30", &file, "kubernetes.pod_config.c=no"]).unwrap().unwrap();
        let kubernetes = read.get("kubernetes").unwrap().as_map().unwrap();
        assert_eq!(kubernetes.get("provision_timeout").unwrap().text(), "30");
        assert_eq!(kubernetes.get("remote_identity").unwrap().text(), "mine");
        let pod = kubernetes.get("pod_config").unwrap().as_map().unwrap();
        assert_eq!((pod.get("a").unwrap().text(), pod.get("c").unwrap().text()), ("b".into(), "False".into()));
        for (given, says) in [
            (
                "aws.vpc_name=x",
                "--config aws.vpc_name=x: `aws` has no effect here; `kubernetes`, `allowed_clouds` have.",
            ),
            ("kubernetes", "--config kubernetes: there is no such file, and a setting is KEY.KEY=VALUE"),
            ("=1", "a setting is KEY.KEY=VALUE"),
            ("kubernetes.=1", "a setting is KEY.KEY=VALUE"),
        ] {
            assert!(settings(&[given]).unwrap_err().contains(says), "{:?}", settings(&[given]));
        }
    }
}
