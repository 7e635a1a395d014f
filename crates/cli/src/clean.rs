//! `clean`: lists what nothing uses any more on this machine, and removes it after you confirm.

use crate::{consent, exit, output};
use client::{ClientError, Home};
use grammar::{CleanArgs, Format, Global};
use leftovers::{Item, Kind, Leftovers, Thing};
use serde_json::{Value, json};
use std::time::Duration;

/// `3d`, `5h`, `2m`.
fn short(age: Duration) -> String {
    match age.as_secs() {
        secs if secs >= 86_400 => format!("{}d", secs / 86_400),
        secs if secs >= 3600 => format!("{}h", secs / 3600),
        secs if secs >= 60 => format!("{}m", secs / 60),
        secs => format!("{secs}s"),
    }
}

/// A row for each kind that has items: kind, count, size, age of the oldest, text.
fn rows(items: &[Item]) -> Vec<Vec<String>> {
    let rows = Kind::ALL.into_iter().filter_map(|kind| {
        let of_kind: Vec<&Item> = items.iter().filter(|item| item.kind == kind).collect();
        let oldest = of_kind.iter().map(|item| item.age).max()?;
        let bytes = of_kind.iter().map(|item| item.bytes).sum();
        let (count, size) = (of_kind.len().to_string(), files::size_shown(bytes));
        Some(vec![kind.as_str().to_owned(), count, size, short(oldest), kind.what().to_owned()])
    });
    rows.collect()
}

fn as_json(item: &Item) -> Value {
    let mut value =
        json!({"kind": item.kind.as_str(), "name": item.name, "bytes": item.bytes, "ageSeconds": item.age.as_secs()});
    match &item.thing {
        Thing::Files(files) => value["files"] = files.iter().map(|path| path.display().to_string()).collect(),
        Thing::Record(namespace, name) => value["configMap"] = format!("{namespace}/{name}").into(),
        Thing::Process(pid) => value["process"] = (*pid).into(),
    }
    value
}

/// Lists what is old; removes it after `--yes` or an answer.
pub(crate) async fn clean(args: &CleanArgs, global: &Global) -> Result<u8, ClientError> {
    let home = Home::find(global.home.as_deref())?;
    // this machine is cleaned: `--kubeconfig` and `--context` are ignored
    let mut found = Leftovers::of(&home, submission::cache_folder()).await;
    if let Some(why) = &found.unlisted {
        eprintln!("leftovers of removed jobs and clusters are not listed: {why}");
    }
    found.items.retain(|item| item.age >= args.older_than);
    let items = &found.items;
    let format = args.output.output;
    let is_data = matches!(format, Format::Json | Format::Yaml);
    if items.is_empty() {
        match is_data {
            true => output::print(&json!({"items": [], "removed": false}), format),
            false => println!("nothing unused is older than {}", short(args.older_than)),
        }
        return Ok(exit::OK);
    }
    match format {
        Format::Json | Format::Yaml => {}
        Format::Name => items.iter().for_each(|item| println!("{}/{}", item.kind.as_str(), item.name)),
        Format::Table => output::table(&["KIND", "COUNT", "SIZE", "OLDEST", "WHAT"], rows(items)),
        Format::Wide => {
            let row = |item: &Item| {
                let (kind, name) = (item.kind.as_str().to_owned(), item.name.clone());
                vec![kind, files::size_shown(item.bytes), short(item.age), name]
            };
            output::table(&["KIND", "SIZE", "AGE", "NAME"], items.iter().map(row).collect());
        }
    }
    let agreed = args.yes || (!is_data && is_person() && consent::is_given("nothing was removed")?);
    let (mut failed, mut bytes) = (Vec::new(), 0_u64);
    if agreed {
        for item in items {
            match found.remove(item).await {
                Ok(()) => bytes = bytes.saturating_add(item.bytes),
                Err(why) => failed.push(why.to_string()),
            }
        }
    }
    if is_data {
        let listed: Vec<Value> = items.iter().map(as_json).collect();
        output::print(&json!({"items": listed, "removed": agreed && failed.is_empty()}), format);
    } else if agreed {
        println!("removed {} items ({})", items.len().saturating_sub(failed.len()), files::size_shown(bytes));
    } else if !is_person() {
        let age = args.older_than.as_secs();
        eprintln!("nothing was removed; to remove the listed items: trainyard clean --older-than {age}s --yes");
    }
    failed.iter().for_each(|why| eprintln!("cannot remove {why}"));
    Ok(if failed.is_empty() { exit::OK } else { exit::FAILURE })
}

fn is_person() -> bool {
    std::io::IsTerminal::is_terminal(&std::io::stdin())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_short() {
        let shown = [59, 60, 7200, 604_800].map(|secs| short(Duration::from_secs(secs)));
        assert_eq!(shown, ["59s", "1m", "2h", "7d"]);
    }
}
