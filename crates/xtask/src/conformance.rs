//! `cargo xtask conformance`: writes into COMPATIBILITY.md and README.md how many of the recorded scenarios pass.
//!
//! The text depends only on the recordings (`e2e/golden/FOLDER/SCENARIO`) and on the list of those that do not pass
//! (`e2e/golden/not-yet.yaml`), so no server is needed. `e2e/api/test_recordings.py` checks that the list is true,
//! and `--report` checks it against a run of your own.

use anyhow::{Context, Result, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Holds the table.
const PAGE: &str = "COMPATIBILITY.md";
/// Holds one sentence.
const README: &str = "README.md";
const BEGIN: &str = "<!-- written by `cargo xtask conformance`: begin -->\n";
const END: &str = "<!-- written by `cargo xtask conformance`: end -->\n";

/// Scenarios by folder.
type Recordings = BTreeMap<String, BTreeSet<String>>;

/// Reasons by scenario by folder.
type NotYet = BTreeMap<String, BTreeMap<String, String>>;

/// Why a scenario is on the list: its reason's first words say so.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Why {
    /// "on purpose": upstream's behaviour is not wanted.
    OnPurpose,
    /// "sometimes": it passes, but not always.
    Sometimes,
    /// Everything else: not done yet.
    NotYet,
}

impl Why {
    fn of(reason: &str) -> Self {
        if reason.starts_with("on purpose") {
            Self::OnPurpose
        } else if reason.starts_with("sometimes") {
            Self::Sometimes
        } else {
            Self::NotYet
        }
    }
}

/// Prints the table, holds `reports` (JUnit files of `replay.py check`) against the list, and writes the table and its
/// last line into the two pages; with `check` these are read only, and must hold them already.
pub fn run(root: &Path, reports: &[PathBuf], check: bool) -> Result<()> {
    let golden = root.join("e2e/golden");
    let recordings = recordings(&golden)?;
    let list = golden.join("not-yet.yaml");
    let text = std::fs::read_to_string(&list).with_context(|| format!("reading {}", list.display()))?;
    let listed: NotYet = serde_saphyr::from_str(&text).with_context(|| format!("parsing {}", list.display()))?;
    known(&recordings, &listed)?;
    let table = table(&recordings, &listed);
    print!("{table}");

    let mut findings = Vec::new();
    for report in reports {
        let text = std::fs::read_to_string(report).with_context(|| format!("reading {}", report.display()))?;
        findings.extend(disagreements(&recordings, &listed, &cases(&text)?));
    }
    for finding in &findings {
        println!("{finding}");
    }
    ensure!(findings.is_empty(), "e2e/golden/not-yet.yaml and the reports differ in {} scenarios", findings.len());

    for (name, text) in [(PAGE, &table), (README, &sentence(&recordings, &listed))] {
        let path = root.join(name);
        let page = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let page = replaced(&page, text).with_context(|| format!("writing {name}"))?;
        crate::emit(&path, &page, check)?;
    }
    Ok(())
}

/// How many pass, of how many, for somebody who reads no table.
fn sentence(recordings: &Recordings, listed: &NotYet) -> String {
    let all: usize = recordings.values().map(BTreeSet::len).sum();
    let count = |why| listed.values().flat_map(BTreeMap::values).filter(|reason| Why::of(reason) == why).count();
    let [differ, sometimes, not_yet] = [Why::OnPurpose, Why::Sometimes, Why::NotYet].map(count);
    let pass = all - differ - sometimes - not_yet;
    let mut out =
        format!("Of {all} recorded scenarios of the real systems {pass} pass, and {differ} differ on purpose");
    if sometimes + not_yet > 0 {
        write!(out, "; {} do not pass yet", sometimes + not_yet).expect("invariant: writing to a string");
    }
    out + &format!(" ([{PAGE}]({PAGE})).\n")
}

