//! The Python that a job on this machine will use: which one it is, what it can import, and whether the script is valid Python.
//!
//! A probe (`probe.py`) asks the interpreter. Its answers are kept in the user's cache folder. They are valid until one of their files
//! changes: the interpreter, the folders that it imports from, the script and its imports. A second check starts no process.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

const PROBE: &str = include_str!("probe.py");
/// How long a Python may take to answer. A slow one (a network file system, a cold disk) is not asked further: the job itself will show it.
const ANSWER_MAX: Duration = Duration::from_secs(4);
/// How many scripts' answers are kept for each interpreter.
const SCRIPTS_MAX: usize = 50;
/// The variables on which an interpreter and its imports depend.
const DECIDING: [&str; 8] = [
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONNOUSERSITE",
    "PYTHONUSERBASE",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "PYENV_VERSION",
    "HOME",
];
/// The modules that the probe looks for: those of the runtimes' frameworks.
const MODULES: [&str; 6] = ["torch", "jax", "xgboost", "deepspeed", "mlx", "mpi4py"];

/// Variables of the environment that a job's processes get.
pub(crate) type Variables = BTreeMap<String, String>;

/// An interpreter's facts about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Environment {
    pub executable: PathBuf,
    pub version: String,
    /// Its virtual environment.
    pub venv: Option<PathBuf>,
    /// Whether it belongs to a conda environment.
    pub conda: bool,
    /// Whether the operating system manages its packages (PEP 668).
    pub managed: bool,
    /// Which of [`MODULES`] it can import.
    pub modules: BTreeMap<String, bool>,
    /// The folders that it imports from, each with the time of its last change.
    watched: Vec<(PathBuf, i64)>,
}

/// Facts about a script.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Script {
    /// Why it is not valid Python.
    pub fault: Option<SyntaxFault>,
    /// The packages that it imports, directly or through files beside it.
    pub imports: Vec<String>,
    /// The files that were read, each with the time of its last change.
    files: Vec<(PathBuf, i64)>,
}

/// A SyntaxError.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SyntaxFault {
    pub line: Option<u32>,
    pub message: String,
    /// The line's text.
    pub text: String,
}

/// The known answers; some are missing if the interpreter took too long.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    pub environment: Option<Environment>,
    pub script: Option<Script>,
}

/// The output of the probe, and the cached answers of one interpreter.
#[derive(Default, Serialize, Deserialize)]
struct Printed {
    environment: Option<Environment>,
    script: Option<Script>,
}

#[derive(Default, Serialize, Deserialize)]
struct Cached {
    environment: Option<Environment>,
    #[serde(default)]
    scripts: BTreeMap<PathBuf, Script>,
}

/// A program on a PATH.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    At(PathBuf),
    /// It exists, but cannot be run, for this reason.
    Unusable(PathBuf, String),
    Nowhere,
}

impl Found {
    pub(crate) fn path(self) -> Option<PathBuf> {
        match self {
            Self::At(path) => Some(path),
            Self::Unusable(..) | Self::Nowhere => None,
        }
    }
}

/// Looks a program up as a shell does: a plain name on the PATH, a name with a slash relative to the folder.
pub(crate) fn find(program: &str, path: &str, folder: &Path) -> Found {
    let mut unusable = Found::Nowhere;
    let candidates: Vec<PathBuf> = if program.contains('/') {
        vec![folder.join(program)]
    } else {
        std::env::split_paths(path).map(|part| folder.join(part).join(program)).collect()
    };
    for candidate in candidates {
        let refused = |why: String| Found::Unusable(candidate.clone(), why);
        match std::fs::metadata(&candidate) {
            Ok(metadata) if !metadata.is_file() => {}
            Ok(_) => match nix::unistd::access(&candidate, nix::unistd::AccessFlags::X_OK) {
                Ok(()) => return Found::At(candidate),
                Err(error) if unusable == Found::Nowhere => unusable = refused(error.desc().to_owned()),
                Err(_) => {}
            },
            // a folder that the user may not enter, or a link into one
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied && unusable == Found::Nowhere => {
                unusable = refused("Permission denied".to_owned());
            }
            Err(_) => {}
        }
    }
    unusable
}

/// The interpreter that a launcher script (`torchrun`, as pip writes it) names in its first line; `None`: another program.
pub(crate) fn interpreter_of(launcher: &Path) -> Option<PathBuf> {
    let words = shebang(launcher)?;
    let path = PathBuf::from(words.first()?);
    let is_python = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python"));
    is_python.then_some(path)
}

/// The words of a file's first line after `#!`; `None` without one.
pub(crate) fn shebang(file: &Path) -> Option<Vec<String>> {
    use std::io::Read;
    let mut head = Vec::new();
    std::fs::File::open(file).ok()?.take(512).read_to_end(&mut head).ok()?;
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let words: Vec<String> = String::from_utf8_lossy(line).split_whitespace().map(str::to_owned).collect();
    (!words.is_empty()).then_some(words)
}

