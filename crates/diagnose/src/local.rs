//! Modules that a script cannot import although they are the user's own: strangers' packages of the same name must not be proposed.

use crate::facts::{Facts, LocalModule};
use crate::pattern::{Vars, quoted};
use api::near::near;

/// Variables for a missing module that is beside the script, in the folder in which the job runs, or nearly so; `None` where it is a
/// stranger's.
pub(crate) fn explained(facts: &Facts, module: &str) -> Option<Vars> {
    let (top, below) = module.split_once('.').map_or((module, None), |(top, below)| (top, Some(below)));
    let mut vars = Vars::new();
    let found = facts.modules.iter().find(|local| local.name == top);
    let Some(found) = found else {
        // one letter off: a package of that name may be a trap
        let known = facts.modules.iter().map(|local| local.name.as_str());
        let meant = near(top, known).filter(|meant| meant.len().abs_diff(top.len()) <= 1)?;
        let folder = &facts.modules.iter().find(|local| local.name == meant)?.folder;
        vars.insert("local_why", format!("there is no module {top}; {meant} is in {folder}: did you mean it?"));
        vars.insert("local_fix", format!("import {meant} instead of {top}, if it is what you mean"));
        return Some(vars);
    };
    let LocalModule { folder, is_on_path, members, .. } = found;
    match below {
        _ if !is_on_path => {
            vars.insert(
                "local_why",
                format!("{top} is in {folder}, which is not on Python's path: the script is in another folder"),
            );
            vars.insert("local_fix", "put that folder on the path".to_owned());
            vars.insert("local_path", quoted(&format!("PYTHONPATH={folder}")));
        }
        Some(below) => {
            let first = below.split('.').next().unwrap_or(below);
            let meant = near(first, members.iter().map(String::as_str));
            let near = meant.map(|meant| format!("; did you mean {top}.{meant}?")).unwrap_or_default();
            vars.insert("local_why", format!("{folder}/{top} has no module {first}{near}"));
            vars.insert(
                "local_fix",
                match meant {
                    Some(meant) => format!("import {top}.{meant}, or rename the file"),
                    None => format!("see what is there: ls {}", quoted(&format!("{folder}/{top}"))),
                },
            );
        }
        None => {
            vars.insert(
                "local_why",
                format!("{top} is in {folder}, but could not be imported from there by the process that ran"),
            );
            vars.insert("local_fix", "put that folder on the path".to_owned());
            vars.insert("local_path", quoted(&format!("PYTHONPATH={folder}")));
        }
    }
    Some(vars)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_the_users_own_is_never_installed() {
        let local = |name: &str, folder: &str, is_on_path: bool, members: &[&str]| LocalModule {
            name: name.to_owned(),
            folder: folder.to_owned(),
            is_on_path,
            members: members.iter().map(|member| (*member).to_owned()).collect(),
        };
        let facts = Facts {
            modules: vec![local("digits", "/w", true, &["model", "data"]), local("utils", "/w", false, &["metrics"])],
            ..Facts::default()
        };
        for (module, part) in [
            ("digits.modle", "did you mean digits.model?"),
            ("digits.elsewhere", "/w/digits has no module elsewhere"),
            ("utils.metrics", "/w, which is not on Python's path"),
            ("utils", "/w, which is not on Python's path"),
            ("digist", "digits is in /w: did you mean it?"),
        ] {
            let vars = explained(&facts, module).unwrap_or_else(|| panic!("{module}"));
            assert!(vars["local_why"].contains(part), "{module}: {vars:?}");
        }
        assert_eq!(explained(&facts, "torch"), None);
        assert_eq!(explained(&Facts::default(), "digits"), None);
    }
}
