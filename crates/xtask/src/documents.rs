//! Compares what the documents claim with the repository: arrows, absences, paths, commands.
//!
//! It reads ARCHITECTURE.md, CONTRIBUTING.md and README.md as a person does: texts between backticks, indented
//! commands, and the drawing of the arrows. Whatever does not exist any more is a finding.

use std::collections::{BTreeMap, BTreeSet};

/// The pages whose paths and commands are checked.
pub const PAGES: [&str; 4] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "COMPATIBILITY.md"];

/// What there is: all that a page may name.
pub struct Facts<'a> {
    /// Files that git knows.
    pub files: &'a [String],
    /// Which of our crates each of our crates depends on, tests' dependencies aside.
    pub arrows: BTreeMap<String, BTreeSet<String>>,
    /// Targets of the Makefile.
    pub targets: BTreeSet<String>,
    /// Subcommands of `cargo xtask`.
    pub chores: BTreeSet<String>,
    /// All Rust, Python and shell sources, and the Makefile: environment variables and items are looked for in them.
    pub sources: String,
}

/// What an absence of ARCHITECTURE.md forbids: its subject and its words there, and what the code must not say.
struct Absence {
    says: &'static str,
    folder: &'static str,
    /// Files below the folder that are the kinds themselves, and so know them.
    but: &'static [&'static str],
    words: &'static [&'static str],
}

/// Every sentence of "Absences" has its line here; [`absences`] finds one without.
const ABSENCES: &[Absence] = &[
    Absence {
        says: "`plan` never learns",
        folder: "crates/plan/src/",
        but: &[],
        words: &["laptop", "TRAINYARD_HOME", "127.0.0.1"],
    },
    Absence {
        says: "`dashboard` never learns",
        folder: "crates/dashboard/src/",
        but: &[],
        words: &["store::", "apiserver::", "node::", "infra::", "User::admin"],
    },
    Absence {
        says: "`workloads` never learns",
        folder: "crates/workloads/src/",
        but: &[],
        words: &["api::trainer", "TrainJob", "TrainingRuntime", "trainjob-ancestor"],
    },
    Absence {
        says: "`node` never learns",
        folder: "crates/node/src/",
        but: &[],
        words: &["api::trainer", "api::jobset", "TrainJob", "JobSet"],
    },
    Absence {
        says: "`fetch` never learns",
        folder: "crates/fetch/src/",
        but: &[],
        words: &["kube::", "TrainJob", "JobSet", "\"Pod\""],
    },
    Absence {
        says: "`driver` never learns",
        folder: "crates/driver/src/",
        but: &[],
        words: &["api::trainer", "api::jobset", "TrainJob", "JobSet", "\"Pod\"", "\"Job\"", "p521", "x25519"],
    },
    Absence {
        says: "`store` never learns",
        folder: "crates/store/src/",
        but: &[],
        words: &["http", "kube", "apiVersion", "Pod"],
    },
    Absence {
        says: "`apiserver`'s generic machinery never learns",
        folder: "crates/apiserver/src/",
        // the streams and the usage of pods; the settings of webhooks and policies; users of service accounts
        but: &["http/pods.rs", "usage.rs", "policy.rs"],
        words: &["kinds::", "\"Pod\"", "\"Job\"", "\"Secret\"", "\"pods\"", "\"jobs\"", "TrainJob", "JobSet"],
    },
    Absence {
        says: "`view` never learns",
        folder: "crates/view/src/",
        but: &[],
        words: &["client::", "kube::", "std::fs", "println!"],
    },
    Absence {
        says: "`client`, `facts`, `doctor` and `leftovers` print nothing",
        folder: "crates/facts/src/",
        but: &[],
        words: &["println!", "print!", "std::process"],
    },
    Absence {
        says: "`client`, `facts`, `doctor` and `leftovers` print nothing",
        folder: "crates/doctor/src/",
        but: &[],
        words: &["println!", "print!", "std::process"],
    },
    Absence {
        says: "`files`, `offers`",
        folder: "crates/files/src/",
        but: &[],
        words: &["println!", "print!", "std::process::Command"],
    },
    Absence { says: "`files`, `offers`", folder: "crates/offers/src/", but: &[], words: &["println!", "print!"] },
    Absence {
        says: "`files`, `offers`",
        folder: "crates/submission/src/",
        but: &[],
        words: &["println!", "print!", "clap"],
    },
    Absence {
        says: "`files`, `offers`",
        folder: "crates/clusters/src/",
        but: &[],
        words: &["println!", "print!", "clap"],
    },
    Absence {
        says: "`client`, `facts`, `doctor` and `leftovers` print nothing",
        folder: "crates/leftovers/src/",
        but: &[],
        words: &["println!", "print!", "std::process"],
    },
    Absence {
        says: "`grammar` carries nothing out",
        folder: "crates/grammar/src/",
        but: &[],
        words: &["println!", "print!", "kube::", "tokio::", "client::"],
    },
    Absence {
        says: "`launcher` never learns",
        folder: "crates/launcher/src/",
        but: &[],
        words: &["infra::", "apiserver::", "\"ssh\"", "\"kubernetes\""],
    },
    Absence {
        says: "`cli` never learns",
        folder: "crates/cli/src/",
        but: &[],
        words: &["apiserver::", "store::Store", "operator::", "node::agent"],
    },
    Absence {
        says: "`managed` never learns",
        folder: "crates/managed/src/",
        but: &[],
        words: &["\"local\"", "\"ssh\"", "kube::", "http"],
    },
    Absence {
        says: "`infra` never learns",
        folder: "crates/infra/src/",
        // the pods of another cluster that hold machines
        but: &["kubernetes/pod.rs"],
        words: &["\"Pod\"", "api::jobset", "JobSet", "TrainJob"],
    },
    Absence {
        says: "`sky` never learns",
        folder: "crates/sky/src/",
        but: &[],
        words: &["infra::Provider", "managed::"],
    },
    Absence {
        says: "`placement` never learns",
        folder: "crates/placement/src/",
        but: &[],
        words: &["infra::Provider", "managed::"],
    },
    // what carries the world's failures into a crate is refused as impure, by its library or by its word
    Absence { says: "Nothing in tier 1 can fail", folder: "crates/plan/src/", but: &[], words: &["std::io", "anyhow"] },
];

