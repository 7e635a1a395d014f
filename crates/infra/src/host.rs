//! Actions on machines that are reached through a shell: the functions of `host.sh`, their input, and their answers.

use crate::fault::{Fault, of_host, shown};
use std::collections::BTreeMap;

/// The functions that run there.
const LIBRARY: &str = include_str!("host.sh");
/// The first line of every answer; login scripts may print lines before it.
pub const HELLO: &str = "trainyard-host";

/// A machine's answer: values by name, in order.
pub type Said = BTreeMap<String, Vec<String>>;

/// The first value of this name; empty if there is none.
pub fn first<'a>(answer: &'a Said, name: &str) -> &'a str {
    answer.get(name).and_then(|values| values.first()).map_or("", String::as_str)
}

/// One word of a shell.
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A function with its variables, as input for the script of `reader`; more input may follow.
pub fn script(function: &str, variables: &[(&str, &str)]) -> String {
    let mut script: String = variables.iter().map(|(name, value)| format!("{name}={}\n", quoted(value))).collect();
    script.push_str(LIBRARY);
    script.push_str(function);
    script.push('\n');
    script
}

/// The script of `sh -c` that reads a script of this length and runs it. Everything is passed as input, because all users there can read
/// arguments.
pub fn reader(script: &str) -> String {
    format!("eval \"$(dd bs=1 count={} 2>/dev/null)\"", script.len())
}

/// The answer of a function; `code` is `None` if the connection broke.
///
/// # Errors
/// The fault that the answer names, or `Broken`.
pub fn outcome(code: Option<i32>, said: &[u8], complaint: &[u8]) -> Result<Said, Fault> {
    let (said, complaint) = (String::from_utf8_lossy(said), String::from_utf8_lossy(complaint));
    let lines = said.lines().skip_while(|line| *line != HELLO).skip(1);
    let mut answer = Said::new();
    for (name, value) in lines.filter_map(|line| line.split_once('=')) {
        answer.entry(name.to_owned()).or_default().push(value.to_owned());
    }
    match code {
        Some(0) if said.contains(HELLO) => Ok(answer),
        Some(code) => match of_host(code, first(&answer, "error"), &complaint) {
            Fault::NoRoom(what) if code == 10 => Err(Fault::NoRoom(taken(first(&answer, "record"), &what))),
            fault => Err(fault),
        },
        None => Err(Fault::Broken("the connection broke".to_owned())),
    }
}