/// The question, and the interpreter to ask.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub interpreter: PathBuf,
    /// The script, if it is Python.
    pub script: Option<PathBuf>,
    /// Where the job's processes start.
    pub folder: PathBuf,
    pub variables: Variables,
    /// Where answers are kept; `None`: they are not.
    pub cache: Option<PathBuf>,
}

impl Question {
    /// Reads the cache, and asks the interpreter only for the answers that it lacks.
    ///
    /// Errors: why the interpreter does not run.
    pub(crate) async fn ask(&self) -> Result<Answer, String> {
        let mut cached = self.recall();
        let held = Answer { environment: cached.environment.clone(), script: self.recall_script(&cached) };
        let wants_script = self.script.is_some() && held.script.is_none();
        let what = match (&held.environment, wants_script) {
            (Some(_), false) => return Ok(held),
            (Some(_), true) => "script",
            (None, true) => "both",
            (None, false) => "environment",
        };
        let known = held.environment.as_ref().map(|environment| environment.executable.as_path());
        let Some(printed) = self.run_probe(what, known).await? else { return Ok(held) };
        if let Some(environment) = printed.environment {
            cached.environment = Some(environment);
        }
        if let (Some(path), Some(script)) = (&self.script, &printed.script) {
            if cached.scripts.len() >= SCRIPTS_MAX {
                cached.scripts.pop_first();
            }
            cached.scripts.insert(path.clone(), script.clone());
        }
        self.remember(&cached);
        Ok(Answer { environment: cached.environment, script: printed.script.or(held.script) })
    }

    /// `known`: the interpreter behind links and shims. It starts faster, and answers questions about syntax.
    async fn run_probe(&self, what: &str, known: Option<&Path>) -> Result<Option<Printed>, String> {
        let program = known.unwrap_or(&self.interpreter);
        let mut command = tokio::process::Command::new(program);
        if known.is_some() {
            command.args(["-I", "-S"]);
        }
        let script = self.script.as_deref().unwrap_or(Path::new(""));
        let imports_from = script.parent().filter(|_| self.script.is_some()).unwrap_or(&self.folder);
        command.arg("-c").arg(PROBE).arg(what).arg(imports_from).arg(script).args(MODULES);
        command.envs(&self.variables).current_dir(&self.folder);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let output = match tokio::time::timeout(ANSWER_MAX, command.output()).await {
            Err(_) => {
                tracing::debug!(?program, "the interpreter takes long to answer; going on without");
                return Ok(None);
            }
            Ok(Err(error)) => return Err(error.to_string()),
            Ok(Ok(output)) => output,
        };
        if let Ok(printed) = serde_json::from_slice(&output.stdout) {
            return Ok(Some(printed));
        }
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let last = errors.lines().rev().map(str::trim).find(|line| !line.is_empty());
        Err(last.map_or_else(|| format!("it ends with {} and prints nothing", output.status), str::to_owned))
    }

    fn recall(&self) -> Cached {
        let file = self.file().and_then(|path| std::fs::read(path).ok());
        let mut cached: Cached = file.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        if cached.environment.as_ref().is_some_and(|held| !unchanged(&held.watched) || !held.executable.exists()) {
            cached.environment = None;
        }
        cached
    }

    fn recall_script(&self, cached: &Cached) -> Option<Script> {
        let held = cached.scripts.get(self.script.as_ref()?)?;
        unchanged(&held.files).then(|| held.clone())
    }

    /// The cache is optional: if it cannot be written, the next check asks again.
    fn remember(&self, cached: &Cached) {
        let Some(file) = self.file() else { return };
        let write = || -> std::io::Result<()> {
            use std::os::unix::fs::DirBuilderExt;
            let folder = file.parent().expect("invariant: it is in the cache");
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            let draft = file.with_extension(format!("tmp{}", std::process::id()));
            std::fs::write(&draft, serde_json::to_vec(cached)?)?;
            std::fs::rename(draft, &file)
        };
        if let Err(error) = write() {
            tracing::debug!(%error, "the interpreter's answers are not kept");
        }
    }

    /// The file with the answers of this interpreter; a replaced interpreter gets another file.
    fn file(&self) -> Option<PathBuf> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let metadata = std::fs::metadata(&self.interpreter).ok()?;
        let (device, file) = (metadata.dev().to_string(), metadata.ino().to_string());
        let changed = [metadata.mtime().to_string(), metadata.mtime_nsec().to_string()];
        let mut known = vec![env!("CARGO_PKG_VERSION").to_owned(), PROBE.to_owned(), text(&self.interpreter)];
        known.extend([device, file].into_iter().chain(changed));
        known.extend(DECIDING.map(|name| format!("{:?}", self.variables.get(name))));
        // a shim (pyenv) is a shell script that chooses by folder and by the user's default
        if shebang(&self.interpreter).is_some() {
            known.push(text(&self.folder));
            let root = self.interpreter.parent().and_then(Path::parent).map(|root| root.join("version"));
            let choices = self.folder.ancestors().map(|folder| folder.join(".python-version")).chain(root);
            known.extend(choices.map(|choice| format!("{:?}", std::fs::read(choice).ok())));
        }
        // a module beside the script hides the package of its name
        known.push(self.script.as_ref().and_then(|script| script.parent()).map(text).unwrap_or_default());
        let hash = api::stable::digits(known.iter().map(String::as_str));
        Some(self.cache.as_ref()?.join(format!("python-{hash}.json")))
    }
}