/// The bullets of "Absences" against [`ABSENCES`], and what those say against the code (`(file, line, code)`, tests left out).
pub fn absences<'a>(page: &str, code: impl Iterator<Item = (&'a str, usize, &'a str)>) -> Vec<String> {
    let bullets: Vec<&str> = section(page, "## Absences").filter_map(|line| line.strip_prefix("- ")).collect();
    let unchecked = bullets.iter().filter(|bullet| !ABSENCES.iter().any(|absence| bullet.starts_with(absence.says)));
    let mut findings: Vec<String> =
        unchecked.map(|bullet| format!("ARCHITECTURE.md: nothing checks the absence {bullet:?}")).collect();
    let unsaid = ABSENCES.iter().filter(|absence| !bullets.iter().any(|bullet| bullet.starts_with(absence.says)));
    findings.extend(unsaid.map(|absence| format!("ARCHITECTURE.md no longer says: {}", absence.says)));
    for (file, line, code) in code {
        let held = ABSENCES
            .iter()
            .filter(|absence| file.starts_with(absence.folder) && !absence.but.iter().any(|name| file.ends_with(name)));
        for absence in held {
            for word in absence.words.iter().filter(|word| code.contains(**word)) {
                findings.push(format!("{file}:{line}: `{word}`, and ARCHITECTURE.md says: {} …", absence.says));
            }
        }
    }
    findings
}