/// Who has taken a host, by the second line of its claim.
pub fn taken(record: &str, what: &str) -> String {
    let claim: serde_json::Value = serde_json::from_str(record).unwrap_or_default();
    match (claim["node"].as_str(), claim["owner"].as_str()) {
        (Some(node), Some(owner)) => format!("it is taken by machine {} of {}", shown(node), shown(owner)),
        _ => what.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::path::Path;
    use std::process::{Command, Stdio};

    /// Calls a function as a machine's shell does; its home directory is `home`.
    fn call(home: &Path, function: &str, variables: &[(&str, &str)]) -> Result<Said, Fault> {
        call_with(home, function, variables, "")
    }

    /// The same, with more input for the function after its script.
    fn call_with(home: &Path, function: &str, variables: &[(&str, &str)], input: &str) -> Result<Said, Fault> {
        let script = script(function, variables);
        let mut child = Command::new("sh")
            .args(["-c", &reader(&script)])
            .env("HOME", home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all((script + input).as_bytes()).unwrap();
        let done = child.wait_with_output().unwrap();
        outcome(done.status.code(), &done.stdout, &done.stderr)
    }

    fn goal(home: &Path) -> String {
        first(&call(home, "look", &[("token", "t")]).unwrap(), "goal").to_owned()
    }

    fn claimed() -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        call(home.path(), "claim", &[("token", "t"), ("record", "{}")]).unwrap();
        home
    }

    #[test]
    fn a_wish_that_comes_late_changes_nothing() {
        let home = claimed();
        let home = home.path();
        let stop = |generation: &str| call(home, "stop", &[("token", "t"), ("generation", generation)]).map(drop);
        let run =
            |generation: &str| call(home, "aim", &[("token", "t"), ("goal", ""), ("generation", generation)]).map(drop);
        let late = |done: Result<(), Fault>| matches!(done, Err(Fault::Stuck(what)) if what.contains("too late"));
        stop("2").unwrap();
        assert_eq!(goal(home), "stopped");
        run("3").unwrap();
        assert_eq!(goal(home), "");
        // from a control plane that was killed while it stopped the machine
        assert!(late(stop("2")));
        assert_eq!(goal(home), "");
        stop("10").unwrap();
        stop("10").unwrap();
        assert!(late(run("9")));
        assert_eq!(goal(home), "stopped");
        // every control plane may delete, and nothing undoes a deletion
        let dir = std::fs::read_dir(home.join(".trainyard-machine")).unwrap().next().unwrap().unwrap().path();
        std::fs::write(dir.join("goal"), "gone\n10\n").unwrap();
        run("11").unwrap();
        assert_eq!(goal(home), "gone");
        call(home, "end", &[("token", "t")]).unwrap();
        assert!(std::fs::read_dir(home).unwrap().next().is_none());
    }

    #[test]
    fn folders_that_may_not_be_written_are_removed() {
        use std::os::unix::fs::PermissionsExt;
        let home = claimed();
        let dir = std::fs::read_dir(home.path().join(".trainyard-machine")).unwrap().next().unwrap().unwrap().path();
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("kept"), "x").unwrap();
        std::fs::create_dir_all(dir.join("home/go/pkg/mod")).unwrap();
        std::fs::write(dir.join("home/go/pkg/x"), "x").unwrap();
        std::os::unix::fs::symlink(outside.path(), dir.join("home/go/link")).unwrap();
        let mode = |name: &str, mode| {
            std::fs::set_permissions(dir.join(name), std::fs::Permissions::from_mode(mode)).unwrap();
        };
        for (name, bits) in [("home/go/pkg/mod", 0o555), ("home/go/pkg", 0), ("home/go", 0o555)] {
            mode(name, bits);
        }
        call(home.path(), "end", &[("token", "t")]).unwrap();
        assert!(std::fs::read_dir(home.path()).unwrap().next().is_none());
        assert!(outside.path().join("kept").exists());
    }

    #[test]
    fn a_goal_without_a_number_is_of_an_older_version() {
        let home = claimed();
        let dir = std::fs::read_dir(home.path().join(".trainyard-machine")).unwrap().next().unwrap().unwrap().path();
        std::fs::write(dir.join("goal"), "stopped\n").unwrap();
        assert_eq!(goal(home.path()), "stopped");
        call(home.path(), "aim", &[("token", "t"), ("goal", ""), ("generation", "1")]).unwrap();
        assert_eq!(goal(home.path()), "");
    }

    #[test]
    fn a_claim_is_one_machines() {
        let home = claimed();
        let theirs = call(home.path(), "claim", &[("token", "u"), ("record", "{}")]);
        assert!(matches!(theirs, Err(Fault::NoRoom(_))), "{theirs:?}");
        assert_eq!(call(home.path(), "stop", &[("token", "u"), ("generation", "9")]), Err(Fault::Absent));
        assert_eq!(goal(home.path()), "");
    }

    #[test]
    fn a_program_is_hashed_once_and_again_where_it_is_another() {
        let home = claimed();
        let dir = std::fs::read_dir(home.path().join(".trainyard-machine")).unwrap().next().unwrap().unwrap().path();
        let (program, sum) = (dir.join("program"), dir.join("program.sum"));
        let hash = || first(&call(home.path(), "look", &[("token", "t")]).unwrap(), "sha256").to_owned();
        assert_eq!(hash(), "");
        let text = "#!/bin/sh\nexit 0\n";
        let sha256 = "306c6ca7407560340797866e077e053627ad409277d1b9da58106fce4cf717cb";
        let upload =
            |sha256: &str| call_with(home.path(), "upload", &[("token", "t"), ("sha256", sha256)], text).map(drop);
        upload(sha256).unwrap();
        assert_eq!(hash(), sha256);
        // the recorded hash of this very file is trusted
        let noted = std::fs::read_to_string(&sum).unwrap();
        std::fs::write(&sum, noted.replace(sha256, "noted")).unwrap();
        assert_eq!(hash(), "noted");
        // another file is read again
        std::fs::write(dir.join("other"), "abc").unwrap();
        std::fs::rename(dir.join("other"), &program).unwrap();
        assert_eq!(hash(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert!(matches!(upload("f00"), Err(Fault::Broken(_))), "what did not arrive whole is not taken");
    }
}
