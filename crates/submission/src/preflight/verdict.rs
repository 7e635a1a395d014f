//! Judges the results of the checks on this machine: files, programs, and the interpreter's answer.

use super::quoted;
use crate::code::{Code, Start};
use crate::launcher::Launcher;
use crate::python::{Answer, Environment, Found, find, interpreter_of, shebang};
use crate::setting::Setting;
use crate::spec::Spec;
use client::ClientError;
use client::codes::ErrorCode;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Packages that need PyTorch: a script that imports one of them needs it, too.
const TORCH_FAMILY: [&str; 15] = [
    "accelerate",
    "deepspeed",
    "diffusers",
    "lightning",
    "peft",
    "pytorch_lightning",
    "sentence_transformers",
    "timm",
    "torch",
    "torchao",
    "torchaudio",
    "torchtune",
    "torchvision",
    "transformers",
    "trl",
];

fn refuse(code: ErrorCode, line: String, advice: &str) -> ClientError {
    ClientError::Usage(code, if advice.is_empty() { line } else { format!("{line}\n  {advice}") })
}

/// The interpreter that a launcher would use, by the job's PATH.
///
/// Errors: there is none, or none that is executable.
pub(super) fn interpreter(launcher: Launcher, setting: &Setting) -> Result<PathBuf, ClientError> {
    let path = setting.path();
    let look = |program: &str| find(program, &path, &setting.folder);
    if let Some(python) = &setting.python {
        return Ok(python.clone());
    }
    let mut names = ["python3", "python"];
    if launcher == Launcher::Torchrun {
        match look("torchrun").path() {
            Some(torchrun) => {
                if let Some(interpreter) = interpreter_of(&torchrun) {
                    if interpreter.exists() {
                        return Ok(interpreter);
                    }
                    return Err(refuse(
                        ErrorCode::PythonMissing,
                        format!("{} is started by {}, which does not exist", torchrun.display(), interpreter.display()),
                        "its virtual environment was probably moved; make it again, or name another: --venv DIR",
                    ));
                }
            }
            // what stands in for it prefers the short name
            None => names.reverse(),
        }
    }
    let found = names.map(look);
    if let Some(path) = found.iter().cloned().find_map(Found::path) {
        return Ok(path);
    }
    let another = "name one: --python FILE, or --venv DIR";
    Err(match found.into_iter().find(|found| *found != Found::Nowhere) {
        Some(Found::Unusable(path, why)) => {
            refuse(ErrorCode::PythonMissing, format!("{} cannot be run: {why}", path.display()), another)
        }
        _ => refuse(
            ErrorCode::PythonMissing,
            format!("there is no python3 on the PATH that the job gets ({path})"),
            another,
        ),
    })
}

/// Whether the interpreter ran and accepted the script as Python.
pub(super) fn runs(script: &Path, answer: Result<Answer, String>) -> Result<Answer, ClientError> {
    let answer = answer.map_err(|why| {
        refuse(
            ErrorCode::PythonMissing,
            format!("the Python that the job would use does not run: {why}"),
            "name another: --python FILE, or --venv DIR; to try it anyway: --no-checks",
        )
    })?;
    if let Some(fault) = answer.script.as_ref().and_then(|script| script.fault.as_ref()) {
        let line = fault.line.map(|line| format!(", line {line}")).unwrap_or_default();
        let text = if fault.text.is_empty() { String::new() } else { format!("\n    {}", fault.text) };
        let version = answer.environment.as_ref().map_or("", |environment| environment.version.as_str());
        return Err(ClientError::Usage(
            ErrorCode::ScriptSyntax,
            format!("{}{line}: SyntaxError: {} (Python {version}){text}", script.display(), fault.message),
        ));
    }
    Ok(answer)
}

/// An interpreter that runs, and its answer.
pub(super) struct Python {
    pub interpreter: PathBuf,
    pub answer: Answer,
}

impl Python {
    /// The interpreter's path, if it lacks PyTorch and the script does not need it.
    pub(super) fn lacks_torch_and_needs_none(&self) -> Option<&Path> {
        let environment = self.answer.environment.as_ref()?;
        let script = self.answer.script.as_ref()?;
        let needs = script.imports.iter().any(|module| TORCH_FAMILY.contains(&module.as_str()));
        (environment.modules.get("torch") == Some(&false) && !needs).then_some(environment.executable.as_path())
    }

    /// Whether it has what the runtime's framework needs.
    ///
    /// Errors: the interpreter lacks it; the message says how to install it there.
    pub(super) fn imports(
        &self,
        launcher: Launcher,
        framework: &str,
        spec: &Spec,
        code: &Code,
        setting: &Setting,
    ) -> Result<(), ClientError> {
        let Some(environment) = &self.answer.environment else { return Ok(()) };
        let module = match framework {
            "torchtune" => "torch",
            "mpi" => "mpi4py",
            other => other,
        };
        if environment.modules.get(module) != Some(&false) {
            return Ok(());
        }
        let imported =
            self.answer.script.as_ref().is_some_and(|script| script.imports.iter().any(|name| name == module));
        // torchrun is a part of torch; with other launchers, a script that does not import it does not need it
        if launcher != Launcher::Torchrun && !imported {
            return Ok(());
        }
        let why = if imported { format!("{} imports {module}", code.title()) } else { format!("it needs {module}") };
        let flag = spec.runtime.as_ref().map(|name| format!("--runtime {name}: ")).unwrap_or_default();
        let line = format!(
            "{flag}{why}, which is not installed for {} (Python {})",
            environment.executable.display(),
            environment.version
        );
        Err(refuse(ErrorCode::PackageMissing, line, &install(environment, module, setting)))
    }
}

