//! The code that `run` runs: a script, a folder with a script, a program, or a command on the PATH. Finds it, and refuses anything else.

use crate::python::shebang;
use crate::runtime::PLAIN;
use crate::spec::Spec;
use api::near::did_you_mean;
use client::ClientError;
use client::codes::ErrorCode;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Entry points of a folder that is named instead of a script.
const ENTRY_POINTS: [&str; 3] = ["__main__.py", "main.py", "train.py"];
/// The first bytes of programs that the machine runs directly: ELF, Mach-O.
const BINARIES: [[u8; 4]; 3] = [*b"\x7fELF", [0xcf, 0xfa, 0xed, 0xfe], [0xca, 0xfe, 0xba, 0xbe]];
/// Longest stem of a generated name: the API server adds five characters, and pods' host names must fit in 63.
const STEM_MAX: usize = 30;

/// The code to run.
#[derive(Clone, Debug)]
pub struct Code {
    /// Absolute path of the script; the name of a command.
    pub(crate) script: PathBuf,
    /// The file after which the job is named: the script, or the folder that was named instead.
    pub(crate) named: PathBuf,
    /// Absolute path of the folder that it runs in and that is sent to a cluster; `None` without `--workdir`.
    pub(crate) folder: Option<PathBuf>,
    pub(crate) start: Start,
    /// The module's name (`python -m NAME`); `None`: Python runs it by its path.
    pub(crate) module: Option<String>,
}

/// How the code is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// Python: started as the runtime's framework does it.
    Python,
    /// A program of its own, or a script that these words start.
    Program(Vec<String>),
    /// A command: its name is looked up on the PATH.
    Command,
}

impl Code {
    /// From `SCRIPT` and `--workdir`; for a folder, its entry point is the script.
    ///
    /// Errors: `Usage` if the script does not exist, if the folder has no entry point or several, or if the file cannot be started.
    pub fn find(spec: &Spec) -> Result<Self, ClientError> {
        let absolute = |path: &Path| {
            std::path::absolute(path).map_err(|source| ClientError::Io { doing: "read", path: path.to_owned(), source })
        };
        let folder = spec.workdir.as_deref().map(absolute).transpose()?;
        if let Some(folder) = folder.as_ref().filter(|folder| !folder.is_dir()) {
            return Err(ClientError::Usage(
                ErrorCode::WorkdirWrong,
                format!("--workdir {} is not a folder", folder.display()),
            ));
        }
        if spec.module {
            return Self::module(spec, folder);
        }
        let named = spec.script.as_path();
        let mut script = absolute(named)?;
        // in `--workdir src train.py` the script may be relative to that folder
        if let Some(inside) = folder.as_ref().map(|folder| folder.join(named)).filter(|path| path.exists())
            && !script.exists()
        {
            script = inside;
        }
        let called = script.clone();
        if script.is_dir() {
            let entries: Vec<&str> = ENTRY_POINTS.into_iter().filter(|name| script.join(name).is_file()).collect();
            let [entry] = entries[..] else {
                let there = if entries.is_empty() { "none of them".to_owned() } else { entries.join(" and ") };
                return Err(ClientError::Usage(
                    ErrorCode::ScriptMissing,
                    format!(
                        "{} is not a file; as a folder it should have one of {}, and it has {there}: name the script to run",
                        named.display(),
                        ENTRY_POINTS.join(", ")
                    ),
                ));
            };
            let folder = folder.unwrap_or_else(|| script.clone());
            let (script, folder) = (script.join(entry), Some(folder));
            return Ok(Self { named: called, script, folder, start: Start::Python, module: None });
        }
        match std::fs::metadata(&script) {
            Ok(metadata) if metadata.is_file() => {
                let start = Start::of(&script)?;
                Ok(Self { named: called, script, folder, start, module: None })
            }
            Ok(_) => Err(ClientError::Usage(
                ErrorCode::ScriptMissing,
                format!("{} is not a file; name the script to run", named.display()),
            )),
            Err(source) if source.kind() == std::io::ErrorKind::NotFound => {
                if spec.runtime.as_deref() == Some(PLAIN) && !named.to_string_lossy().contains('/') {
                    return Ok(Self {
                        script: named.to_owned(),
                        named: named.to_owned(),
                        folder,
                        start: Start::Command,
                        module: None,
                    });
                }
                Err(missing(named, &script))
            }
            Err(source) => Err(ClientError::Io { doing: "read", path: named.to_owned(), source }),
        }
    }