/// The drawing of the arrows against the crates' real dependencies. Each drawn arrow is a dependency; each dependency is drawn,
/// or follows from arrows that are.
pub fn arrows(page: &str, real: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let mut drawn: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let drawing = section(page, "### Which way the arrows run").skip_while(|line| !line.starts_with("```")).skip(1);
    for line in drawing.take_while(|line| !line.starts_with("```")) {
        let mut parts = line.split("─►").peekable();
        let Some(first) = parts.next().filter(|_| parts.peek().is_some()) else { continue };
        let mut from = first.split_whitespace().next_back().unwrap_or_default();
        while let Some(part) = parts.next() {
            let mut names: Vec<&str> = part.split_whitespace().collect();
            // in the middle of a line the last name is where the next arrow starts
            let next = if parts.peek().is_some() { names.pop() } else { None };
            drawn.entry(from).or_default().extend(names);
            from = next.unwrap_or_default();
        }
    }
    let mut findings = Vec::new();
    for (from, to) in &drawn {
        let real = real.get(*from);
        let gone = to.iter().filter(|to| !real.is_some_and(|real| real.contains(**to)));
        findings.extend(gone.map(|to| format!("ARCHITECTURE.md draws {from} ─► {to}, which is no dependency")));
    }
    for (from, to) in real.iter().filter(|(from, _)| !is_tool(from)) {
        let mut reached = BTreeSet::new();
        let mut next = vec![from.as_str()];
        while let Some(name) = next.pop() {
            let further = drawn.get(name).into_iter().flatten().filter(|name| reached.insert(**name));
            next.extend(further.copied().collect::<Vec<_>>());
        }
        let undrawn = to.iter().filter(|to| !reached.contains(to.as_str()));
        findings.extend(undrawn.map(|to| format!("ARCHITECTURE.md does not draw {from} ─► {to}")));
    }
    findings
}

/// Chores and comparisons may use any crate: drawing that would say nothing.
fn is_tool(name: &str) -> bool {
    matches!(name, "xtask" | "benches")
}

/// The lines below a heading, up to the next one of its depth or above.
fn section<'a>(page: &'a str, heading: &str) -> impl Iterator<Item = &'a str> {
    let depth = heading.bytes().take_while(|byte| *byte == b'#').count();
    page.lines().skip_while(move |line| *line != heading).skip(1).take_while(move |line| {
        let hashes = line.bytes().take_while(|byte| *byte == b'#').count();
        hashes == 0 || hashes > depth
    })
}

/// What a page names and the repository has not.
pub fn claims(name: &str, page: &str, facts: &Facts<'_>) -> Vec<String> {
    let mut findings = Vec::new();
    let mut in_block = false;
    for (number, line) in page.lines().enumerate() {
        if line.starts_with("```") {
            in_block = !in_block;
            continue;
        }
        let command = in_block || line.starts_with("    ");
        // a command's comment is prose
        let spans: Vec<&str> = if command {
            vec![line.split(" #").next().unwrap_or_default()]
        } else {
            line.split('`').skip(1).step_by(2).collect()
        };
        let links = line
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split([')', '#']).next())
            .filter(|link| !link.contains("://"));
        let wrong = spans.into_iter().filter_map(|span| claim(span, facts));
        let broken =
            links.filter(|link| !link.is_empty() && !is_there(link, facts)).map(|link| format!("no file {link}"));
        findings.extend(wrong.chain(broken).map(|what| format!("{name}:{}: {what}", number + 1)));
    }
    findings
}

/// What is wrong with one span of code; `None` where it holds, or claims nothing about the repository.
fn claim(span: &str, facts: &Facts<'_>) -> Option<String> {
    let words: Vec<&str> = span.split_whitespace().collect();
    for pair in words.windows(2) {
        let [first, second] = pair else { continue };
        let name = second.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        let is_name = !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        if *first == "make" && is_name && !facts.targets.contains(name) {
            return Some(format!("no target `make {name}`"));
        }
        if *first == "xtask" && is_name && !facts.chores.contains(name) {
            return Some(format!("no chore `cargo xtask {name}`"));
        }
        if *first == "-p" && words.first() == Some(&"cargo") && !facts.arrows.contains_key(*second) {
            return Some(format!("no crate {second}"));
        }
    }
    for word in &words {
        let word = word.trim_matches(|c: char| matches!(c, ',' | ';' | ':' | '(' | ')' | '"' | '\''));
        if let Some((variable, _)) = word.split_once('=')
            && variable.len() > 2
            && variable.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
            && !facts.sources.contains(variable)
        {
            return Some(format!("nothing reads {variable}"));
        }
        if looks_like_path(word, facts) && !is_there(word, facts) {
            return Some(format!("no file {word}"));
        }
        if let Some(wrong) = module(word, facts) {
            return Some(wrong);
        }
    }
    None
}