/// Whether each file was last changed at its recorded time. A missing file counts as changed at 0.
fn unchanged(files: &[(PathBuf, i64)]) -> bool {
    files.iter().all(|(path, then)| changed(path) == *then)
}

/// When a file was last changed, in nanoseconds since 1970.
fn changed(path: &Path) -> i64 {
    let nanos = |metadata: std::fs::Metadata| metadata.mtime() * 1_000_000_000 + metadata.mtime_nsec();
    std::fs::metadata(path).map_or(0, nanos)
}

/// The user's folder for results that programs can compute again; `None` for a user without a home.
pub fn cache_folder() -> Option<PathBuf> {
    let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    let given = std::env::var_os("XDG_CACHE_HOME").and_then(absolute);
    given.or_else(|| Some(std::env::home_dir()?.join(".cache"))).map(|cache| cache.join("trainyard"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("trainyard python {name} {}", std::process::id()));
            std::fs::create_dir_all(&path).expect("the folder for temporary files can be written");
            Self(path)
        }

        fn write(&self, name: &str, text: &str, mode: u32) -> PathBuf {
            let path = self.0.join(name);
            std::fs::create_dir_all(path.parent().expect("it is in the folder")).expect("can be made");
            std::fs::write(&path, text).expect("can be written");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("is ours");
            path
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn programs_are_found_as_a_shell_does() {
        let folder = Folder::new("find");
        let first = folder.write("a/tool", "", 0o644);
        let second = folder.write("b/tool", "", 0o755);
        let path = |parts: &[&str]| parts.join(":");
        assert_eq!(find("tool", &path(&["a", "b"]), &folder.0), Found::At(second));
        assert_eq!(find("tool", "a", &folder.0), Found::Unusable(first, "Permission denied".to_owned()));
        assert_eq!(find("b/tool", "", &folder.0).path(), Some(folder.0.join("b/tool")));
        assert_eq!(find("tool", "c", &folder.0), Found::Nowhere);
    }

    #[test]
    fn a_launcher_names_its_interpreter() {
        let folder = Folder::new("launcher");
        let cases = [
            ("#!/venv/bin/python3.12\nimport x\n", Some("/venv/bin/python3.12")),
            ("#!/usr/bin/env python3\n", None),
            ("#!/bin/sh\nexec python3\n", None),
            ("import x\n", None),
        ];
        for (text, interpreter) in cases {
            let file = folder.write("torchrun", text, 0o755);
            assert_eq!(interpreter_of(&file), interpreter.map(PathBuf::from), "{text}");
        }
    }

    /// A real interpreter, as every machine that runs these tests has one.
    fn question(folder: &Folder, script: &Path) -> Question {
        let path = std::env::var("PATH").expect("tests have a PATH");
        Question {
            interpreter: find("python3", &path, &folder.0).path().expect("a python3 on the PATH"),
            script: Some(script.to_owned()),
            folder: folder.0.clone(),
            variables: [("PATH".to_owned(), path)].into(),
            cache: Some(folder.0.join("cache")),
        }
    }

    #[tokio::test]
    async fn answers_hold_until_a_file_changes() {
        let folder = Folder::new("cache");
        let script = folder.write("a script.py", "import torch, helper\nfrom os import path\n", 0o644);
        folder.write("helper.py", "import jax.numpy\n", 0o644);
        let mut question = question(&folder, &script);
        let answer = question.ask().await.expect("it runs");
        let environment = answer.environment.expect("it answers");
        assert!(environment.version.starts_with("3."), "{environment:?}");
        assert_eq!(environment.modules.len(), MODULES.len());
        assert_eq!(answer.script.expect("it is Python").imports, ["jax", "os", "torch"]);

        // the second check starts no process, so it works with an interpreter that is not executable
        let file = question.file().expect("there is a cache");
        assert!(file.exists(), "{file:?}");
        let cached = question.recall();
        assert_eq!(cached.environment.as_ref(), Some(&environment));
        assert!(question.recall_script(&cached).is_some());
        folder.write("a script.py", "def f(:\n", 0o644);
        // at this speed, two writes may get the same time on some file systems
        let later = std::time::SystemTime::now() + Duration::from_secs(2);
        std::fs::File::options().append(true).open(&script).unwrap().set_modified(later).unwrap();
        assert!(question.recall_script(&question.recall()).is_none());
        let fault = question.ask().await.expect("it runs").script.expect("it was read").fault.expect("it is broken");
        assert_eq!((fault.line, fault.text.as_str()), (Some(1), "def f(:"));

        question.interpreter = folder.write("python3", "#!/bin/sh\necho no such version >&2\nexit 1\n", 0o755);
        assert_eq!(question.ask().await.unwrap_err(), "no such version");
    }
}