/// How to install a package into an environment.
fn install(environment: &Environment, module: &str, setting: &Setting) -> String {
    let python = quoted(&environment.executable);
    // on Linux mlx alone has no backend
    let package = if module == "mlx" && cfg!(target_os = "linux") { "'mlx[cpu]'" } else { module };
    let is_uv =
        |file: &Path| std::fs::read_to_string(file).is_ok_and(|text| text.lines().any(|l| l.starts_with("uv = ")));
    if setting.folder.ancestors().any(|folder| folder.join("uv.lock").exists()) {
        return format!("install it: uv add {package}, then: trainyard run --uv …");
    }
    match &environment.venv {
        Some(venv) if is_uv(&venv.join("pyvenv.cfg")) => {
            format!("install it: uv pip install --python {python} {package}")
        }
        None if environment.managed && !environment.conda => format!(
            "the system keeps this Python's packages to itself (PEP 668), so make an environment: {python} -m venv .venv && \
             .venv/bin/pip install {package}, then: trainyard run --venv .venv …"
        ),
        Some(_) | None => {
            format!("install it: {python} -m pip install {package}; another Python: --python FILE, --venv DIR")
        }
    }
}

/// Whether the launcher's programs exist.
pub(super) fn programs(launcher: Launcher, runtime: &str, code: &Code, setting: &Setting) -> Result<(), ClientError> {
    let path = setting.path();
    let look = |program: &str| find(program, &path, &setting.folder);
    let refused = |program: &str, found: Found, need: &str, advice: &str| match found {
        Found::At(_) => Ok(()),
        Found::Unusable(path, why) => {
            Err(refuse(ErrorCode::ProgramMissing, format!("{need}: {} cannot be run: {why}", path.display()), advice))
        }
        Found::Nowhere => Err(refuse(
            ErrorCode::ProgramMissing,
            format!("{need}: {program} is not on the PATH that the job gets"),
            advice,
        )),
    };
    if launcher == Launcher::Mpirun {
        let advice = "install Open MPI, on Debian and Ubuntu: apt-get install openmpi-bin";
        refused("mpirun", look("mpirun"), &format!("--runtime {runtime} starts processes with mpirun"), advice)?;
    }
    match &code.start {
        Start::Python => Ok(()),
        Start::Program(before) => match before.first() {
            Some(program) => refused(program, look(program), &format!("{} is run by {program}", code.title()), ""),
            None => Ok(()),
        },
        Start::Command => {
            let name = code.title();
            refused(&name, look(&name), &format!("cannot run {name}"), "a file is named with its folder: ./NAME")
        }
    }
}

/// Whether the pods may read the script and enter their folder. `user`: the user of the processes, if it is not the caller.
///
/// Errors: the file that the user may not read.
pub(super) fn readable(code: &Code, setting: &Setting, user: Option<u32>) -> Result<(), ClientError> {
    let own = nix::unistd::geteuid().as_raw();
    let user = user.filter(|user| *user != own);
    let refused = |path: &Path, what: &str| {
        let who = user.map_or_else(String::new, |user| format!(", which runs as user {}", name_of(user)));
        let advice = if user.is_some() { "the control plane starts pods as its own user" } else { "" };
        let path = path.display();
        Err(refuse(
            ErrorCode::NotReadable,
            format!("{path}: the job{who} may not {what} it: Permission denied"),
            advice,
        ))
    };
    if let Some(user) = user {
        if user == 0 {
            return Ok(());
        }
        if let Some(blocked) = (code.start != Start::Command).then(|| blocking(&code.script, user, 4)).flatten() {
            return refused(&blocked, "read");
        }
        return match blocking(&setting.folder, user, 1) {
            Some(blocked) => refused(&blocked, "enter"),
            None => Ok(()),
        };
    }
    if code.start != Start::Command && nix::unistd::access(&code.script, nix::unistd::AccessFlags::R_OK).is_err() {
        // a program can be run without the right to read it; a script cannot
        let runs = nix::unistd::access(&code.script, nix::unistd::AccessFlags::X_OK).is_ok();
        if !runs || shebang(&code.script).is_some() || code.start == Start::Python {
            return refused(&code.script, "read");
        }
    }
    if nix::unistd::access(&setting.folder, nix::unistd::AccessFlags::X_OK).is_err() {
        return refused(&setting.folder, "enter");
    }
    Ok(())
}

/// The part of a path that the user may not use. `want`: the permission needed for the last part (4: read, 1: enter). A right of the group
/// counts, because a user's groups are not known here.
fn blocking(path: &Path, user: u32, want: u32) -> Option<PathBuf> {
    let path = path.canonicalize().ok()?;
    let mut parts: Vec<&Path> = path.ancestors().collect();
    parts.reverse();
    let last = parts.len() - 1;
    let blocked = |(at, part): (usize, &&Path)| {
        let metadata = std::fs::metadata(part).ok()?;
        let want = if at == last { want } else { 1 };
        let mode = metadata.mode();
        let has = if metadata.uid() == user { mode >> 6 } else { mode | mode >> 3 };
        (has & want == 0).then(|| part.to_path_buf())
    };
    parts.iter().enumerate().find_map(blocked)
}

fn name_of(user: u32) -> String {
    let known = nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(user)).ok().flatten();
    known.map_or_else(|| user.to_string(), |user| user.name)
}
