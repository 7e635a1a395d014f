//! Working directories that are Git repositories: fetched to this computer, and sent from here like others.

use nix::fcntl::{Flock, FlockArg};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where repositories are kept, below the home; one for each address.
const KEPT: &str = ".sky/git";

/// A repository and what of it is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub url: String,
    /// A branch, a tag or a commit; the repository's own branch where nothing is said.
    pub reference: Option<String>,
}

/// Fetches what is wanted, and returns the folder in which it is checked out; it stays so as long as the lock is held.
///
/// # Errors
/// What Git says, in one line.
pub(super) fn checkout(source: &Source, home: &Path) -> Result<(PathBuf, Flock<std::fs::File>), String> {
    let shown = source.reference.as_ref().map_or_else(|| source.url.clone(), |one| format!("{} at {one}", source.url));
    let failed = |why: String| format!("cannot fetch {shown}: {why}");
    let wanted = source.reference.as_deref().unwrap_or("HEAD");
    if source.url.starts_with('-') || wanted.starts_with('-') || source.url.is_empty() {
        return Err(failed("that is no address of a repository".to_owned()));
    }
    let folder = home.join(KEPT).join(name_of(&source.url));
    let told = |error: std::io::Error| failed(format!("{}: {error}", folder.display()));
    std::fs::create_dir_all(&folder).map_err(told)?;
    // another launch may want another branch: it waits until this one has sent its files
    let lock = std::fs::File::create(folder.with_extension("lock")).map_err(told)?;
    let lock = Flock::lock(lock, FlockArg::LockExclusive).map_err(|(_, error)| told(error.into()))?;
    let git = |words: &[&str]| git(&folder, words).map_err(failed);
    if !folder.join(".git").exists() {
        git(&["init", "--quiet"])?;
        git(&["remote", "add", "origin", &source.url])?;
    }
    let narrow = git(&["fetch", "--quiet", "--depth", "1", "--no-tags", "--", &source.url, wanted]);
    let found = match narrow {
        Ok(()) => "FETCH_HEAD",
        // a short commit has no name that could be fetched alone
        Err(why) => {
            let all =
                ["fetch", "--quiet", "--tags", "--force", "--", &source.url, "+refs/heads/*:refs/remotes/origin/*"];
            git(&all).map_err(|_| why.clone())?;
            git(&["rev-parse", "--quiet", "--verify", &format!("{wanted}^{{commit}}")]).map_err(|_| why)?;
            wanted
        }
    };
    git(&["checkout", "--quiet", "--force", "--detach", found])?;
    git(&["clean", "-ffdxq"])?;
    Ok((folder, lock))
}

/// A folder's name for an address.
fn name_of(url: &str) -> String {
    let last = url.trim_end_matches('/').rsplit('/').next().unwrap_or_default().trim_end_matches(".git");
    let plain: String = last.chars().filter(|c| c.is_ascii_alphanumeric() || "-_".contains(*c)).take(40).collect();
    let hash = url
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("{plain}-{hash:016x}")
}

fn git(folder: &Path, words: &[&str]) -> Result<(), String> {
    let ran = Command::new("git")
        .arg("-C")
        .arg(folder)
        .args(words)
        // a user without access gets an error, and no question
        .env("GIT_TERMINAL_PROMPT", "0")
        .env_remove("GIT_DIR")
        .env_remove("GIT_WORK_TREE")
        .env_remove("GIT_INDEX_FILE")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("git cannot be run ({error}): install it, or name a folder as `workdir`"))?;
    if ran.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    let line = said.lines().find(|line| line.starts_with("fatal:")).or(said.lines().last());
    Err(line.map_or_else(|| format!("git {} failed", words.join(" ")), str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn made(folder: &Path) {
        let run = |words: &[&str]| {
            let identity = ["-c", "user.name=me", "-c", "user.email=me@example.com"];
            let words: Vec<&str> = identity.iter().chain(words).copied().collect();
            git(folder, &words).unwrap();
        };
        run(&["init", "--quiet", "--initial-branch", "main"]);
        for (branch, text) in [("main", "one"), ("other", "two")] {
            if branch != "main" {
                run(&["checkout", "--quiet", "-b", branch]);
            }
            fs::write(folder.join("a.txt"), text).unwrap();
            run(&["add", "a.txt"]);
            run(&["commit", "--quiet", "--message", text]);
        }
        run(&["checkout", "--quiet", "main"]);
    }

    #[test]
    fn branches_and_commits_are_checked_out() {
        let (remote, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        made(remote.path());
        let read = |reference: Option<&str>| {
            let source = Source { url: remote.path().display().to_string(), reference: reference.map(str::to_owned) };
            checkout(&source, home.path()).map(|(folder, _)| fs::read_to_string(folder.join("a.txt")).unwrap())
        };
        assert_eq!(read(None).as_deref(), Ok("one"));
        assert_eq!(read(Some("other")).as_deref(), Ok("two"));
        let commit = Command::new("git").arg("-C").arg(remote.path()).args(["rev-parse", "main"]).output().unwrap();
        let commit = String::from_utf8(commit.stdout).unwrap();
        for commit in [commit.trim(), &commit[..10]] {
            assert_eq!(read(Some(commit)).as_deref(), Ok("one"), "{commit}");
        }
        let why = read(Some("nope")).unwrap_err();
        assert!(why.contains("nope") && why.lines().count() == 1, "{why}");
        let source = Source { url: home.path().join("nothing").display().to_string(), reference: None };
        assert!(checkout(&source, home.path()).unwrap_err().starts_with("cannot fetch"));
        let source = Source { url: "--upload-pack=x".to_owned(), reference: None };
        assert!(checkout(&source, home.path()).is_err());
    }
}
