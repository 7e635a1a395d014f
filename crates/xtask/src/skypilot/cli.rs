//! Recorded transcripts of `sky` against what ours prints. Verbs that ours does not have yet are counted, not compared.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use placement::Catalogue;
use serde_json::Value as Json;
use sky::console::{Circumstances, run};

use super::optimizer::Outcome;
use super::{PathKind, file_of, text_of, world};

/// Replays a case; nothing where its verb comes later.
pub fn replay(case: &Path, catalogue: &Catalogue) -> Result<Option<Outcome>> {
    let path = case.join("transcript.json");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let recorded: Json = serde_json::from_str(&text)?;
    let words: Vec<String> = recorded["args"].as_array().into_iter().flatten().map(text_of).collect();
    let files = recorded["files"].as_object().cloned().unwrap_or_default();
    let kind = |path: &str| if files.contains_key(path) { PathKind::File } else { PathKind::Missing };
    let around = Circumstances {
        catalogue_folder: "~/.sky/catalogs/v8",
        read: &|path| file_of(&files, path),
        path: &kind,
        cluster: "<cluster>",
        ..world(catalogue)
    };
    let printed = run(&words, &around);
    if printed.err.contains("does nothing yet") {
        return Ok(None);
    }
    let (out, err) = (tidied(&printed.out), tidied(&printed.err));
    let (recorded_out, recorded_err) = (tidied(&text_of(&recorded["stdout"])), tidied(&text_of(&recorded["stderr"])));
    if out == recorded_out && err == recorded_err && recorded["exit_code"] == printed.code {
        return Ok(Some(Outcome::Same));
    }
    // there SkyPilot goes on to its clouds' own libraries, which were not there: as far as that both print the same
    let beyond = ["AttributeError", "ImportError", "sky.exceptions.ResourcesUnavailableError: Failed to provision"];
    let table = |text: &str| text.split("Considered resources").take(2).map(str::to_owned).collect::<Vec<_>>();
    if beyond.iter().any(|start| recorded_err.starts_with(start)) && printed.code == 0 {
        let (ours, theirs) = (table(&out), table(&recorded_out));
        let first_table = |parts: &[String]| {
            let rows = parts.get(1).map(|part| part.lines().take_while(|line| line.starts_with([' ', '-'])));
            (parts.first().cloned(), rows.map(|rows| rows.map(str::to_owned).collect::<Vec<_>>()))
        };
        if first_table(&ours) == first_table(&theirs) {
            return Ok(Some(Outcome::OnPurpose(
                "SkyPilot asks its clouds after the choice, and they were not there".into(),
            )));
        }
    }
    Ok(Some(Outcome::Differs(format!(
        "exit code {} instead of {}\n--- ours\n{out}\n{err}\n--- recorded\n{recorded_out}\n{recorded_err}",
        printed.code, recorded["exit_code"]
    ))))
}

/// Without spaces at the ends of lines, and without empty lines at the end.
fn tidied(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n").trim_end().to_owned()
}