    /// `-m package.module`: its file below the folder in which it runs.
    /// Errors: `Usage` if the word is not a module's name, or the file does not exist.
    /// Errors: `Usage` if the word is not a module's name, or the file does not exist.
    fn module(spec: &Spec, folder: Option<PathBuf>) -> Result<Self, ClientError> {
        let name = spec.script.to_string_lossy().into_owned();
        let refused = |why: String| ClientError::Usage(ErrorCode::ScriptMissing, format!("-m {name}: {why}"));
        if name.contains('/') || name.ends_with(".py") {
            let meant = name.trim_end_matches(".py").replace('/', ".");
            return Err(refused(format!("a module is named by dots, without .py; did you mean -m {meant}?")));
        }
        let root = match &folder {
            Some(folder) => folder.clone(),
            None => {
                std::env::current_dir().map_err(|source| ClientError::Io { doing: "read", path: ".".into(), source })?
            }
        };
        let below = root.join(name.replace('.', "/"));
        let script = [below.with_extension("py"), below.join("__main__.py")].into_iter().find(|file| file.is_file());
        let Some(script) = script else {
            let parent = below.parent().unwrap_or(&root);
            let there = std::fs::read_dir(parent).into_iter().flatten().flatten().map(|entry| entry.path());
            let stems: Vec<String> = there.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect();
            let last = name.rsplit('.').next().unwrap_or(&name);
            let near = did_you_mean(last, stems.iter().map(String::as_str));
            return Err(refused(format!("there is no such module below {}{near}", root.display())));
        };
        let named = PathBuf::from(name.rsplit('.').next().unwrap_or(&name));
        Ok(Self { named, script, folder, start: Start::Python, module: Some(name) })
    }

    /// The script's path relative to this folder.
    pub(crate) fn inside(&self, folder: &Path) -> Result<PathBuf, ClientError> {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let inside = self.script.strip_prefix(folder).map(Path::to_owned);
        inside.or_else(|_| real(&self.script).strip_prefix(real(folder)).map(Path::to_owned)).map_err(|_| {
            ClientError::Usage(
                ErrorCode::WorkdirWrong,
                format!(
                    "{} is not in --workdir {}, and `run` sends nothing else to the pods of a cluster",
                    self.script.display(),
                    folder.display()
                ),
            )
        })
    }

    /// Where its processes start on this machine: the folder, or the caller's current one.
    pub(crate) fn directory(&self) -> PathBuf {
        self.folder.clone().unwrap_or_else(|| std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/")))
    }

    /// The script as users write it.
    pub(crate) fn title(&self) -> String {
        self.script.file_name().unwrap_or(self.script.as_os_str()).to_string_lossy().into_owned()
    }
}

impl Start {
    /// Decides by the file's name and its first bytes. A file is Python unless its name or its first line says otherwise.
    ///
    /// Errors: a program that is not executable.
    fn of(script: &Path) -> Result<Self, ClientError> {
        let extension = script.extension().unwrap_or_default().to_string_lossy().to_lowercase();
        if matches!(extension.as_str(), "py" | "pyw" | "pyz") {
            return Ok(Self::Python);
        }
        if let Some(words) = shebang(script) {
            let is_python = words.iter().any(|word| word.rsplit('/').next().is_some_and(|w| w.starts_with("python")));
            return Ok(if is_python { Self::Python } else { Self::Program(words) });
        }
        let mut head = Vec::new();
        if let Ok(file) = std::fs::File::open(script) {
            // a later error about an unreadable file names the user who may not read it
            let _ = file.take(4).read_to_end(&mut head);
        }
        if BINARIES.iter().any(|magic| head.starts_with(magic)) {
            let runs = nix::unistd::access(script, nix::unistd::AccessFlags::X_OK);
            return runs.map(|()| Self::Program(Vec::new())).map_err(|error| {
                ClientError::Usage(
                    ErrorCode::ProgramNotExecutable,
                    format!(
                        "{path} is a program that cannot be run: {why}\n  allow it: chmod +x {path}",
                        path = script.display(),
                        why = error.desc()
                    ),
                )
            });
        }
        Ok(match extension.as_str() {
            "sh" => Self::Program(vec!["sh".to_owned()]),
            "bash" | "zsh" | "ksh" => Self::Program(vec![extension]),
            _ => Self::Python,
        })
    }
}

/// The error about a missing file: which one was probably meant, or how to run a command.
fn missing(named: &Path, script: &Path) -> ClientError {
    let beside: Vec<String> = script
        .parent()
        .and_then(|folder| std::fs::read_dir(folder).ok())
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    let mut beside: Vec<&str> = beside.iter().map(String::as_str).collect();
    beside.sort_unstable();
    let meant = did_you_mean(&named.file_name().unwrap_or_default().to_string_lossy(), beside);
    let path = std::env::var("PATH").unwrap_or_default();
    let name = named.to_string_lossy();
    let command = !name.contains('/') && crate::python::find(&name, &path, Path::new("/")).path().is_some();
    let advice =
        if command { format!("\n  for the command {name}: --runtime {PLAIN} -- {name}") } else { String::new() };
    ClientError::Usage(ErrorCode::ScriptMissing, format!("cannot read {name}: there is no such file{meant}{advice}"))
}

/// A name from the script's file name: lower case, digits and dashes, beginning with a letter.
pub(crate) fn stem(script: &Path) -> String {
    let stem = script.file_stem().map(|s| s.to_string_lossy().to_lowercase()).unwrap_or_default();
    let mut name: String = stem.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    name = name.trim_matches('-').to_owned();
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        name.insert_str(0, "job-");
    }
    name.truncate(STEM_MAX);
    name.trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn find(words: &[&str]) -> Result<Code, ClientError> {
        Code::find(&Spec::of_words(words))
    }