/// The scenarios that there are: folders in a folder, with `scenario.yaml` in them.
fn recordings(golden: &Path) -> Result<Recordings> {
    let folders = |path: &Path| -> Result<Vec<(String, PathBuf)>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(path).with_context(|| format!("reading {}", path.display()))? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                found.push((entry.file_name().to_string_lossy().into_owned(), entry.path()));
            }
        }
        Ok(found)
    };
    let mut recordings = Recordings::new();
    for (folder, path) in folders(golden)? {
        let scenarios = folders(&path)?.into_iter().filter(|(_, path)| path.join("scenario.yaml").exists());
        let names: BTreeSet<String> = scenarios.map(|(name, _)| name).collect();
        if !names.is_empty() {
            recordings.insert(folder, names);
        }
    }
    ensure!(!recordings.is_empty(), "no recordings in {}", golden.display());
    Ok(recordings)
}

/// The list names nothing that is not there.
fn known(recordings: &Recordings, listed: &NotYet) -> Result<()> {
    for (folder, names) in listed {
        let Some(scenarios) = recordings.get(folder) else {
            bail!("not-yet.yaml names no folder of recordings: {folder}")
        };
        if let Some(name) = names.keys().find(|name| !scenarios.contains(*name)) {
            bail!("not-yet.yaml names no scenario: {folder}/{name}");
        }
    }
    Ok(())
}

fn table(recordings: &Recordings, listed: &NotYet) -> String {
    let mut out = String::from(
        "| recordings | scenarios | pass | differ on purpose | pass sometimes | not yet |\n|---|--:|--:|--:|--:|--:|\n",
    );
    let mut sums = [0; 5];
    let nothing = BTreeMap::new();
    for (folder, scenarios) in recordings {
        let reasons = listed.get(folder).unwrap_or(&nothing);
        let count = |why| reasons.values().filter(|reason| Why::of(reason) == why).count();
        let row = [
            scenarios.len(),
            scenarios.len() - reasons.len(),
            count(Why::OnPurpose),
            count(Why::Sometimes),
            count(Why::NotYet),
        ];
        sums.iter_mut().zip(row).for_each(|(sum, number)| *sum += number);
        line(&mut out, &format!("`{folder}`"), row);
    }
    line(&mut out, "all", sums);
    out.push('\n');
    if listed.values().all(BTreeMap::is_empty) {
        out.push_str("No scenario is on the list of those that do not pass.\n");
        return out;
    }
    out.push_str("| scenario | why it does not pass as recorded |\n|---|---|\n");
    for (folder, names) in listed {
        for (name, reason) in names {
            let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|");
            writeln!(out, "| `{folder}/{name}` | {reason} |").expect("invariant: writing to a string");
        }
    }
    out
}

fn line(out: &mut String, name: &str, numbers: [usize; 5]) {
    let cells: Vec<String> = numbers.iter().map(usize::to_string).collect();
    writeln!(out, "| {name} | {} |", cells.join(" | ")).expect("invariant: writing to a string");
}

/// The page with the text between its marks.
fn replaced(page: &str, text: &str) -> Result<String> {
    let (before, rest) = page.split_once(BEGIN).with_context(|| format!("the line is missing: {}", BEGIN.trim()))?;
    let (_, after) = rest.split_once(END).with_context(|| format!("the line is missing: {}", END.trim()))?;
    Ok(format!("{before}{BEGIN}\n{text}\n{END}{after}"))
}

/// Scenarios of a JUnit report and whether each passed.
// One file of our own making, not XML at large: names are single- or double-quoted and hold no markup.
fn cases(report: &str) -> Result<BTreeMap<String, bool>> {
    let mut found = BTreeMap::new();
    for element in report.split("<testcase ").skip(1) {
        let name = ['\'', '"'].into_iter().find_map(|quote| {
            let (_, rest) = element.split_once(&format!(" name={quote}"))?;
            Some(rest.split_once(quote)?.0)
        });
        let name = name.context("a test case in the report has no name")?;
        let failed = element.contains("<failure") || element.contains("<error");
        found.insert(name.to_owned(), !failed);
    }
    ensure!(!found.is_empty(), "the report holds no test case");
    Ok(found)
}

