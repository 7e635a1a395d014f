//! The interpreter that a submission chooses (`--python`, `--venv`, `--uv`), and its environment.

use crate::code::{Code, Start};
use crate::python::{Found, find};
use crate::setting::{INHERITED, Setting};
use crate::spec::Spec;
use client::ClientError;
use client::codes::ErrorCode;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// First line of a script's metadata for tools (PEP 723): Python version and dependencies.
const SCRIPT_METADATA: &str = "# /// script";
/// Makes an interpreter print its own path.
const WHERE: &str = "import sys; print(sys.executable)";

impl Setting {
    /// The caller's environment, changed by flags. `given`: the variables of `--env`.
    ///
    /// Errors: flags name an interpreter that does not exist.
    pub(crate) fn of(spec: &Spec, code: &Code, given: Vec<(String, String)>) -> Result<Self, ClientError> {
        let inherited = INHERITED.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)));
        let mut setting = Self { inherited: inherited.collect(), given, python: None, folder: code.directory() };
        if let Some(python) = interpreter(spec, code, &setting)? {
            setting.take(python);
        }
        Ok(setting)
    }
}

/// The interpreter's path; `None` without such a flag.
///
/// Errors: the interpreter or uv does not exist, or uv cannot make the project's environment.
fn interpreter(spec: &Spec, code: &Code, setting: &Setting) -> Result<Option<PathBuf>, ClientError> {
    let here = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    if let Some(folder) = &spec.venv {
        // the folder itself, without `..`; its python is a link, which must not be resolved
        let root = here.join(folder);
        let python = root.canonicalize().unwrap_or(root).join("bin/python");
        return match find(&python.to_string_lossy(), "", &here) {
            Found::At(python) => Ok(Some(python)),
            Found::Unusable(_, why) => Err(ClientError::Usage(
                ErrorCode::PythonMissing,
                format!(
                    "--venv {}: its bin/python cannot be run: {why}\n  make it again: python3 -m venv --clear {0}",
                    folder.display()
                ),
            )),
            Found::Nowhere => Err(ClientError::Usage(
                ErrorCode::PythonMissing,
                format!(
                    "--venv {}: it is not a virtual environment, because it has no bin/python\n  make one: python3 -m venv {0}",
                    folder.display()
                ),
            )),
        };
    }
    if let Some(python) = &spec.python {
        let name = python.to_string_lossy();
        return match find(&name, &setting.path(), &here) {
            Found::At(path) => Ok(Some(path)),
            Found::Unusable(path, why) => Err(ClientError::Usage(
                ErrorCode::PythonMissing,
                format!("--python {name}: {} cannot be run: {why}", path.display()),
            )),
            Found::Nowhere if name.contains('/') => {
                Err(ClientError::Usage(ErrorCode::PythonMissing, format!("--python {name}: there is no such file")))
            }
            Found::Nowhere => {
                Err(ClientError::Usage(ErrorCode::PythonMissing, format!("--python {name}: there is none on the PATH")))
            }
        };
    }
    if spec.uv { uv(code, setting).map(Some) } else { Ok(None) }
}

/// The interpreter of the environment in which `uv run` would run the script: the project's, or the script's own (PEP 723). uv
/// makes or updates it first, and says so on stderr.
fn uv(code: &Code, setting: &Setting) -> Result<PathBuf, ClientError> {
    let Some(uv) = find("uv", &setting.path(), &setting.folder).path() else {
        return Err(ClientError::Usage(
            ErrorCode::UvFailed,
            "--uv: uv is not on the PATH\n  install it: python3 -m pip install uv; or name an environment: --venv DIR"
                .to_owned(),
        ));
    };
    let script = code.script.to_string_lossy();
    let said = if code.start == Start::Python && has_metadata(&code.script) {
        ask(&uv, &["sync", "--script", &script], setting)?;
        ask(&uv, &["python", "find", "--script", &script], setting)?
    } else {
        ask(&uv, &["run", "python", "-c", WHERE], setting)?
    };
    let python = said.lines().last().map(|line| PathBuf::from(line.trim())).unwrap_or_default();
    if python.is_absolute() {
        return Ok(python);
    }
    Err(ClientError::Usage(ErrorCode::UvFailed, format!("--uv: uv names no interpreter, but says {said:?}")))
}

fn ask(uv: &Path, words: &[&str], setting: &Setting) -> Result<String, ClientError> {
    let mut command = Command::new(uv);
    command.args(words).current_dir(&setting.folder).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().map_err(|source| ClientError::Io { doing: "run", path: uv.to_owned(), source })?;
    if !output.status.success() {
        let folder = setting.folder.display();
        return Err(ClientError::Usage(
            ErrorCode::UvFailed,
            format!("--uv: uv {} in {folder} ends with {}", words.join(" "), output.status),
        ));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn has_metadata(script: &Path) -> bool {
    std::fs::read_to_string(script).is_ok_and(|text| text.lines().any(|line| line.trim_end() == SCRIPT_METADATA))
}