    #[test]
    fn a_folder_stands_for_its_entry_point() {
        let root = std::env::temp_dir().join(format!("trainyard-code-{}", std::process::id()));
        std::fs::create_dir_all(root.join("src")).unwrap();
        std::fs::write(root.join("src/main.py"), "").unwrap();
        let src = root.join("src").to_string_lossy().into_owned();
        let of_folder = find(&[&src]).unwrap();
        assert_eq!((of_folder.script, of_folder.folder), (root.join("src/main.py"), Some(root.join("src"))));
        assert_eq!(of_folder.named, root.join("src"));
        let inside = find(&["--workdir", &src, "main.py"]).unwrap();
        assert_eq!(inside.script, root.join("src/main.py"));
        std::fs::write(root.join("src/train.py"), "").unwrap();
        let typo = root.join("src/trian.py").to_string_lossy().into_owned();
        for (words, told) in [
            (&[src.as_str()][..], "has main.py and train.py"),
            (&[root.to_str().unwrap()], "has none of them"),
            (&["--workdir", "/nowhere", "main.py"], "is not a folder"),
            (&[&typo], "there is no such file; did you mean \"train.py\"?"),
            (&["--runtime", "plain", "./sh"], "cannot read ./sh: there is no such file"),
            (&["sh"], "for the command sh: --runtime plain -- sh"),
        ] {
            let error = find(words).unwrap_err();
            assert!(error.to_string().contains(told), "{words:?}: {error}");
            assert!(matches!(error, ClientError::Usage(..)), "{error:?}");
        }
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn files_say_how_they_are_started() {
        let root = std::env::temp_dir().join(format!("trainyard-start-{}", std::process::id()));
        std::fs::create_dir_all(&root).unwrap();
        let program = |words: &[&str]| Start::Program(words.iter().map(|word| (*word).to_owned()).collect());
        let cases = [
            ("a.py", "", 0o644, Start::Python),
            ("b", "print('no name says what it is')", 0o644, Start::Python),
            ("c", "#!/usr/bin/env python3\n", 0o644, Start::Python),
            ("d.sh", "echo", 0o644, program(&["sh"])),
            ("e", "#!/bin/bash -e\n", 0o755, program(&["/bin/bash", "-e"])),
            ("f", "\x7fELF...", 0o755, program(&[])),
        ];
        for (name, text, mode, start) in cases {
            let path = root.join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(Start::of(&path).unwrap(), start, "{name}");
        }
        std::fs::set_permissions(root.join("f"), std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(Start::of(&root.join("f")).unwrap_err().to_string().contains("chmod +x"));
        assert_eq!(find(&["--runtime", "plain", "--", "sh", "-c", "exit"]).unwrap().start, Start::Command);
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn names_come_from_the_script() {
        let cases = [("train.py", "train"), ("/a/My_Model v2.py", "my-model-v2"), ("0.py", "job-0"), ("é.py", "job")];
        for (script, name) in cases {
            assert_eq!(stem(Path::new(script)), name, "{script}");
        }
        assert!(stem(Path::new(&format!("{}.py", "x".repeat(80)))).len() <= STEM_MAX);
    }
}
