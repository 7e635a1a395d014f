//! How a framework's processes are started, and the environment that they start in.

use crate::args::RunArgs;
use crate::choice;
use crate::code::{Code, Start};
use crate::python::Variables;
use client::ClientError;
use std::path::{Path, PathBuf};

/// What of the caller's environment a job on this machine gets, so that it finds the same Python and packages.
pub(crate) const INHERITED: [&str; 6] =
    ["PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "LD_LIBRARY_PATH", "HF_HOME"];

/// What starts the processes of a framework.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Launcher {
    Torchrun,
    Mpirun,
    /// Nothing: one process a node.
    Direct,
}

impl Launcher {
    /// Of a runtime's framework.
    pub(crate) fn of(framework: &str) -> Self {
        match framework {
            "torch" | "torchtune" => Self::Torchrun,
            "deepspeed" | "mlx" | "mpi" => Self::Mpirun,
            _ => Self::Direct,
        }
    }

    /// The command line of one node. `python`: the interpreter, where it is not the one that is found on the PATH; `names`: the
    /// job's variables.
    pub(crate) fn words<'a>(
        self,
        start: &Start,
        script: &str,
        python: Option<&Path>,
        names: impl Iterator<Item = &'a str>,
    ) -> Vec<String> {
        let python = python.map(|path| path.to_string_lossy().into_owned());
        let mut words: Vec<String> = Vec::new();
        let mut add = |more: &[&str]| words.extend(more.iter().map(|word| (*word).to_owned()));
        match (self, &python) {
            (Self::Torchrun, Some(python)) => add(&[python, "-m", "torch.distributed.run"]),
            (Self::Torchrun, None) => add(&["torchrun"]),
            (Self::Mpirun, _) => {
                // it marks each line with its rank, which is then shown
                add(&["mpirun", "--hostfile", "/etc/mpi/hostfile", "--tag-output"]);
                // Only the launcher's container has the job's variables; mpirun takes its own settings along by itself.
                names.filter(|name| !name.starts_with("OMPI_")).for_each(|name| add(&["-x", name]));
            }
            (Self::Direct, _) => {}
        }
        match start {
            Start::Python if self == Self::Torchrun => {}
            Start::Python => add(&[python.as_deref().unwrap_or("python3")]),
            Start::Program(_) | Start::Command if self == Self::Torchrun => add(&["--no-python"]),
            Start::Program(_) | Start::Command => {}
        }
        if let Start::Program(before) = start {
            before.iter().for_each(|word| add(&[word]));
        }
        add(&[script]);
        words
    }
}

/// What the processes of a job on this machine find.
#[derive(Clone, Debug, Default)]
pub(crate) struct Setting {
    /// Of the caller's environment.
    pub inherited: Vec<(String, String)>,
    /// `--env`.
    pub given: Vec<(String, String)>,
    /// The interpreter, where flags name one.
    pub python: Option<PathBuf>,
    /// Where they start.
    pub folder: PathBuf,
}

impl Setting {
    /// The caller's, with what flags say. `given`: the variables of `--env`.
    ///
    /// Errors: flags name an interpreter that is not there.
    pub(crate) fn of(args: &RunArgs, code: &Code, given: Vec<(String, String)>) -> Result<Self, ClientError> {
        let inherited = INHERITED.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)));
        let mut setting = Self { inherited: inherited.collect(), given, python: None, folder: code.directory() };
        if let Some(python) = choice::interpreter(args, code, &setting)? {
            setting.take(python);
        }
        Ok(setting)
    }

    /// Lets this interpreter come first: programs beside it are found before others, and its virtual environment is active.
    fn take(&mut self, python: PathBuf) {
        let beside = python.parent().unwrap_or(Path::new("/")).to_owned();
        let venv = beside.parent().filter(|root| root.join("pyvenv.cfg").exists()).map(Path::to_owned);
        self.inherited.retain(|(name, _)| name != "VIRTUAL_ENV");
        if let Some(venv) = venv {
            self.inherited.push(("VIRTUAL_ENV".to_owned(), venv.to_string_lossy().into_owned()));
        }
        // a PATH of --env is the user's own word
        let beside = beside.to_string_lossy().into_owned();
        match self.inherited.iter_mut().find(|(name, _)| name == "PATH") {
            Some((_, path)) => *path = format!("{beside}:{path}"),
            None => self.inherited.push(("PATH".to_owned(), beside)),
        }
        self.python = Some(python);
    }

    /// All variables by which a job differs from the caller.
    pub(crate) fn variables(&self) -> Variables {
        self.inherited.iter().chain(&self.given).cloned().collect()
    }

    pub(crate) fn path(&self) -> String {
        self.variables().remove("PATH").unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chosen_interpreter_comes_first_with_its_environment() {
        let root = std::env::temp_dir().join(format!("trainyard chosen {}", std::process::id()));
        std::fs::create_dir_all(root.join("bin")).unwrap();
        std::fs::write(root.join("pyvenv.cfg"), "").unwrap();
        let old = [("PATH".to_owned(), "/bin".to_owned()), ("VIRTUAL_ENV".to_owned(), "/old".to_owned())];
        let mut setting = Setting { inherited: old.to_vec(), ..Setting::default() };
        setting.take(root.join("bin/python"));
        assert_eq!(setting.path(), format!("{}/bin:/bin", root.display()));
        assert_eq!(setting.variables()["VIRTUAL_ENV"], root.to_string_lossy());
        let mut setting = Setting { inherited: old.to_vec(), ..Setting::default() };
        setting.take("/opt/python/bin/python3.13".into());
        assert!(!setting.variables().contains_key("VIRTUAL_ENV"), "another environment's");
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn each_framework_starts_scripts_programs_and_commands() {
        let shell = Start::Program(vec!["sh".to_owned()]);
        let venv = Some(Path::new("/my venv/bin/python"));
        let cases = [
            ("torch", Start::Python, None, "torchrun|x"),
            ("torch", Start::Python, venv, "/my venv/bin/python|-m|torch.distributed.run|x"),
            ("torchtune", shell.clone(), None, "torchrun|--no-python|sh|x"),
            ("jax", Start::Python, None, "python3|x"),
            ("plain", Start::Python, venv, "/my venv/bin/python|x"),
            ("plain", shell.clone(), venv, "sh|x"),
            ("plain", Start::Command, None, "x"),
            ("", Start::Python, None, "python3|x"),
            ("mpi", Start::Python, None, "mpirun|--hostfile|/etc/mpi/hostfile|--tag-output|-x|A|python3|x"),
            ("mlx", Start::Command, None, "mpirun|--hostfile|/etc/mpi/hostfile|--tag-output|-x|A|x"),
        ];
        for (framework, start, python, wanted) in cases {
            let words = Launcher::of(framework).words(&start, "x", python, ["A", "OMPI_B"].into_iter());
            assert_eq!(words.join("|"), wanted, "{framework} {start:?}");
        }
    }
}