/// Whether a word can only mean a file of the repository: its first folder is one of ours.
fn looks_like_path(word: &str, facts: &Facts<'_>) -> bool {
    let Some((first, _)) = word.split_once('/') else { return false };
    let folder = format!("{first}/");
    let plain = word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/_-.".contains(&byte));
    plain && facts.files.iter().any(|file| file.starts_with(&folder))
}

fn is_there(path: &str, facts: &Facts<'_>) -> bool {
    let path = path.trim_start_matches("./").trim_end_matches(['/', '.']);
    // what `make` builds there
    let built = ["target/", "dist/", ".venv/"].iter().any(|folder| path.starts_with(folder));
    let folder = format!("{path}/");
    built || facts.files.iter().any(|file| file == path || file.starts_with(&folder))
}

/// `crate::module::item` of one of our crates: the module must be there, and the item be named in it.
fn module(word: &str, facts: &Facts<'_>) -> Option<String> {
    let word = word.split('(').next().unwrap_or_default();
    let mut parts = word.split("::");
    let name = parts.next().filter(|name| facts.arrows.contains_key(*name))?;
    let parts: Vec<&str> = parts.collect();
    if parts.is_empty()
        || parts.iter().any(|part| !part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'))
    {
        return None;
    }
    let mut folder = format!("crates/{name}/src");
    for part in &parts {
        let next = format!("{folder}/{part}");
        let is_module = facts.files.iter().any(|file| file.strip_prefix(next.as_str()) == Some(".rs"));
        if !is_module {
            // an item: it is enough that its name is declared somewhere in the sources
            let declared = ["fn", "struct", "enum", "trait", "const", "type", "macro_rules!", "static", "mod"]
                .iter()
                .any(|keyword| facts.sources.contains(&format!("{keyword} {part}")));
            return (!declared).then(|| format!("no {part} in {folder}"));
        }
        folder = next;
    }
    None
}

/// Comments that send their reader to what is not in the repository: a page that git does not know, or a section of one.
/// Sources of rules are named by their upstream file or API document.
pub fn comments(file: &str, text: &str, files: &[String]) -> Vec<String> {
    let mark = if file.ends_with(".rs") { "//" } else { "#" };
    let mut findings = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let Some((_, comment)) = line.split_once(mark) else { continue };
        if comment.contains('§') {
            findings.push(format!("{file}:{}: a section of a page that is not here", number + 1));
        }
        for word in comment.split(|c: char| c.is_whitespace() || "`()[],;'\"<>".contains(c)) {
            let word = word.trim_end_matches(['.', ':']);
            let is_page = word.ends_with(".md") && !word.contains("://") && word.len() > 3;
            let known = || files.iter().any(|known| known == word || known.ends_with(&format!("/{word}")));
            if is_page && !known() {
                findings.push(format!("{file}:{}: {word} is not in the repository", number + 1));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn real(arrows: &[(&str, &[&str])]) -> BTreeMap<String, BTreeSet<String>> {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        arrows.iter().map(|(from, to)| ((*from).to_owned(), set(to))).collect()
    }

    fn facts(files: &[String]) -> Facts<'_> {
        Facts {
            files,
            arrows: real(&[("plan", &["api"]), ("api", &[])]),
            targets: BTreeSet::from(["check".to_owned()]),
            chores: BTreeSet::from(["tidy".to_owned()]),
            sources: "UPDATE_GOLDENS pub fn build()".to_owned(),
        }
    }

    #[test]
    fn an_arrow_must_be_there_and_be_drawn() {
        let page = "### Which way the arrows run\n```text\ntier 1   plan ─► merge         driver ─► api\n```\n## Next\nx ─► y\n";
        let there =
            real(&[("plan", &["merge", "reconcile"]), ("driver", &[]), ("merge", &["api"]), ("xtask", &["plan"])]);
        let expected = [
            "ARCHITECTURE.md draws driver ─► api, which is no dependency",
            "ARCHITECTURE.md does not draw merge ─► api",
            "ARCHITECTURE.md does not draw plan ─► reconcile",
        ];
        assert_eq!(arrows(page, &there), expected);
        // what follows from other arrows need not be drawn
        let page = "### Which way the arrows run\n```text\nplan ─► merge\nmerge ─► api\n```\n- `x ─► y`: no more.\n";
        assert!(arrows(page, &real(&[("plan", &["merge", "api"]), ("merge", &["api"])])).is_empty());
    }

    #[test]
    fn an_absence_is_checked_and_kept() {
        let said: String = ABSENCES.iter().map(|absence| format!("- {} it.\n", absence.says)).collect();
        let page = format!("## Absences\n\n{said}");
        assert!(absences(&page, std::iter::empty()).is_empty());
        let broken = [("crates/node/src/a.rs", 3, "let x = \"TrainJob\";"), ("crates/cli/src/a.rs", 4, "TrainJob")];
        let found = absences(&page, broken.into_iter());
        assert_eq!(found, ["crates/node/src/a.rs:3: `TrainJob`, and ARCHITECTURE.md says: `node` never learns …"]);
        let more = format!("{page}- `sim` never sleeps.\n");
        assert_eq!(absences(&more, std::iter::empty()).len(), 1, "nothing checks that one");
        assert_eq!(absences("## Absences\n", std::iter::empty()).len(), ABSENCES.len());
    }

    #[test]
    fn paths_and_commands_are_there() {
        let files = ["crates/plan/src/lib.rs", "crates/plan/src/plugins.rs", "docs/cli.md"].map(str::to_owned);
        let facts = facts(&files);
        let wrong = |text: &str| claims("A.md", text, &facts);
        assert!(
            wrong("`make check`, `cargo xtask tidy`, `crates/plan/src`, `plan::plugins`, `plan::build`").is_empty()
        );
        assert!(
            wrong("[here](docs/cli.md#x) `a/b` `UPDATE_GOLDENS=1 make check`; `target/debug/x`; `crates/plan/{a,b}`")
                .is_empty()
        );
        assert_eq!(wrong("`make chekc`"), ["A.md:1: no target `make chekc`"]);
        assert_eq!(wrong("    cargo xtask tydi   # says"), ["A.md:1: no chore `cargo xtask tydi`"]);
        assert_eq!(wrong("\n`crates/plan/src/lbi.rs`"), ["A.md:2: no file crates/plan/src/lbi.rs"]);
        assert_eq!(wrong("[here](docs/clx.md)"), ["A.md:1: no file docs/clx.md"]);
        assert_eq!(wrong("`UPDATE=1`: `FOO_BAR=1`"), ["A.md:1: nothing reads FOO_BAR"]);
        assert_eq!(wrong("`cargo test -p plam`"), ["A.md:1: no crate plam"]);
        assert_eq!(wrong("`plan::plugins::explain`"), ["A.md:1: no explain in crates/plan/src/plugins"]);
    }

    #[test]
    fn comments_send_nobody_outside() {
        let files = ["docs/cli.md".to_owned()];
        assert!(comments("a.rs", "// as docs/cli.md says, and cli.md\nlet a = \"b.md\";\n", &files).is_empty());
        assert_eq!(
            comments("a.rs", "/// See `trainer.md` (x).\n", &files),
            ["a.rs:1: trainer.md is not in the repository"]
        );
        assert_eq!(comments("a.py", "x = 1  # §2.3\n", &files).len(), 1);
    }
}