/// Where a run and the list differ.
fn disagreements(recordings: &Recordings, listed: &NotYet, cases: &BTreeMap<String, bool>) -> Vec<String> {
    let mut findings = Vec::new();
    for (name, passed) in cases {
        let Some((folder, _)) = recordings.iter().find(|(_, scenarios)| scenarios.contains(name)) else {
            findings.push(format!("{name}: the report names no scenario that is here"));
            continue;
        };
        match listed.get(folder).and_then(|names| names.get(name)) {
            None if !passed => findings.push(format!("{folder}/{name} fails, and is not on the list")),
            Some(reason) if *passed && Why::of(reason) != Why::Sometimes => {
                findings.push(format!("{folder}/{name} passes: take it off the list"));
            }
            None | Some(_) => {}
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn world() -> (Recordings, NotYet) {
        let recordings = [("api", vec!["a", "b"]), ("trainer", vec!["c", "d", "e", "f"])]
            .map(|(folder, names)| (folder.to_owned(), names.into_iter().map(str::to_owned).collect()));
        let listed = "api: {}\ntrainer: {c: 'on purpose: a|b', d: sometimes late, e: it\n  is hard}\n";
        (BTreeMap::from(recordings), serde_saphyr::from_str(listed).unwrap())
    }

    #[test]
    fn scenarios_are_counted_by_reason() {
        let (recordings, listed) = world();
        let table = table(&recordings, &listed);
        for line in [
            "| `api` | 2 | 2 | 0 | 0 | 0 |",
            "| `trainer` | 4 | 1 | 1 | 1 | 1 |",
            "| all | 6 | 3 | 1 | 1 | 1 |",
            "| `trainer/c` | on purpose: a\\|b |",
            "| `trainer/e` | it is hard |",
        ] {
            assert!(table.lines().any(|l| l == line), "{line}\nis not in\n{table}");
        }
    }

    #[test]
    fn the_sentence_counts_what_the_table_does() {
        let (recordings, mut listed) = world();
        let begins = "Of 6 recorded scenarios of the real systems 3 pass, and 1 differ on purpose";
        let ends = " ([COMPATIBILITY.md](COMPATIBILITY.md)).\n";
        assert_eq!(sentence(&recordings, &listed), format!("{begins}; 2 do not pass yet{ends}"));
        listed.get_mut("trainer").unwrap().retain(|_, reason| Why::of(reason) == Why::OnPurpose);
        assert_eq!(sentence(&recordings, &listed), format!("{}{ends}", begins.replace("3 pass", "5 pass")));
    }

    #[test]
    fn the_list_names_what_there_is() {
        let (recordings, mut listed) = world();
        known(&recordings, &listed).unwrap();
        listed.get_mut("api").unwrap().insert("z".to_owned(), "gone".to_owned());
        assert_eq!(known(&recordings, &listed).unwrap_err().to_string(), "not-yet.yaml names no scenario: api/z");
    }

    #[test]
    fn reports_are_held_against_the_list() {
        let (recordings, listed) = world();
        let report = "<testsuite name='golden'><testcase classname='golden' name='a' time='1'></testcase>\
            <testcase classname='golden' name=\"b\" time='1'><failure message='differs'>x</failure></testcase>\
            <testcase classname='golden' name='c' time='1'></testcase><testcase classname='golden' name='d' time='1'/>\
            <testcase classname='golden' name='e' time='1'><error/></testcase></testsuite>";
        let findings = disagreements(&recordings, &listed, &cases(report).unwrap());
        assert_eq!(findings, ["api/b fails, and is not on the list", "trainer/c passes: take it off the list"]);
        assert!(cases("<testsuite/>").is_err());
    }

    #[test]
    fn only_what_is_between_the_marks_is_written() {
        let page = format!("before\n{BEGIN}old\n{END}after\n");
        assert_eq!(replaced(&page, "new\n").unwrap(), format!("before\n{BEGIN}\nnew\n\n{END}after\n"));
        assert!(replaced("before\n", "new\n").is_err());
    }
}
